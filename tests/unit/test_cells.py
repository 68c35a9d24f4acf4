"""Is an episode's end what each mode says it is? One cell, its rows, and nothing else.

The world in it counts: its observation tells episode and step, so what lies in a row can be told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from shoal.engine.cells import BatchedCell, Cell, Desk
from shoal.engine.commands import ResetArgs
from shoal.engine.infos import Columns, InfoReader, InfoWriter
from shoal.engine.rows import Rows, RowShape
from shoal.errors import ConfigError, ContractError
from shoal.layout import Layout
from shoal.testing import CountingRecord, CountingWorld, decode
from trace_of import assert_same

NEXT, SAME, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED


class Stage:
    """A cell among rows of which it owns the second (and following), and what it left there."""

    def __init__(
        self,
        env: Any,
        mode: AutoresetMode,
        *,
        cell: Callable[[Any, int], Any] = Cell,
        slots: int = 1,
        check_finite: bool = False,
    ) -> None:
        self.cell, self.notes = cell(env, 1), []
        spaces_of = Layout(self.cell.observation_space), Layout(self.cell.action_space)
        num_envs = 2 + len(self.cell.env_ids)
        shape = RowShape(num_envs, slots, *spaces_of, keeps_finals=mode is SAME)
        self.rows, self.layout = Rows(shape), shape.observation
        columns = Columns(self.rows)
        self.infos_of = InfoReader(columns)
        self.infos = InfoWriter(columns, slice(0, num_envs))
        self.desk = Desk(
            rows=self.rows,
            infos=self.infos,
            note=lambda key, text: self.notes.append(text),
            stamp=lambda: None,
            mode=mode,
            check_finite=check_finite,
            flagged=set(),
            final_scalars={},
            generators={},
        )
        self.cell.attach(self.desk)

    def reset(self, slot: int = 0, **kwargs: Any) -> None:
        self.infos.clear()
        self.cell.reset(slot, [ResetArgs(**kwargs)] * len(self.cell.env_ids))

    def step(self, action: Any = 0, slot: int = 0) -> Any:
        """Step as a worker does: reward, terminated, truncated; a list, if of several."""
        self.infos.clear()
        flags = (self.rows.terminations[slot], self.rows.truncations[slot])
        flags[0][:] = flags[1][:] = False
        rewards = self.cell.step(slot, action)
        assert self.rows.any_ended(slot) == (slot in self.desk.flagged)
        self.desk.flagged.clear()
        ids = list(self.cell.env_ids)
        ended = [one[ids].tolist() for one in flags]
        if isinstance(rewards, list):
            return list(zip(rewards, *ended, strict=True))
        return rewards, ended[0][0], ended[1][0]

    def seen(self, slot: int = 0, env_id: int = 1) -> Any:
        """The observation in the row of the cell."""
        return self._read(self.rows.observations[slot], self.cell.objects, env_id)

    def last(self, env_id: int = 1) -> Any:
        """The kept last observation."""
        return self._read(self.rows.finals, self.cell.final_objects, env_id)

    def told(self, env_id: int = 1) -> dict[str, Any]:
        """The info of the cell's environment, alone."""
        odd, self.infos.odd = self.infos.odd, []
        return self.infos_of.collect([env_id], [one for one in odd if one.env_id == env_id])

    def _read(self, arrays: Sequence[Any], objects: dict[int, Any], env_id: int) -> Any:
        rows, beside = iter(arrays), iter(objects.get(env_id, ()))
        parts = [
            next(rows)[env_id, ...].copy() if leaf.is_array else next(beside)
            for leaf in self.layout.leaves
        ]
        return self.layout.assemble(parts)

    def assert_shows(self, got: Any, expected: Any) -> None:
        """Equal, leaf by leaf; what the environment gave as a number is an array in its row."""
        parts = zip(self.layout.take_apart(got), self.layout.take_apart(expected), strict=True)
        for leaf, (one, other) in zip(self.layout.leaves, parts, strict=True):
            assert_same(one, np.asarray(other) if leaf.is_array else other)

    def until_end(self, action: Any = 0) -> tuple[int, Any]:
        """Step to the end of the episode: how many steps it took, and the last outcome."""
        for count in range(1, 100):
            reward, terminated, truncated = self.step(action)
            if terminated or truncated:
                return count, (reward, terminated, truncated)
        raise AssertionError("the episode does not end")


