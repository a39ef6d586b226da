# Everything by one word: `make run`, `make test`. PYTHON names another interpreter (3.11 or newer).
PYTHON ?= python3
VENV := .venv
HTA := .hta
BIN := $(VENV)/bin
PORT ?= 8700
TRACE ?=
WORKERS ?= 4
FAST := $(addprefix tests/,attribution formats store streaming trace test_data.py test_settings.py test_traces.py)

.DEFAULT_GOAL := help
unexport PYTHONDONTWRITEBYTECODE # each process would compile the code anew
.PHONY: help run test test-fast test-system test-slow check check-pages format images bench hta clean

help: ## show this
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

run: $(VENV)/.run ## set up what is needed and serve; TRACE=file uploads it and prints the link that opens it
	@$(BIN)/tracedock serve --port $(PORT) $(if $(TRACE),--trace "$(TRACE)")

test: $(VENV)/.dev check ## set up what is needed, check the code, run the tests (ten minutes)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow and not system" $(ARGS)

test-fast: $(VENV)/.dev ## the tests of the parts that need no server (two minutes)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow" $(FAST) $(ARGS)

test-system: $(VENV)/.dev ## the tests with a browser, shared traces, large inputs, full disks, kills, attacks, commands of documents, installations
	@./.ci/programs
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "system and not slow" $(ARGS)

test-slow: $(VENV)/.dev ## the tests that take gigabytes or many minutes
	@./.ci/programs
	$(BIN)/python -m pytest -m slow $(ARGS)

check: $(VENV)/.dev ## ruff, ruff format, mypy --strict, import-linter, and check-pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@./.ci/pages

check-pages: ## types and lint of the pages' scripts, where npm is there
	@./.ci/pages

format: $(VENV)/.dev ## let ruff put the code in order
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

images: $(VENV)/.dev ## take the screenshots of the documents
	@./.ci/programs
	$(BIN)/python -m tests.web.screenshots

bench: $(VENV)/.dev ## times and peak memory beside trace_processor alone; TRACE=file, or one of MB=500 is made
	$(BIN)/python -m tests.bench $(if $(TRACE),"$(TRACE)",--megabytes $(or $(MB),500)) --ranks-megabytes $(or $(RANKS_MB),60)

hta: $(HTA)/.made ## install HolisticTraceAnalysis 0.5.0 into an environment of its own; a slow test compares us with it

clean: ## remove the environments and what tools left
	rm -rf $(VENV) $(HTA) node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/.python:
	@echo "Making the environment $(VENV) with $$($(PYTHON) --version)."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tracedock needs Python 3.11 or newer; PYTHON=… names one.")'
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.python pyproject.toml client/pyproject.toml constraints.txt
	@echo "Installing the pinned packages: about half a minute."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e client -e .
	@echo "Fetching trace_processor v54.0 and the Perfetto UI v52.0, 20 MB, by hash: a few seconds."
	@$(BIN)/python -m service.engine
	@echo "Compiling what reads, renders and analyses traces: about twenty seconds."
	@$(BIN)/python -m service.jobs
	@$(BIN)/python -m service.rendering
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "Installing the tools of the tests: a few seconds."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e client -e '.[dev]'
	@$(BIN)/python -m tests.web.npm_scripts
	@touch $@

$(HTA)/.made: tests/data/hta.txt
	@echo "Installing HolisticTraceAnalysis 0.5.0 into $(HTA): half a minute."
	@$(PYTHON) -m venv $(HTA)
	@$(HTA)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@
