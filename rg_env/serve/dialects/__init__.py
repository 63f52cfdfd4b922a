"""How other programs ask for scores over HTTP: a file for each kind of request.

A dialect is a function of a `Desk` that returns its routes; `rg_env.serve.http_app` has the list. It raises
`RefusedError` for what cannot be scored, and replies with `JsonReply`.
"""
