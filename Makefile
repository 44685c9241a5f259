# The front door. `make help` lists what there is.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check

SOURCES := framework_client host tests examples
STUBS   := framework_client/workseal/v1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-protobuf measure-client check format lint types proto proto-check docs clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

setup: $(STAMP) ## make the virtual environment with everything in it

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'Workseal needs Python 3.11 or newer: make PYTHON=/path/to/python ...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip
	$(PIP) install --editable '.[dev]'
	@touch $@

demo: $(STAMP) ## run a host, a few attested calls, verify a receipt, refuse a tampered one
	@$(BIN)/python examples/demo.py

test: $(STAMP) ## all tests, with branch coverage (PYTEST_ARGS=... for pytest)
	@rm -f .coverage .coverage.*
	@$(BIN)/python -m coverage run -m pytest $(PYTEST_ARGS); result=$$?; \
	  $(BIN)/python -m coverage combine --quiet && $(BIN)/python -m coverage report || result=1; \
	  exit $$result

test-fast: $(STAMP) ## unit tests only, without coverage
	$(BIN)/python -m pytest tests/unit $(PYTEST_ARGS)

test-protobuf: ## the client's tests on the lowest declared and on the newest gRPC and protobuf
	PYTHON=$(PYTHON) tests/protobuf_range.sh

measure-client: ## size and import time of a client with the base dependencies alone
	PYTHON=$(PYTHON) tests/client_footprint.sh

check: lint types proto-check docs ## everything but the tests

format: $(STAMP) ## format the code
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

lint: $(STAMP) ## format check and lint
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)

types: $(STAMP) ## strict type check
	$(BIN)/mypy

# protoc and all of its plugins are those of the environment: their versions are in pyproject.toml.
define generate
	$(BIN)/python -m grpc_tools.protoc -I proto \
	  --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc \
	  --python_out=$(1) --grpc_python_out=$(1) --mypy_out=quiet:$(1) --mypy_grpc_out=quiet:$(1) \
	  proto/workseal/v1/*.proto
endef

proto: $(STAMP) ## generate the stubs from proto/
	$(call generate,framework_client)

proto-check: $(STAMP) ## prove that the checked-in stubs are current
	@rm -rf $(VENV)/stubs && mkdir -p $(VENV)/stubs
	@$(call generate,$(VENV)/stubs)
	@diff -r -x __init__.py -x __pycache__ $(VENV)/stubs/workseal/v1 $(STUBS) && echo 'stubs are current'

docs: $(STAMP) ## build the documentation strictly
	$(BIN)/mkdocs build --quiet --strict --site-dir $(VENV)/site

clean: ## remove what was built
	rm -rf $(VENV) .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
