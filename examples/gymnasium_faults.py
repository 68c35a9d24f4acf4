"""Known faults of Gymnasium's vector environments, beside what the drop-ins do.

Each case is run on both; the rows printed are those of the table in the documentation.
"""

import os
import select
import signal
import time
import warnings
from multiprocessing import get_context

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import shoal.vector.gym
from shoal.testing import CountingWorld, Saboteur

warnings.simplefilter("ignore")
STILL = np.zeros(2, dtype=int)
ONLY_FIRST = np.array([True, False])


class TwoSteps(gymnasium.Env):
    """Every episode has two steps; the observation is 10 * episode + step."""

    observation_space = gymnasium.spaces.Discrete(100)
    action_space = gymnasium.spaces.Discrete(2)
    pause_s, reward, info, first = 0.0, 1.0, None, 0

    def __init__(self, **changes):
        vars(self).update(changes)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.now, self.first = self.first, self.first + 10
        return self.now, {}

    def step(self, action):
        time.sleep(self.pause_s)
        self.now += 1
        return self.now, self.reward, self.now % 10 == 2, False, self.info or {}


class Says(TwoSteps):
    observation_space = gymnasium.spaces.Text(10)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "0", {}

    def step(self, action):
        self.now += 1
        return str(self.now), 0.0, False, False, {}


