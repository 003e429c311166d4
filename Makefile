# The whole development loop. On a fresh machine, `make demo` and `make test` do all the set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check format bench chart lock clean

demo: $(READY)
	$(BIN)/tokenmill demo

test: $(READY)
	$(BIN)/pytest

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python benchmarks/bench.py $(BENCH)

chart: $(READY)
	$(BIN)/python benchmarks/chart.py

# Versions and hashes of everything, for every supported Python, without naming an index.
lock: $(READY)
	$(BIN)/pip install -q uv
	$(BIN)/uv pip compile --universal --python-version 3.10 --generate-hashes --no-header \
	  --no-emit-index-url --no-emit-find-links --no-annotate --extra hf \
	  pyproject.toml requirements/dev.in -o requirements/dev.txt

$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "tokenmill needs Python 3.10 or later: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) || \
	  { echo "python3 -m venv failed; on Debian: apt install python3-venv"; exit 1; }
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@# Not in the lock: which build of torch is right (CPU, CUDA) depends on the machine.
	$(BIN)/pip install -q --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

clean:
	rm -rf $(VENV) demo-out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
