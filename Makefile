# `make quickstart` and `make test` each do all they need on a fresh machine; the rest is for people who work on rg_env.
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
VLLM_VENV := .venv-vllm
QUICKSTART := runs/quickstart

.PHONY: install install-vllm quickstart test test-fast test-vllm sweep check chromium format bench nano clean

# torch goes first: any other package that pulls it in brings several GB of CUDA along.
$(VENV)/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "rg_env needs Python 3.11 or newer; try: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cpu,dev]'
	@touch $@

install: $(VENV)/installed

quickstart: install
	@rm -rf $(QUICKSTART)
	$(BIN)/rg-env train configs/quickstart.yaml
	$(BIN)/rg-env dumps stats $(QUICKSTART)/dumps

test: install check chromium
	$(BIN)/python -m pytest

# The report is tested in a real browser. Where none can be had, those tests say so and are skipped.
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq >/dev/null && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } || \
	  echo "no Chromium, and it cannot be installed here: the report is not tested in a browser"

sweep: install
	$(BIN)/python -m pytest -m sweep

# vLLM in an environment of its own: it needs packages that the rest does not.
$(VLLM_VENV)/installed: pyproject.toml scripts/install_vllm.sh
	scripts/install_vllm.sh $(PYTHON) $(VLLM_VENV) $(TORCH)
	@touch $@

install-vllm: $(VLLM_VENV)/installed

test-vllm: install-vllm
	$(VLLM_VENV)/bin/python -m pytest tests/vllm -m vllm

test-fast: install
	$(BIN)/python -m pytest -m 'not slow'

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install
	@for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

nano: install
	$(BIN)/python scripts/train_nano.py

clean:
	rm -rf $(VENV) $(VLLM_VENV) runs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