def where(record: CountingRecord) -> tuple[int, int]:
    return record.episode, record.step


class Scripted(gymnasium.Env[Any, Any]):
    """Gives what it is told to: one reward, flags that end every episode after `length` steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, reward: Any = 0.0, flags: Any = (True, False), length: int = 2) -> None:
        self.reward, self.flags, self.length = reward, flags, length
        self.steps, self.resets, self.actions = 0, [], []

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.steps = 0
        self.resets.append((seed, options))
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.actions.append(action)
        flags = self.flags if self.steps == self.length else (False, False)
        return np.full(2, self.steps, np.float32), self.reward, *flags, {}


FORMS = ["vector", "dict", "nested", "text", "mixed", "pixels"]


# --- the three modes ---------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("reuse", [False, True], ids=["fresh", "reused"])
def test_next_step_reports_the_last_observation_and_resets_with_the_step_after(
    form: Any, reuse: bool
) -> None:
    stage = Stage(CountingWorld(5, obs=form, reuse_buffer=reuse), NEXT)
    stage.reset(seed=3)
    assert where(decode(stage.seen())) == (0, 0)
    for episode in range(3):
        length, (_, terminated, truncated) = stage.until_end()
        assert terminated or truncated
        assert where(decode(stage.seen())) == (episode, length)
        assert stage.cell.over
        # Whatever the action: it is not the environment's to see.
        assert stage.step(action="ignored") == (0.0, False, False)
        assert where(decode(stage.seen())) == (episode + 1, 0)
        assert not stage.cell.over


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("reuse", [False, True], ids=["fresh", "reused"])
def test_same_step_keeps_the_last_observation_and_reports_the_new_one(
    form: Any, reuse: bool
) -> None:
    stage = Stage(CountingWorld(5, obs=form, reuse_buffer=reuse), SAME)
    honest = CountingWorld(5, obs=form)
    stage.reset(seed=3)
    honest.reset(seed=3)
    for episode in range(3):
        length, _ = stage.until_end()
        for _ in range(length):
            last = honest.step(0)[0]
        assert where(decode(stage.last())) == (episode, length)
        stage.assert_shows(stage.last(), last)
        stage.assert_shows(stage.seen(), honest.reset()[0])
        assert where(decode(stage.seen())) == (episode + 1, 0)
        assert not stage.cell.over


def test_disabled_reports_the_last_observation_and_then_wants_a_reset() -> None:
    stage = Stage(CountingWorld(5), DISABLED)
    stage.reset(seed=3)
    length, _ = stage.until_end()
    for _ in range(2):
        with pytest.raises(ContractError, match=r"autoreset is disabled.*reset_mask"):
            stage.step()
        assert where(decode(stage.seen())) == (0, length)
    stage.reset()
    assert where(decode(stage.seen())) == (1, 0)
    stage.step()
    assert where(decode(stage.seen())) == (1, 1)


@pytest.mark.parametrize("mode", [NEXT, SAME, DISABLED])
@pytest.mark.parametrize("flags", [(True, False), (False, True), (True, True)])
def test_termination_and_truncation_are_never_merged(mode: AutoresetMode, flags: Any) -> None:
    stage = Stage(Scripted(flags=flags), mode)
    stage.reset()
    assert stage.step() == (0.0, False, False)
    assert stage.step() == (0.0, *flags)


@pytest.mark.parametrize("mode", [NEXT, SAME, DISABLED])
@pytest.mark.parametrize("true", [np.bool_(True), np.array(True), np.array([True]), 1], ids=repr)
def test_flags_may_be_what_gymnasium_takes_for_a_flag(mode: AutoresetMode, true: Any) -> None:
    """And come out as plain ones: the worker writes those of all its environments at once."""
    stage = Stage(Scripted(flags=(False, true)), mode)
    stage.reset()
    stage.step()
    _, terminated, truncated = stage.step()
    assert (terminated, truncated) == (False, True)
    assert {type(terminated), type(truncated)} <= {bool, np.bool_}
    assert stage.cell.over == (mode is not SAME)


@pytest.mark.parametrize("mode", [NEXT, SAME, DISABLED])
def test_an_explicit_reset_after_an_end_is_the_only_reset(mode: AutoresetMode) -> None:
    env = Scripted(length=1)
    stage = Stage(env, mode)
    stage.reset()
    stage.step()
    before = len(env.resets)
    stage.reset(seed=9)
    assert env.resets[before:] == [(9, None)]
    assert stage.step() == (0.0, True, False)


def test_only_the_row_of_the_cell_is_written_and_only_in_the_slot_given() -> None:
    stage = Stage(Scripted(), SAME, slots=2)
    for row in (*stage.rows.observations[0], *stage.rows.observations[1], *stage.rows.finals):
        row[...] = 77
    stage.reset(slot=1)
    stage.step(slot=0)
    stage.step(slot=0)
    assert stage.rows.observations[0][0].tolist() == [[77, 77], [0, 0], [77, 77]]
    assert stage.rows.observations[1][0].tolist() == [[77, 77], [0, 0], [77, 77]]
    assert stage.rows.finals[0].tolist() == [[77, 77], [2, 2], [77, 77]]
    stage.step(slot=1)
    assert stage.rows.observations[0][0][1].tolist() == [0, 0]
    assert stage.rows.observations[1][0][1].tolist() == [1, 1]


def test_a_last_observation_that_is_a_number_keeps_its_type() -> None:
    stage = Stage(CountingWorld(5, obs="discrete"), SAME)
    stage.reset(seed=3)
    stage.until_end()
    kept = stage.desk.final_scalars[1]
    assert type(kept) is np.int64
    assert kept == stage.rows.finals[0][1]


# --- infos -------------------------------------------------------------------


@pytest.mark.parametrize("mode", [NEXT, DISABLED])
def test_the_last_info_is_reported_with_the_last_observation(mode: AutoresetMode) -> None:
    stage = Stage(CountingWorld(5, infos="numeric"), mode)
    stage.reset(seed=3)
    assert stage.told()["step"].tolist() == [0]
    length, _ = stage.until_end()
    told = stage.told()
    assert told["step"].tolist() == [length]
    assert "final_info" not in told


def test_same_step_reports_the_last_info_beside_that_of_the_reset() -> None:
    stage = Stage(CountingWorld(5, infos="mixed"), SAME)
    stage.reset(seed=3)
    length, _ = stage.until_end()
    told = stage.told()
    assert told["step"].tolist() == [0]
    assert told["final_info"]["step"].tolist() == [length]
    assert told["final_info"]["note"].tolist() == [f"env 5 step {length}"]
    assert told["final_info"]["nested"]["depth"].tolist() == [1]


def test_an_empty_last_info_is_still_there() -> None:
    stage = Stage(Scripted(), SAME)
    stage.reset()
    stage.until_end()
    assert_same(stage.told(), {"final_info": {}, "_final_info": np.array([True])})


# --- rewards, returns, lengths -----------------------------------------------


@pytest.mark.parametrize(
    "reward",
    [
        1,
        1.0,
        True,
        np.float32(1),
        np.float64(1),
        np.int8(1),
        np.bool_(True),
        np.array(1.0),
        np.array([1.0]),
        np.array([[1]], np.int32),
        [1.0],
        Fraction(1),
        Decimal(1),
    ],
    ids=repr,
)
def test_any_one_real_number_is_a_reward_and_comes_as_a_float(reward: Any) -> None:
    stage = Stage(Scripted(reward), NEXT)
    stage.reset()
    got, *_ = stage.step()
    assert got == 1.0
    assert type(got) is float


def test_a_float32_reward_keeps_its_value() -> None:
    stage = Stage(Scripted(np.float32(0.1)), NEXT)
    stage.reset()
    assert stage.step()[0] == float(np.float32(0.1))


@pytest.mark.parametrize("reward", [None, "1", [1.0, 2.0], np.zeros(0), 1j, {}], ids=repr)
def test_what_is_no_number_is_refused_as_a_reward(reward: Any) -> None:
    stage = Stage(Scripted(reward), NEXT)
    stage.reset()
    with pytest.raises(ContractError, match="the reward is"):
        stage.step()


# --- how an episode begins ---------------------------------------------------


@pytest.mark.parametrize("mode", [NEXT, SAME])
def test_an_automatic_reset_draws_on_from_the_generator(mode: AutoresetMode) -> None:
    env = Scripted(length=1)
    stage = Stage(env, mode)
    stage.reset(seed=7, options={"task": 1})
    for _ in range(4):
        stage.step()
    assert env.resets[0] == (7, {"task": 1})
    assert set(map(repr, env.resets[1:])) == {"(None, None)"}


@pytest.mark.parametrize("mode", [NEXT, SAME])
def test_a_planned_reset_is_used_by_the_next_automatic_one_once(mode: AutoresetMode) -> None:
    env = Scripted(length=1)
    stage = Stage(env, mode)
    stage.reset()
    stage.cell.plan_reset(1, ResetArgs(40, {"task": 4}))
    for _ in range(4):
        stage.step()
    assert env.resets[:3] == [(None, None), (40, {"task": 4}), (None, None)]
    assert stage.cell.seed == 40


@pytest.mark.parametrize("mode", [NEXT, SAME])
def test_an_explicit_reset_clears_what_was_planned(mode: AutoresetMode) -> None:
    env = Scripted(length=1)
    stage = Stage(env, mode)
    stage.reset()
    stage.cell.plan_reset(1, ResetArgs(40, {"task": 4}))
    stage.reset(seed=1)
    for _ in range(4):
        stage.step()
    assert (40, {"task": 4}) not in env.resets


def test_a_plan_may_be_made_after_the_end_and_before_the_reset() -> None:
    env = Scripted(length=1)
    stage = Stage(env, NEXT)
    stage.reset()
    stage.step()
    stage.cell.plan_reset(1, ResetArgs(5))
    stage.step()
    assert env.resets[-1] == (5, None)


def test_the_seed_of_the_running_episode_is_remembered() -> None:
    stage = Stage(Scripted(length=1), SAME)
    assert stage.cell.seed is None
    stage.reset(seed=7)
    stage.step()
    assert stage.cell.seed == 7
    stage.reset()  # goes on with the generator that this seed made
    assert stage.cell.seed == 7


# --- bad data ----------------------------------------------------------------


class Wrong(Scripted):
    def __init__(self, observation: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.observation = observation

    def step(self, action: Any) -> Any:
        return self.observation, *super().step(action)[1:]


@pytest.mark.parametrize("mode", [NEXT, SAME, DISABLED])
@pytest.mark.parametrize("length", [1, 5], ids=["at the end", "in between"])
def test_a_wrong_observation_is_refused_in_every_place(mode: AutoresetMode, length: int) -> None:
    stage = Stage(Wrong(np.zeros(3, np.float32), length=length), mode)
    stage.reset()
    with pytest.raises(ContractError, match=r"\(3,\).*\(2,\)"):
        stage.step()


@pytest.mark.parametrize("length", [1, 5], ids=["at the end", "in between"])
def test_infinity_is_refused_where_asked(length: int) -> None:
    bad = np.array([0, np.inf], np.float32)
    stage = Stage(Wrong(bad, length=length), SAME)
    stage.reset()
    stage.step()
    stage = Stage(Wrong(bad, length=length), SAME, check_finite=True)
    stage.reset()
    with pytest.raises(ContractError, match="not finite"):
        stage.step()


def test_a_cast_is_noted() -> None:
    stage = Stage(Wrong(np.zeros(2)), NEXT)
    stage.reset()
    stage.step()
    assert len(stage.notes) == 1
    assert "float64" in stage.notes[0]


# --- calls -------------------------------------------------------------------


class Louder(gymnasium.Wrapper[Any, Any, Any, Any]):
    volume = 11


def test_calls_reach_the_environment_and_every_wrapper_around_it() -> None:
    cell = Cell(Louder(CountingWorld(5)), 1)
    assert cell.call([1], "echo", (1, 2), {"k": 3}) == [(5, (1, 2), {"k": 3})]
    assert cell.call([1], "tag", (), {}) == [5]
    assert cell.call([1], "volume", (), {}) == [11]


def test_an_attribute_is_set_where_it_is() -> None:
    world = CountingWorld(5)
    cell = Cell(Louder(world), 1)
    cell.set_attr("bonus", {1: 2.5})
    assert world.bonus == 2.5
    assert "bonus" not in vars(cell.env)


def test_an_environment_that_only_looks_like_one_can_be_called_too() -> None:
    class Duck:
        observation_space = action_space = spaces.Discrete(2)
        sound = "quack"

        def speak(self, times: int) -> str:
            return self.sound * times

    cell = Cell(Duck(), 1)
    assert cell.call([1], "speak", (2,), {}) == ["quackquack"]
    cell.set_attr("sound", {1: "moo"})
    assert cell.call([1], "sound", (), {}) == ["moo"]


# --- a vector environment inside ---------------------------------------------

WIDTH = 3


def batch(mode: AutoresetMode, **kwargs: Any) -> SyncVectorEnv:
    return SyncVectorEnv(
        [lambda tag=tag: CountingWorld(tag, **kwargs) for tag in range(WIDTH)],
        autoreset_mode=mode,
    )


@pytest.mark.parametrize("form", ["vector", "nested", "mixed", "text", "discrete"])
@pytest.mark.parametrize("mode", [NEXT, SAME, DISABLED])
def test_a_vector_environment_does_in_its_rows_what_it_does_alone(
    mode: AutoresetMode, form: Any
) -> None:
    stage = Stage(batch(mode, obs=form, infos="mixed"), mode, cell=BatchedCell)
    alone = batch(mode, obs=form, infos="mixed")
    ends = 0
    stage.cell.reset(0, [ResetArgs(4 + k) for k in range(WIDTH)])
    expected, infos = alone.reset(seed=4)
    for step in range(80):
        for k in range(WIDTH):
            stage.assert_shows(stage.seen(env_id=1 + k), one_of(expected, k))
        actions = np.full(WIDTH, step % 7)
        outcomes = stage.step(actions)
        expected, rewards, terminated, truncated, infos = alone.step(actions)
        assert outcomes == list(zip(rewards, terminated, truncated, strict=True))
        assert [type(one[0]) for one in outcomes] == [float] * WIDTH
        ended = terminated | truncated
        ends += int(ended.sum())
        if mode is SAME:
            for k in np.flatnonzero(ended):
                stage.assert_shows(stage.last(1 + k), infos["final_obs"][k])
        if mode is DISABLED and ended.any():
            stage.cell.reset(0, [ResetArgs() if one else None for one in ended])
            expected, infos = alone.reset(options={"reset_mask": ended})
    assert ends > 10


def one_of(batch: Any, k: int) -> Any:
    if isinstance(batch, dict):
        return {key: one_of(value, k) for key, value in batch.items()}
    if isinstance(batch, tuple) and len(batch) != WIDTH:
        return tuple(one_of(value, k) for value in batch)
    return batch[k]


def test_the_infos_of_a_vector_environment_are_those_of_its_environments() -> None:
    stage = Stage(batch(SAME, infos="mixed"), SAME, cell=BatchedCell)
    alone = batch(SAME, infos="mixed")
    stage.reset(seed=4)
    alone.reset(seed=[4] * WIDTH)
    for _ in range(30):
        stage.step(np.zeros(WIDTH, np.int64))
        *_, infos = alone.step(np.zeros(WIDTH, np.int64))
        infos.pop("final_obs", None)
        infos.pop("_final_obs", None)
        odd, stage.infos.odd = stage.infos.odd, []
        assert_same(stage.infos_of.collect([1, 2, 3], odd), infos)


@pytest.mark.parametrize("seeds", [[5, 6, 7], [9, 1, 4], [None, 3, None], [None] * 3], ids=str)
def test_every_row_is_reset_with_its_own_seed(seeds: Any) -> None:
    stage = Stage(batch(NEXT), NEXT, cell=BatchedCell)
    stage.cell.reset(0, [ResetArgs(seed) for seed in seeds])
    shown = [decode(stage.seen(env_id=1 + k)).seed for k in range(WIDTH)]
    assert shown == [-1 if seed is None else seed for seed in seeds]


def test_a_reset_of_some_rows_leaves_the_others_where_they_are() -> None:
    stage = Stage(batch(NEXT), NEXT, cell=BatchedCell)
    stage.reset(seed=1)
    for _ in range(2):
        stage.step(np.zeros(WIDTH, np.int64))
    stage.cell.reset(0, [None, ResetArgs(50, {"task": 8}), None])
    records = [decode(stage.seen(env_id=1 + k)) for k in range(WIDTH)]
    assert [record.step for record in records] == [2, 0, 2]
    assert [record.task for record in records] == [0, 8, 0]
    stage.step(np.zeros(WIDTH, np.int64))
    assert [decode(stage.seen(env_id=1 + k)).step for k in range(WIDTH)] == [3, 1, 3]


def test_differing_options_in_one_vector_environment_are_refused() -> None:
    stage = Stage(batch(NEXT), NEXT, cell=BatchedCell)
    with pytest.raises(ContractError, match="differing options"):
        stage.cell.reset(0, [ResetArgs(1, {"task": k}) for k in range(WIDTH)])


def test_a_vector_environment_of_another_mode_is_refused_with_both_modes() -> None:
    with pytest.raises(ConfigError, match="SameStep") as caught:
        Stage(batch(NEXT), SAME, cell=BatchedCell)
    assert "NEXT_STEP" in str(caught.value)


def test_a_vector_environment_resets_by_itself_and_takes_no_plans() -> None:
    stage = Stage(batch(NEXT), NEXT, cell=BatchedCell)
    with pytest.raises(ContractError, match="set_next_reset"):
        stage.cell.plan_reset(1, ResetArgs(3))


def test_calls_and_attributes_of_a_vector_environment_are_those_of_one_row() -> None:
    cell = BatchedCell(batch(NEXT), 10)
    assert cell.env_ids == (10, 11, 12)
    assert cell.call([11], "echo", ("x",), {}) == [(1, ("x",), {})]
    cell.set_attr("bonus", {12: 4.0})
    assert cell.call(cell.env_ids, "bonus", (), {}) == [0.0, 0.0, 4.0]


def test_frames_of_a_vector_environment_are_those_of_one_row() -> None:
    stage = Stage(batch(NEXT, render_mode="rgb_array"), NEXT, cell=BatchedCell)
    stage.reset(seed=0)
    frames = stage.cell.call([1, 2, 3], "render", (), {})
    assert [int(frame[0, 0, 2]) for frame in frames] == [0, 1, 2]


def test_a_time_limit_begins_anew_with_a_reset_inside_a_step() -> None:
    env = Scripted(length=2)
    stage = Stage(env, SAME)
    stamped: list[tuple[int, int]] = []
    stage.cell.attach(
        stage.desk._replace(stamp=lambda: stamped.append((env.steps, len(env.resets))))
    )
    stage.reset()
    stage.until_end()
    assert stamped == [(0, 0), (2, 1)], "before each reset, and after the step that led to it"
