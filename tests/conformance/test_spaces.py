"""What the environment returned is what the user sees, whatever the spaces are made of."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shoal
from conftest import Make
from trace_of import assert_same

NUM_ENVS = 3

DTYPES = [np.float16, np.float32, np.float64, np.uint8, np.int8, np.int16, np.int32, np.int64]
shapes = st.lists(st.integers(1, 3), max_size=2).map(tuple)


def boxes(dtype: Any, shape: tuple[int, ...]) -> spaces.Space[Any]:
    if np.dtype(dtype).kind == "f":
        return spaces.Box(-1, 1, shape, dtype)
    info = np.iinfo(dtype)
    return spaces.Box(max(info.min, -100), min(info.max, 100), shape, dtype)


leaves = st.one_of(
    st.builds(boxes, st.sampled_from(DTYPES), shapes),
    st.builds(
        lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 9), st.integers(-5, 5)
    ),
    st.lists(st.integers(1, 5), min_size=1, max_size=3).map(spaces.MultiDiscrete),
    st.integers(1, 4).map(spaces.MultiBinary),
    st.integers(1, 6).map(spaces.Text),
    st.just(None).map(lambda _: spaces.Sequence(spaces.Box(0, 1, (2,)))),
    st.just(None).map(lambda _: spaces.Graph(spaces.Box(0, 1, (2,)), spaces.Discrete(3))),
    st.just(None).map(lambda _: spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1, (1,))])),
)
any_space = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3).map(spaces.Dict),
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=4,
)


class Sampler(gymnasium.Env[Any, Any]):
    """Returns samples of its space, and remembers what it returned and what it was told."""

    def __init__(self, observation: Any, action: Any, tag: int) -> None:
        self.observation_space, self.action_space = observation, action
        self.observation_space.seed(tag)
        self.returned: list[Any] = []
        self.told: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.told.append(action)
        return self._sample(), 0.0, len(self.told) % 3 == 0, False, {}

    def _sample(self) -> Any:
        self.returned.append(self.observation_space.sample())
        return self.returned[-1]


def check_world(envs: shoal.VectorEnv, observation_space: Any, action_space: Any) -> None:
    seen, given_actions, finals = [envs.reset(seed=0)[0]], [], []
    envs.action_space.seed(3)
    for _ in range(4):
        given_actions.append(envs.action_space.sample())
        results = envs.step(given_actions[-1])
        seen.append(results[0])
        finals.append(results[4].get("final_obs"))
    for observations in seen:
        assert observations in envs.observation_space
    for env_id in range(NUM_ENVS):
        returned, told = envs.get_attr("returned", [env_id])[0], envs.get_attr("told", [env_id])[0]
        # The episode ends with the third step: the observation before the reset is the final one.
        shown = [returned[k] for k in (0, 1, 2, 4, 5)]
        for observations, expected in zip(seen, shown, strict=True):
            got = list(gymnasium.vector.utils.iterate(envs.observation_space, observations))
            assert_same(settled(got[env_id]), settled(expected))
        assert_same(settled(finals[2][env_id]), settled(returned[3]))
        for actions, expected in zip(given_actions, told, strict=True):
            got = list(gymnasium.vector.utils.iterate(envs.action_space, actions))
            assert_same(settled(got[env_id]), settled(expected))


def settled(value: Any) -> Any:
    """NumPy's numbers as arrays: a row of a batch of numbers is one or the other."""
    if isinstance(value, dict):
        return {key: settled(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [settled(one) for one in value]
    return np.asarray(value) if isinstance(value, np.generic) else value


def make_world(backend: str, observation: Any, action: Any) -> shoal.VectorEnv:
    return shoal.make(
        [lambda tag=tag: Sampler(observation, action, tag) for tag in range(NUM_ENVS)],
        backend=backend,
        num_workers=2,
        autoreset="same_step",
    )


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(observation=any_space, action=any_space)
@pytest.mark.parametrize("backend", ["serial", "thread"])
def test_any_composition_of_spaces_survives_in_one_process(
    backend: str, observation: Any, action: Any
) -> None:
    with make_world(backend, observation, action) as envs:
        check_world(envs, observation, action)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(observation=any_space, action=any_space)
def test_any_composition_of_spaces_survives_between_processes(
    observation: Any, action: Any
) -> None:
    with make_world("process", observation, action) as envs:
        check_world(envs, observation, action)


class Token(spaces.Space[str]):
    """A space of one's own, with nothing registered for it."""

    def __init__(self) -> None:
        super().__init__(None, None)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return f"token-{self.np_random.integers(100)}"

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and x.startswith("token-")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Token)


def test_a_space_of_ones_own_mixes_with_shared_leaves(make: Make) -> None:
    space = spaces.Dict({"token": Token(), "image": spaces.Box(0, 255, (4, 4), np.uint8)})
    envs = make(
        [lambda tag=tag: Sampler(space, Token(), tag) for tag in range(NUM_ENVS)],
        autoreset="same_step",
    )
    check_world(envs, space, Token())
