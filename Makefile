# The same verbs for people and for CI. Needs Python 3.11 or later, git and make; everything else lands in .venv.

PYTHON ?= python3
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
PIP := $(PY) -m pip --disable-pip-version-check
READY := $(VENV)/.ready
MODEL := $(VENV)/.model
PINNED := $(VENV)/.pinned

# Without this, pyright looks on the network for a newer version of itself.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.PHONY: help demo test check sweep bench docs lint types architecture docs-fresh package pins clean python-version

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

demo: $(READY) ## record an agent tree, damage it, resume it, replay it offline
	@$(PY) examples/demo.py

test: $(READY) $(MODEL) ## run every test, with bounded samples of the long searches
	$(PY) -m pytest -n $(WORKERS) tests

check: lint types architecture docs-fresh package ## lint, types, layers, hygiene, docs freshness, build

sweep: $(READY) $(MODEL) ## run the tests with the long searches in full
	SEEDLINE_SWEEP=1 $(PY) -m pytest -n $(WORKERS) tests

bench: $(READY) $(MODEL) ## measure speed and size against the peers
	$(PY) -m benchmarks

docs: $(READY) ## write the reference pages from the code
	$(PY) -m tools.docs

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/pyright

architecture: $(READY)
	$(PY) -m pytest tests/architecture

docs-fresh: $(READY)
	$(PY) -m tools.docs --check

# Builds into a folder that is gone afterwards, and looks for the typing marker in what was built.
package: $(READY)
	@out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && \
	$(PY) -m build --no-isolation --outdir "$$out" . > "$$out/log" 2>&1 || { cat "$$out/log"; exit 1; }; \
	$(PY) -m zipfile -l "$$out"/*.whl > "$$out/listing" && grep -q 'seedline/py.typed' "$$out/listing" || { echo "the wheel lacks seedline/py.typed"; exit 1; }; \
	ls "$$out"/*.whl "$$out"/*.tar.gz | sed 's|.*/|built |'

pins: python-version ## resolve requirements/dev.in into requirements/dev.txt
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && \
	$(PYTHON) -m venv "$$scratch" && \
	"$$scratch/bin/pip" --disable-pip-version-check install -q -r requirements/dev.in && \
	"$$scratch/bin/pip" freeze --exclude-editable > "$$scratch/pins" && \
	{ sed -n '/^#/p' requirements/dev.txt; cat "$$scratch/pins"; } > "$$scratch/dev.txt" && \
	mv "$$scratch/dev.txt" requirements/dev.txt

clean: ## remove .venv, caches and build products
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache .hypothesis
	find src tests tools benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

python-version:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Seedline needs Python 3.11 or later; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11" >&2; \
	  exit 1; }

# The pins changed: a new environment, so that nothing unlisted stays behind.
$(PINNED): requirements/dev.txt | python-version
	@echo "making $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) install -q -r requirements/dev.txt
	@touch $@

# The project file changed: only the link to the sources is made again.
$(READY): $(PINNED) pyproject.toml
	@$(PIP) install -q --no-deps --no-build-isolation -e .
	@touch $@

$(MODEL): requirements/model.txt $(PINNED)
	@$(PIP) install -q --no-deps -r requirements/model.txt
	@touch $@
