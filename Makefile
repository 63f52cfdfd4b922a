# `make quickstart` and `make test` each do everything they need on a fresh machine. CONTRIBUTING.md describes the targets.
# Some containers set this. uv installs no bytecode, so without any each process would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
# scripts/install.sh says what these two are for.
export PYTHON TORCH_INDEX
VENV := .venv
BIN := $(VENV)/bin
# The model that `make quickstart` trains: nano, smollm2, or a local Hugging Face folder.
MODEL ?= nano
VLLM_VENV := .venv-vllm
VERIFIERS_VENV := .venv-verifiers
CLIENTS_VENV := .venv-clients
# Processes that share the tests of `make test`, for two cores: many tests wait for processes that they have started.
JOBS ?= 3
# Of `make test-long` and `make test-weekly`, whose trainings use all cores.
LONG_JOBS ?= 2

.PHONY: install install-vllm quickstart test pytest test-fast test-long test-weekly check check-types check-rest docs chromium format bench gpu-check clean

$(VENV)/installed: pyproject.toml requirements/dev.txt scripts/install.sh
	scripts/install.sh $(VENV) dev
	@touch $@

install: $(VENV)/installed

ifeq ($(MODEL),nano)
quickstart: CONFIG := quickstart
else
quickstart: CONFIG := cpu_instruct
endif
quickstart: install
	scripts/quickstart.sh $(CONFIG) '$(MODEL)'

# The types are checked beside the tests: mypy uses one core for a minute.
test: install check-rest chromium
	@$(MAKE) --no-print-directory --jobs=2 check-types pytest

pytest: install
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# The report is tested in a real browser. If none can be installed, those tests are skipped with a message.
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing Chromium with apt-get, for the tests of the report" && \
	    apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } || \
	  echo "Chromium is not installed and cannot be installed: the report is not tested in a browser"

# Everything that does not train a model.
test-fast: install
	$(BIN)/python -m pytest -m 'not slow and not long and not weekly and not sweep and not vllm and not verifiers and not clients'

# vLLM, verifiers and the clients of `rg-env serve` get environments of their own, because they need other packages.
$(VLLM_VENV)/installed: pyproject.toml requirements/vllm.txt scripts/install.sh
	scripts/install.sh $(VLLM_VENV) vllm
	@touch $@

$(VERIFIERS_VENV)/installed: pyproject.toml requirements/verifiers.txt requirements/verifiers-alone.txt scripts/install.sh
	scripts/install.sh $(VERIFIERS_VENV) verifiers
	@touch $@

$(CLIENTS_VENV)/installed: pyproject.toml requirements/clients.txt scripts/install.sh
	scripts/install.sh $(CLIENTS_VENV) clients
	@touch $@

install-vllm: $(VLLM_VENV)/installed

# A file's tests share what its fixtures trained, so they stay in one process. Files begin in the order of tests/conftest.py.
BY_FILE := -n $(LONG_JOBS) --dist loadfile --no-loadscope-reorder

# Training runs, such as the quickstart, with attacks, kills and resumption; what else takes a quarter of a minute; a vLLM
# server on the CPU; and verifiers. Two runs that must be equal to the last bit come after the others: on a busy machine,
# the sampler's batches may differ.
test-long: install $(VLLM_VENV)/installed $(VERIFIERS_VENV)/installed
	$(BIN)/python -m pytest -m 'long and not alone' $(BY_FILE)
	$(BIN)/python -m pytest -m 'long and alone' tests/e2e
	$(VLLM_VENV)/bin/python -m pytest tests/vllm -m 'vllm and not weekly'
	$(VERIFIERS_VENV)/bin/python -m pytest tests/trainers/test_verifiers.py -m verifiers

# What need not be tried at every commit.
test-weekly: install $(VLLM_VENV)/installed $(CLIENTS_VENV)/installed
	$(BIN)/python -m pytest -m weekly $(BY_FILE)
	$(VLLM_VENV)/bin/python -m pytest tests/vllm -m 'vllm and weekly'
	$(CLIENTS_VENV)/bin/python -m pytest tests/serve/test_clients.py -m clients

# The types take longest; the rest is checked beside them.
check: install
	@$(MAKE) --no-print-directory --jobs=2 check-types check-rest

check-types: install
	$(BIN)/mypy

check-rest: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m scripts.docs --check

# Writes the tables in the pages that follow from the code.
docs: install
	$(BIN)/python -m scripts.docs

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Writes evidence/benchmarks.md in about half an hour. In a few, to runs/benchmarks: make bench ARGS=--quick
bench: install
	$(BIN)/python -m benchmarks $(ARGS)

# The first thing to run on a GPU machine. Does not install anything: docs/gpu.md. Example: make gpu-check ARGS='--out /tmp/check'
gpu-check:
	$(BIN)/python scripts/gpu_check.py $(ARGS)

# What `make` can make again; not `runs`.
clean:
	rm -rf $(VENV) .venv-uv $(VLLM_VENV) $(VERIFIERS_VENV) $(CLIENTS_VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
