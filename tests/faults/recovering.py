"""What tests of recovery share: worlds, ways to kill workers, and a shadow of every environment.

A shadow is a copy of one environment in the caller's own process that is never disturbed. It says
what each step must have come to, so that no transition can be lost, doubled or misattributed
without showing; where the real environment was restarted, the shadow is told and checks that too.
"""

from __future__ import annotations

import functools
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import shoal
from shoal.seeding import env_seed
from shoal.testing import CountingWorld
from shoal.testing.mishap import ACTS
from shoal.testing.worlds import decode
from trace_of import assert_same


def worlds(count: int, kind: Callable[..., Any] = CountingWorld, **kwargs: Any) -> list[Any]:
    """Factories of counting worlds, each with its own tag."""
    return [functools.partial(kind, tag, **kwargs) for tag in range(count)]


def hold_the_interpreter(text: str) -> None:
    """A loop in C that never lets another thread, or a signal handler, have its turn."""
    sum(range(10**18))


class Scripted(CountingWorld):
    """Follows a script of failures, one after the other, through all its lives.

    An entry names a phase ("construct", "reset", "step", "step 3", "call") and what is done when
    it comes next. How far the script has got is kept in a file.
    """

    acts: ClassVar[dict[str, Callable[[str], object]]] = {
        **ACTS,
        "hold": hold_the_interpreter,
        "none": str,
    }

    def __init__(
        self, tag: int, *, folder: Any, script: Sequence[tuple[str, str]] = (), **kwargs: Any
    ) -> None:
        self.script, self._book = script, Path(folder) / f"book-{tag}"
        self._act("construct")
        super().__init__(tag, **kwargs)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._act("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self._act("step", f"step {self._record.step + 1}")
        return super().step(action)

    def poke(self) -> str:
        self._act("call")
        return f"poked {self.tag}"

    def _act(self, *names: str) -> None:
        done = self._book.stat().st_size if self._book.exists() else 0
        if done < len(self.script) and self.script[done][0] in names:
            with self._book.open("ab") as book:
                book.write(b".")
            self.acts[self.script[done][1]](f"scripted, {names[0]}")


def cast(
    count: int, culprit: int, folder: Path, script: Sequence[tuple[str, str]], **kwargs: Any
) -> list[Any]:
    """Factories of which one follows a script."""
    factories = worlds(count, **kwargs)
    factories[culprit] = functools.partial(
        Scripted, culprit, folder=folder, script=tuple(script), **kwargs
    )
    return factories


def kill_worker(envs: shoal.VectorEnv, worker: int) -> None:
    """SIGKILL, now."""
    kill_later(envs, worker, 0.0)


def kill_later(envs: shoal.VectorEnv, worker: int, delay_s: float) -> threading.Timer | None:
    """SIGKILL a worker after a moment, and nobody else, should it be replaced by then."""
    try:
        pidfd = os.pidfd_open(envs._pool.workers[worker].pid)
    except ProcessLookupError:  # killed before, and nobody has looked since
        return None

    def kill() -> None:
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass
        finally:
            os.close(pidfd)

    if delay_s <= 0.0:
        kill()
        return None
    timer = threading.Timer(delay_s, kill)
    timer.start()
    return timer


@contextmanager
def random_kills(envs: shoal.VectorEnv, seed: int, within_s: float) -> Iterator[Callable[[], None]]:
    """Gives a function that has a random worker killed, at once or a random moment later."""
    draw, timers = random.Random(seed), list[threading.Timer]()

    def kill_one() -> None:
        delay_s = draw.choice([0.0, draw.uniform(0.0, within_s)])
        timer = kill_later(envs, draw.randrange(len(envs._pool.workers)), delay_s)
        if timer is not None:
            timers.append(timer)

    try:
        yield kill_one
    finally:
        for timer in timers:
            timer.join()


class Shadow:
    """One environment, undisturbed, and what has become of the real one."""

    def __init__(self, env_id: int, world: Any, mode: str, seed: int) -> None:
        self.env_id, self.world, self.mode, self.run_seed = env_id, world, mode, seed
        self.restarts = 0
        self.is_over = False
        self.is_fresh = False
        """Whether its next reset uses the seed of its latest restart."""
        self.is_lost = False
        """Whether it was restarted, and its next step has to say so."""
        self.may_be_late = False
        """Whether the restart may have come after the result that is handed out next."""
        self.steps = self.episodes = 0

    def reset(self, seed: int | None = None) -> Any:
        if self.is_fresh and seed is None:
            seed = self._fresh_seed()
        self.is_over = self.is_fresh = self.is_lost = False
        self.last, _ = self.world.reset(seed=seed)
        return self.last

    def _fresh_seed(self) -> int | None:
        return env_seed(self.run_seed, self.env_id, self.restarts)

    def was_restarted(self, restarts: int, *, while_sent: bool) -> None:
        self._seed_before = self._fresh_seed() if self.is_fresh else None
        self.restarts = restarts
        self.is_lost, self.is_fresh = not self.is_over, True
        self.may_be_late = while_sent

    def follow(
        self, action: Any, got: tuple[Any, float, bool, bool], restarted: bool, final: Any
    ) -> None:
        """Check one transition of the real environment."""
        where = f"env {self.env_id}, after {self.restarts} restarts"
        self.may_be_late = self.may_be_late and not restarted and self._came_before(got[0])
        if self.may_be_late:
            # The answer was in before its worker died: the loss will be told by the next step.
            expected, expected_final = self._undisturbed(action)
            self.is_lost, self.is_fresh = not self.is_over, True
        else:
            assert restarted == self.is_lost, f"{where}: {'no ' if self.is_lost else ''}loss told"
            expected, expected_final = self._lost() if self.is_lost else self._undisturbed(action)
        self.may_be_late = False
        assert_same(tuple(got), expected, where)
        assert_same(final, expected_final, f"{where}, final_obs")

    def _came_before(self, observation: Any) -> bool:
        if self.is_lost:
            return True
        if not self.is_over:
            return False
        return decode(observation).seed != env_seed(self.run_seed, self.env_id, self.restarts)

    def _lost(self) -> tuple[tuple[Any, float, bool, bool], Any]:
        self.episodes += 1
        self.is_over, self.is_lost = True, False
        last = self.last
        if self.mode == "same_step":
            return (self.reset(), 0.0, False, True), last
        return (last, 0.0, False, True), None

    def _undisturbed(self, action: Any) -> tuple[tuple[Any, float, bool, bool], Any]:
        if self.is_over:
            assert self.mode == "next_step"
            if self.may_be_late:
                self.is_fresh = False
                return (self.reset(self._seed_before), 0.0, False, False), None
            return (self.reset(), 0.0, False, False), None
        self.last, reward, terminated, truncated, _ = self.world.step(action)
        self.steps += 1
        if not (terminated or truncated):
            return (self.last, reward, False, False), None
        self.episodes += 1
        self.is_over = True
        last = self.last
        if self.mode == "same_step":
            self.is_fresh = self.is_fresh and not self.may_be_late
            return (self.reset(), reward, terminated, truncated), last
        return (last, reward, terminated, truncated), None


class Shadows:
    """The shadows of all environments of a run."""

    def __init__(self, envs: shoal.VectorEnv, mode: str, seed: int, **kwargs: Any) -> None:
        self.envs, self.mode, self.seed = envs, mode, seed
        self.each = [
            Shadow(i, CountingWorld(i, **kwargs), mode, seed) for i in range(envs.num_envs)
        ]
        self._draw = np.random.default_rng(seed + 1)
        self._actions: dict[int, Any] = {}
        observations, _ = envs.reset(seed=seed)
        for i, shadow in enumerate(self.each):
            assert_same(observations[i], shadow.reset(env_seed(seed, i)), f"env {i}")

    def step(self) -> None:
        """A step of all, checked; in mode disabled, what has ended is reset."""
        actions = self._draw.integers(7, size=len(self.each))
        batch = shoal.Batch(*self.envs.step(actions), env_ids=np.arange(len(actions)))
        self._note_restarts(set())
        self._check(batch, dict(enumerate(actions)))
        self._reset_ended()

    def send(self, env_ids: Sequence[int]) -> None:
        actions = self._draw.integers(7, size=len(env_ids))
        self._actions.update(zip(env_ids, actions, strict=True))
        self.envs.send(actions, env_ids)
        self._note_restarts(set())

    def recv(self, min_envs: int = 1) -> list[int]:
        """A batch of what is ready, checked; who was in it."""
        sent = set(self._actions)
        batch = self.envs.recv(min_envs)
        self._note_restarts(sent)
        ids = batch.env_ids.tolist()
        self._check(batch, {i: self._actions.pop(i) for i in ids})
        return ids

    def reset_ended(self, env_ids: Sequence[int]) -> None:
        ended = [i for i in env_ids if self.each[i].is_over]
        if self.mode != "disabled" or not ended:
            return
        before = set(self._actions)
        observations, _ = self.envs.reset_envs(ended)
        self._note_restarts(before)
        for k, i in enumerate(ended):
            assert_same(observations[k], self.each[i].reset(), f"env {i}, reset")

    def _reset_ended(self) -> None:
        self.reset_ended(range(len(self.each)))

    def _note_restarts(self, sent: set[int]) -> None:
        for i, entry in enumerate(self.envs._pool.books.journal.entries):
            if entry.num_restarts > self.each[i].restarts:
                self.each[i].was_restarted(entry.num_restarts, while_sent=i in sent)

    def _check(self, batch: Any, actions: dict[int, Any]) -> None:
        infos = batch.infos
        restarted = infos.get("restarted", np.zeros(len(batch.env_ids), bool))
        finals = infos.get("final_obs", np.full(len(batch.env_ids), None))
        for k, i in enumerate(batch.env_ids.tolist()):
            got = (
                batch.observations[k],
                float(batch.rewards[k]),
                bool(batch.terminations[k]),
                bool(batch.truncations[k]),
            )
            self.each[i].follow(actions[i], got, bool(restarted[k]), finals[k])

    @property
    def steps(self) -> int:
        return sum(shadow.steps for shadow in self.each)


def percentile(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(values, percent))


def infos_of(infos: dict[str, Any], env_ids: list[int]) -> list[Any]:
    """The infos of single environments, as each would have given them."""
    return [{key: _one(infos[key], i) for key in infos if _has(infos, key, i)} for i in env_ids]


def _has(infos: dict[str, Any], key: str, env_id: int) -> bool:
    return not key.startswith("_") and bool(infos[f"_{key}"][env_id])


def _one(value: Any, env_id: int) -> Any:
    if isinstance(value, dict):
        return {k: _one(v, env_id) for k, v in value.items() if _has(value, k, env_id)}
    return value[env_id].tolist() if isinstance(value[env_id], np.ndarray) else value[env_id]
