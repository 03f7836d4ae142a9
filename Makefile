# Every target sets up what it needs. The environment is made once, and again only when a list of versions changes.

PYTHON ?= python3
VENV ?= .venv

STAMP := $(VENV)/.installed
LISTS := requirements/torch.txt requirements/lock.txt requirements/no-deps.txt setup.py
BIN := $(VENV)/bin
# Conflicts are expected: OpenPrompt and learn2learn ask for what cannot be had, and are installed without it.
PIP_INSTALL := -m pip install --disable-pip-version-check --no-warn-conflicts -q
PIP := $(BIN)/python $(PIP_INSTALL)
# Where `make release` tries the wheel: an environment of its own, and a folder that is no checkout.
TRIAL := build/release
FEW := meta.iterations=2 meta.validate_every=2 meta.valid_tasks=2 meta.test_tasks=2 meta.inner_steps_eval=1 --quiet

# "ok", or the version if it is too old, or nothing if there is no such program. Runs on any Python.
PYTHON_CHECK = $(shell $(PYTHON) -c 'import sys; print("ok" if sys.version_info >= (3, 10) else "%d.%d" % sys.version_info[:2])' 2>/dev/null)
COMPILER = $(shell command -v cc || command -v gcc || command -v clang)

.DEFAULT_GOAL := help
.PHONY: help install run test coverage lint docs bench compat release lock audit clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r name text; do \
		printf '%-16s%s\n' "$$name" "$$text"; done

install: $(STAMP) ## make the virtual environment with the tested set

run: $(STAMP) ## do the main job: the quick start on the data that ships
	@$(BIN)/python runners/quickstart.py

test: $(STAMP) ## run the tests
	@$(BIN)/python -m pytest -n auto

coverage: $(STAMP) ## run the tests and measure how many lines they reach
	@$(BIN)/python -m pytest -n auto --cov=openprompt_meta --cov-fail-under=90

lint: $(STAMP) ## check style, format, types, and which room imports from which
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

docs: ## build the site into build/site, strictly, in an environment of its own
	@test -x .venvs/docs/bin/python || $(PYTHON) -m venv .venvs/docs
	@.venvs/docs/bin/python $(PIP_INSTALL) --no-deps -r requirements/docs.txt
	@NO_MKDOCS_2_WARNING=1 .venvs/docs/bin/python -m mkdocs build --strict --quiet
	@echo "The site is in build/site: open build/site/index.html, or serve it with" \
		"'.venvs/docs/bin/python -m http.server -d build/site'"

bench: $(STAMP) ## measure speed and memory against OpenPrompt's own path (ARGS="--only iteration --rounds 5")
	@$(BIN)/python -m bench $(ARGS)

compat: $(STAMP) ## run the matrix of transformers versions (ONLY=oldest|locked|newest, NEWEST=version)
	@$(BIN)/python runners/run_compat.py $(if $(ONLY),--only $(ONLY)) $(if $(NEWEST),--newest $(NEWEST)) $(ARGS)

release: $(STAMP) ## build sdist and wheel into dist/, check both, and try the wheel in an empty environment
	rm -rf dist $(TRIAL)
	$(PIP) --no-deps --require-hashes -r requirements/release.txt
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m venv $(TRIAL)/venv
	$(TRIAL)/venv/bin/python $(PIP_INSTALL) --no-deps -r requirements/torch.txt
	$(TRIAL)/venv/bin/python $(PIP_INSTALL) --require-hashes -r requirements/lock.txt
	$(TRIAL)/venv/bin/python $(PIP_INSTALL) --no-deps --require-hashes -r requirements/no-deps.txt
	$(TRIAL)/venv/bin/python $(PIP_INSTALL) dist/*.whl
	mkdir $(TRIAL)/elsewhere
	cd $(TRIAL)/elsewhere && unset PYTHONPATH && export PATH="$$PWD/../venv/bin:$$PATH" && \
		openprompt-meta doctor && \
		openprompt-meta train demo $(FEW) && \
		openprompt-meta train hwu64/5shot-minilm dataset.name=demo dataset.path=null $(FEW)
	rm -rf $(TRIAL)
	@ls -l dist

lock: $(STAMP) ## ask the index anew for the checksums of the tested set
	@$(BIN)/python -m tools.supply_chain lock

audit: ## ask what is publicly known against the tested set, in an environment of its own
	@test -x .venvs/audit/bin/python || $(PYTHON) -m venv .venvs/audit
	@.venvs/audit/bin/python $(PIP_INSTALL) -r requirements/audit.txt || \
		{ echo "Nothing was audited: pip-audit cannot be installed here." >&2; exit 3; }
	@.venvs/audit/bin/python -m tools.supply_chain audit

clean: ## remove caches, build products and the environments of the matrix; .venv stays
	rm -rf build dist *.egg-info .venvs .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.*
	find openprompt_meta runners bench tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Refused before anything is installed: a message here is one sentence, the failure of a build is a page.
$(STAMP): $(LISTS)
	$(if $(PYTHON_CHECK),,$(error '$(PYTHON)' does not run: name a Python 3.10 or newer, e.g. 'make PYTHON=python3.11 $(or $(MAKECMDGOALS),install)'))
	$(if $(filter ok,$(PYTHON_CHECK)),,$(error '$(PYTHON)' is Python $(PYTHON_CHECK), but 3.10 or newer is needed: name one, e.g. 'make PYTHON=python3.11 $(or $(MAKECMDGOALS),install)'))
	$(if $(COMPILER),,$(error a C compiler is needed to build learn2learn and none of cc, gcc and clang was found: install one, e.g. with 'apt-get install build-essential' or 'xcode-select --install'))
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --no-deps -r requirements/torch.txt
	$(PIP) --require-hashes -r requirements/lock.txt
	$(PIP) --no-deps --require-hashes -r requirements/no-deps.txt
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@
