"""Does a capsule bring back what happened, from a file that nobody else could have written?

Episodes are played in one environment and recorded by hand; what is retraced in another one, made
anew from the file, has to be the same bit for bit.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import stat
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from shoal.engine import capsule as capsules
from shoal.engine.actions import Loose
from shoal.engine.capsule import Capsule, read, write
from shoal.engine.commands import Call, Episode, ResetArgs, SetAttr
from shoal.engine.reproduce import Outcome, reproduce
from shoal.errors import ConfigError, ContractError
from shoal.layout import Layout
from shoal.testing import CountingWorld, Saboteur
from shoal.vector.source import resolve
from trace_of import assert_same

World = partial(CountingWorld, history=False)
"""Whose episodes follow from generator, options and actions alone."""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this test's capsules."""
    monkeypatch.setenv("SHOAL_CAPSULES", str(tmp_path / "capsules"))
    monkeypatch.setattr(sys, "path", list(sys.path))  # reading adds to it
    capsules._complaints.clear()
    return tmp_path / "capsules"


@dataclass
class Played:
    """An episode as it was played, and the environment that it was played in."""

    env: Any
    episode: Episode
    seen: list[Any]
    """Observations: of the reset, then of each step."""


Change = tuple[int, str, Any]
SEEDED = ResetArgs(7)


def play(
    env: Any,
    steps: int,
    args: ResetArgs = SEEDED,
    *,
    changes: Sequence[Change] = (),
    actions: Sequence[Any] = (),
) -> Played:
    """Play `steps` steps, by random actions or those given, and write down what a pool would."""
    env.action_space.seed(steps)
    state = None if args.seed is not None else env.unwrapped.np_random.bit_generator.state
    seen, taken, total, is_over = (
        [env.reset(seed=args.seed, options=args.options)[0]],
        [],
        0.0,
        False,
    )
    for k in range(steps):
        for _, name, value in (change for change in changes if change[0] == k):
            env.set_wrapper_attr(name, value)
        taken.append(actions[k] if actions else env.action_space.sample())
        observation, reward, terminated, truncated, _ = env.step(taken[-1])
        seen.append(observation)
        total, is_over = total + float(reward), terminated or truncated
    arrays, objects = rows_of(Layout(env.action_space), taken)
    episode = Episode(args, state, arrays, objects, changes, steps, total, is_over)
    return Played(env, episode, seen)


def rows_of(layout: Layout, actions: Sequence[Any]) -> tuple[list[Any], dict[int, Any]]:
    """Actions as a journal keeps them: arrays for leaves that have rows, the rest as objects."""
    arrays = [np.zeros((len(actions), *leaf.shape), leaf.dtype) for leaf in layout.arrays]
    objects: dict[int, Any] = {}
    for k, action in enumerate(actions):
        parts = layout.take_apart(action)
        rows = [p for leaf, p in zip(layout.leaves, parts, strict=True) if leaf.is_array]
        for array, part in zip(arrays, rows, strict=True):
            array[k] = part
        if layout.has_objects:
            pairs = zip(layout.leaves, parts, strict=True)
            objects[k] = tuple(p for leaf, p in pairs if not leaf.is_array)
    return arrays, objects


def capsule_of(factory: Any, episode: Episode | None = None, **others: Any) -> Capsule:
    """A capsule of env 3, whose step failed unless `others` say something else."""
    known: dict[str, Any] = {
        "kind": "raised",
        "phase": "step",
        "cause": "env 3 raised ValueError in step",
        "trace": "Traceback (most recent call last): ...",
        "worker": 1,
        "env_id": 3,
        "attributes": {},
        "seed": 7,
        "num_episodes": 0 if episode is None else 1,
        "action": 0,
    }
    return Capsule(factory=factory, episode=episode, **known | others)


def written(capsule: Capsule) -> Path:
    path = write(capsule)
    assert path is not None
    return Path(path)


def through_file(capsule: Capsule) -> Capsule:
    return read(written(capsule))


def retraced(capsule: Capsule) -> tuple[Outcome, list[int]]:
    """What comes of a capsule that was written and read, and the steps at which it was seen."""
    lengths: list[int] = []
    outcome = reproduce(through_file(capsule), on_step=lambda env, length: lengths.append(length))
    return outcome, lengths


