# cape: `make run` and `make test` need Python >= 3.11 and nothing else; `make help` lists the rest.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

VERSION := $(shell sed -n 's/^VERSION = "\(.*\)"$$/\1/p' cape/settings/config.py)
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --no-input
# Files of requirements/ hold exact versions and digests: anything else is refused.
LOCKED := $(PIP) install --quiet --require-hashes -r
RUN    := $(VENV)/.stamp-run
DEV    := $(VENV)/.stamp-dev
FUZZ   := $(VENV)/.stamp-fuzz
SITE   := $(VENV)/.stamp-site
FLARE  := $(VENV)/.stamp-flare
SHIP   := $(VENV)/.stamp-ship
LOWER  := $(VENV)-lower/.stamp
OUT    ?= out
NAME   ?= coinstac-cape
SECONDS ?= 60
# Tests run side by side; one at a time: make test SIDE=
SIDE   ?= -n auto --maxprocesses 4 --dist worksteal
# Debian 13 brings Python 3.13, Debian 12 brings 3.11.
SUITES ?= trixie bookworm
FRESH  ?= 'make run' 'make smoke'
EPSILON ?= 8
DELTA  ?= 1e-5

# One thread: rounds are small, and results do not depend on the number of cores.
export OPENBLAS_NUM_THREADS ?= 1
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help run test smoke image image-papers test-long test-fresh test-engine test-flare test-cluster test-lower rehearsal test-browser test-site check format compspec docs bench bench-smoke figures lock \
	mutate fuzz audit test-trust release test-install clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "cape needs Python 3.11 or newer and found none;" \
		"install it, or name it: make PYTHON=/path/to/python3.12 run" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is" \
		"older than Python 3.11; name a newer one: make PYTHON=/path/to/python3.12 run" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make virtual" \
		"environments; on Debian: apt-get install python3-venv" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

# Stamps say what is installed already; a changed lock or pyproject installs again.
$(RUN): requirements/lock.txt requirements/build.txt pyproject.toml | $(BIN)/python
	@echo "Installing what a run needs into $(VENV), about 600 MB, once: a minute or two."
	$(LOCKED) requirements/build.txt
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV): requirements/dev.txt $(RUN)
	$(LOCKED) requirements/dev.txt
	@touch $@

$(FUZZ): requirements/fuzz.txt $(DEV)
	$(LOCKED) requirements/fuzz.txt
	@touch $@

$(SITE): requirements/site.txt $(DEV)
	$(LOCKED) requirements/site.txt
	@touch $@

$(FLARE): requirements/flare.txt $(DEV)
	$(LOCKED) requirements/flare.txt
	$(PIP) check
	@touch $@

$(SHIP): requirements/release.txt $(DEV)
	$(LOCKED) requirements/release.txt
	@touch $@

$(OUT)/brain/settings.toml: | $(RUN)
	@echo "Making the data of four synthetic sites in $(OUT)/brain: a minute, once."
	@rm -rf $(OUT)/brain.partial
	$(BIN)/cape synth $(OUT)/brain.partial --preset two-sided --subjects 120 --timepoints 120 --quiet
	@mv $(OUT)/brain.partial $(OUT)/brain

run: $(RUN) $(OUT)/brain/settings.toml  ## simulate four sites with NIfTI files, one process per site and round
	@test ! -d $(OUT)/consortium || { kept=$(OUT)/earlier-$$(date +%Y%m%d-%H%M%S); mkdir $$kept && \
		mv $(OUT)/consortium $(wildcard $(OUT)/run.json) $(OUT)/local* $$kept/ && echo "The earlier run is kept in $$kept."; }
	$(BIN)/cape simulate $(OUT)/brain --through process --out $(OUT) --epsilon $(EPSILON) --delta $(DELTA)

# What hospitals audit is tested in every branch, by its own tests alone.
AUDITED = test/unit/privacy test/unit/secagg $(wildcard test/property/test_privacy_*.py test/property/test_secagg_*.py) \
	test/protocol/test_many_sites.py
test: $(DEV)  ## the fast tests; fails, too, where a branch of privacy or secagg is not tested
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest $(SIDE) $(AUDITED)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report
	$(BIN)/python -m pytest $(SIDE) $(addprefix --ignore=,$(AUDITED))

smoke: $(DEV)  ## one test a folder, and the three drivers: whether this system has what cape needs
	$(BIN)/python -m pytest $(SIDE) -m smoke

