"""Teams on every backend against a plain loop over PettingZoo's own environments."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("pettingzoo")

from players import NAMES, Meadow

import shoal
from conftest import ISOLATED, Setting
from shoal.vector.agents.make import as_team
from trace_of import assert_same

NUM_ENVS, STEPS = 5, 30
KINDS = [(True, ""), (False, ""), (True, "observation"), (True, "info"), (False, "info")]


class Said(NamedTuple):
    """What a team of one environment is told in one step, by agent, of those who are told."""

    seen: dict[str, Any]
    rewards: dict[str, float]
    terminations: dict[str, bool]
    truncations: dict[str, bool]
    alive: list[str]


def action(t: int, env_id: int, name: str, n: int) -> int:
    return (7 * t + 3 * env_id + 5 * NAMES.index(name)) % n


def plain_loop(env: Meadow, env_id: int, seed: int, mode: str) -> list[Said]:
    """What there is to be told, step by step; a step after an end is a reset (unless same_step)."""
    seen, _ = env.reset(seed=seed)
    said = [Said(seen, {}, {}, {}, env.agents)]
    for t in range(STEPS):
        if not env.agents:
            seen, _ = env.reset()
            said.append(Said(seen, {}, {}, {}, env.agents))
            continue
        chosen = {name: action(t, env_id, name, env.action_space(name).n) for name in env.agents}
        seen, *others, _ = env.step(chosen)
        if mode == "same_step" and not env.agents:
            seen, _ = env.reset()
        said.append(Said(seen, *others, env.agents))
    return said


def given(envs: Any, t: int) -> dict[str, Any]:
    return {
        name: np.array(
            [action(t, i, name, envs.single_action_space(name).n) for i in range(envs.num_envs)]
        )
        for name in envs.possible_agents
    }


def drive(envs: Any, mode: str) -> list[Any]:
    """The same steps of all environments at once."""
    seen, _ = envs.reset(seed=3)
    told = [(seen, {}, {}, {}, envs.alive.copy())]
    for t in range(STEPS):
        over = ~envs.alive.any(1)
        if mode == "disabled" and over.any():
            living = np.flatnonzero(~over)
            if len(living):
                envs.send({k: v[living] for k, v in given(envs, t).items()}, living)
                batch = envs.recv(len(living))
            again, _ = envs.reset_envs(np.flatnonzero(over))
            told.append(_put_together(envs, living, batch if len(living) else None, over, again))
            continue
        *results, _ = envs.step(given(envs, t))
        told.append((*results, envs.alive.copy()))
    return told


def _put_together(envs: Any, living: Any, batch: Any, over: Any, again: Any) -> Any:
    results: list[dict[str, Any]] = [{}, {}, {}, {}]
    for name in envs.possible_agents:
        space = envs.single_observation_space(name)
        rows: list[Any] = [None] * envs.num_envs
        for k, i in enumerate(living):
            rows[i] = _pick(batch.observations[name], k)
        for k, i in enumerate(np.flatnonzero(over)):
            rows[i] = _pick(again[name], k)
        results[0][name] = (space, rows)
        for at in (1, 2, 3):
            column = np.zeros(envs.num_envs, np.float64 if at == 1 else np.bool_)
            if batch is not None:
                column[living] = batch[at][name]
            results[at][name] = column
    return (*results, envs.alive.copy())


def _pick(values: Any, k: int) -> Any:
    if isinstance(values, dict):
        return {key: _pick(one, k) for key, one in values.items()}
    if isinstance(values, tuple):
        return values[1][k]
    return values[k]


def nothing_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: nothing_of(one) for key, one in value.items()}
    return value * 0


def assert_told(told: list[Any], expected: list[list[Said]], envs: Any) -> None:
    for t, (seen, rewards, terminations, truncations, alive) in enumerate(told):
        for i in range(envs.num_envs):
            said, where = expected[i][t], f"step {t}, env {i}"
            assert [n for n, is_so in zip(NAMES, alive[i], strict=True) if is_so] == [
                n for n in NAMES if n in said.alive
            ], where
            for name in NAMES:
                got = _pick(seen[name], i)
                want = said.seen.get(name)
                want = nothing_of(got) if want is None else want
                assert_same(got, want, f"{where}, {name}")
                if t:
                    assert rewards[name][i] == said.rewards.get(name, 0.0), f"{where}, {name}"
                    assert terminations[name][i] == said.terminations.get(name, False), where
                    assert truncations[name][i] == said.truncations.get(name, False), where


@pytest.mark.parametrize(("alike", "masks"), KINDS)
def test_a_team_is_told_what_a_plain_loop_tells_it(
    made: Any, mode: str, alike: bool, masks: str
) -> None:
    factory = partial(Meadow, alike, masks)
    envs = made("team", factory, NUM_ENVS, autoreset=mode)
    told = drive(envs, mode)
    expected = [plain_loop(factory(), i, 3 + i, mode) for i in range(NUM_ENVS)]
    assert_told(told, expected, envs)
    ends = [said for one in expected for said in one]
    assert any(any(said.terminations.values()) and said.alive for said in ends)  # one dies early
    assert any(any(said.truncations.values()) for said in ends)


def test_flags_are_bool_and_integers_stay_integers(made: Any) -> None:
    envs = made("team", partial(Meadow, False), 3)
    envs.reset(seed=0)
    seen, rewards, terminations, truncations, _ = envs.step(given(envs, 0))
    assert seen["bob"]["count"].dtype == np.int64
    for name in NAMES:
        assert rewards[name].dtype == np.float64
        assert terminations[name].dtype == truncations[name].dtype == np.bool_
        assert rewards[name].shape == (3,)


def test_agents_that_are_alike_are_stacked_without_a_copy(made: Any) -> None:
    envs = made("team", Meadow, 3)
    seen, _ = envs.reset(seed=0)
    stacked = envs.stacked()
    assert stacked.shape == (3, 4, 2)
    for k, name in enumerate(NAMES):
        assert np.shares_memory(stacked, seen[name])
        assert np.array_equal(stacked[:, k], seen[name])
    with made("team", partial(Meadow, False), 2) as others:
        others.reset(seed=0)
        with pytest.raises(shoal.ContractError, match="see different things"):
            others.stacked()


@pytest.mark.parametrize("masks", ["observation", "info", ""])
def test_masks_are_in_one_place_wherever_they_come_from(made: Any, masks: str) -> None:
    envs = made("team", partial(Meadow, True, masks), 2, autoreset="same_step")
    envs.reset(seed=1)
    for t in range(12):
        envs.step(given(envs, t))
        alive = envs.alive
        assert envs.action_masks.shape == (2, 4, 3)
        assert not envs.action_masks[~alive].any()
        possible = envs.action_masks[alive].sum(-1)
        fresh = infos_only_at_steps(envs, masks)
        assert set(possible.tolist()) <= ({2, 3} if fresh else {3} if not masks else {2})


def infos_only_at_steps(envs: Any, masks: str) -> bool:
    return masks == "info"  # Meadow's reset says nothing of masks


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "different"])
def test_a_team_that_chooses_for_itself_does_what_is_possible(alike: bool) -> None:
    env = as_team(Meadow(alike, "observation"))
    env.reset(seed=1)
    for _ in range(3):
        masks = {name: one["action_mask"] for name, one in env.env._seen().items()}
        for name, action in zip(NAMES, env.sample_possible(), strict=True):
            assert name not in masks or masks[name][action]
        *_, is_over, _, _ = env.step(env.sample_possible())
        assert not is_over


def test_what_an_episode_ended_with_is_kept(made: Any) -> None:
    envs = made("team", Meadow, 2, autoreset="same_step")
    envs.reset(seed=1)
    plain = Meadow()
    plain.reset(seed=1)
    for t in range(12):
        chosen = {name: action(t, 0, name, 3) for name in plain.agents}
        seen, rewards, terminations, truncations, infos = plain.step(chosen)
        _, got, ended, cut, told = envs.step(given(envs, t))
        if not plain.agents:
            break
    final = told["final_obs"][0]
    for name, last in seen.items():
        assert_same(final[name], last)
        assert got[name][0] == rewards[name]
        assert (ended[name][0], cut[name][0]) == (terminations[name], truncations[name])
    assert told["_final_obs"][0]
    assert told["final_info"][next(iter(infos))]["time"][0] == infos[next(iter(infos))]["time"]


def test_seeds_options_and_tasks_reach_a_team(made: Any) -> None:
    envs = made("team", Meadow, 3)
    seen, infos = envs.reset(seed=[5, 6, 5], options=[None, {"place": 7.0}, None])
    assert seen["ann"][1, 1] == 7.0
    assert np.array_equal(seen["bob"][0], seen["bob"][2])
    assert infos["cyd"]["born"].tolist() == [2, 2, 2]
    again, _ = envs.reset_envs([2], [9], [{"place": 1.0}])
    assert again["ann"].shape == (1, 2)
    assert again["ann"][0, 1] == 1.0
    envs.set_next_reset([0], [5], [{"place": 3.0}])
    for t in range(12):
        seen, *_ = envs.step(given(envs, t))
        if seen["ann"][0, 1] == 3.0:
            break
    else:
        pytest.fail("the planned reset never came")


def test_calls_reach_the_teams_environment(made: Any) -> None:
    envs = made("team", Meadow, 2, env_kwargs={"render_mode": "rgb_array"})
    envs.reset(seed=0)
    assert envs.get_attr("time") == (0, 0)
    envs.set_attr("height", [2.0, 3.0])
    assert envs.get_attr("height") == (2.0, 3.0)
    assert envs.call("state")[1].tolist() == [0.0]
    assert envs.render()[0].shape == (4, 4, 3)
    assert envs.stats()["num_envs"] == 2


def test_results_come_as_they_are_ready(made: Any) -> None:
    envs = made("team", Meadow, 4)
    whole = made("team", Meadow, 4)
    envs.reset(seed=2)
    whole.reset(seed=2)
    for t in range(6):
        actions = given(envs, t)
        *wanted, _ = whole.step(actions)
        envs.send(actions)
        got: dict[int, Any] = {}
        while len(got) < 4:
            batch = envs.recv(1)
            for k, env_id in enumerate(batch.env_ids):
                got[int(env_id)] = [_by_row(part, k) for part in batch[:4]]
        for env_id, found in got.items():
            assert_same(found, [_by_row(part, env_id) for part in wanted])
        assert np.array_equal(envs.alive, whole.alive)


def _by_row(by_agent: dict[str, Any], row: int) -> dict[str, Any]:
    return {name: one[row] for name, one in by_agent.items()}


def test_wrong_actions_are_told_in_words(made: Any) -> None:
    envs = made("team", Meadow, 2)
    envs.reset(seed=0)
    with pytest.raises(shoal.ContractError, match="no actions for 'bob', who is alive"):
        envs.step({"ann": np.zeros(2, int), "cyd": np.zeros(2, int)})
    with pytest.raises(shoal.ContractError, match="'anne', who is none of the agents"):
        envs.step({"anne": np.zeros(2, int)})
    actions = given(envs, 0)
    del actions["dee"]  # who is not born yet
    envs.step(actions)


WRONG = [
    (np.zeros(2, int), "expected a dict by agent, with 2 rows for each of"),
    (None, "are None; expected a dict by agent"),
    ({"bob": 0}, "actions of 'bob' are 0; expected 2 rows"),
    ({"bob": None}, "actions of 'bob' are None; expected 2 rows"),
    ({"bob": [0]}, "actions of 'bob' have 1 rows; expected 2"),
    ({"bob": [0, [1, 2]]}, r"action of 'bob' in env 1 is \[1, 2\]; expected one of Discrete"),
    ({"bob": [0, None]}, "action of 'bob' in env 1 is None; expected one of Discrete"),
    ({"bob": [0, 7]}, "action of 'bob' in env 1 is 7, outside its space Discrete"),
]


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "different"])
@pytest.mark.parametrize(("wrong", "words"), WRONG, ids=[words[:34] for _, words in WRONG])
def test_an_action_that_cannot_be_is_told_with_its_agent(
    wrong: Any, words: str, alike: bool
) -> None:
    with shoal.make_team(partial(Meadow, alike), 2, backend="serial") as envs:
        envs.reset(seed=0)
        actions = given(envs, 0) | wrong if isinstance(wrong, dict) else wrong
        with pytest.raises(shoal.ContractError, match=words):
            envs.step(actions)
        with pytest.raises(shoal.ContractError, match=words):
            envs.send(actions, [0, 1])
        envs.step(given(envs, 0))


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "different"])
def test_actions_of_who_is_not_there_are_not_looked_at(made: Any, mode: str, alike: bool) -> None:
    factory = partial(Meadow, alike)
    envs, usual = made("team", factory, 3, autoreset=mode), made("team", factory, 3, autoreset=mode)
    envs.reset(seed=3)
    usual.reset(seed=3)
    for t in range(12):
        if mode == "disabled" and not envs.alive.any(axis=1).all():
            break
        actions = given(envs, t)
        odd: dict[str, Any] = {}
        for k, name in enumerate(NAMES):
            each = zip(actions[name].tolist(), envs.alive[:, k].tolist(), strict=True)
            odd[name] = [one if is_alive else (None, 99, "?")[t % 3] for one, is_alive in each]
        assert_same(envs.step(odd)[:4], usual.step(actions)[:4])
    assert t > 2


def test_only_who_lives_where_it_is_sent_needs_an_action(made: Any) -> None:
    envs = made("team", Meadow, 3, autoreset="disabled")
    envs.reset(seed=3)
    while envs.alive[:, 0].all():
        envs.step(given(envs, 0))
    (dead,) = np.flatnonzero(~envs.alive[:, 0])[:1]
    assert envs.alive[:, 0].any()
    actions = {
        name: [1] for k, name in enumerate(NAMES) if envs.alive[dead, k]
    }  # ann lives elsewhere
    envs.send(actions, [dead])
    assert envs.recv().env_ids.tolist() == [dead]


class Doubles(Meadow):
    """Whose observations come as float64, and whose rewards as arrays of one."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        seen, infos = super().reset(seed, options)
        return {name: one.astype(np.float64) for name, one in seen.items()}, infos

    def step(self, actions: Any) -> Any:
        seen, rewards, *others = super().step(actions)
        return (
            {name: one.astype(np.float64) for name, one in seen.items()},
            {name: np.array([one]) for name, one in rewards.items()},
            *others,
        )


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "different"])
def test_numbers_that_are_cast_are_told_of_once(
    made: Any, alike: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(Doubles):
        def __init__(self) -> None:
            Meadow.__init__(self, True)
            if not alike:
                self._actions["bob"] = spaces.Discrete(2)
                self._spaces["bob"] = spaces.Box(-200.0, 200.0, (2,), np.float32)

    class Usual(Odd):
        reset, step = Meadow.reset, Meadow.step

    envs, usual = made("team", Odd, 3), made("team", Usual, 3)
    seen, _ = envs.reset(seed=3)
    assert_same(seen, usual.reset(seed=3)[0])
    for t in range(5):
        chosen = {name: np.full(3, t % 2) for name in NAMES}
        told, expected = envs.step(chosen), usual.step(chosen)
        assert_same(told[:4], expected[:4])
        assert told[0]["ann"].dtype == np.float32
    lines = [one.getMessage() for one in caplog.records if "is cast to" in one.getMessage()]
    kinds = {line.partition(" comes as ")[2] for line in lines}
    assert kinds == {"float64 and is cast to float32."}
    assert len(lines) == (1 if alike else 4)


@pytest.mark.parametrize("name", ["final_obs", "final_info", "restarted", "_bob"])
def test_an_agents_name_that_infos_need_is_refused(name: str) -> None:
    class Named(Meadow):
        def __init__(self) -> None:
            super().__init__()
            self.possible_agents = [name, "bob"]
            self._spaces[name], self._actions[name] = self._spaces["ann"], self._actions["ann"]

    with pytest.raises(shoal.ConfigError, match=f"an agent is called '{name}'"):
        shoal.make_team(Named, 1, backend="serial")


class Crashing(Meadow):
    """One whose worker is lost in its fourth step."""

    def step(self, actions: Any) -> Any:
        if self.time == 3 and self.height == 5.0:
            import os

            os._exit(1)
        return super().step(actions)


@pytest.mark.parametrize("setting", ISOLATED[:2], ids=str, indirect=True)
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_a_lost_team_is_truncated_and_the_others_go_on(
    made: Any, setting: Setting, mode: str
) -> None:
    envs = made("team", Crashing, 4, autoreset=mode, num_workers=4)
    envs.reset(seed=3)
    envs.set_attr("height", 5.0, [1])
    undisturbed = [plain_loop(Meadow(), i, 3 + i, mode) for i in range(4)]
    seen_loss = False
    for t in range(6):
        before = envs.alive.copy()
        seen, rewards, _, truncations, infos = envs.step(given(envs, t))
        if "restarted" in infos:
            seen_loss = True
            assert infos["restarted"].tolist() == [False, True, False, False]
            for k, name in enumerate(NAMES):
                assert truncations[name][1] == before[1, k]
                assert rewards[name][1] == 0.0
        for i in (0, 2, 3):
            for name, want in undisturbed[i][t + 1].seen.items():
                assert_same(seen[name][i], want)
    assert seen_loss


@pytest.mark.parametrize("setting", ISOLATED[:2], ids=str, indirect=True)
def test_a_lost_team_is_replayed(made: Any, setting: Setting, tmp_path: Any) -> None:
    envs = made("team", partial(CrashingOnce, str(tmp_path)), 3, on_failure="replay")
    told = drive(envs, "next_step")
    expected = [plain_loop(Meadow(), i, 3 + i, "next_step") for i in range(3)]
    assert_told(told, expected, envs)
    assert envs.stats()["replays"] >= 1


class CrashingOnce(Meadow):
    """One whose worker is lost once, in the fifth step of an episode."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def step(self, actions: Any) -> Any:
        import os
        from pathlib import Path

        mark = Path(self._folder) / "crashed"
        if self.time == 4 and not mark.exists():
            mark.touch()
            os._exit(1)
        return super().step(actions)


def test_rewards_and_flags_are_the_callers_own_even_without_copies(made: Any) -> None:
    envs = made("team", Meadow, 3, autoreset="same_step", copy=False)
    own = made("team", Meadow, 3, autoreset="same_step")
    envs.reset(seed=1)
    own.reset(seed=1)
    told, wanted = [], []
    for t in range(20):
        told.append(envs.step(given(envs, t))[1:4])
        wanted.append(own.step(given(own, t))[1:4])
    assert_same(told, wanted)


class Unlisted(Meadow):
    """Never takes anybody off its list, as PettingZoo asks for."""

    def step(self, actions: dict[str, Any]) -> Any:
        self.agents = [name for name in self.agents if name not in self.gone]
        told = super().step({name: actions[name] for name in self.agents})
        self.gone |= {name for name in told[0] if told[2][name] or told[3][name]}
        self.agents = [*told[0], *(name for name in self.gone if name not in told[0])]
        return told

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.gone: set[str] = set()
        return super().reset(seed, options)


def test_an_episode_ends_when_all_have_even_if_they_are_still_listed(made: Any) -> None:
    envs = made("team", Unlisted, 3, autoreset="same_step")
    expected = made("team", Meadow, 3, autoreset="same_step")
    envs.reset(seed=1)
    expected.reset(seed=1)
    ends = 0
    for t in range(20):
        *got, infos = envs.step(given(envs, t))
        *wanted, said = expected.step(given(expected, t))
        assert_same(got[2:], wanted[2:])
        assert ("final_obs" in infos) == ("final_obs" in said)
        ends += "final_obs" in said
    assert ends
