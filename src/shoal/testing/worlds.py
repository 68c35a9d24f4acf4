"""The counting world: an environment in which nothing can be misrouted without showing.

Its observation says which environment, seed, episode, step and task it belongs to and which
actions came before; its reward is an exact function of the action received.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

import gymnasium
import numpy as np

from shoal.testing.forms import (
    ACTIONS,
    OBSERVATIONS,
    ActionForm,
    CountingRecord,
    ObservationForm,
    action_numbers,
    decode,
    reward_of,
)

__all__ = ["CountingRecord", "CountingWorld", "InfoForm", "decode", "reward_of"]

InfoForm = Literal["none", "numeric", "mixed", "sparse"]


class CountingWorld(gymnasium.Env[Any, Any]):
    """A deterministic world with uneven episodes that end by termination, truncation or both.

    Args:
        tag: this environment's number, shown in every observation.
        obs, action, infos: which observation space, action space and info dictionaries it has;
            see ``shoal.testing.forms`` for what each contains.
        reuse_buffer: overwrite and return the very same arrays (and dict) at every step and reset.
        work_s: seconds of busy work in each step.
        history: with ``False`` an episode is a function of the generator, the options and the
            actions alone (no seed or episode count carries over): ``seed`` is then a number
            drawn at the reset and ``episode`` stays 0. A replay from a recorded generator state
            can only be exact in such a world.
        render_mode: ``None`` or ``"rgb_array"``.

    Stepping before the first reset, or on after an end, raises ``RuntimeError``.
    """

    # Not a ClassVar: Gymnasium declares it as an attribute of the instance.
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    min_steps = 3
    max_steps = 20

    def __init__(
        self,
        tag: int = 0,
        *,
        obs: ObservationForm = "vector",
        action: ActionForm = "discrete",
        infos: InfoForm = "none",
        reuse_buffer: bool = False,
        work_s: float = 0.0,
        history: bool = True,
        render_mode: str | None = None,
    ) -> None:
        make_space, self._encode = OBSERVATIONS[_known("obs", obs, OBSERVATIONS)]
        self.observation_space = make_space()
        self.action_space = ACTIONS[_known("action", action, ACTIONS)]()
        self._infos = _INFOS[_known("infos", infos, _INFOS)]
        self.tag = tag
        self.reuse_buffer = reuse_buffer
        self.work_s = work_s
        self.history = history
        self.render_mode = render_mode
        self.bonus = 0.0
        """Added to every reward: makes a changed attribute visible."""
        self.closes = 0
        """How often ``close`` was called."""
        self._record = CountingRecord(-1, tag, 0, -1, 0, 0, 0, 0)
        self._length = 0
        self._ending = (False, False)
        self._held: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; ``options={"task": int}`` shows in all of its observations."""
        super().reset(seed=seed)
        self._length = int(self.np_random.integers(self.min_steps, self.max_steps + 1))
        self._ending = _ENDINGS[int(self.np_random.integers(len(_ENDINGS)))]
        shown_seed, episode = self._identity(seed)
        task = int((options or {}).get("task", 0))
        self._record = CountingRecord(
            shown_seed, self.tag, 0, episode, 0, task, self._draw(), heard=0
        )
        return self._observation(), self._infos(self._record)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        before = self._record
        if before.step >= self._length:
            raise RuntimeError(
                f"step was called without a running episode (env tag {self.tag}, episode "
                f"{before.episode}): it ended after {self._length} steps. Call reset first."
            )
        _work(self.work_s)
        numbers = action_numbers(self.action_space, action)
        heard = zlib.crc32(np.array(numbers, np.float64).tobytes(), before.heard)
        record = before._replace(step=before.step + 1, draw=self._draw(), heard=heard)
        self._record = record
        reward = reward_of(self.action_space, action, seed=record.seed, step=record.step)
        terminated, truncated = self._ending if record.step == self._length else (False, False)
        observation, info = self._observation(), self._infos(record)
        return observation, reward + self.bonus, terminated, truncated, info

    def render(self) -> Any:
        """A picture (8, 8, 3) whose first pixel is (step, episode, tag), each modulo 256."""
        if self.render_mode is None:
            return None
        frame = np.zeros((8, 8, 3), np.uint8)
        frame[0, 0] = np.array([self._record.step, self._record.episode, self.tag]) % 256
        frame[1:] = self._record.step * 11 % 256
        return frame

    def close(self) -> None:
        self.closes += 1

    def record(self) -> CountingRecord:
        """Where this world is now; for tests of calls into environments."""
        return self._record

    def echo(self, *args: Any, **kwargs: Any) -> tuple[int, tuple[Any, ...], dict[str, Any]]:
        """The tag and the arguments, as received."""
        return self.tag, args, kwargs

    def _identity(self, seed: int | None) -> tuple[int, int]:
        if not self.history:
            return int(self.np_random.integers(2**31)), 0
        if seed is not None:
            return seed % 2**62, 0
        return self._record.seed, self._record.episode + 1

    def _draw(self) -> int:
        return int(self.np_random.integers(2**31))

    def _observation(self) -> Any:
        fresh = self._encode(self._record)
        if not self.reuse_buffer:
            return fresh
        self._held = fresh if self._held is None else _overwrite(self._held, fresh)
        return self._held


_ENDINGS = ((True, False), (True, False), (False, True), (False, True), (True, True))


def _overwrite(held: Any, fresh: Any) -> Any:
    """Put ``fresh`` into the arrays and dicts of ``held``, as far as they can be written to."""
    if isinstance(held, np.ndarray):
        np.copyto(held, fresh)
        return held
    if isinstance(held, dict):
        held.update({key: _overwrite(held[key], value) for key, value in fresh.items()})
        return held
    if type(held) is tuple and len(held) == len(fresh):
        return tuple(_overwrite(old, new) for old, new in zip(held, fresh, strict=True))
    return fresh


def _work(seconds: float) -> None:
    if seconds > 0:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass


def _known(argument: str, value: str, known: Mapping[str, Any]) -> str:
    if value not in known:
        raise ValueError(f"unknown {argument}={value!r}: expected one of {', '.join(known)}")
    return value


def _no_info(record: CountingRecord) -> dict[str, Any]:
    return {}


def _numeric_info(record: CountingRecord) -> dict[str, Any]:
    return {
        "step": record.step,
        "fraction": record.draw / 2**31,
        "even": record.step % 2 == 0,
        "gain": np.float32(record.tag + record.step / 8),
        "trail": np.array([record.tag, record.episode, record.step], np.int32),
    }


def _mixed_info(record: CountingRecord) -> dict[str, Any]:
    return _numeric_info(record) | {
        "note": f"env {record.tag} step {record.step}",
        "nothing": None,
        "nested": {"depth": 1, "inner": {"name": f"e{record.episode}", "value": record.step / 4}},
        "listed": [record.tag, str(record.step)],
    }


def _sparse_info(record: CountingRecord) -> dict[str, Any]:
    info: dict[str, Any] = {}
    if (record.step + record.tag) % 3 == 0:
        info["third"] = record.step
    if record.step % 4 == 1:
        info["fourth"] = {"step": record.step, "half": record.step / 2}
    if record.tag % 2 == 1:
        info["odd_env"] = float(record.tag)
    if record.step == 0:
        info["begun"] = f"episode {record.episode}"
    return info


_INFOS: dict[str, Callable[[CountingRecord], dict[str, Any]]] = {
    "none": _no_info,
    "numeric": _numeric_info,
    "mixed": _mixed_info,
    "sparse": _sparse_info,
}
