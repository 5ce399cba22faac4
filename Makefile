# Two commands matter: `make demo` shows Holdfast at work, `make test` checks everything.
# Both set up .venv first, from Python 3.11 or later alone; running them again is quick.

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types unit test-browser bench bench-peers bench-growth docs docs-serve clean

VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin
# A Python to use instead of the first of python3, python3.15, python3.14, python3.13, python3.12, python3.11 that is new enough.
PYTHON ?=
# More arguments for pytest or the benchmarks: make unit ARGS="-k signal"
ARGS ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
# Images of Python often set it; then each program that a test starts compiles Holdfast anew, for a second.
export PYTHONDONTWRITEBYTECODE :=

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## set up .venv (the other commands do it themselves)

demo: $(READY) ## start orders, kill the worker midway, see every order finish
	@$(BIN)/holdfast demo

test: lint types unit ## everything: lint, types and all tests on SQLite and a real PostgreSQL

lint: $(READY) ## ruff: rules and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(READY) ## mypy, strict
	$(BIN)/mypy

# Three processes keep two cores busy, for many tests wait: for a lease, a server, a program. Each takes a third of the
# files, whose tests share what is dear to make, and then what another has not come to.
unit: $(READY) ## the tests alone
	$(BIN)/pytest -n 3 --dist worksteal $(ARGS)

# Playwright speaks to the Chromium of the system, which only root can install. Whoever can and fails has not tested.
test-browser: $(READY) ## the dashboard in a real Chromium (as root it is installed where there is none)
	@if ! command -v $${HOLDFAST_CHROMIUM:-chromium} >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo 'Installing chromium.'; \
	  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends chromium; } >/dev/null \
	    && command -v $${HOLDFAST_CHROMIUM:-chromium} >/dev/null \
	    || { echo 'THE DASHBOARD WAS NOT TESTED: chromium could not be installed; see the errors above.' >&2; exit 1; }; \
	fi
	@if command -v $${HOLDFAST_CHROMIUM:-chromium} >/dev/null; then $(BIN)/pytest -n 2 tests/browser $(ARGS); else \
	  echo '######################################################################' >&2; \
	  echo '# THE DASHBOARD WAS NOT TESTED: there is no chromium, and only root  #' >&2; \
	  echo '# can install it. Install it (as root: apt install chromium), or     #' >&2; \
	  echo '# name one in HOLDFAST_CHROMIUM, and run: make test-browser          #' >&2; \
	  echo '######################################################################' >&2; \
	fi

bench: $(READY) ## all benchmarks, one table
	$(BIN)/python -m benchmarks $(ARGS)

bench-peers: $(READY) ## Holdfast beside its peers, about half an hour (ARGS=--quick to see that it works)
	$(BIN)/python -m benchmarks.peers $(ARGS)

bench-growth: $(READY) ## what grows with the ledger, and what does not, a plot each
	$(BIN)/python -m benchmarks.growth $(ARGS)

docs: $(READY) ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

docs-serve: $(READY) ## serve the documentation on http://127.0.0.1:8000
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

clean: ## delete .venv and caches; ledgers and benchmark results stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist site
	find src tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# `--group` needs pip 25.1, newer than what Python 3.11 brings.
$(READY): pyproject.toml
	@if ! $(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	  for python in $(or $(PYTHON),python3 python3.15 python3.14 python3.13 python3.12 python3.11); do \
	    if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo 'Holdfast needs Python 3.11 or later; none was found as $(or $(PYTHON),python3, python3.15, python3.14, python3.13, python3.12, python3.11).' >&2; \
	    echo 'Install one, or name it: make PYTHON=/path/to/python' >&2; exit 1; \
	  fi; \
	  echo "Setting up $(VENV) with $$($$found --version); this takes a minute, once."; \
	  $$found -m venv --clear $(VENV) || exit 1; \
	fi
	@$(BIN)/python -c 'import pip, sys; sys.exit(tuple(map(int, pip.__version__.split(".")[:2])) < (25, 1))' \
	  || $(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --editable '.[postgres,fast,http,web,otel]' --group dev --group docs
	@touch $@
