# Shoal: `make train` does the main job, `make test` passes the tests.
# Needs only Python (3.11 to 3.13), make and git; everything else lands in .venv, pinned.

PYTHON ?= python3
# Tests wait for processes more than they compute, so a few more than two cores' worth at once.
JOBS ?= 4
# Passed on to pytest, as in: make test ARGS="-k seeds -x"
ARGS ?=

# What `make train` and its kin train with: TRAIN_STEPS TRAIN_ENVS TRAIN_EPISODE_LENGTH
# TRAIN_UPDATE_EPOCHS TRAIN_BATCH_SIZE TRAIN_LEARNING_RATE TRAIN_OUTPUT_DIR TRAIN_DEVICE, TRAIN_OBS
# (ram, pixels or both), TRAIN_ROM and TRAIN_RAM_MAP for a cartridge of your own, as in: make train
# TRAIN_STEPS=20000 TRAIN_ENVS=4. Those that are not set are as below; some targets have values of their own.
steps = 100000
envs = 1
episode_length = 500
update_epochs = 4
batch_size = 128
learning_rate = 3e-3
TRAIN_OUTPUT_DIR ?= training_runs
TRAIN_DEVICE ?= auto
TRAIN_GAME = \
  --n-envs $(or $(TRAIN_ENVS),$(envs)) \
  --total-steps $(or $(TRAIN_STEPS),$(steps)) \
  --episode-length $(or $(TRAIN_EPISODE_LENGTH),$(episode_length)) \
  --n-epochs $(or $(TRAIN_UPDATE_EPOCHS),$(update_epochs)) \
  --batch-size $(or $(TRAIN_BATCH_SIZE),$(batch_size)) \
  --learning-rate $(or $(TRAIN_LEARNING_RATE),$(learning_rate)) \
  --run-dir "$(TRAIN_OUTPUT_DIR)" \
  --device $(TRAIN_DEVICE) \
  $(if $(TRAIN_OBS),--observation $(TRAIN_OBS)) \
  $(if $(TRAIN_ROM),--rom "$(TRAIN_ROM)") \
  $(if $(TRAIN_RAM_MAP),--ram-map "$(TRAIN_RAM_MAP)") \
  $(ARGS)

BIN := .venv/bin
# Those of Stable-Baselines3's tests that make vector environments, and train for no longer than they must.
SB3_TESTS := $(patsubst %,tests/test_%.py,vec_envs vec_normalize vec_monitor vec_stacked_obs vec_check_nan vec_extract_dict_obs dict_env her spaces env_checker)
READY := .venv/.ready
# Shoal with the rivals of the quick benchmark; for the full one the others join them (2 GB).
BENCH := .venv-bench/bin
BENCH_READY := .venv-bench/.ready
BENCH_ALL := .venv-bench/.all
BENCH_TESTS := .venv-bench/.tests
BENCH_LEARNING := .venv-bench/.learning
BENCH_TEAMS := .venv-bench/.teams
BENCH_GAMEBOY := .venv-bench/.gameboy
# AgileRL wants another PettingZoo than the tests have.
AGILERL := .venv-agilerl/bin
AGILERL_READY := .venv-agilerl/.ready
AGILERL_PIP = $(AGILERL)/python -m pip install -qq --no-input --disable-pip-version-check -c tests/against_agilerl/constraints.txt
BENCH_PIP = $(BENCH)/python -m pip install -qq --no-input --disable-pip-version-check -c benchmarks/constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help train train-20k train-parallel train-pure-rl train-cartpole throughput test test-slow test-faults test-rivals gym-tests sb3-tests agilerl-tests lint format bench bench-full bench-teams bench-gameboy bench-train targets results rom docs clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

train: $(READY) ## train PPO on a Game Boy game, and leave a folder with curves and a video
	@$(BIN)/python scripts/train_gameboy.py $(TRAIN_GAME)

train-20k: steps = 20000
train-20k: envs = 2
train-20k: episode_length = 750
train-20k: update_epochs = 6
train-20k: learning_rate = 2e-3
train-20k: train ## the same, briefly: 20,000 steps of two environments

train-parallel: envs = 4
train-parallel: train ## the same with four environments at once

train-pure-rl: train ## the same as train: nothing but the game's own rewards, no guidance

train-cartpole: $(READY) ## train PPO on CartPole
	@$(BIN)/shoal train ppo --config configs/cartpole.yaml $(ARGS)

throughput: $(READY) ## a short vectorised run on each backend, with a throughput summary
	@$(BIN)/python scripts/throughput.py

test: $(READY) ## the tests, except the slow ones
	@$(BIN)/python -m pytest -q -m "not slow" -n $(JOBS) --dist worksteal $(ARGS)

test-slow: $(READY) ## the tests marked slow
	@$(BIN)/python -m pytest -q -m slow -n $(JOBS) -o timeout=600 -o faulthandler_timeout=660 $(ARGS)

test-faults: $(READY) ## the fault suite in full; its figures go into docs/reliability.md
	@$(BIN)/python -m pip install -qq --no-input --disable-pip-version-check -c constraints.txt torch "gymnasium[mujoco]"
	@SHOAL_FAULTS=full $(BIN)/python -m pytest -q tests/faults -o timeout=900 -o faulthandler_timeout=960 $(ARGS)

