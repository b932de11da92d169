# Every target says what it does. `make demo` and `make test` need nothing before them.
.PHONY: help setup demo test check soak bench docs clean
SHELL := /bin/bash
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest

help:
	@echo "make demo    see a pipeline survive a crash, under each of the four guarantees"
	@echo "make test    run all tests (about 12 minutes on two cores)"
	@echo "make check   format, lint, types, import contracts"
	@echo "make soak    the long tests: crash rounds, all faults, all mutants"
	@echo "make bench   the benchmarks, against their peers, in one run"
	@echo "make docs    regenerate the reference pages and pictures from the code"
	@echo "make setup   only make .venv and bring what is missing"
	@echo "make clean   remove what the project made here (.venv, .atonce, caches)"
	@echo
	@echo "demo, test and soak take ARGS: make demo ARGS='--html demo.html', make test ARGS='tests/unit -q'; soak takes ONLY: make soak ONLY=fuzz"

setup:
	@scripts/setup

demo: setup
	@echo "• running the demo: one pipeline, four levels, killed and recovered"
	@$(BIN)/atonce demo $(ARGS)

test:
	@scripts/setup --test
	@echo "• running the tests"
	@$(PYTEST) -n 2 --dist loadfile -m "not soak" $(ARGS)

check: setup
	@echo "• format"; $(BIN)/ruff format --check --quiet src tests examples bench scripts
	@echo "• lint"; $(BIN)/ruff check --quiet src tests examples bench scripts
	@echo "• types"; $(BIN)/mypy
	@echo "• import contracts"; $(BIN)/lint-imports --no-logo

soak:
	@scripts/setup --test
	@echo "• running the long tests"
	@$(PYTEST) -m soak --timeout=3600 $(if $(ONLY),-k "$(ONLY)") $(ARGS)

bench: setup
	@echo "• running the benchmarks: broker, copy, latency, price, postgres, growth"
	@for what in broker copy latency price postgres growth; do $(BIN)/python -m bench $$what || exit 1; done

docs: setup
	@echo "• regenerating docs/reference, docs/pictures and the tables of docs/broker.md"
	@$(BIN)/python scripts/docs.py
	@$(BIN)/python -m atonce.broker.reference docs/broker.md

clean:
	@echo "• removing .venv, .venv-*, .atonce and caches"
	@rm -rf .venv .venv-* .atonce .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist src/*.egg-info spark-warehouse metastore_db derby.log
	@find src tests examples bench scripts -name __pycache__ -type d -prune -exec rm -rf {} +
