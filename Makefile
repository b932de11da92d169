# Every target says what it does. `make demo` and `make test` need nothing before them.
.PHONY: help setup demo test check package smoke site soak matrix bench docs lock clean
SHELL := /bin/bash
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest

help:
	@echo "make demo     see a pipeline survive a crash, under each of the four guarantees"
	@echo "make test     run all tests (about half an hour on two cores)"
	@echo "make check    format, lint, types, import contracts"
	@echo "make package  build the wheel and the source archive into dist/"
	@echo "make smoke    build the wheel and use it in an empty environment: broker, run, verify, demo"
	@echo "make site     build the pages of docs/ with a search into build/site/"
	@echo "make soak     the long tests: crash rounds, all faults, all mutants; ONLY=package: those of one kind"
	@echo "make matrix   what must hold on every Spark, on 3.5, 4.0, 4.1 and 4.2, and with the lowest versions of everything; ONLY=4.0: on one"
	@echo "make bench    the benchmarks, against their peers, in one run"
	@echo "make docs     regenerate the reference pages and pictures from the code"
	@echo "make lock     pin what pyproject.toml and requirements-*.in ask for, with checksums"
	@echo "make setup    only make .venv and bring what is missing"
	@echo "make clean    remove what the project made here (.venv, .atonce, caches)"
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
	@# Three at a time on two cores: tests wait for processes more than they compute.
	@$(PYTEST) -n 3 --dist loadfile --durations 30 -m "not soak" $(ARGS)

check: setup
	@echo "• format"; $(BIN)/ruff format --check --quiet src tests examples bench scripts setup.py
	@echo "• lint"; $(BIN)/ruff check --quiet src tests examples bench scripts setup.py
	@echo "• types"; $(BIN)/mypy
	@echo "• import contracts"; $(BIN)/lint-imports --no-logo

package: setup
	@echo "• building the wheel and the source archive"
	@scripts/package

smoke: package
	@scripts/smoke dist/atonce-*.whl

site:
	@scripts/site

soak:
	@scripts/setup --test
	@echo "• running the long tests"
	@$(PYTEST) -m soak --timeout=3600 $(if $(ONLY),-k "$(ONLY)") $(ARGS)

matrix: setup
	@for spark in $(or $(ONLY),3.5 4.0 4.1 4.2 lowest); do \
	  python=$$(scripts/spark $$spark) || exit 1; \
	  echo "• Spark $$spark"; $$python -m pytest tests/contract/spark/test_reach.py --junitxml=build/matrix-$$spark.xml $(ARGS) || exit 1; \
	  row=$$spark; [ $$spark = lowest ] || row=$$($$python -c 'import pyspark; print(pyspark.__version__)'); \
	  $(BIN)/python scripts/support.py record spark $$row build/matrix-$$spark.xml; \
	done

bench: setup
	@echo "• running the benchmarks: broker, copy, latency, price, postgres, growth"
	@for what in broker copy latency price postgres growth; do $(BIN)/python -m bench $$what || exit 1; done

docs: setup
	@echo "• regenerating docs/reference, docs/pictures and the tables of docs/broker.md"
	@$(BIN)/python scripts/docs.py
	@$(BIN)/python -m atonce.broker.reference docs/broker.md
	@$(BIN)/python scripts/mutant_table.py

lock: setup
	@echo "• pinning requirements with their checksums"
	@scripts/lock $(ARGS)

clean:
	@echo "• removing .venv, .venv-*, .atonce, build, dist and caches"
	@rm -rf .venv .venv-* .atonce .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist src/*.egg-info spark-warehouse metastore_db derby.log
	@find src tests examples bench scripts -name __pycache__ -type d -prune -exec rm -rf {} +
