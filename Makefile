# make demo    from a fresh clone to a results table (sets everything up first)
# make test    the whole test suite (same set-up)
# make help    all targets

SHELL := /bin/bash
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
CORES ?= $(shell nproc)
READY := .venv/.ready
WORKERS = --numprocesses $$(( $(CORES) < 8 ? $(CORES) : 8 )) --dist worksteal

.PHONY: help setup demo report test test-fast test-cluster mutants lint format docs bench-labels bench-train bench-synthesis readme study-page clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY) ## make .venv and install everything, pinned

# A finished installation is marked last, so that an interrupted one is repeated.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "hald needs Python 3.11 or newer; $(PYTHON) is older. Try: make setup PYTHON=/path/to/python3.11"; exit 1; }
	echo "setting up .venv (about 3 minutes, several GB: torch comes with its CUDA libraries)"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

demo: $(READY) ## run the default experiment and print its table
	@$(BIN)/snakemake --cores $(CORES)
	for table in $$($(BIN)/hald tables); do echo; cat "$$table"; done

report: $(READY) ## the demo with its report: results/report.html, one page that works offline
	@$(BIN)/snakemake --cores $(CORES)
	$(BIN)/snakemake --report results/report.html
	echo "open results/report.html in a browser"

test: $(READY) ## the whole test suite
	@$(BIN)/python -m pytest $(WORKERS)

test-fast: $(READY) ## its quick part: nothing that starts Snakemake, kills processes or is slow for another reason
	@$(BIN)/python -m pytest $(WORKERS) -m 'not slow'

test-cluster: $(READY) ## the cluster tests, on a Slurm that is installed and started for them (root, Debian); 45 minutes, LONG=no: 9
	@trap 'tests/cluster/slurm stop' EXIT
	tests/cluster/slurm start
	HALD_CLUSTER=keep SLURM_CONF=/dev/null $(BIN)/python -m pytest -rP --durations=0 tests/cluster $(if $(LONG),-m 'not long')

mutants: $(READY) ## change the source in 300 places, one at a time, and count what the tests notice; hours (SEED=, NUMBER=, TESTS=fast)
	@SLURM_CONF=/dev/null $(BIN)/python tests/mutants --jobs $(CORES) --tests $(or $(TESTS),all) $(if $(SEED),--seed $(SEED)) $(if $(NUMBER),--number $(NUMBER))

lint: $(READY) ## format, lint, types, generated documents
	@$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint
	$(BIN)/hald docs --check

format: $(READY) ## let ruff and snakefmt rewrite the source
	@$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/snakefmt Snakefile workflow

docs: $(READY) ## write the config schema and config/README.md from the source
	@$(BIN)/hald docs

bench-labels: $(READY) ## label store against the released format: bytes, speed, error
	@$(BIN)/python benchmarks/labels.py

bench-train: $(READY) ## training and relabel steps against plain loops as released
	@$(BIN)/python benchmarks/train.py

bench-synthesis: $(READY) ## synthesis step against a plain one on the same batch
	@$(BIN)/python benchmarks/synthesis.py

readme: demo bench-labels bench-synthesis bench-train ## put the demo's and the benchmarks' tables into the documents
	@$(BIN)/python docs/fill.py README.md docs/labels.md docs/synthesis.md docs/evaluation.md docs/cluster.md
	cp results/figures/demo_drift_examples.png docs/drift.png

study-page: $(READY) ## the page and figures of studies/cpu from its records
	@$(BIN)/python -m studies.make studies/cpu

clean: ## remove results and Snakemake's state (label stores elsewhere stay)
	@rm -rf results .snakemake
