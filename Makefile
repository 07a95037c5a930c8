# Everything sets itself up from Python 3.11+ and a package index; nothing has to be run first.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: run test test-thorough check bench bench-counting bench-folding bench-stores format lock clean

run: $(VENV)/.run
	$(BIN)/tailfold serve $(ARGS)

test: $(VENV)/.dev
	$(BIN)/pytest $(ARGS)

# Ten thousand random histories where the everyday suite tries a hundred.
test-thorough: $(VENV)/.dev
	$(BIN)/pytest tests/fold tests/test_ladder.py --hypothesis-profile thorough -o faulthandler_timeout=0 $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest

bench: $(VENV)/.dev
	$(BIN)/python -m bench $(ARGS)

bench-counting: $(VENV)/.dev
	$(BIN)/python -m bench.counting $(ARGS)

bench-folding: $(VENV)/.dev
	$(BIN)/python -m bench.folding $(ARGS)

bench-stores: $(VENV)/.dev
	$(BIN)/python -m bench.stores $(ARGS)

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Hashes for every platform, no addresses: installs with pip or uv from whatever index the machine uses.
lock: $(VENV)/.dev
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-emit-find-links --no-header --no-annotate --quiet pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-emit-find-links --no-header --no-annotate --quiet --extra dev -c requirements.lock \
	  pyproject.toml -o requirements-dev.lock

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Tailfold needs Python 3.11 or newer, this is " + sys.version) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: requirements.lock pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --no-deps --editable .
	touch $@

$(VENV)/.dev: requirements-dev.lock pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --no-deps --editable .
	touch $@
