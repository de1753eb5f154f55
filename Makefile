# make fit: train on the embedded data. make test: run the tests. make docs: build site/. All set up .venv first.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install fit test lint docs coverage clean

install: .venv/ready

fit: .venv/ready
	$(BIN)/python scripts/fit.py dataset=electricity

test: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

lint: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Lines that tests run, those of scripts and of their processes too; slower than make test.
coverage: .venv/ready
	$(BIN)/python -m coverage erase
	OMP_NUM_THREADS=1 $(BIN)/python -m coverage run -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --fail-under 95

docs: .venv/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# requirements.lock holds the exact versions that are tested.
.venv/ready: pyproject.toml requirements.lock
	@echo "Setting up .venv takes some minutes."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[dev]'
	touch $@

clean:
	rm -rf .venv site .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis
