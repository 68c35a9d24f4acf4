"""A few steps of planning: copies of one environment try out what it might do."""

import numpy as np

import shoal

rng = np.random.default_rng(7)


# --8<-- [start:plan]
def plan(envs, depth=15):
    """The first of those random actions after which the pole stayed up longest."""
    copies = np.arange(1, envs.num_envs)
    envs.branch(0, copies)  # they are where env 0 is; env 0 itself is not touched
    first, upright = None, np.ones(len(copies), dtype=bool)
    score = np.zeros(len(copies))
    for _ in range(depth):
        actions = rng.integers(2, size=len(copies))
        first = actions if first is None else first
        envs.send(actions, copies)
        batch = envs.recv()
        upright &= ~batch.terminations
        score += upright
    return first[score.argmax()]


# --8<-- [end:plan]

# --8<-- [start:loop]
with shoal.make("CartPole-v1", 17, num_workers=2) as envs:
    envs.reset(seed=7)
    steps, is_over = 0, False
    while steps < 40 and not is_over:
        envs.send(np.array([plan(envs)]), [0])
        is_over = envs.recv().terminations[0]
        steps += 1
# --8<-- [end:loop]

print(f"the pole stood for {steps} steps")
