# Two commands: `make serve` and `make test`. Everything they need is made on the first call and
# kept until its sources change; the stamps are below .venv, so deleting that starts afresh.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

# As in the engine's process (model/process.py): threads that wait for each other soon sleep, so
# that a busy machine slows the tests down by what it lacks and not twentyfold.
export GOMP_SPINCOUNT ?= 1000

PYTHON ?= $(firstword $(shell for v in 3.11 3.12 3.13; do command -v python$$v; done; command -v python3))
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
CLIENTS := .venv-clients
PIP := $(BIN)/python -m pip --disable-pip-version-check
PAGE_SOURCES := $(shell find web -type f -not -path '*/node_modules/*' -not -path '*/dist/*' \
  -not -name openapi.ts 2>/dev/null)
API_SOURCES := $(shell find app sessions -name '*.py')

# The browser that the page is tried with; without one `make test` leaves those tests out.
CHROMIUM ?= $(firstword $(shell for n in chromium chromium-browser google-chrome; do command -v $$n; done))
export CHROMIUM
WITHOUT_BROWSER := $(if $(CHROMIUM),,--ignore=tests/browser)

# Tests that start no server of their own, and so share a machine with each other.
APART := tests/unit tests/property tests/test_house_rules.py

say = @printf '\n\033[1m==> %s\033[0m\n' "$(1)"

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# ---------------------------------------------------------------------------- set-up

.PHONY: install
install: $(STAMPS)/packages ## Make .venv with every pinned package

$(STAMPS)/venv:
	$(call say,Making $(VENV) with $(PYTHON))
	@test -n "$(PYTHON)" || { echo "No Python found: install Python 3.11 or newer." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "$(PYTHON) is older than 3.11: name a newer one, as in make PYTHON=python3.12." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "venv failed: on Debian and Ubuntu install python3-venv." >&2; exit 1; }
	@mkdir -p $(STAMPS) && touch $@

# torch comes first and alone: it is the large one, and pip's own settings (an extra index, a
# folder of wheels) choose its build for the CPU or a CUDA version.
$(STAMPS)/torch: constraints.txt | $(STAMPS)/venv
	$(call say,Installing torch (the largest download: 200 MB for the CPU, gigabytes for CUDA))
	@$(PIP) install -c constraints.txt torch
	@touch $@

$(STAMPS)/packages: pyproject.toml constraints.txt $(STAMPS)/torch
	$(call say,Installing the pinned packages)
	@$(PIP) install -q -c constraints.txt hatchling editables
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

# Clients and frameworks need packages that the server must never lean on: an environment apart.
$(CLIENTS)/stamp: tests/clients/requirements.txt
	$(call say,Installing the clients that the server is tried with)
	@$(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip --disable-pip-version-check install -q -r $<
	@touch $@

$(STAMPS)/node-modules: web/package.json web/package-lock.json scripts/npm | $(STAMPS)/packages
	$(call say,Installing the page's build tools)
	@cd web && ../scripts/npm ci --no-audit --no-fund
	@touch $@

.PHONY: page
page: $(STAMPS)/page ## Build the web page into app/page

# The page's types of the wire, from the API's own document.
$(STAMPS)/page-types: $(STAMPS)/node-modules $(API_SOURCES)
	@$(BIN)/python -m app.openapi_file > $(STAMPS)/openapi.json
	@cd web && ../scripts/npm run --silent types < ../$(STAMPS)/openapi.json
	@touch $@

$(STAMPS)/page: $(STAMPS)/node-modules $(STAMPS)/page-types $(PAGE_SOURCES)
	$(call say,Building the page)
	@cd web && ../scripts/npm run build
	@test -f app/page/index.html
	@touch $@

# ---------------------------------------------------------------------------- run

.PHONY: serve
serve: $(STAMPS)/packages $(STAMPS)/page ## Serve on http://127.0.0.1:8000 (ARGS="--port 9000 …")
	@exec $(BIN)/splice serve $(ARGS)

# ---------------------------------------------------------------------------- check

.PHONY: test
test: check-python check-page unit ## Format, lint, types, contracts, house rules, all ordinary tests

.PHONY: test-full
test-full: test clients ## Also the tests that take longer, and the clients
	$(call say,The longer tests)
	@$(BIN)/python -m pytest -m full $(WITHOUT_BROWSER)

.PHONY: clients
clients: $(STAMPS)/packages $(CLIENTS)/stamp ## Try unmodified clients and agent frameworks
	$(call say,Clients as they are published)
	@$(CLIENTS)/bin/python -m pytest -c tests/clients/pytest.ini --confcutdir tests/clients tests/clients

.PHONY: check-python
check-python: $(STAMPS)/packages
	$(call say,Format)
	@$(BIN)/ruff format --check .
	$(call say,Lint)
	@$(BIN)/ruff check .
	$(call say,Types)
	@$(BIN)/mypy
	$(call say,Import contracts)
	@$(BIN)/lint-imports --no-cache

.PHONY: check-page
check-page: $(STAMPS)/page
	$(call say,Page)
	@cd web && ../scripts/npm run check && ../scripts/npm run lint && ../scripts/npm run test

.PHONY: unit
unit: $(STAMPS)/packages $(STAMPS)/page
	$(call say,House rules and unit and property tests)
	@$(BIN)/python -m pytest -n logical --dist loadfile $(APART)
	$(call say,Integration and browser tests)
	@$(BIN)/python -m pytest --durations 25 $(WITHOUT_BROWSER) $(APART:%=--ignore=%)
	@test -n "$(CHROMIUM)" || printf '\n\033[1m%s\033[0m\n%s\n%s\n' \
	  'The browser tests (tests/browser) were left out: there is no Chromium.' \
	  'Install it (Debian, Ubuntu: apt-get install chromium) and run `make test` again,' \
	  'or name one: make test CHROMIUM=/path/to/chromium'

.PHONY: format
format: $(STAMPS)/packages ## Format and fix what can be fixed by itself
	@$(BIN)/ruff check --fix-only -q . && $(BIN)/ruff format .

.PHONY: screenshots
screenshots: $(STAMPS)/packages $(STAMPS)/page ## Take the pictures in docs/ again (needs Chromium)
	@$(BIN)/python -m tests.browser.screenshots

.PHONY: docs
docs: $(STAMPS)/packages ## Write the generated tables again
	@$(BIN)/python -m app.settings_docs
	@$(BIN)/python -m app.errors_docs
	@$(BIN)/python -m app.metrics_docs
	@$(BIN)/python -m benchmarks architectures --write

.PHONY: clean
clean: ## Remove everything made here, except data/
	rm -rf $(VENV) $(CLIENTS) app/page web/node_modules web/dist web/src/openapi.ts .mypy_cache .ruff_cache .pytest_cache \
	  .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -not -path './$(VENV)*' -prune -exec rm -rf {} +