test-rivals: $(BENCH_ALL) $(BENCH_TEAMS) $(BENCH_TESTS) $(AGILERL_READY) ## whether rivals count the steps that their environments take
	@$(BENCH)/python -m pytest -q tests/unit/test_rivals.py -k "not agilerl" $(ARGS)
	@$(AGILERL)/python -m pytest -q tests/unit/test_rivals.py -k agilerl $(ARGS)

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

agilerl-tests: $(AGILERL_READY) ## AgileRL 2.58 beside the drop-in for it: traces, training loops, faults; SuperSuit beside rows
	@$(AGILERL)/python -m pytest -q -o filterwarnings=default --disable-warnings tests/against_agilerl tests/agents/test_team_rows.py $(ARGS)

sb3-tests: $(READY) ## Stable-Baselines3's own vector tests on the drop-ins: SB3=<its checkout>
	@test -f "$(SB3)/tests/test_vec_envs.py" || { echo "say where Stable-Baselines3's repository is checked out: make sb3-tests SB3=..."; exit 2; }
	@$(BIN)/python -m pip install -qq --no-input --disable-pip-version-check -c constraints.txt pandas opencv-python-headless
	@for drop_in in "" DummyVecEnv SubprocVecEnv; do \
	  (cd "$(SB3)" && SHOAL_DROP_IN=$$drop_in PYTHONPATH="$(CURDIR)/tests" OMP_NUM_THREADS=1 "$(CURDIR)/$(BIN)/python" -m pytest -q \
	    -p sb3_dropins -p no:cacheprovider -o addopts= --disable-warnings $(SB3_TESTS)) || exit 1; \
	done

bench: $(BENCH_READY) ## Shoal and its rivals on the same workloads, with a report; some minutes
	@$(BENCH)/python -m benchmarks.run $(ARGS)

bench-full: $(BENCH_ALL) ## the same with every workload and everyone; hours
	@$(BENCH)/python -m benchmarks.run --full $(ARGS)

bench-teams: $(BENCH_TEAMS) $(AGILERL_READY) ## teams and turns, beside AgileRL, SuperSuit and plain loops; minutes
	@$(BENCH)/python -m benchmarks.run --workloads spread connect-four --env-counts 8 32 --no-starts --name teams $(ARGS)

bench-gameboy: $(BENCH_GAMEBOY) ## Game Boys at 4 and 24 frames a step, beside Stable-Baselines3's and a plain loop
	@$(BENCH)/python -m benchmarks.run --workloads gameboy-4 gameboy-24 --env-counts 1 2 4 8 16 --no-starts \
	  --contestants "shoal auto" "shoal thread" "shoal process" "shoal hybrid" "sb3 subproc" "gymnasium sync" \
	  --name gameboy --out benchmarks/results/gameboy $(ARGS)

bench-train: $(BENCH_LEARNING) ## whole training against Stable-Baselines3's PPO; a quarter of an hour
	@$(BENCH)/python -m benchmarks.train against $(ARGS)

targets: $(BENCH_ALL) ## the project's targets for speed, one by one
	@$(BENCH)/python -m benchmarks.targets $(ARGS)

results: $(BENCH_LEARNING) ## what PPO learns beside Stable-Baselines3's, into docs/results.md; hours, resumable
	@$(BENCH)/python -m benchmarks.learning.run $(ARGS)

rom: $(READY) ## assemble the Game Boy game that comes with Shoal
	@$(BIN)/python -m shoal.envs.gameboy.build

docs: $(READY) ## the documentation, into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean: ## remove everything that make made
	@rm -rf .venv .venv-agilerl .venv-bench* site build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Touched last, so that an interrupted installation is taken up again.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; (3, 11) <= sys.version_info < (3, 14) or sys.exit("Shoal needs Python 3.11 to 3.13; $(PYTHON) is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12")'
	@echo "installing into .venv (about a minute, once)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --no-input --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

# torch first: nothing else may choose which one.
$(AGILERL_READY): pyproject.toml tests/against_agilerl/constraints.txt
	@echo "installing AgileRL into .venv-agilerl (some minutes, once)"
	@$(PYTHON) -m venv .venv-agilerl
	@$(AGILERL_PIP) torch
	@$(AGILERL_PIP) -e . agilerl peft transformers pytest pytest-timeout
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

$(BENCH_TEAMS): $(BENCH_READY)
	@echo "installing what is for several agents as well"
	@$(BENCH_PIP) -e ".[multiagent]" supersuit
	@touch $@

$(BENCH_TESTS): $(BENCH_READY)
	@echo "installing what tests need as well"
	@$(BENCH)/python -m pip install -qq --no-input --disable-pip-version-check -c constraints.txt pytest pytest-timeout
	@touch $@

$(BENCH_GAMEBOY): $(BENCH_READY)
	@echo "installing the emulator as well"
	@$(BENCH_PIP) -e ".[gameboy]"
	@touch $@

$(BENCH_LEARNING): $(BENCH_READY)
	@echo "installing what learning and its statistics need as well"
	@$(BENCH_PIP) -e ".[train,multiagent,gameboy]" "gymnasium[box2d,mujoco]" stable-baselines3 sb3-contrib rliable
	@touch $@
