"""The drop-in for AgileRL's vector environment, against plain loops over PettingZoo's environments.

AgileRL itself is not needed here; `make agilerl-tests` compares with the original.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError

pytest.importorskip("pettingzoo")

from plain_team import Plain, nothing_of, row_of
from players import NAMES, Meadow

import shoal
from conftest import Setting
from shoal.vector.agilerl import AsyncPettingZooVecEnv
from trace_of import assert_same

NUM_ENVS, STEPS, SEED = 5, 30, 3
Open = Callable[..., AsyncPettingZooVecEnv]


def spread() -> Any:
    from mpe2 import simple_spread_v3

    return simple_spread_v3.parallel_env(max_cycles=9)


def adversary() -> Any:
    from mpe2 import simple_adversary_v3

    return simple_adversary_v3.parallel_env(max_cycles=7, continuous_actions=True)


WORLDS: dict[str, Any] = {
    "alike": Meadow,
    "different": partial(Meadow, False),
    "masks": partial(Meadow, True, "info"),
    "spread": spread,
    "adversary": adversary,
}


@pytest.fixture
def opened(setting: Setting) -> Iterator[Open]:
    """The drop-in on the backend of this test; closes whatever it made."""
    made: list[AsyncPettingZooVecEnv] = []

    def open_on_setting(env_fns: list[Any], *args: Any, **kwargs: Any) -> AsyncPettingZooVecEnv:
        where = {"backend": setting.backend, "num_workers": setting.num_workers}
        made.append(AsyncPettingZooVecEnv(env_fns, *args, **where | kwargs))
        return made[-1]

    yield open_on_setting
    for envs in made:
        envs.close()


@pytest.fixture
def two() -> Iterator[AsyncPettingZooVecEnv]:
    """Two environments in one worker process."""
    with AsyncPettingZooVecEnv([Recorder] * 2, num_workers=1) as envs:
        yield envs


def chosen(envs: Any, t: int) -> dict[str, Any]:
    """Actions of everyone, dead or alive."""
    rng = np.random.default_rng(t)
    found = {}
    for name in envs.agents:
        space = envs.single_action_space(name)
        if isinstance(space, spaces.Discrete):
            found[name] = rng.integers(0, space.n, envs.num_envs)
        else:
            found[name] = rng.random((envs.num_envs, *space.shape)).astype(space.dtype)
    return found


def compare(envs: Any, factory: Any, check: Callable[..., None]) -> list[Plain]:
    """Step both; `check` is called with results and what a plain loop knows of each step."""
    plain = [Plain(factory()) for _ in range(envs.num_envs)]
    seen, infos = envs.reset(seed=SEED)
    for i, one in enumerate(plain):
        one.reset(seed=SEED + i)
    check(plain, seen, None, None, None, infos)
    for t in range(STEPS):
        actions = chosen(envs, t)
        for i, one in enumerate(plain):
            one.step({name: actions[name][i] for name in envs.agents})
        check(plain, *envs.step(actions))
    return plain


# --- traces --------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", WORLDS)
def test_it_tells_what_plain_loops_tell(opened: Open, world: str) -> None:
    factory = WORLDS[world]
    envs = opened([factory] * NUM_ENVS)

    def check(plain: list[Plain], seen: Any, rewards: Any, ended: Any, cut: Any, _: Any) -> None:
        for name in envs.agents:
            for i, one in enumerate(plain):
                got = row_of(seen[name], i)
                assert_same(got, one.seen.get(name, nothing_of(got)))
            if rewards is not None:
                assert_same(rewards[name], np.array([one.rewards.get(name, 0.0) for one in plain]))
                gone = [one.terminations.get(name, name not in one.alive_then) for one in plain]
                assert_same(ended[name], np.array(gone))
                assert_same(
                    cut[name], np.array([one.truncations.get(name, False) for one in plain])
                )

    plain = compare(envs, factory, check)
    assert sum(one.episodes for one in plain) > NUM_ENVS


@pytest.mark.parametrize("world", ["alike", "different", "spread"])
def test_masks_say_who_is_there_and_what_episodes_ended_with_is_kept(
    opened: Open, world: str
) -> None:
    factory = WORLDS[world]
    envs = opened([factory] * NUM_ENVS)
    ends = 0

    def check(plain: list[Plain], seen: Any, rewards: Any, ended: Any, cut: Any, info: Any) -> None:
        nonlocal ends
        for name in envs.agents:
            mine = info[name]
            assert_same(mine["alive"], np.array([name in one.env.agents for one in plain]))
            assert_same(mine["observed"], np.array([name in one.seen for one in plain]))
            if rewards is None:
                continue
            assert_same(mine["rewarded"], np.array([name in one.rewards for one in plain]))
            last = [one.last and one.last.get(name) for one in plain]
            assert ("final_obs" in mine) == any(one.last is not None for one in plain)
            for i, one in enumerate(plain):
                if one.last is not None:
                    ends += 1
                    assert mine["_final_obs"][i] == (last[i] is not None)
                    got = row_of(mine["final_obs"], i)
                    assert_same(got, nothing_of(got) if last[i] is None else last[i])
                    said = one.last_infos.get(name)
                    if said and "time" in said:
                        assert mine["final_info"]["time"][i] == said["time"]
                        assert mine["_final_info"][i]
        others = {key: one for key, one in info.items() if key not in envs.agents}
        assert not any(isinstance(one, dict) for one in others.values()), others

    compare(envs, factory, check)
    assert ends


@pytest.mark.parametrize("world", ["alike", "different"])
@pytest.mark.parametrize("copy", [True, False])
def test_absent_agents_are_nan_where_that_is_asked_for(
    opened: Open, world: str, copy: bool
) -> None:
    factory = WORLDS[world]
    envs = opened([factory] * NUM_ENVS, copy, absent="nan")

    def check(plain: list[Plain], seen: Any, rewards: Any, ended: Any, cut: Any, _: Any) -> None:
        for name in envs.agents:
            for i, one in enumerate(plain):
                got = row_of(seen[name], i)
                assert_same(got, one.seen.get(name, nothing_of(got, np.nan)))
            if rewards is None:
                continue
            told = zip(
                (rewards, ended, cut),
                ("rewards", "terminations", "truncations"),
                strict=True,
            )
            for values, what in told:  # the very arrays that AgileRL makes
                each = [getattr(one, what).get(name, np.nan) for one in plain]
                assert_same(values[name], np.array(each))

    compare(envs, factory, check)


def test_agents_that_stay_listed_after_their_end_have_ended(opened: Open) -> None:
    envs = opened([Listed] * 3)
    envs.reset(seed=0)
    for t in range(9):
        seen, _, ended, cut, infos = envs.step({name: np.zeros(3) for name in envs.agents})
        is_over = t % 3 == 2  # the second of two agents ends in the third step
        assert ended["a"].tolist() == [t % 3 >= 1] * 3
        assert cut["b"].tolist() == [is_over] * 3
        assert ("final_obs" in infos["b"]) == is_over
        assert seen["b"][:, 0].tolist() == [0 if is_over else t % 3 + 1] * 3


class Listed(Meadow):
    """Two agents of whom the list tells nothing: nobody is ever taken off it."""

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = ["a", "b"]

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 9, (1,), np.int32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.time, self.agents = 0, ["a", "b"]
        return self._all(np.zeros(1, np.int32)), self._all({})

    def step(self, actions: dict[str, Any]) -> Any:
        self.time += 1
        seen = self._all(np.full(1, self.time, np.int32))
        terminations = {"a": self.time >= 2, "b": False}
        return seen, self._all(1.0), terminations, {"a": False, "b": self.time == 3}, self._all({})

    def _all(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.possible_agents, value)


def test_flags_are_bool_and_integers_stay_integers(opened: Open) -> None:
    envs = opened([partial(Meadow, False)] * 3)
    envs.reset(seed=0)
    for t in range(12):
        seen, rewards, terminations, truncations, infos = envs.step(chosen(envs, t))
        assert seen["bob"]["count"].dtype == np.int64
        for name in NAMES:
            assert rewards[name].dtype == np.float64
            assert terminations[name].dtype == truncations[name].dtype == np.bool_
            assert not np.isnan(rewards[name]).any()
        if "final_obs" in infos["bob"]:
            assert infos["bob"]["final_obs"]["count"].dtype == np.int64


# --- seeds and options ---------------------------------------------------------------------------


def test_seeds_are_one_more_for_each_environment_or_a_list(opened: Open) -> None:
    envs = opened([Meadow] * 3)
    by_number, _ = envs.reset(seed=10)
    by_list, _ = envs.reset(seed=[10, 11, 12])
    assert_same(by_list, by_number)
    for i in range(3):
        first, _ = Meadow().reset(seed=10 + i)
        assert_same(by_number["ann"][i], first["ann"])
    with pytest.raises(ValueError, match="length must match num_envs=3 but got length=2"):
        envs.reset(seed=[1, 2])
    envs.reset()  # nothing is pending


def test_options_are_for_all_or_for_each(opened: Open) -> None:
    envs = opened([Meadow] * 2)
    seen, _ = envs.reset(seed=0, options={"place": 7.0})
    assert seen["ann"][:, 1].tolist() == [7.0, 7.0]
    seen, _ = envs.reset(seed=0, options=[{"place": 5.0}, {"place": 6.0}])
    assert seen["ann"][:, 1].tolist() == [5.0, 6.0]


def test_what_it_is_made_of_is_described(opened: Open) -> None:
    envs = opened([partial(Meadow, False, render_mode="rgb_array")] * 2)
    world = Meadow(False)
    assert envs.agents == envs.possible_agents == NAMES
    assert (envs.num_envs, envs.num_agents, envs.closed) == (2, 4, False)
    assert envs.metadata == world.metadata
    assert envs.render_mode == "rgb_array"
    assert envs.unwrapped is envs
    for name in NAMES:
        assert envs.single_observation_space(name) == world.observation_space(name)
        assert envs.single_action_space(name) == world.action_space(name)
    assert envs.action_space("cyd") == spaces.MultiDiscrete([4, 4])
    assert envs.observation_space("ann").shape == (2, 2)
    seen, _ = envs.reset(seed=0)
    for name in NAMES:
        assert envs.observation_space(name).contains(seen[name])
    assert_same(envs.get_observations(), seen)


# --- who acts ------------------------------------------------------------------------------------


class Recorder(Meadow):
    """Keeps what it was given; nobody ends."""

    metadata: ClassVar[dict[str, Any]] = {"name": "recorder"}

    def __init__(self, alike: bool = True) -> None:
        super().__init__(alike)
        self.given: dict[str, Any] = {}

    def action_space(self, agent: str) -> Any:
        if agent == "cyd" and not self._alike:
            return spaces.Box(-1, 1, (2,), np.float32)
        return spaces.Discrete(3, start=5)

    def step(self, actions: dict[str, Any]) -> Any:
        self.given = dict(actions)
        seen = self._seen()
        nobody = dict.fromkeys(self.agents, False)
        return seen, dict.fromkeys(self.agents, 1.0), nobody, nobody, {}


def test_whose_action_is_nan_or_missing_does_nothing(opened: Open) -> None:
    envs = opened([partial(Recorder, False)] * 3)
    envs.reset(seed=0)
    cyd = np.array([[0.5, np.nan], [np.nan, np.nan], [1, 2]], np.float32)
    seen, rewards, *_ = envs.step({"ann": np.array([5.0, 7.0, np.nan]), "cyd": cyd})
    first, second, third = envs.get_attr("given")
    assert (set(first), set(second), set(third)) == ({"ann", "cyd"}, {"ann"}, {"cyd"})
    assert (first["ann"], second["ann"]) == (5, 7)
    assert isinstance(first["ann"], int | np.integer)
    assert_same(first["cyd"], cyd[0])
    assert_same(third["cyd"], cyd[2])
    assert rewards["bob"].tolist() == [1.0, 1.0, 1.0]  # who did nothing is there all the same
    assert seen["bob"]["near"][:, 1].any()


@pytest.mark.parametrize("alike", [True, False])
def test_actions_may_come_by_environment(opened: Open, alike: bool) -> None:
    envs = opened([partial(Recorder, alike)] * 2)
    envs.reset(seed=0)
    envs.step_async([{"ann": 6, "bob": np.array([7])}, {"bob": np.int64(5)}])
    envs.step_wait()
    assert envs.get_attr("given") == ({"ann": 6, "bob": 7}, {"bob": 5})
    with pytest.raises(shoal.ContractError, match="1 dicts of actions; expected 2"):
        envs.step_async([{}])
    envs.step_async([{}, {}])
    envs.step_wait()
    assert envs.get_attr("given") == ({}, {})


def test_tensors_and_rows_of_one_number_are_understood(opened: Open) -> None:
    torch = pytest.importorskip("torch")
    envs = opened([partial(Recorder, False)] * 2)
    envs.reset(seed=0)
    thought = torch.tensor([[0.1, 0.2], [0.3, 0.4]], requires_grad=True)
    envs.step({"ann": torch.tensor([5, 6]), "bob": np.array([[6], [7]]), "cyd": thought})
    first, second = envs.get_attr("given")
    assert (first["ann"], second["bob"]) == (5, 7)
    assert_same(second["cyd"], np.array([0.3, 0.4], np.float32))


def test_wrong_actions_are_told_in_words(opened: Open) -> None:
    envs = opened([Recorder] * 2)
    envs.reset(seed=0)
    with pytest.raises(shoal.ContractError, match=r"'anne', who is none of the agents.*'ann'"):
        envs.step({"anne": np.zeros(2)})
    with pytest.raises(shoal.ContractError, match=r"of 'ann' have shape \(3,\); expected \(2,\)"):
        envs.step({"ann": np.zeros(3)})
    with pytest.raises(shoal.ContractError, match="outside its space"):
        envs.step({"ann": np.array([1, 1])})
    with pytest.raises(shoal.ContractError, match="without loss"):
        envs.step({"ann": np.array([5.5, 6.0])})
    envs.step({})


# --- states and errors ---------------------------------------------------------------------------

STARTS: dict[str, Callable[[Any], None]] = {
    "reset": lambda envs: envs.reset_async(seed=0),
    "step": lambda envs: envs.step_async([{}, {}]),
    "call": lambda envs: envs.call_async("state"),
}


@pytest.mark.parametrize("pending", STARTS)
@pytest.mark.parametrize("then", [*STARTS, "set_attr"])
def test_only_one_call_may_be_pending(two: Any, pending: str, then: str) -> None:
    two.reset(seed=0)
    STARTS[pending](two)
    starts = STARTS | {"set_attr": lambda envs: envs.set_attr("height", 2.0)}
    with pytest.raises(AlreadyPendingCallError, match=f"pending call to `{pending}`") as caught:
        starts[then](two)
    assert caught.value.name == pending
    getattr(two, f"{pending}_wait")()


@pytest.mark.parametrize("kind", STARTS)
def test_what_was_not_begun_cannot_be_waited_for(two: Any, kind: str) -> None:
    with pytest.raises(NoAsyncCallError, match=f"any prior call to `{kind}_async`"):
        getattr(two, f"{kind}_wait")()


@pytest.mark.parametrize("kind", [*STARTS, "set_attr", "reset_wait", "step_wait", "call_wait"])
def test_nothing_works_after_close(two: Any, kind: str) -> None:
    two.close()
    two.close()
    calls = STARTS | {"set_attr": lambda envs: envs.set_attr("height", 2.0)}
    with pytest.raises(ClosedEnvironmentError):
        calls[kind](two) if kind in calls else getattr(two, kind)()
    assert two.closed


class Held(Meadow):
    """Its next step takes until a file is there."""

    def __init__(self, gate: str) -> None:
        super().__init__()
        self.gate = gate

    def state(self) -> Any:
        with open(self.gate) as gate:  # a pipe: opened when somebody writes
            return gate.read()


def test_after_a_time_out_the_call_is_still_pending(tmp_path: Any) -> None:
    gate = str(tmp_path / "gate")
    os.mkfifo(gate)
    with AsyncPettingZooVecEnv([partial(Held, gate)]) as envs:
        envs.call_async("state")
        with pytest.raises(multiprocessing.TimeoutError, match=r"timed out after 0.01 second"):
            envs.call_wait(timeout=0.01)
        with pytest.raises(AlreadyPendingCallError):
            envs.reset()
        with open(gate, "w") as writer:
            writer.write("open")
        assert envs.call_wait() == ("open",)
        envs.reset()


class Grumbler(Meadow):
    """Raises in its second step."""

    def step(self, actions: dict[str, Any]) -> Any:
        if self.time == 1:
            raise KeyError("no second step")
        return super().step(actions)


@pytest.mark.filterwarnings("ignore:.*ERROR:UserWarning")  # as Gymnasium and AgileRL log
def test_an_environments_own_exception_comes_out_and_harms_nobody(opened: Open) -> None:
    envs = opened([Meadow, Grumbler, Meadow])
    envs.reset(seed=0)
    envs.step(chosen(envs, 0))
    with pytest.raises(KeyError, match="no second step"):
        envs.step(chosen(envs, 1))
    with pytest.raises(AttributeError, match="nowhere"):
        envs.call("nowhere")
    seen, _ = envs.reset(seed=0)
    first, _ = Meadow().reset(seed=1)
    assert_same(seen["ann"][1], first["ann"])
    envs.step(chosen(envs, 0))


def test_an_exception_of_a_constructor_comes_out() -> None:
    def broken() -> Any:
        raise ZeroDivisionError("never made")

    with pytest.raises(ZeroDivisionError, match="never made"):
        AsyncPettingZooVecEnv([broken])


# --- calls ---------------------------------------------------------------------------------------


def test_calls_reach_every_environment(opened: Open) -> None:
    envs = opened([partial(Meadow, render_mode="rgb_array")] * 3)
    envs.reset(seed=0)
    assert envs.get_attr("time") == (0, 0, 0)
    envs.set_attr("height", [1.0, 2.0, 3.0])
    assert envs.get_attr("height") == (1.0, 2.0, 3.0)
    envs.set_attr("height", 4.0)
    assert envs.call("height") == (4.0, 4.0, 4.0)
    assert [one.tolist() for one in envs.call("state")] == [[0.0]] * 3
    assert [frame.shape for frame in envs.render()] == [(4, 4, 3)] * 3
    with pytest.raises(ValueError, match=r"Got `2` values for 3 environments"):
        envs.set_attr("height", [1.0, 2.0])
    for name in ("reset", "step", "close"):
        with pytest.raises(ValueError, match=f"use `{name}` directly"):
            envs.call(name)
    assert envs.stats()["num_envs"] == 3


def test_closing_with_a_call_pending_warns_and_closes(two: Any) -> None:
    two.reset_async(seed=0)
    with pytest.warns(UserWarning, match="pending call to `reset`"):
        two.close(terminate=True)
    assert two.closed


# --- whose arrays --------------------------------------------------------------------------------


@pytest.mark.parametrize("absent", ["zeros", "nan"])
def test_copies_are_the_callers_own(opened: Open, absent: str) -> None:
    envs = opened([Meadow] * 3, copy=True, absent=absent)
    kept = [(envs.reset(seed=0), repr(envs.get_observations()))]
    for t in range(12):
        results = envs.step(chosen(envs, t))
        kept.append((results, repr(results[0])))
    for results, shown in kept:
        assert repr(results[0]) == shown


def test_views_last_for_one_step_more_and_all_else_is_the_callers_own(opened: Open) -> None:
    envs, own = opened([Meadow] * 3, copy=False), opened([Meadow] * 3)
    envs.reset(seed=0)
    own.reset(seed=0)
    before: Any = None
    told, expected = [], []
    for t in range(20):
        views, *others = envs.step(chosen(envs, t))
        copies, *wanted = own.step(chosen(own, t))
        if before is not None:
            assert_same(before[0], before[1])
        before = views, copies
        told.append(others)
        expected.append(wanted)
    assert_same(told, expected)


# --- workers that die ----------------------------------------------------------------------------


class Fatal(Meadow):
    """Kills its process in a step, once in all lives of a file."""

    def __init__(self, once: str, at: int) -> None:
        super().__init__()
        self.once, self.at = once, at

    def step(self, actions: dict[str, Any]) -> Any:
        if self.time == self.at and not os.path.exists(self.once):
            open(self.once, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(actions)


def fatal(tmp_path: Any, count: int, victim: int) -> list[Any]:
    once = str(tmp_path / "dead")
    return [partial(Fatal, once, 2 if i == victim else -1) for i in range(count)]


def test_a_dead_worker_is_an_error_that_says_so(tmp_path: Any) -> None:
    with AsyncPettingZooVecEnv(fatal(tmp_path, 4, 1), num_workers=2) as envs:
        envs.reset(seed=0)
        for t in range(2):
            envs.step(chosen(envs, t))
        with pytest.raises(shoal.WorkerDied) as caught:
            envs.step(chosen(envs, 2))
        assert 1 in caught.value.env_ids


def test_a_dead_worker_is_replaced_and_only_its_environments_begin_anew(tmp_path: Any) -> None:
    with (
        AsyncPettingZooVecEnv(fatal(tmp_path, 4, 1), num_workers=2, on_failure="restart") as envs,
        AsyncPettingZooVecEnv([Meadow] * 4, num_workers=2) as others,
    ):
        _, infos = envs.reset(seed=0)
        others.reset(seed=0)
        for t in range(3):
            last, before = envs.get_observations(), infos
            seen, rewards, ended, cut, infos = envs.step(chosen(envs, t))
            wanted = others.step(chosen(others, t))
        assert infos["restarted"].tolist() == [True, True, False, False]
        for name in ("ann", "bob", "cyd"):
            alive = before[name]["alive"][:2]
            assert rewards[name][:2].tolist() == [0.0, 0.0]
            assert_same(cut[name][:2], alive)
            assert_same(infos[name]["_final_obs"], np.array([*alive, False, False]))
            for i in np.flatnonzero(alive):
                assert_same(infos[name]["final_obs"][i], last[name][i])
            for got, want in zip((seen, rewards, ended, cut), wanted, strict=False):
                assert_same(got[name][2:], want[name][2:])
        for t in range(3, 20):
            envs.step(chosen(envs, t))
        assert envs.stats()["restarts"] == 2  # of environments


def test_with_replay_a_killed_worker_changes_nothing(tmp_path: Any) -> None:
    with (
        AsyncPettingZooVecEnv(fatal(tmp_path, 4, 2), num_workers=2, on_failure="replay") as envs,
        AsyncPettingZooVecEnv([Meadow] * 4, num_workers=2) as others,
    ):
        assert_same(envs.reset(seed=0), others.reset(seed=0))
        for t in range(20):
            assert_same(envs.step(chosen(envs, t)), others.step(chosen(others, t)))
        assert envs.stats()["replays"] == 2


# --- making --------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", ["forkserver", "spawn", "fork"])
def test_the_context_is_the_start_method(context: str) -> None:
    with AsyncPettingZooVecEnv([Meadow] * 2, context=context) as envs:  # type: ignore[arg-type]
        assert envs.stats()["start_method"] == context
        envs.reset(seed=0)


def test_what_cannot_be_is_refused_before_anything_starts() -> None:
    with pytest.raises(shoal.ConfigError, match="absent"):
        AsyncPettingZooVecEnv([Meadow], absent="none")  # type: ignore[arg-type]
    with pytest.raises(shoal.ConfigError, match="start_method"):
        AsyncPettingZooVecEnv([Meadow], context="threads")  # type: ignore[arg-type]


def test_agents_that_take_turns_are_a_team_here(opened: Open) -> None:
    from players import Round

    envs = opened([Round] * 2)
    seen, _ = envs.reset(seed=0)
    assert set(seen) == set(NAMES[:3])
    envs.step({name: np.zeros(2) for name in envs.agents})
