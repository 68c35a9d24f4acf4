"""A worker is killed in the middle of a run: what restart and replay make of it."""

import os
import signal

import gymnasium
import numpy as np

import shoal

# --8<-- [start:settings]
envs = shoal.make(
    "CartPole-v1",
    num_envs=4,
    num_workers=2,
    on_failure="restart",  # or "replay", or "raise"
    step_timeout_s=10.0,
    faults=shoal.Faults(on_error="restart", max_restarts=10, max_worker_rss_mb=2000),
)
# --8<-- [end:settings]
envs.close()


# --8<-- [start:victim]
class Victim(gymnasium.Wrapper):
    """Tells the process that it lives in, so that somebody can kill it."""

    @property
    def pid(self):
        return os.getpid()


# --8<-- [end:victim]


# --8<-- [start:run]
def run(kills, **settings):
    """Everything that 100 steps of four environments return, and what the engine says of them."""
    made = shoal.make(
        "CartPole-v1", 4, backend="process", num_workers=2, wrappers=[Victim], **settings
    )
    with made as envs:
        envs.action_space.seed(1)
        rows = [(envs.reset(seed=7)[0],)]
        for step in range(100):
            if step in kills:
                os.kill(envs.get_attr("pid")[2], signal.SIGKILL)  # with it goes env 3
            rows.append(envs.step(envs.action_space.sample()))
        return rows, envs.stats()


def same(some, others, env_ids):
    """Whether environments did the same in both runs, bit for bit."""
    return all(
        np.array_equal(array[env_ids], other[env_ids])
        for row, other_row in zip(some, others, strict=True)
        for array, other in zip(row[:4], other_row[:4], strict=True)
    )


undisturbed, _ = run(kills=())
# --8<-- [end:run]

# --8<-- [start:restart]
rows, stats = run(kills={5}, on_failure="restart")  # the default
observations, rewards, terminations, truncations, infos = rows[6]
print("rewards     ", rewards)
print("terminations", terminations)
print("truncations ", truncations)
print("restarted   ", infos["restarted"])
assert np.array_equal(observations[2:], rows[5][0][2:])  # the last known ones
print("envs 0 and 1 as undisturbed:", same(rows, undisturbed, [0, 1]))
print("envs 2 and 3 as undisturbed:", same(rows, undisturbed, [2, 3]))
# --8<-- [end:restart]

# --8<-- [start:incident]
(incident,) = stats["incidents"]
print(incident["kind"], incident["worker"], incident["env_ids"], incident["outcome"])
print(stats["restarts"], "environments restarted,", stats["replays"], "replayed")
# --8<-- [end:incident]

# --8<-- [start:replay]
rows, stats = run(kills={5, 40, 41, 90}, on_failure="replay")
print(stats["num_incidents"], "deaths,", stats["replays"], "environments replayed")
print("the whole run as undisturbed:", same(rows, undisturbed, [0, 1, 2, 3]))
# --8<-- [end:replay]
