"""What Shoal says when something is in the way: the messages on the page about troubleshooting."""

import contextlib
import os
import re
import resource
import tempfile
import time

import gymnasium
import numpy as np

import shoal
from shoal.monitor.wandb import WeightsAndBiases
from shoal.testing import CountingWorld, Saboteur


@contextlib.contextmanager
def telling():
    try:
        yield
    except shoal.ShoalError as problem:
        text = re.sub(" at 0x[0-9a-f]+", "", str(problem))  # addresses differ from run to run
        print(f"{type(problem).__name__}: {text}")


# --8<-- [start:pickling]
recording = open("/dev/zero", "rb")


def reads_a_file():
    recording.read(1)
    return gymnasium.make("CartPole-v1")


with telling():
    shoal.make(reads_a_file, 2, backend="process")
# --8<-- [end:pickling]


# --8<-- [start:opened_inside]
def opens_a_file():
    with open("/dev/zero", "rb") as own:
        own.read(1)
    return gymnasium.make("CartPole-v1")


with shoal.make(opens_a_file, 2, backend="process") as envs:
    envs.reset(seed=0)
# --8<-- [end:opened_inside]
recording.close()


# --8<-- [start:importing]
def simulator():
    import a_simulator_that_is_not_installed

    return a_simulator_that_is_not_installed.Env()


with telling():
    shoal.make(simulator, 2, backend="process")
# --8<-- [end:importing]


# --8<-- [start:slow]
def takes_its_time():
    time.sleep(60)
    return gymnasium.make("CartPole-v1")


with telling():
    shoal.make(takes_its_time, 1, backend="process", faults=shoal.Faults(start_timeout_s=1.0))
# --8<-- [end:slow]


def second_step(*envs, **settings):
    with telling(), shoal.make(envs, backend="process", **settings) as made:
        made.reset(seed=0)
        for _ in range(2):
            made.step(np.zeros(len(envs), dtype=int))


# --8<-- [start:hanging]
def hangs():
    return Saboteur("hang_sleep", at_step=2)  # a step that never ends


second_step(CountingWorld, hangs, num_workers=2, step_timeout_s=1.0, on_failure="raise")
# --8<-- [end:hanging]


# --8<-- [start:killed]
def is_killed():
    return Saboteur("sigkill", at_step=2)  # as the system does when memory runs out


second_step(CountingWorld, is_killed, num_workers=2, on_failure="raise")
# --8<-- [end:killed]

# --8<-- [start:wandb]
with tempfile.TemporaryDirectory() as folder:
    run = WeightsAndBiases("fleet", folder=folder, mode="disabled")

    def logs_by_itself():
        run.write(0, {"height": 1.0})
        return gymnasium.make("CartPole-v1")

    with telling():
        shoal.make(logs_by_itself, 2, backend="process")
    run.close()
# --8<-- [end:wandb]

# --8<-- [start:descriptors]
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
num_open = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (num_open + 30, limits[1]))
with telling():
    shoal.make("CartPole-v1", 64, backend="process", num_workers=32)
with shoal.make("CartPole-v1", 1024, backend="process", num_workers=2) as envs:
    print(f"{envs.num_envs} environments, {envs.stats()['num_workers']} workers")
# --8<-- [end:descriptors]
resource.setrlimit(resource.RLIMIT_NOFILE, limits)


# --8<-- [start:video]
def factory(env_id):
    def make():
        if env_id > 0:
            return gymnasium.make("CartPole-v1")
        return gymnasium.make("CartPole-v1", render_mode="rgb_array")  # this one could be recorded

    return make


with shoal.make([factory(env_id) for env_id in range(4)], backend="process") as envs:
    print("render modes:", *envs.get_attr("render_mode"))
# --8<-- [end:video]

print("explained")
