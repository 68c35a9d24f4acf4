"""Does an episode follow from its level, or its state, and the buttons alone, in every picture?"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import shoal
from faults.recovering import kill_worker
from shoal.envs.gameboy import ACTIONS, GameBoyEnv
from shoal.envs.gameboy.players import ScriptedPlayer
from trace_of import assert_same

LEFT = 5
LEVELS = (1, 8, 17)
"""With the key in another room each, so that all rooms are seen."""


class Sight(NamedTuple):
    """All of the console that has a name, and the picture that was just drawn."""

    picture: bytes
    named: tuple[tuple[int, ...], ...]


def sight(env: GameBoyEnv) -> Sight:
    assert env.console is not None
    spans = [field.span for field in env.ram_map.fields]
    named = tuple(tuple(env.console.read([span])) for span in spans)
    return Sight(env.console.gray().tobytes(), named)


def heal(env: GameBoyEnv) -> None:
    """So that the episode goes on."""
    assert env.console is not None
    env.console.memory[env.ram_map.field("hearts").address] = 3


def through_the_keep(frames: int, level: int) -> tuple[list[int], set[Any]]:
    """Actions to the pearl and on the way a lot of nonsense; the rooms with a crab that it saw."""
    env, player, chance = game(frames), ScriptedPlayer(rupees=True), random.Random(level)
    env.reset(options={"level": level})
    actions, rooms = [], set()
    while not env.peek("state"):
        is_sane = chance.random() < 0.7
        action = player.act(env) if is_sane else chance.randrange(len(ACTIONS))
        for _ in range(chance.randrange(1, 9) * 4 // frames):
            heal(env)
            env.step(action)
            actions.append(action)
            rooms.add((env.peek("room"), env.peek("enemy_here")))
    env.close()
    return actions, rooms


def game(frames: int) -> GameBoyEnv:
    return GameBoyEnv(
        observation="pixels", screen="native", stack=1, frames_per_step=frames, episode_length=None
    )


def played(env: GameBoyEnv, actions: list[int]) -> list[Sight]:
    """What there is to see of an episode that has just begun."""
    told = [sight(env)]
    for action in actions:
        heal(env)
        env.step(action)
        told.append(sight(env))
    return told


def nothing(env: GameBoyEnv) -> None:
    pass


def walks(seed: int) -> Callable[[GameBoyEnv], None]:
    """Random play of a random number of frames in some levels, broken off anywhere."""

    def go(env: GameBoyEnv) -> None:
        chance = random.Random(seed)
        assert env.console is not None
        for _ in range(3):
            env.reset(options={"level": chance.randrange(65536)})
            for _ in range(chance.randrange(20, 60)):
                for _ in range(chance.randrange(8)):
                    env.step(chance.randrange(len(ACTIONS)))
                env.step(LEFT)
            env.console.advance(chance.randrange(1, 17), draw=chance.random() < 0.5)

    return go


def through_doorways(env: GameBoyEnv) -> None:
    """Broken off while a room is being drawn, for the first time, with a button held."""
    assert env.console is not None
    env.reset(options={"level": 3})
    while env.peek("room") == 4:
        env.console.hold("left")
        env.console.advance(1, draw=False)
    assert env.peek("freeze")


def to_the_end(env: GameBoyEnv) -> None:
    player = ScriptedPlayer()
    env.reset(options={"level": 5})
    while not env.peek("state"):
        heal(env)
        env.step(player.act(env))
    for _ in range(11):
        env.step(0)


PASTS: dict[str, Callable[[GameBoyEnv], None]] = {
    "doorway": through_doorways,
    "end": to_the_end,
    **{f"walks {seed}": walks(seed) for seed in range(2)},
}


@pytest.mark.parametrize("frames", [1, 4])
def test_no_past_shows_in_any_picture_or_number_of_an_episode(frames: int) -> None:
    rooms: set[Any] = set()
    for level in LEVELS:
        actions, places = through_the_keep(frames, level)
        rooms |= places

        def seen(past: Callable[[GameBoyEnv], None], level: int, actions: list[int]) -> list[Sight]:
            env = game(frames)
            past(env)
            env.reset(options={"level": level})
            told = played(env, actions)
            env.close()
            return told

        expected = seen(nothing, level, actions)
        assert len({one.picture for one in expected}) > 100
        for name, past in PASTS.items():
            pairs = enumerate(zip(seen(past, level, actions), expected, strict=True))
            differs = [turn for turn, (one, other) in pairs if one != other]
            assert not differs, f"level {level} after {name}: steps {differs[:5]}, ... differ"
    assert {room for room, _ in rooms} == set(range(6))
    assert len([room for room, has_crab in rooms if has_crab]) >= 4


def test_no_past_shows_after_a_state_was_loaded() -> None:
    env = game(4)
    walks(9)(env)
    state, actions = env.save_state(), [random.Random(1).randrange(7) for _ in range(200)]
    other, told = game(4), []
    for one in (env, other):
        one.reset(options={"state": state})
        told.append(played(one, actions))
        one.close()
    assert told[0] == told[1]


def test_an_episode_that_begins_by_a_byte_is_one_that_begins_by_a_state() -> None:
    used, fresh = game(4), game(4)
    walks(2)(used)
    used.reset(options={"level": LEVELS[0]})
    first, state = sight(used), used.save_state()
    fresh.reset(options={"state": state})
    assert sight(fresh) == first
    for action in through_the_keep(4, LEVELS[0])[0]:
        for env in (used, fresh):
            heal(env)
        assert_same(fresh.step(action), used.step(action))
        assert sight(fresh) == sight(used)
    used.close()
    fresh.close()


# --- and so ... --------------------------------------------------------------------

PIXELS = {"observation": "pixels", "episode_length": 31}
ENV = "shoal.envs.gameboy:GameBoyEnv"


def test_a_killed_worker_is_replayed_in_pictures_too() -> None:
    """In the second episode, beside a crab: the emulator that is replaced had a past."""

    def play(kills: bool) -> list[Any]:
        steps: list[Any] = []
        with shoal.make(
            ENV,
            2,
            backend="process",
            num_workers=1,
            on_failure="replay",
            autoreset="same_step",
            env_kwargs=PIXELS,
        ) as envs:
            steps.append(envs.reset(seed=0))
            for turn in range(60):
                if kills and turn == 50:
                    kill_worker(envs, 0)
                steps.append(envs.step(np.array([LEFT, LEFT])))
            stats = envs.stats()
        assert (stats["replays"], stats["restarts"]) == (2 * kills, 0)
        return steps

    assert_same(play(True), play(False))


def test_a_branch_of_pictures_goes_on_as_its_origin() -> None:
    with shoal.make(ENV, 2, backend="serial", env_kwargs=PIXELS) as envs:
        envs.reset(seed=0)
        for _ in range(3):
            envs.step(np.array([0, 0]))
        envs.reset(seed=5)
        for _ in range(9):
            envs.step(np.array([LEFT, 0]))
        envs.branch(0, [1])
        for action in (0, LEFT, 3, 0, 0, 1, 4):
            observations = envs.step(np.array([action, action]))[0]
            assert_same(observations[1], observations[0])
