# Everything a newcomer needs: `make up` to run Maestro, `make test` to prove it. Both start from an empty clone.
.DEFAULT_GOAL := help
.PHONY: help set-up set-up-to-run up test test-postgresql check bench model torture crash-points docs reference release format \
  lock clean compiled-tests

# The slowest first: they run side by side.
CHECKS := check-types check-style check-imports check-architecture
.PHONY: $(CHECKS)

BIN := .venv/bin
export PYTHON
# Where it is set, each of the thousands of processes that the tests start compiles all of our modules anew.
unexport PYTHONDONTWRITEBYTECODE
# Two workers more than cores; `@pytest.mark.xdist_group` keeps tests that share one costly server in one worker.
PYTEST := $(BIN)/pytest --numprocesses auto --dist loadgroup --durations=10

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  ARGS=... goes to maestro, pytest or the benchmarks; PYTHON=... names the Python to use (3.11 to 3.14)."

set-up: ## Create .venv with all that the checks and tests need (every target does this when it is needed)
	@python=$$(scripts/find-python) && "$$python" scripts/set_up.py dev

set-up-to-run: # What running needs and nothing else; a few hundred megabytes less.
	@python=$$(scripts/find-python) && "$$python" scripts/set_up.py run

up: set-up-to-run ## Run Maestro: Temporal, worker, connectors, API and dashboard
	@set -a; if [ -f .env ]; then . ./.env; fi; set +a; exec $(BIN)/maestro up $(ARGS)

# The architecture test is one of the tests.
test: set-up ## Run every check and every test
	@browser=$$(scripts/find-browser) || exit 1; \
	$(MAKE) --no-print-directory --jobs 3 $(filter-out check-architecture,$(CHECKS)) compiled-tests && \
	MAESTRO_TEST_CHROMIUM="$$browser" $(PYTEST) $(ARGS)

ON_POSTGRESQL := tests/unit/store tests/acceptance tests/temporal tests/promise tests/chaos

test-postgresql: set-up ## Run the tests of store, features, Temporal, kills and the model on PostgreSQL; starts a server
	@folder=$$(scripts/find-postgresql) || exit 1; \
	$(MAKE) --no-print-directory compiled-tests && \
	MAESTRO_TEST_STORE=postgresql MAESTRO_TEST_POSTGRESQL_BIN="$$folder" $(PYTEST) $(or $(ARGS),$(ON_POSTGRESQL))

check: set-up ## Run formatter, linter, types, import contracts and the architecture test
	@$(MAKE) --no-print-directory --jobs 2 $(CHECKS)

check-types:
	$(BIN)/mypy

check-style:
	$(BIN)/ruff format --check
	$(BIN)/ruff check

check-imports:
	$(BIN)/lint-imports

check-architecture:
	$(BIN)/pytest --quiet tests/unit/test_architecture.py tests/unit/test_docs.py

# Every worker would otherwise rewrite the assertions of all tests. What cannot be collected, the test run reports.
compiled-tests:
	-@$(BIN)/pytest --collect-only -qq -p no:cacheprovider >/dev/null 2>&1

bench: set-up ## Measure Maestro on this machine; ARGS="--only cost,latency" measures a part
	$(BIN)/python -m benchmarks $(ARGS)

torture: set-up ## Kill Maestro KILLS=1000 times by SEED=1 (STORE=postgresql, LAYOUT=separate or two-hosts) and count
	$(BIN)/python -m tests.torture --kills $(or $(KILLS),1000) --seed $(or $(SEED),1) --store $(or $(STORE),sqlite) \
	  --layout $(or $(LAYOUT),one) $(ARGS)

crash-points: set-up ## Kill Maestro at every crash point of a message on the web, which takes some minutes
	MAESTRO_TEST_ALL_CRASH_POINTS=1 $(PYTEST) tests/chaos/test_crash_points.py $(ARGS)

RELEASE_TESTS := tests/unit/test_release.py tests/unit/test_requirements.py tests/acceptance/test_installed.py \
  tests/acceptance/test_upgrade.py

release: set-up ## Build and check wheel, source distribution, SBOM and licences of the last commit; publishes nothing
	$(PYTEST) $(RELEASE_TESTS)
	$(BIN)/python -m scripts.release

docs: set-up ## Build the documentation as a site, in build/site; fails at any warning
	$(BIN)/python -m tests.documentation.site

reference: set-up ## Write the generated pages of the reference anew: settings, commands, REST, tables, metrics
	$(BIN)/python -m tests.documentation.reference

model: set-up ## Hold HISTORIES=10000 random histories of faults against a model of the promise; SEED=1 draws them
	MAESTRO_TEST_HISTORIES=$(or $(HISTORIES),10000) MAESTRO_TEST_HISTORY_SEED=$(or $(SEED),1) \
	  $(PYTEST) --dist load --timeout 0 tests/promise $(ARGS)

format: set-up ## Format the code and fix what ruff can fix
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

# uv lives only here: one file that fits every supported Python and platform is more than pip can resolve.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-header --no-annotate --no-emit-index-url --no-emit-find-links

lock: set-up ## Pin the requirements with hashes; ARGS=--upgrade moves them all to the newest allowed
	$(BIN)/python -m pip install --quiet uv
	$(COMPILE) --group dev --all-extras --output-file requirements.lock $(ARGS) pyproject.toml
	$(COMPILE) --upgrade --constraint requirements.lock --output-file requirements-run.lock pyproject.toml
	$(COMPILE) --upgrade --all-extras --constraint requirements.lock --output-file requirements-image.lock pyproject.toml
	printf 'hatchling\neditables\n' | $(COMPILE) --upgrade --constraint requirements.lock --output-file requirements-build.lock -
	@# A wheel of every package that running needs must exist for every supported Python.
	for version in 3.11 3.12 3.13 3.14; do $(BIN)/uv pip compile --quiet --python-version $$version --only-binary :all: \
	  --output-file /dev/null requirements-image.lock requirements-build.lock || exit 1; done
	$(BIN)/python -m pip uninstall --quiet --yes uv

clean: ## Remove the environment and every cache; your data stays
	rm -rf .venv .venv.lock .mypy_cache .ruff_cache .pytest_cache .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
