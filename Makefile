# Everything a fresh machine needs is set up on the way: Python 3.11 or newer, make and a package registry suffice.
# Stamps in .venv remember what is installed; a changed lock file installs again.

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
# Compiling every module again for each process of the tests takes longer than many tests do.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
PYTHON := $(BIN)/python
PIP := $(PYTHON) -m pip install --quiet
ARGS ?=
QUICK := not slow and not server
# How pytest ends when its arguments choose no test: those of another part do.
NOTHING_CHOSEN := 5

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo '  Arguments pass through: make serve ARGS="--port 9000", make fuzz ARGS=--help'
	@echo '  Where a command fails, make itself ends with 2; the exit code of the command is in what make says last.'

.PHONY: serve
serve: $(VENV)/.runtime ## Run a server on 127.0.0.1:8700; its data lives in .mainspring.
	@exec $(BIN)/mainspring serve $(ARGS)

.PHONY: daily-report
daily-report: $(VENV)/.runtime ## Run the sample service of docs/guides/jobs.md, beside a server.
	@PYTHONPATH=examples exec $(PYTHON) -m daily_report $(ARGS)

.PHONY: cart
cart: $(VENV)/.cart ## Try the telecom cart with a simulated platform on 127.0.0.1:8710; its data lives in .telecom-cart.
	@exec $(BIN)/telecom-cart demo $(ARGS)

.PHONY: test
test: check ## Run the checks and all tests; installs the database servers that are missing.
	$(PYTHON) -m pytest -m "$(QUICK)" --numprocesses 2 --dist worksteal $(ARGS) || [ $$? -eq $(NOTHING_CHOSEN) ]
	$(PYTHON) -m pytest -m "not ($(QUICK)) and not alone" --numprocesses 2 --dist loadgroup $(ARGS) || [ $$? -eq $(NOTHING_CHOSEN) ]
	$(PYTHON) -m pytest -m "not ($(QUICK)) and alone" $(ARGS) || [ $$? -eq $(NOTHING_CHOSEN) ]

.PHONY: test-fast
test-fast: $(VENV)/.test ## Run the tests that are quick and need no database server.
	$(PYTHON) -m pytest -m "$(QUICK)" --numprocesses 4 --dist worksteal $(ARGS)

.PHONY: matrix
matrix: $(VENV)/.created ## Run the quick tests with Python 3.11 to 3.14, as far as they can be had; ARGS="3.13 -- tests/client".
	@$(PYTHON) -m tools.matrix $(ARGS)

.PHONY: check
check: $(VENV)/.test ## Check style, types, import directions and generated files.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTHON) -m tools.generate_sync --check
	$(PYTHON) -m tools.generate_docs --check

.PHONY: generate
generate: $(VENV)/.test ## Write the generated files anew: the sync client and the reference pages.
	$(PYTHON) -m tools.generate_sync
	$(PYTHON) -m tools.generate_docs

.PHONY: bench
bench: $(VENV)/.test ## Measure; what is measured and how is in docs/benchmarks.md.
	$(PYTHON) -m bench $(ARGS)

.PHONY: simulate
simulate: $(VENV)/.test ## Search simulated histories for broken promises; ARGS="--seeds 10000", ARGS="--seed 75".
	$(PYTHON) -m mainspring.testing.simulation $(ARGS)

.PHONY: torture
torture: $(VENV)/.test ## Kill, freeze and cut off servers under load; ARGS="--store postgresql --seconds 300".
	$(PYTHON) tools/torture.py $(ARGS)

.PHONY: attack
attack: $(VENV)/.test ## Attack a server and see what it costs others; ARGS="--list", ARGS="--only idle-crowd --seconds 5".
	$(PYTHON) -m mainspring.testing.attacks $(ARGS)

.PHONY: fuzz
fuzz: $(VENV)/.test ## Throw nonsense at listener, answers, bodies and cron; ARGS="--target cron --seconds 180 --seed 7".
	$(PYTHON) -m mainspring.testing.fuzzing $(ARGS)

.PHONY: differential
differential: $(VENV)/.test ## Ask all databases the same and compare; longer with ARGS="--steps 2000 --seed 7".
	$(PYTHON) -m tests.differential $(ARGS)

.PHONY: lock
lock: $(VENV)/.created ## Resolve the dependencies and write requirements/*.txt; newer ones with ARGS=--upgrade.
	tools/lock.sh $(PYTHON) $(ARGS)

.PHONY: licences
licences: $(VENV)/.test ## List the licences of the dependencies; those of the tests, too, with ARGS=--all.
	@$(PYTHON) -m tools.licences $(ARGS)

.PHONY: sbom
sbom: $(VENV)/.test ## Write a CycloneDX bill of materials to sbom.json; elsewhere with ARGS=FILE.
	@$(PYTHON) -m tools.sbom $(ARGS)

.PHONY: audit
audit: $(VENV)/.created ## Look up known weaknesses of the dependencies with pip-audit; says so where it cannot.
	@$(PYTHON) -m tools.audit $(ARGS)

.PHONY: clean
clean: ## Remove the virtual environment and all caches. Data in .mainspring and .telecom-cart stays.
	rm -rf $(VENV) .matrix .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	tools/make_venv.sh $(VENV)
	@touch $@

$(VENV)/.runtime: requirements/runtime.txt pyproject.toml $(VENV)/.created
	$(PIP) --require-hashes --requirement requirements/runtime.txt
	$(PIP) --no-deps --editable .
	@touch $@

$(VENV)/.cart: requirements/cart.txt apps/cart/pyproject.toml $(VENV)/.runtime
	$(PIP) --require-hashes --requirement requirements/cart.txt
	$(PIP) --no-deps --editable apps/cart
	@touch $@

$(VENV)/.test: requirements/test.txt $(VENV)/.cart
	$(PIP) --require-hashes --requirement requirements/test.txt
	@touch $@