# Tests that need another program, or that run at night alone, have targets of their own.
APART = docker or engine or flare or cluster or browser or slow or trust
test-long: $(DEV)  ## whole runs, attacks, audits, statistical tests, programs typed as a user types them: minutes
	$(BIN)/python -m pytest $(SIDE) -m "(long or statistical) and not ($(APART))"

test-fresh:  ## `make run` and `make smoke` as a plain user of an empty Debian 13, then 12; root on Debian, see the script
	for suite in $(SUITES); do packaging/fresh.sh "$$suite" $(FRESH) || exit 1; done

mutate: $(DEV)  ## seeded mistakes, each caught by its named test (test/mutants/mutants.toml); stopped, it goes on
	$(BIN)/python test/mutants/run.py --keep $(OUT)/trust/mutants.txt

# The wheel of the fuzzer exists for Linux and CPython 3.11 to 3.13.
fuzz: $(FUZZ)  ## coverage-guided fuzzing of every decoder and reader; SECONDS=60 for each
	$(BIN)/python test/fuzz/run.py --seconds $(SECONDS) --json $(OUT)/trust/fuzz.json

audit: $(DEV)  ## certified against claimed mu of releases and whole runs; canary searches
	$(BIN)/python -m pytest -m "(statistical or trust) and not (engine or docker)" -rP -k "audit" test/audit test/statistical

# A part that passed on this very commit is not done again: a run that was stopped goes on.
TRUST := $(OUT)/trust/$(shell git describe --always --dirty=-$$(date +%s) 2>/dev/null || date +%s)
PASSED = @mkdir -p $(TRUST) && touch $@

test-trust: $(addprefix $(TRUST)/,tests mutants flare engine cluster fuzz)  ## long forms of audits, faults, mutants, fuzzing, and all slow tests, engines included: hours; stopped, it goes on

$(TRUST)/mutants: $(DEV)
	$(MAKE) mutate
	$(PASSED)

$(TRUST)/fuzz: $(FUZZ)
	$(MAKE) fuzz
	$(PASSED)

$(TRUST)/tests: $(DEV)
	$(BIN)/python -m pytest $(SIDE) -m "(trust or statistical or slow) and not (engine or docker or flare or cluster)" -rP
	$(PASSED)

$(TRUST)/flare: $(FLARE)
	$(BIN)/python -m pytest -m flare test/e2e/test_flare.py test/e2e/test_docs_commands.py -rP
	$(PASSED)

$(TRUST)/engine: $(DEV)
	packaging/with-engine.sh $(BIN)/python -m pytest -m "engine or docker" -rP
	$(PASSED)

$(TRUST)/cluster: $(DEV)
	$(MAKE) test-cluster
	$(PASSED)

rehearsal: $(FLARE)  ## type every command of the documentation that can be typed here, and count; containers too: BESIDE=packaging/with-engine.sh
	$(BESIDE) $(BIN)/python -m pytest -m "" -rs test/e2e/test_docs_commands.py

test-browser: $(DEV)  ## open the reports in chromium; skipped, visibly, where there is none
	$(BIN)/python -m pytest -m browser test/e2e/test_report_browser.py

test-site: docs  ## open the documentation site in chromium: links, widths, axe
	CAPE_NEEDS_BROWSER=1 CAPE_SITE=$(OUT)/site $(BIN)/python -m pytest -m browser -k site \
		test/e2e/test_report_browser.py

image:  ## build the container image coinstac-cape with docker (or podman)
	$(or $(shell command -v docker || command -v podman),$(error neither docker nor podman is here)) \
		build --tag $(NAME):$(VERSION) --tag $(NAME):latest \
		--build-arg REVISION=$(shell git rev-parse HEAD 2>/dev/null || echo unknown) $(MORE) .

image-papers:  ## the same with the papers' computations, under a name of its own: coinstac-cape-papers
	$(MAKE) image NAME=coinstac-cape-papers MORE="--build-arg LEFT_OUT=lab"

test-engine: $(DEV)  ## two consortia in COINSTAC's own engine, of images and of tables; root on Debian, see the script
	CAPE_ENGINE_PAPERS=skip packaging/with-engine.sh $(BIN)/python -m pytest -m "engine and push" test/e2e/test_engine.py

test-flare: $(FLARE)  ## NVIDIA FLARE itself: maps over mTLS on the loopback, tables in its simulator
	$(BIN)/python -m pytest -m "flare and push" test/e2e/test_flare.py

test-cluster: $(DEV)  ## type docs/cluster.md in SLURM, on a cluster of this computer; root on Debian, see the script
	packaging/with-cluster.sh $(BIN)/python -m pytest -m cluster test/e2e/test_docs_commands.py

