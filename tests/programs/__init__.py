"""Programs that tests start, by `tests.running.run_program` or `python -m tests.programs.NAME`. All are typed."""