class Reuses(TwoSteps):
    """Hands out the same array again and again."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
    screen = None

    def reset(self, *, seed=None, options=None):
        self.screen = np.zeros(1, np.float32) if self.screen is None else self.screen
        self.screen[:] = super().reset(seed=seed)[0]
        return self.screen, {}

    def step(self, action):
        self.screen[:], *rest = super().step(action)
        return self.screen, *rest


class HasChildren(TwoSteps):
    def reset(self, *, seed=None, options=None):
        child = get_context("fork").Process(target=int)
        child.start()
        child.join()
        return super().reset(seed=seed)


def saboteur(how):
    return lambda: Saboteur(how, at_step=1)


def after_reset(envs):
    envs.reset(seed=0)
    return envs


def step(envs, times=1):
    for _ in range(times):
        results = envs.step(STILL)
    return results


# --- the cases: each takes gymnasium.vector or shoal.vector.gym and returns what came out ------


def killed(vector):
    return step(after_reset(vector.AsyncVectorEnv([CountingWorld, saboteur("sigkill")])))


def close_after_killed(vector):
    envs = after_reset(vector.AsyncVectorEnv([CountingWorld, saboteur("sigkill")]))
    try:
        step(envs)
    except Exception:
        envs.close()
    return "returns"


def raises(how):
    return lambda vector: step(after_reset(vector.AsyncVectorEnv([saboteur(how)] * 2)))


def constructor(vector):
    return vector.AsyncVectorEnv([TwoSteps, lambda: 1 / 0])


def step_after_timeout(vector):
    envs = after_reset(vector.AsyncVectorEnv([lambda: TwoSteps(pause_s=0.1)] * 2))
    envs.step_async(STILL)
    try:
        envs.step_wait(timeout=0.01)
    except Exception:
        return f"observes {step(envs)[0]}"


def failed_call(vector):
    envs = after_reset(vector.AsyncVectorEnv([TwoSteps] * 2))
    try:
        envs.call("no_such_method")
    except AttributeError:
        return f"observes {step(envs)[0]}"


def wrong_count(vector):
    envs = after_reset(vector.AsyncVectorEnv([TwoSteps] * 3))
    try:
        envs.step(STILL)
    except ValueError:
        return f"observes {envs.reset(seed=0)[0]}"


def reset_after_end(vector):
    envs = after_reset(vector.AsyncVectorEnv([TwoSteps] * 2, shared_memory=False))
    step(envs, 2)
    envs.reset()
    return f"observes {step(envs)[0]}"


def text(vector):
    return f"observes {step(after_reset(vector.AsyncVectorEnv([Says] * 2)), 2)[0]}"


def disabled(vector):
    mode = AutoresetMode.DISABLED
    envs = after_reset(vector.AsyncVectorEnv([TwoSteps] * 2, autoreset_mode=mode))
    return f"observes {step(envs, 3)[0]}"


def final_obs(vector):
    mode = AutoresetMode.SAME_STEP
    envs = after_reset(vector.SyncVectorEnv([Reuses] * 2, autoreset_mode=mode))
    return [float(last[0]) for last in step(envs, 2)[4]["final_obs"]]


def statistics(vector):
    envs = after_reset(RecordEpisodeStatistics(vector.SyncVectorEnv([CountingWorld] * 2)))
    step(envs, 2)
    envs.reset(options={"reset_mask": ONLY_FIRST})
    return f"lengths {envs.episode_lengths}"


def options_kept(vector):
    options = {"reset_mask": ONLY_FIRST}
    after_reset(vector.SyncVectorEnv([TwoSteps] * 2)).reset(options=options)
    return f"keys {list(options)}"


def numpy_seed(vector):
    return f"observes {vector.SyncVectorEnv([TwoSteps] * 2).reset(seed=np.int64(7))[0]}"


def wrong_shape(vector):
    step(after_reset(vector.AsyncVectorEnv([CountingWorld, saboteur("broadcastable_shape")])))
    return "accepted, and spread over the row"


def info_shapes(vector):
    factories = [lambda n=n: TwoSteps(info={"found": np.zeros(n)}) for n in (2, 3)]
    found = step(after_reset(vector.SyncVectorEnv(factories)))[4]["found"]
    return f"an array of {found.dtype}s"


def reward_shape(vector):
    factories = [lambda: TwoSteps(reward=np.ones(1))] * 2
    return f"rewards of shape {step(after_reset(vector.AsyncVectorEnv(factories)))[1].shape}"


def children(vector):
    return f"observes {vector.AsyncVectorEnv([HasChildren] * 2).reset(seed=0)[0]}"


def built_here(vector):
    built = []
    envs = vector.AsyncVectorEnv([lambda: built.append(1) or TwoSteps()] * 2)
    envs.close()
    return len(built)


CASES = {
    "a worker is killed: `step`": killed,
    "then `close()`": close_after_killed,
    "an environment raises what cannot be pickled": raises("raise_unpicklable"),
    "... what cannot be unpickled": raises("raise_needs_args"),
    "... a `ValueError` with a `%` in its text": raises("raise_percent"),
    "a constructor raises `ZeroDivisionError`": constructor,
    "`step_wait` timed out at `[1 1]`; the next `step`": step_after_timeout,
    "`call` of a missing method; the next `step`": failed_call,
    "`step` with too few actions; the next `reset`": wrong_count,
    "`reset()` after an end, `shared_memory=False`; the next `step` (11 is right)": reset_after_end,
    "a Text observation after two steps": text,
    "autoreset disabled, stepping on after the end (at 2)": disabled,
    "`final_obs` of an environment that reuses its array (2 is right)": final_obs,
    "a reset of env 0 under `RecordEpisodeStatistics`, after two steps": statistics,
    "the caller's `options` after a masked reset": options_kept,
    "`reset(seed=np.int64(7))`": numpy_seed,
    "an observation of shape `(1,)` where `(8,)` is promised": wrong_shape,
    "info arrays of differing shapes": info_shapes,
    "a reward of shape `(1,)`": reward_shape,
    "an environment that starts a child process": children,
    "environments built in the caller, only to be looked at": built_here,
}


def outcome(case, vector):
    """What came out, in a word: a value, or the name of an exception."""
    try:
        return str(case(vector))
    except (EOFError, OSError):
        return "`EOFError` or another error of its pipe"
    except Exception as error:
        return f"`{type(error).__name__}`"


class Attempt:
    """A case run in a fork of this process, since some of them never return."""

    def __init__(self, case, vector):
        self.read_end, write_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            os.write(write_end, outcome(case, vector).encode())
            signal.pause()
        os.close(write_end)

    def result(self, timeout_s):
        is_ready = select.select([self.read_end], [], [], timeout_s)[0]
        text = os.read(self.read_end, 1000).decode() if is_ready else "hangs"
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.read_end)
        return text


theirs = [Attempt(case, gymnasium.vector) for case in CASES.values()]
ours = [Attempt(case, shoal.vector.gym).result(timeout_s=60) for case in CASES.values()]
for name, attempt, text in zip(CASES, theirs, ours, strict=True):
    print(f"| {name} | {attempt.result(timeout_s=1)} | {text} |")

print(f"{len(CASES)} faults of Gymnasium {gymnasium.__version__}")
