"""The processes that run Reasoning Gym's scorers: pool, fork server, worker, and the protocol between them."""
