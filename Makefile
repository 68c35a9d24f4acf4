# Shoal: `make train` does the main job, `make test` passes the tests.
# Needs only Python (3.11 to 3.13), make and git; everything else lands in .venv, pinned.

PYTHON ?= python3
# Tests wait for processes more than they compute, so a few more than two cores' worth at once.
JOBS ?= 3
# Passed on to pytest, as in: make test ARGS="-k seeds -x"
ARGS ?=

BIN := .venv/bin
READY := .venv/.ready
# Shoal with the rivals of the quick benchmark; for the full one the others join them (2 GB).
BENCH := .venv-bench/bin
BENCH_READY := .venv-bench/.ready
BENCH_ALL := .venv-bench/.all
BENCH_LEARNING := .venv-bench/.learning
BENCH_PIP = $(BENCH)/python -m pip install -qq --no-input --disable-pip-version-check -c benchmarks/constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help train throughput test test-slow test-faults gym-tests lint format bench bench-full bench-train targets results docs clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

train: $(READY) ## train PPO on CartPole, and leave a folder with curves and a video
	@$(BIN)/shoal train ppo --config configs/cartpole.yaml $(ARGS)

throughput: $(READY) ## a short vectorised run on each backend, with a throughput summary
	@$(BIN)/python scripts/throughput.py

test: $(READY) ## the tests, except the slow ones
	@$(BIN)/python -m pytest -q -m "not slow" -n $(JOBS) $(ARGS)

test-slow: $(READY) ## the tests marked slow
	@$(BIN)/python -m pytest -q -m slow -n $(JOBS) -o timeout=600 -o faulthandler_timeout=660 $(ARGS)

test-faults: $(READY) ## the fault suite in full; its figures go into docs/reliability.md
	@$(BIN)/python -m pip install -qq --no-input --disable-pip-version-check -c constraints.txt torch "gymnasium[mujoco]"
	@SHOAL_FAULTS=full $(BIN)/python -m pytest -q tests/faults -o timeout=900 -o faulthandler_timeout=960 $(ARGS)

lint: $(READY) ## style, types, and who imports whom
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo

format: $(READY) ## put the code in the shape that lint asks for
	@$(BIN)/ruff check -q --fix-only .
	@$(BIN)/ruff format -q .

gym-tests: $(READY) ## Gymnasium's own vector tests on the drop-ins: GYMNASIUM=<its checkout>
	@test -d "$(GYMNASIUM)/tests/vector" || { echo "say where Gymnasium's repository is checked out: make gym-tests GYMNASIUM=..."; exit 2; }
	@$(BIN)/python -m pip install -qq --no-input --disable-pip-version-check -c constraints.txt "gymnasium[mujoco,box2d]" array-api-compat
	@for drop_in in "" AsyncVectorEnv SyncVectorEnv; do \
	  (cd "$(GYMNASIUM)" && SHOAL_DROP_IN=$$drop_in PYTHONPATH="$(CURDIR)/tests" "$(CURDIR)/$(BIN)/python" -m pytest -q \
	    -p gymnasium_dropins -p no:cacheprovider tests/vector tests/wrappers/vector \
	    --ignore=tests/wrappers/vector/test_human_rendering.py -k "not CarRacing" --disable-warnings) || exit 1; \
	done

bench: $(BENCH_READY) ## Shoal and its rivals on the same workloads, with a report; some minutes
	@$(BENCH)/python -m benchmarks.run $(ARGS)

bench-full: $(BENCH_ALL) ## the same with every workload and everyone; hours
	@$(BENCH)/python -m benchmarks.run --full $(ARGS)

bench-train: $(BENCH_LEARNING) ## whole training against Stable-Baselines3's PPO; a quarter of an hour
	@$(BENCH)/python -m benchmarks.train against $(ARGS)

targets: $(BENCH_READY) ## the project's targets for speed, one by one
	@$(BENCH)/python -m benchmarks.targets $(ARGS)

results: $(BENCH_LEARNING) ## what PPO learns beside Stable-Baselines3's, into docs/results.md; hours, resumable
	@$(BENCH)/python -m benchmarks.learning.run $(ARGS)

docs: $(READY) ## the documentation, into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean: ## remove everything that make made
	@rm -rf .venv .venv-bench* site build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Touched last, so that an interrupted installation is taken up again.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; (3, 11) <= sys.version_info < (3, 14) or sys.exit("Shoal needs Python 3.11 to 3.13; $(PYTHON) is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12")'
	@echo "installing into .venv (about a minute, once)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --no-input --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

$(BENCH_READY): pyproject.toml benchmarks/constraints.txt
	@echo "installing Shoal and its rivals into .venv-bench (a minute or two, once)"
	@$(PYTHON) -m venv .venv-bench
	@$(BENCH_PIP) -e . torch "gymnasium[mujoco]" stable-baselines3 pufferlib-core matplotlib
	@touch $@

$(BENCH_ALL): $(BENCH_READY)
	@echo "installing the other rivals as well"
	@$(BENCH_PIP) torch tianshou torchrl envpool
	@touch $@

$(BENCH_LEARNING): $(BENCH_READY)
	@echo "installing what learning and its statistics need as well"
	@$(BENCH_PIP) -e ".[train]" "gymnasium[box2d,mujoco]" stable-baselines3 sb3-contrib rliable
	@touch $@
