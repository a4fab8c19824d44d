# Two commands for newcomers: `make demo` does the main job, `make test` checks everything. Both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FAULTS ?= --json benchmarks/results/faults.json

.PHONY: demo test faults bench docs format clean

# Installed anew only when the dependencies change.
$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(VENV)/.installed $@

# The demo needs none of the development tools.
$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[all]'
	touch $@

demo: $(VENV)/.installed  ## compare three losses on the embedded digits: a table, and a report to open
	$(BIN)/sincere compare

test: $(VENV)/.ready  ## lint, types, layers, tests but for the slow ones, which .ci/run adds
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest --numprocesses auto --dist worksteal -m "not slow"

faults: $(VENV)/.ready  ## kill, starve and feed nonsense to every command; about twenty minutes
	$(BIN)/python -m tests.faults $(FAULTS)

bench: $(VENV)/.ready  ## measure, write benchmarks/results/*.json and the tables in docs/
	$(BIN)/python -m benchmarks.losses
	$(BIN)/python -m benchmarks.set_loss
	$(BIN)/python -m benchmarks.label_sets
	$(BIN)/python -m benchmarks.theory
	$(BIN)/python -m benchmarks.data
	$(BIN)/python -m benchmarks.training
	$(BIN)/python -m benchmarks.adapter
	$(BIN)/python -m benchmarks.evaluation
	$(BIN)/python -m benchmarks.significance
	$(BIN)/python -m benchmarks.scaling
	$(BIN)/python -m benchmarks.kill_and_resume
	$(BIN)/python -m benchmarks.tables

docs: $(VENV)/.ready  ## rewrite what is generated (Python keywords, tables, reference pages, figures), build site/
	$(BIN)/python -m sincere.settings.signatures
	$(BIN)/python -m benchmarks.tables
	$(BIN)/python -m sincere.workflows.theory docs/figures
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: $(VENV)/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
