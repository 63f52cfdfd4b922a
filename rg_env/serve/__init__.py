"""The scorers and the questions over HTTP: `rg-env serve` (`http_app.py`), in the languages that clients speak."""