# Another environment: numpy 1.24 beside the newest would be neither.
$(LOWER): requirements/lower.txt pyproject.toml | $(BIN)/python
	$(BIN)/python -m venv $(VENV)-lower
	$(VENV)-lower/bin/python -m pip --disable-pip-version-check --no-input install --quiet \
		--require-hashes -r requirements/lower.txt
	$(VENV)-lower/bin/python -m pip --disable-pip-version-check check
	@touch $@

# Folders that call libraries; what combines them, and numbers alone, is tested once.
CALLING = $(addprefix test/unit/,algorithms cli data lab papers privacy python report secagg space) \
	$(wildcard test/unit/planning/test_atlas*.py test/unit/planning/test_label*.py) test/project/test_figure_scores.py
test-lower: $(LOWER) $(DEV)  ## tests of what calls libraries, under the lowest versions that pyproject.toml allows, and a run of two numpys
	PYTHONPATH=$(CURDIR) $(VENV)-lower/bin/python -m pytest $(SIDE) $(CALLING)
	CAPE_OTHER_PYTHON=$(CURDIR)/$(VENV)-lower/bin/python $(BIN)/python -m pytest -m "" test/e2e/test_two_numpys.py

check: $(DEV)  ## formatter, linter, types, import borders, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python packaging/pages.py --check

format: $(DEV)  ## format the code and sort imports
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

docs: $(SITE)  ## the documentation site, OUT/site/index.html; runs the gallery: minutes
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --site-dir $(abspath $(OUT))/site

compspec: $(RUN)  ## write compspec.json, inputspec.json and the generated pages of docs/
	$(BIN)/python packaging/pages.py

# Two at a time. reliability.py reads what variants.py measured; all.py calls kernels.py, ledger.py, reading.py, round_start.py
# and utility.py. flare.py needs FLARE: make $(FLARE) bench-smoke has it.
SMOKE = all memory 'brains --claims' 'brains test' 'brains maps' 'brains noise' 'brains names' peers variants \
	'separations spatial' 'separations smooth' 'separations template' 'many_maps size' 'many_maps person' 'many_maps group' comparison comparison_size 'figures --out $(OUT)/smoke --only 002-fig6' \
	$(if $(wildcard $(FLARE)),flare)
bench-smoke: $(DEV)  ## every bench with small sizes, whose figures mean nothing: two minutes on two cores
	@printf '%s\n' $(SMOKE) | PYTHONPATH=test xargs -P 2 -I BENCH sh -c 'set -- BENCH; name=$$1; shift; log=$$(mktemp); \
		$(BIN)/python bench/$$name.py "$$@" --quick >$$log 2>&1 && echo "bench/BENCH: runs" || \
		{ echo "bench/BENCH: failed" >&2; tail -n 20 $$log >&2; rm $$log; exit 1; }; rm $$log'
	$(BIN)/python bench/reliability.py bench/measured/variants.jsonl >/dev/null

bench: $(DEV)  ## speed, memory and quality on this machine, into results/
	@mkdir -p results
	$(BIN)/python bench/all.py > results/speed.md && cat results/speed.md
	$(BIN)/python bench/memory.py --json > results/memory.json && cat results/memory.json
	$(BIN)/python bench/utility.py --preset paper --subjects 1024 --sites 4 --epsilon 1 \
		--seeds 0,1,2 --json > results/utility-paper.json && cat results/utility-paper.json
	$(BIN)/python bench/utility.py --preset realistic --subjects 1024 --sites 4 --epsilon 1 \
		--seeds 0,1,2 --json > results/utility-realistic.json && cat results/utility-realistic.json

figures: $(DEV)  ## the papers' figures and tables, into OUT/figures; GRID=--quick in minutes, whole in hours
	$(BIN)/python bench/figures.py --out $(OUT)/figures $(GRID)

# A fresh environment with the newest versions that pyproject.toml allows, written down.
lock: $(SHIP)  ## renew the versions and digests of requirements/
	$(BIN)/python packaging/lock.py --upgrade

release: $(SHIP) $(SITE)  ## wheel, sdist, bill of materials, site and image of a tag into dist/, each checked
	$(BIN)/python packaging/release.py $(RELEASE)

test-install: $(SHIP)  ## the wheel, alone, in every Python 3.11 to 3.14 that is here: PYTHONS="python3.12 ..."
	$(BIN)/python packaging/try_install.py $(PYTHONS)

clean:  ## remove everything that make built
	rm -rf $(VENV) $(VENV)-lower build dist out results .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
