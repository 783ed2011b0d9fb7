# Two commands do all the set-up: `make demo` and `make test`. `make check` is the fast loop, `make test-all` the slow one.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

# Outside the checkout, so that a second clone need not compile everything again.
export CARGO_TARGET_DIR ?= $(HOME)/.cache/iosonde/target
$(shell CARGO_TARGET_DIR="$(CARGO_TARGET_DIR)" scripts/own-build)
# Images of containers often disable bytecode. Tests start many Python processes, and each would compile every module.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX ?= $(HOME)/.cache/iosonde/bytecode
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
export PATH := $(BIN):$(PATH)
DEMO := $(CURDIR)/iosonde-results

.PHONY: demo lab test test-all check check-rust check-python recordings format setup setup-dev bench fresh wheel protocol docs man clean help

help: ## Show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

demo: setup ## Measure this disk with the study `quick` (two minutes) and write a report
	@mkdir -p $(DEMO)
	iosonde run quick --target $(DEMO)

test: setup-dev ## Pass every test that decides whether the product works
	scripts/test

test-all: setup-dev ## The same, and what takes hours: an emulated machine, many seeds, programs of others
	scripts/test all

lab: setup ## Measure arrays of throttled drives in a virtual machine (as root, an hour or more)
	bash python/iosonde/data/lab/run $(DEMO)/lab

check: setup-dev ## Format, lint, types, unit tests: the fast loop
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target check-rust check-python

check-rust:
	scripts/rust-tests --quiet --lib --bins

check-python: export PYTHONPATH := python
check-python:
	ruff format --check python tests bench
	ruff check python tests bench
	mypy
	lint-imports --no-cache
	scripts/size --check
	pytest -q -m unit --numprocesses "$$(nproc)" --dist loadfile

recordings: setup-dev ## Record result sets for tests again with the real engine, in tests/recorded
	PYTHONPATH=python:tests python tests/recordings.py

fresh: setup-dev ## Install checkout, wheel, packages and container image on fresh Debians, and measure there (as root, an hour or more)
	pytest -q -m fresh --also fresh

wheel: ## Build a wheel with all programs for any Linux with glibc 2.31 or newer, and the source distribution, in dist/
	scripts/release wheel sdist

format: setup-dev ## Format the code
	cargo fmt
	ruff format python tests bench
	ruff check --fix python tests bench

protocol: setup-dev ## Write the engine's schema of specs and events for Python
	scripts/build-clients $(BIN)
	python scripts/generate-protocol

bench: setup-dev ## Take the tables of docs/performance.md again (an hour, as root, with fio 3.42 and go-tpc on PATH)
	cargo build --release --locked --package iosonde-oltp --example null_sql_server
	@mkdir -p build && cp $(CARGO_TARGET_DIR)/release/examples/null_sql_server build
	cargo build --release --locked --package iosonde-engine --target-dir build/lto \
	    --config 'profile.release.lto="fat"' --config profile.release.codegen-units=1 \
	    --config profile.release.package.iosonde-engine.opt-level=3 \
	    --config profile.release.package.iosonde-protocol.opt-level=3
	python bench/tables.py

docs: setup-dev ## Build the documentation site in build/site
	python -m iosonde man --format md > docs/cli.md
	python tests/docs/test_python_reference.py
	NO_MKDOCS_2_WARNING=1 mkdocs build --quiet
	@echo build/site/index.html

man: setup ## Write the manual page to build/iosonde.1
	@mkdir -p build
	iosonde man > build/iosonde.1

setup: $(VENV)/.installed
setup-dev: $(VENV)/.installed-dev

SOURCES := scripts/setup scripts/setup.py packaging/constraints.txt pyproject.toml Cargo.toml Cargo.lock \
    $(shell find crates -name '*.rs' -o -name Cargo.toml)

$(VENV)/.installed: $(SOURCES)
	scripts/setup $(VENV)
	@touch $@

$(VENV)/.installed-dev: $(SOURCES) python/iosonde/base/tools.py
	scripts/setup $(VENV) dev
	@touch $(VENV)/.installed $@

clean: ## Remove the environment (not the results)
	rm -rf $(VENV)