class Memory(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Remembers every observation that passes."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.seen: list[Any] = []
        self.told: list[Any] = []

    def reset(self, **kwargs: Any) -> Any:
        results = self.env.reset(**kwargs)
        self.seen = [results[0]]
        return results

    def step(self, action: Any) -> Any:
        self.told.append(action)
        results = self.env.step(action)
        self.seen.append(results[0])
        return results


# --- what is retraced is what was played -------------------------------------------------------


class Echo(gymnasium.Env[Any, Any]):
    """Shows the actions it was given, whatever they are; its action space is `space`."""

    observation_space = spaces.Text(10_000)

    def __init__(self, space: Any) -> None:
        self.action_space = space
        self._told = ""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._told = ""
        return self._told, {}

    def step(self, action: Any) -> Any:
        self._told += repr(action)
        return self._told, len(self._told) / 8, False, False, {}


GRAPH = spaces.Graph(spaces.Box(0, 1, (2,)), spaces.Discrete(3))
WORLDS: dict[str, Callable[[], Any]] = {
    "cartpole": resolve("CartPole-v1").factories[0],
    "pendulum": resolve("Pendulum-v1").factories[0],
    **{f"counting-{form}": partial(World, action=form) for form in ("discrete", "box", "dict")},
    "text": partial(Echo, spaces.Text(6)),
    "graph": partial(Echo, GRAPH),
    "mixed": partial(Echo, spaces.Dict({"say": spaces.Text(3), "go": spaces.Box(-1, 1, (2,))})),
}


@pytest.mark.parametrize("args", [ResetArgs(7), ResetArgs()], ids=["seeded", "unseeded"])
@pytest.mark.parametrize("name", WORLDS)
def test_an_episode_and_the_step_after_it_are_the_same_again(name: str, args: ResetArgs) -> None:
    env = WORLDS[name]()
    env.reset(seed=7)
    played = play(env, 3, args)
    last = env.action_space.sample()
    expected = [*played.seen, env.step(last)[0]]

    factory = partial(remembering, WORLDS[name])
    outcome, lengths = retraced(capsule_of(factory, played.episode, action=last))
    assert outcome.error is None
    assert outcome.problem == ""
    assert (outcome.phase, outcome.length, lengths) == ("step", 3, [0, 1, 2, 3])
    assert_same(outcome.env.seen, expected)


def remembering(factory: Callable[[], Any]) -> Memory:
    return Memory(factory())


def test_an_episode_begun_without_a_seed_starts_from_its_generator() -> None:
    env = CountingWorld(history=False)
    env.reset(seed=7)
    second = play(env, 2, ResetArgs())
    wrong = replace(second.episode, generator=None)
    outcome, _ = retraced(capsule_of(partial(remembering, World), second.episode))
    assert_same(outcome.env.seen[:3], second.seen)
    assert outcome.env.unwrapped.np_random_seed == 7
    outcome, _ = retraced(capsule_of(partial(remembering, World), wrong))
    assert (outcome.env.seen[0] != second.seen[0]).any(), "the state must matter"


def test_a_generator_of_another_kind_is_put_back() -> None:
    env = CountingWorld(history=False)
    env.np_random = np.random.Generator(np.random.MT19937(5))
    played = play(env, 2, ResetArgs())
    outcome, _ = retraced(capsule_of(partial(remembering, World), played.episode))
    assert_same(outcome.env.seen[:3], played.seen)


def test_options_of_the_reset_are_given_again() -> None:
    played = play(World(), 2, ResetArgs(7, {"task": 5}))
    outcome, _ = retraced(capsule_of(World, played.episode))
    assert outcome.env.record().task == 5


def test_attributes_change_where_they_changed() -> None:
    env = World()
    env.bonus = 100.0
    changes = [(0, "bonus", 1.0), (2, "bonus", 20.0), (2, "tag", 4), (3, "bonus", 300.0)]
    played = play(env, 3, changes=changes)
    bonus_in = {name: value for _, name, value in changes}["bonus"]
    before = {"bonus": 100.0, "closes": 8}
    outcome, _ = retraced(capsule_of(World, played.episode, attributes=before))
    assert outcome.problem == "", "the return tells which bonus each step had"
    assert outcome.env.closes == 8
    assert (outcome.env.bonus, outcome.env.tag) == (bonus_in, 4)

    late = replace(played.episode, changes=[(3, name, value) for _, name, value in changes])
    outcome, _ = retraced(capsule_of(World, late, attributes=before))
    assert "its return so far is" in outcome.problem


def test_actions_that_do_not_fit_their_rows_arrive_as_they_were() -> None:
    factory = partial(remembering, partial(Echo, spaces.Discrete(2)))
    played = play(factory(), 3, actions=[0, 1, 1])
    episode = replace(played.episode, objects={1: Loose(["one"])})
    outcome, _ = retraced(capsule_of(factory, episode, action=2.5))
    assert outcome.env.told == [0, ["one"], 1, 2.5]


def test_a_whole_capsule_survives_its_file() -> None:
    played = play(World(), 3, ResetArgs(7, {"task": 1}), changes=[(1, "bonus", 2.0)])
    capsule = capsule_of(
        World,
        played.episode,
        attributes={"bonus": 1.0},
        reset=ResetArgs(3, {"task": 2}),
        call=Call("echo", (1,), {"a": 2}, [3]),
        generator={"any": "state"},
        mode=AutoresetMode.SAME_STEP,
        check_finite=True,
    )
    got = through_file(capsule)
    for one in fields(Capsule):
        if one.name not in ("episode", "factory"):
            assert getattr(got, one.name) == getattr(capsule, one.name), one.name
    assert got.episode is not None
    for one in fields(Episode):
        assert_same(getattr(got.episode, one.name), getattr(played.episode, one.name), one.name)


# --- the command that failed -------------------------------------------------------------------


def test_an_exception_in_a_step_comes_back_at_its_step() -> None:
    factory = partial(Saboteur, "raise", at_step=4)
    played = play(factory(), 3)
    outcome, _ = retraced(capsule_of(factory, played.episode))
    assert isinstance(outcome.error, ValueError)
    assert str(outcome.error) == "sabotage in step (episode 0, step 4)"
    assert (outcome.phase, outcome.length) == ("step", 3)


@pytest.mark.parametrize("how", ["sys_exit", "keyboard_interrupt", "raise_unpicklable"])
def test_whatever_is_raised_comes_back(how: Any) -> None:
    factory = partial(Saboteur, how, at_step=2)
    played = play(factory(), 1)
    outcome = reproduce(capsule_of(factory, played.episode))
    names = {"sys_exit": "SystemExit", "keyboard_interrupt": "KeyboardInterrupt"}
    assert type(outcome.error).__name__ == names.get(how, "UnpicklableError")


def test_an_exception_in_a_constructor_comes_back() -> None:
    capsule = capsule_of(partial(Saboteur, "raise", "construct"), phase="construct")
    outcome, lengths = retraced(capsule)
    assert isinstance(outcome.error, ValueError)
    assert (outcome.phase, outcome.env, lengths) == ("construct", None, [])


def test_a_constructor_that_passes_is_all_that_is_done() -> None:
    outcome, lengths = retraced(capsule_of(World, phase="construct"))
    assert outcome.error is None
    assert (outcome.env.record().step, lengths) == (0, [])
    assert outcome.env.record().episode == -1, "never reset"


@pytest.mark.parametrize("num_episodes", [0, 1])
def test_an_exception_in_a_reset_comes_back(num_episodes: int) -> None:
    factory = partial(Saboteur, "raise", "reset", at_episode=num_episodes)
    episode = play(factory(), 2).episode if num_episodes else None
    outcome, _ = retraced(capsule_of(factory, episode, phase="reset", reset=ResetArgs(9)))
    assert isinstance(outcome.error, ValueError)
    assert outcome.phase == "reset"


def test_a_reset_that_failed_gets_its_seed_and_options() -> None:
    how = ResetArgs(9, {"task": 6})
    outcome, _ = retraced(capsule_of(CountingWorld, phase="reset", reset=how))
    assert (outcome.env.record().seed, outcome.env.record().task) == (9, 6)


def test_a_first_reset_without_a_seed_starts_from_its_generator() -> None:
    env = World()
    state = env.np_random.bit_generator.state
    expected, _ = env.reset()
    capsule = capsule_of(World, phase="reset", seed=None, reset=ResetArgs(), generator=state)
    outcome, _ = retraced(capsule)
    assert outcome.env.record() == env.record()
    assert_same(np.array(outcome.env.record()), expected)


def ended(env: Any) -> tuple[Episode, Any]:
    """An episode up to its last step (not included), and the action of that."""
    length = env.unwrapped._length if env.reset(seed=7) else 0
    played = play(env, length)
    assert played.episode.is_over
    actions = [array[:-1] for array in played.episode.actions]
    last = played.episode.actions[0][-1]
    before = replace(played.episode, actions=actions, length=length - 1, is_over=False)
    return before, last


def test_a_step_that_resets_in_the_same_step_fails_in_its_reset() -> None:
    episode, last = ended(World())
    factory = partial(Saboteur, "raise", "reset", at_episode=1, env=World())
    capsule = capsule_of(factory, episode, action=last, mode=AutoresetMode.SAME_STEP)
    outcome, _ = retraced(capsule)
    assert str(outcome.error) == "sabotage in reset (episode 1, step 0)"
    outcome, _ = retraced(replace(capsule, mode=AutoresetMode.NEXT_STEP))
    assert outcome.error is None


def test_an_automatic_reset_uses_what_was_planned() -> None:
    episode, last = ended(World())
    plan = ResetArgs(5, {"task": 8})
    capsule = capsule_of(World, episode, action=last, mode=AutoresetMode.SAME_STEP, reset=plan)
    outcome, _ = retraced(capsule)
    assert (outcome.env.record().step, outcome.env.record().task) == (0, 8)


def test_the_step_after_an_end_fails_in_its_reset() -> None:
    env = World()
    env.reset(seed=7)
    played = play(env, env._length)
    factory = partial(Saboteur, "raise", "reset", at_episode=1, env=World())
    outcome, _ = retraced(capsule_of(factory, played.episode))
    assert str(outcome.error) == "sabotage in reset (episode 1, step 0)"
    assert outcome.phase == "step"


def test_a_call_that_failed_is_made_again() -> None:
    factory = partial(Saboteur, "raise", "call")
    played = play(factory(), 2)
    call = Call("poke", (), {}, [3])
    outcome, _ = retraced(capsule_of(factory, played.episode, phase="call", call=call))
    assert str(outcome.error) == "sabotage in call (episode 0, step 2)"


def test_an_attribute_that_could_not_be_set_is_set_again() -> None:
    played = play(Memory(World()), 2)
    attribute = SetAttr("bonus", {3: 2.5, 4: 9.0})
    capsule = capsule_of(World, played.episode, phase="set_attr", call=attribute)
    outcome, _ = retraced(capsule)
    assert outcome.env.bonus == 2.5


def test_a_close_that_failed_is_tried_again() -> None:
    factory = partial(Saboteur, "raise", "close")
    outcome, _ = retraced(capsule_of(factory, play(factory(), 2).episode, phase="close"))
    assert str(outcome.error) == "sabotage in close (episode 0, step 2)"


@pytest.mark.parametrize("at_step", [2, 9])
def test_a_failure_in_a_replay_is_looked_for_there(at_step: int) -> None:
    factory = partial(Saboteur, "raise", at_step=at_step)
    episode = play(Saboteur("raise", at_step=9), 4).episode
    call = Call("no_such_method", (), {}, [3])
    outcome, lengths = retraced(capsule_of(factory, episode, phase="replay", call=call))
    assert outcome.phase == "replay"
    assert isinstance(outcome.error, ValueError) == (at_step == 2)
    assert lengths[-1] == (1 if at_step == 2 else 4)


@pytest.mark.parametrize(
    ("how", "says"),
    [("wrong_shape", "has shape"), ("none_obs", "is None"), ("missing_key", "wrong keys")],
)
def test_bad_data_is_caught_again(how: Any, says: str) -> None:
    factory = partial(Saboteur, how, at_step=3)
    outcome, _ = retraced(capsule_of(factory, play(factory(), 2).episode))
    assert isinstance(outcome.error, ContractError)
    assert says in str(outcome.error)


@pytest.mark.parametrize("check_finite", [True, False])
def test_numbers_that_are_not_finite_are_caught_where_they_were(check_finite: bool) -> None:
    factory = partial(Saboteur, "nan", at_step=3)
    capsule = capsule_of(factory, play(factory(), 2).episode, check_finite=check_finite)
    assert isinstance(reproduce(capsule).error, ContractError) == check_finite


# --- replays that go another way ---------------------------------------------------------------


def test_an_episode_that_ends_early_is_not_stepped_on() -> None:
    env = World()
    env.reset(seed=7)
    played = play(env, env._length)
    longer = replace(
        played.episode,
        actions=[np.concatenate([array, array]) for array in played.episode.actions],
        length=2 * played.episode.length,
        is_over=False,
    )
    outcome, lengths = retraced(capsule_of(World, longer, mode=AutoresetMode.DISABLED))
    assert outcome.error is None
    assert (outcome.phase, lengths[-1]) == ("replay", played.episode.length)
    assert outcome.problem == (
        f"its episode ended after {played.episode.length} steps, not after {longer.length}"
    )


def test_an_episode_that_does_not_end_is_told() -> None:
    played = play(World(), 2)
    outcome, _ = retraced(capsule_of(World, replace(played.episode, is_over=True)))
    assert outcome.problem == "its episode did not end this time"


def test_a_failure_is_reproduced_though_the_return_differs() -> None:
    factory = partial(Saboteur, "raise", at_step=4)
    played = play(factory(), 3)
    other = replace(played.episode, episode_return=played.episode.episode_return + 1)
    outcome, _ = retraced(capsule_of(factory, other))
    assert isinstance(outcome.error, ValueError)
    assert "its return so far is" in outcome.problem


def test_a_failure_on_the_way_says_where() -> None:
    played = play(World(), 3)
    outcome, lengths = retraced(capsule_of(partial(Saboteur, "raise", at_step=2), played.episode))
    assert isinstance(outcome.error, ValueError)
    assert (outcome.phase, outcome.length, lengths) == ("replay", 1, [0, 1])


def test_an_episode_without_a_complete_record_cannot_be_reached() -> None:
    capsule = capsule_of(World, num_episodes=2)
    with pytest.raises(ConfigError, match="longer than replay_limit_steps"):
        reproduce(capsule)
    assert reproduce(replace(capsule, phase="reset")).error is None
    assert reproduce(replace(capsule, phase="construct")).error is None


def test_a_part_of_a_vector_environment_cannot_be_replayed() -> None:
    def two() -> Any:
        return SyncVectorEnv([World, World])

    capsule = capsule_of(two, play(World(), 2).episode)
    with pytest.raises(ConfigError, match="part of a vector environment"):
        reproduce(capsule)
    assert reproduce(replace(capsule, phase="construct")).error is None


# --- factories ---------------------------------------------------------------------------------


def test_environments_that_were_registered_are_known() -> None:
    gymnasium.register("CapsuleTest-v0", entry_point=lambda: World(tag=4))
    try:
        path = written(capsule_of(lambda: gymnasium.make("CapsuleTest-v0"), phase="construct"))
    finally:
        del gymnasium.registry["CapsuleTest-v0"]
    try:
        assert reproduce(read(path)).env.unwrapped.tag == 4
    finally:
        gymnasium.registry.pop("CapsuleTest-v0", None)


SCRIPT = """
import gymnasium, neighbour
from shoal.engine.capsule import Capsule, write

class Mine(neighbour.Kind):
    def __init__(self):
        raise LookupError(f"made by {self.name}")

print(write(Capsule("raised", "construct", "", "", 0, 0, lambda: Mine(), {}, None, 0, None)))
"""


def test_functions_of_a_script_travel_by_value_and_modules_by_import(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "script.py").write_text(SCRIPT)
    (home / "neighbour.py").write_text("class Kind:\n    name = 'a neighbour'\n")
    done = subprocess.run(
        [sys.executable, home / "script.py"], capture_output=True, text=True, check=True
    )
    (home / "script.py").unlink()
    try:
        assert str(reproduce(read(done.stdout.strip())).error) == "made by a neighbour"
    finally:
        sys.modules.pop("neighbour", None)


def test_no_modules_are_looked_for_where_everyone_may_put_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to_all, private = tmp_path / "open", tmp_path / "private"
    for folder in (open_to_all, private):
        folder.mkdir()
        monkeypatch.syspath_prepend(folder)
    open_to_all.chmod(0o777)
    path = written(capsule_of(World))
    monkeypatch.setattr(sys, "path", [])
    read(path)
    assert str(private) in sys.path
    assert str(open_to_all) not in sys.path


def test_a_module_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "passing_by.py").write_text("class Kind: pass\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        import passing_by  # type: ignore[import-not-found]

        path = written(capsule_of(passing_by.Kind))
    (tmp_path / "passing_by.py").unlink()
    del sys.modules["passing_by"]
    with pytest.raises(ConfigError, match=r"No module named 'passing_by'.*with Python 3"):
        read(path)


# --- the file ----------------------------------------------------------------------------------


def test_the_file_is_private_and_its_name_tells(place: Path) -> None:
    path = written(capsule_of(World, kind="died"))
    assert path.parent == place
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    date, clock, fraction, env, kind = path.name.split("-")
    assert (len(date), len(clock), len(fraction)) == (8, 6, 6)
    assert (env, kind) == ("env3", "died.capsule")
    assert os.listdir(place) == [path.name]


def test_names_sort_by_time() -> None:
    names = [written(capsule_of(World, env_id=env_id)).name for env_id in (9, 2, 5, 1)]
    assert names == sorted(names)


def test_people_can_read_what_happened() -> None:
    played = play(World(), 3)
    path = written(capsule_of(World, played.episode, action=np.int64(2)))
    with zipfile.ZipFile(path) as archive:
        told = json.loads(archive.read("capsule.json"))
    assert told == capsules.describe(path)
    assert told["format"] == 1
    assert told["cause"] == "env 3 raised ValueError in step"
    assert told["length"] == 3
    assert told["action"] == "np.int64(2)"
    assert "CountingWorld" in told["factory"]
    assert told["versions"]["gymnasium"] == gymnasium.__version__
    assert told["versions"].keys() == {"python", "shoal", "gymnasium", "numpy", "cloudpickle"}
    assert set(capsules._PLAIN) <= told.keys()


def test_what_a_capsule_is_made_of_goes_with_the_number_of_its_format() -> None:
    """Files outlive versions: when this fails, raise FORMAT and change the names here."""
    assert capsules.FORMAT == 1
    names = {kind: " ".join(one.name for one in fields(kind)) for kind in (Episode, Call, SetAttr)}
    assert names == {
        Episode: "args generator actions objects changes length episode_return is_over",
        Call: "name args kwargs env_ids",
        SetAttr: "name values",
    }
    assert " ".join(one.name for one in fields(Capsule)) == (
        "kind phase cause trace worker env_id factory attributes seed num_episodes episode "
        "action reset call generator mode check_finite"
    )
    assert ResetArgs._fields == ("seed", "options", "is_derived")


def test_only_the_newest_are_kept_and_nothing_else_is_touched(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capsules, "KEPT", 3)
    place.mkdir()
    others = ["notes.txt", "mine.capsule", "20200101-000000-env1-died.capsule.bak"]
    for name in others:
        (place / name).touch()
    names = [written(capsule_of(World, env_id=k)).name for k in range(6)]
    assert sorted(os.listdir(place)) == sorted([*others, *names[-3:]])


def test_what_a_killed_process_left_unfinished_goes_after_a_while(place: Path) -> None:
    place.mkdir()
    old, fresh = (place / f".{name}{capsules._UNFINISHED}" for name in ("old", "fresh"))
    for path in (old, fresh):
        path.touch()
    os.utime(old, (0, 0))
    path = written(capsule_of(World))
    assert sorted(os.listdir(place)) == sorted([fresh.name, path.name])


def test_a_capsule_appears_whole_or_not_at_all(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, whole = os.replace, []

    def watch(source: str, target: Path) -> None:
        assert not target.exists()
        whole.append(read(source).env_id)
        rename(source, target)

    monkeypatch.setattr(os, "replace", watch)
    written(capsule_of(World))
    assert whole == [3]

    def fail(source: str, target: Path) -> None:
        raise OSError("no room")

    before = os.listdir(place)
    monkeypatch.setattr(os, "replace", fail)
    assert write(capsule_of(World)) is None
    assert os.listdir(place) == before


def test_writers_side_by_side_do_not_disturb_each_other(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capsules, "KEPT", 4)
    paths: list[str | None] = []

    def write_some(env_id: int) -> None:
        paths.extend(write(capsule_of(World, env_id=env_id)) for _ in range(10))

    threads = [threading.Thread(target=write_some, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert None not in paths
    assert len(set(paths)) == 40
    assert len(os.listdir(place)) == 4
    for name in os.listdir(place):
        read(place / name)


# --- where none can be written -----------------------------------------------------------------


def test_an_empty_variable_switches_capsules_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SHOAL_CAPSULES", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert capsules.folder() is None
    assert write(capsule_of(World)) is None
    assert os.listdir(tmp_path) == []
    assert caplog.records == []


def test_without_the_variable_they_go_where_the_system_keeps_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOAL_CAPSULES")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert capsules.folder() == tmp_path / "home" / ".local" / "state" / "shoal" / "capsules"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert capsules.folder() == tmp_path / "state" / "shoal" / "capsules"
    assert written(capsule_of(World)).parent == tmp_path / "state" / "shoal" / "capsules"


@pytest.mark.parametrize("what", ["factory", "folder", "size"])
def test_what_cannot_be_written_is_said_once(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lock = threading.Lock()
    capsule = capsule_of(World)
    if what == "factory":
        capsule = capsule_of(lambda: lock)
    elif what == "size":
        capsule = capsule_of(partial(World, tag=np.zeros(capsules.LARGEST_BYTES, np.uint8)))
    else:
        (tmp_path / "file").touch()
        monkeypatch.setenv("SHOAL_CAPSULES", str(tmp_path / "file" / "inside"))
    says = {"factory": "lock", "folder": "Not a directory", "size": "more than 32 MiB"}
    with caplog.at_level(logging.DEBUG, "shoal"):
        assert write(capsule) is None
        assert write(capsule) is None
    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG"]
    assert "no capsule could be written of env 3, which raised in step" in caplog.text
    assert says[what] in caplog.text


def test_data_within_the_limit_is_written() -> None:
    data = np.arange(capsules.LARGEST_BYTES // 16)
    capsule = through_file(capsule_of(partial(remembering, data.sum), phase="construct"))
    assert capsule.factory.args[0]() == data.sum()  # type: ignore[attr-defined]


# --- whom to trust -----------------------------------------------------------------------------


class Marker:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o777])
def test_nothing_is_unpickled_from_what_others_can_write(mode: int, tmp_path: Path) -> None:
    marker = tmp_path / "unpickled"
    path = written(capsule_of(World, attributes={"marker": Marker(marker)}))
    path.chmod(mode)
    for look in (read, capsules.describe):
        with pytest.raises(ConfigError, match=f"written by others .its mode is {mode:04o}"):
            look(path)
    assert not marker.exists()
    path.chmod(0o644)
    capsules.describe(path)
    assert not marker.exists()
    read(path)
    assert marker.exists(), "the marker must be able to tell"


def test_nothing_is_unpickled_from_what_belongs_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "unpickled"
    path = written(capsule_of(World, attributes={"marker": Marker(marker)}))
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(ConfigError, match=r"belongs to user .*, not to you"):
        read(path)
    assert not marker.exists()


def test_a_link_counts_as_what_it_leads_to(tmp_path: Path) -> None:
    path, link = written(capsule_of(World)), tmp_path / "link"
    link.symlink_to(path)
    assert read(link).env_id == 3
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="written by others"):
        read(link)


def archive_with(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_", "."), content)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "text", "empty", "zip", "json"])
def test_what_is_no_capsule_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path, 0o600)
    elif kind in ("text", "empty"):
        path.write_text("no capsule" if kind == "text" else "")
        path.chmod(0o600)
    elif kind == "zip":
        archive_with(path, readme_txt=b"")
    elif kind == "json":
        archive_with(path, capsule_json=b"{}", payload_pkl=b"")
    with pytest.raises(ConfigError, match="is no file" if kind == "missing" else "not a capsule"):
        read(path)


def test_another_format_is_refused_before_its_payload_is_looked_at(tmp_path: Path) -> None:
    marker = tmp_path / "unpickled"
    header = json.dumps({"format": 99, "versions": {"shoal": "9.1"}}).encode()
    path = archive_with(
        tmp_path / "file", capsule_json=header, payload_pkl=pickle.dumps(Marker(marker))
    )
    with pytest.raises(ConfigError, match=r"format 99, .* reads format 1\. .*wrote it, 9\.1"):
        read(path)
    assert not marker.exists()


def test_a_cut_file_is_refused() -> None:
    path = written(capsule_of(World))
    whole = path.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ConfigError, match="not a capsule"):
            read(path)
