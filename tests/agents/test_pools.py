"""What every pool can do, with teams and with turns: resize, branch, plan resets, lose workers."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo")

from players import Meadow, Round

import shoal
from conftest import ISOLATED, Setting
from trace_of import assert_same

WORLDS = {"team": Meadow, "turns": Round}
KINDS = pytest.mark.parametrize("kind", list(WORLDS))


def taken(envs: Any, kind: str, t: int) -> Any:
    """One step, and what it told but for infos: of every environment, in its order."""
    each = (np.arange(envs.num_envs) + 3 * t) % 3
    if kind == "turns":
        return tuple(envs.step(each)[:6])
    return tuple(envs.step(dict.fromkeys(envs.possible_agents, each))[:4])


def part(told: Any, rows: Any) -> Any:
    if isinstance(told, dict):
        return {key: part(one, rows) for key, one in told.items()}
    return tuple(part(one, rows) for one in told) if isinstance(told, tuple) else told[rows]


def first(envs: Any, kind: str) -> Any:
    return tuple(envs[:6]) if kind == "turns" else envs[0]


@KINDS
def test_more_or_fewer_environments_change_nothing_for_the_others(made: Any, kind: str) -> None:
    envs = made(kind, WORLDS[kind], 3, autoreset="same_step")
    whole = made(kind, WORLDS[kind], 5, autoreset="same_step")
    began = first(whole.reset(seed=1), kind)
    envs.reset(seed=1)
    for t in range(4):
        assert_same(taken(envs, kind, t), part(taken(whole, kind, t), slice(3)))
    assert_same(first(envs.resize(5, 2), kind), part(began, slice(3, 5)))
    if kind == "team":
        assert envs.alive.shape == (5, 4)
        assert envs.alive[3:].any(1).all()
    kept = part(taken(whole, kind, 4), slice(3))
    assert_same(part(taken(envs, kind, 4), slice(3)), kept)
    envs.resize(2)
    assert_same(taken(envs, kind, 5), part(taken(whole, kind, 5), slice(2)))


def test_environments_that_are_new_have_not_ended(made: Any) -> None:
    envs = made("turns", Round, 2)
    envs.reset(seed=1)
    t = 0
    while not envs.ended.any():
        taken(envs, "turns", t)
        t += 1
    before = envs.ended
    envs.resize(6)
    assert envs.ended.tolist() == [*before.tolist(), *[False] * 4]


@KINDS
def test_an_environment_goes_on_from_where_another_stands(made: Any, kind: str) -> None:
    envs = made(kind, WORLDS[kind], 3)
    envs.reset(seed=1)
    for t in range(4):
        taken(envs, kind, t)
    envs.branch(0, [2])
    if kind == "team":
        assert_same((envs.alive[0], envs.action_masks[0]), (envs.alive[2], envs.action_masks[2]))
    chosen = np.zeros(3, int)
    for _ in range(4):
        if kind == "turns":
            told = tuple(envs.step(chosen)[:6])
        else:
            told = tuple(envs.step(dict.fromkeys(envs.possible_agents, chosen))[:4])
        assert_same(part(told, 0), part(told, 2))


@KINDS
def test_environments_go_on_where_others_stood(made: Any, kind: str) -> None:
    envs, others = made(kind, WORLDS[kind], 3), made(kind, WORLDS[kind], 3)
    envs.reset(seed=1)
    for t in range(3):
        taken(envs, kind, t)
    assert others.go_on(envs.mementos()) == []
    if kind == "team":
        assert_same((others.alive, others.action_masks), (envs.alive, envs.action_masks))
    assert_same(taken(others, kind, 3), taken(envs, kind, 3))


@KINDS
def test_a_planned_reset_comes_with_the_next_end(made: Any, kind: str) -> None:
    option = {"team": "place", "turns": "sum"}[kind]
    envs = made(kind, WORLDS[kind], 2, autoreset="same_step")
    envs.reset(seed=1)
    envs.set_next_reset([1], [5], [{option: 42.0}])
    for t in range(60):
        told = taken(envs, kind, t)
        seen = told[1][1, 2] if kind == "turns" else told[0]["ann"][1, 1]
        if seen == 42.0:
            return
    pytest.fail("the planned reset never came")


@KINDS
def test_some_are_reset_by_a_mask(made: Any, kind: str) -> None:
    envs = made(kind, WORLDS[kind], 3)
    envs.reset(seed=1)
    taken(envs, kind, 0)
    again = envs.reset(seed=1, options={"reset_mask": np.array([False, True, False])})
    times = again.observations[:, 0] if kind == "turns" else again[0]["ann"][:, 0]
    assert times.tolist() == [1.0, 0.0, 1.0]


@KINDS
def test_a_call_that_fails_harms_nobody(made: Any, kind: str) -> None:
    envs, whole = made(kind, WORLDS[kind], 2), made(kind, WORLDS[kind], 2)
    envs.reset(seed=1)
    whole.reset(seed=1)
    with pytest.raises(shoal.EnvRaised) as caught:
        envs.call("observation_space", "nobody")
    assert isinstance(caught.value.__cause__, KeyError)
    assert_same(taken(envs, kind, 0), taken(whole, kind, 0))


def test_what_was_got_is_kept_whatever_comes_after(made: Any) -> None:
    envs = made("team", Meadow, 3, autoreset="same_step")
    envs.reset(seed=1)
    alive, masks = envs.alive, envs.action_masks
    copies = alive.copy(), masks.copy()
    for t in range(6):
        taken(envs, "team", t)
    envs.reset_envs([1])
    assert_same((alive, masks), copies)


def test_the_stacked_view_is_of_what_came_last(made: Any) -> None:
    envs = made("team", Meadow, 4)
    envs.reset(seed=1)
    seen, _ = envs.reset_envs([2, 1])
    assert envs.stacked().shape == (2, 4, 2)
    assert np.shares_memory(envs.stacked(), seen["bob"])
    chosen = np.zeros(4, int)
    envs.send(dict.fromkeys(envs.possible_agents, chosen))
    batch = envs.recv(1)
    assert len(envs.stacked()) == len(batch.env_ids)
    assert np.shares_memory(envs.stacked(), batch.observations["ann"])


WRAPPED = {
    "team": ("mpe2.simple_spread_v3:parallel_env", "max_cycles", 3),
    "turns": ("pettingzoo.classic.connect_four_v3:env", "screen_scaling", 2),
}


@KINDS
def test_an_attribute_is_set_where_it_is_below_pettingzoos_wrappers(made: Any, kind: str) -> None:
    name, attribute, value = WRAPPED[kind]
    pytest.importorskip(name.partition(":")[0])
    envs = made(kind, name, 2)
    before = envs.get_attr(attribute)
    envs.set_attr(attribute, value, [1])
    assert envs.get_attr(attribute) == (before[0], value)
    assert envs.call(kept_inside, attribute) == (before[0], value)
    envs.set_attr("new_to_all", 5)
    assert envs.get_attr("new_to_all") == (5, 5)
    assert envs.call(kept_inside, "new_to_all") == (None, None)


def kept_inside(env: Any, name: str) -> Any:
    """An attribute of the innermost environment itself."""
    return vars(env.env.unwrapped).get(name)


def test_what_was_set_below_wrappers_has_its_effect(made: Any) -> None:
    pytest.importorskip("mpe2")
    envs = made("team", "mpe2.simple_spread_v3:parallel_env", 2, autoreset="same_step")
    envs.reset(seed=0)
    envs.set_attr("max_cycles", [3, 5])
    ends = []
    for t in range(5):
        *_, truncations, _ = envs.step({name: np.zeros(2, int) for name in envs.possible_agents})
        ends += [(t + 1, i) for i in np.flatnonzero(truncations["agent_0"]).tolist()]
    assert ends == [(3, 0), (5, 1)]


class Dying:
    """Its process is gone once, in the fourth step of an episode of the environment that may."""

    def __init__(self, folder: str) -> None:
        self.mark = Path(folder) / "gone"

    def __call__(self, time: int) -> None:
        if time == 3 and not self.mark.exists():
            self.mark.touch()
            os._exit(1)


class DyingMeadow(Meadow):
    def __init__(self, folder: str) -> None:
        super().__init__()
        self.die = Dying(folder)

    def step(self, actions: Any) -> Any:
        self.die(self.time)
        return super().step(actions)


class DyingRound(Round):
    def __init__(self, folder: str) -> None:
        super().__init__()
        self.die = Dying(folder)

    def step(self, action: Any) -> None:
        self.die(self.time)
        super().step(action)


DYING = {"team": DyingMeadow, "turns": DyingRound}


def some_die(kind: str, folder: Path) -> list[Any]:
    """Factories of three environments, of which the second one dies."""
    world = WORLDS[kind]
    return [world, partial(DYING[kind], str(folder)), world]


@KINDS
@pytest.mark.parametrize("setting", ISOLATED[:2], ids=str, indirect=True)
def test_with_replay_a_dead_worker_changes_nothing(
    made: Any, setting: Setting, kind: str, tmp_path: Path
) -> None:
    envs = made(kind, some_die(kind, tmp_path), autoreset="same_step", on_failure="replay")
    whole = made(kind, WORLDS[kind], 3, autoreset="same_step")
    assert_same(first(envs.reset(seed=1), kind), first(whole.reset(seed=1), kind))
    for t in range(20):
        assert_same(taken(envs, kind, t), taken(whole, kind, t))
    assert envs.stats()["replays"] >= 1


@pytest.mark.parametrize("setting", ISOLATED[1:2], ids=str, indirect=True)
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_lost_turns_are_cut_off_and_the_others_go_on(
    made: Any, setting: Setting, mode: str, tmp_path: Path
) -> None:
    envs = made("turns", some_die("turns", tmp_path), num_workers=3, autoreset=mode)
    whole = made("turns", Round, 3, autoreset=mode)
    before = envs.reset(seed=1)
    whole.reset(seed=1)
    for _ in range(12):
        chosen = np.zeros(3, int)
        turn, wanted = envs.step(chosen), whole.step(chosen)
        for i in (0, 2):
            assert_same(part(tuple(turn[:6]), i), part(tuple(wanted[:6]), i))
        if "restarted" in turn.infos:
            assert turn.infos["restarted"].tolist() == [False, True, False]
            assert envs.ended[1]
            if mode == "same_step":
                assert turn.agent_ids[1] == 0
                assert_same(turn.infos["final_obs"][1], before.observations[1])
            else:
                assert (turn.rewards[1], turn.truncations[1]) == (0.0, True)
            return
        before = turn
    pytest.fail("nobody was lost")
