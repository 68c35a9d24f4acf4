"""The ways in which a saboteur fails: what it does, and what it makes of an observation.

``ACTS`` are done at the chosen moment; most of them never return. ``SPOILS`` turn a good
observation into a bad one.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Literal, NoReturn, get_args

import numpy as np

Raise = Literal[
    "raise",
    "raise_unpicklable",
    "raise_needs_args",
    "raise_percent",
    "keyboard_interrupt",
    "sys_exit",
]
Death = Literal["os_exit", "sigkill", "sigsegv", "abort"]
Hang = Literal["hang_sleep", "hang_spin"]
BadData = Literal[
    "wrong_shape",
    "broadcastable_shape",
    "missing_key",
    "extra_key",
    "none_obs",
    "lossy_cast",
    "nan",
    "inf",
]
Nuisance = Literal["leak", "print"]
How = Raise | Death | Hang | BadData | Nuisance

RAISES: tuple[Raise, ...] = get_args(Raise)
DEATHS: tuple[Death, ...] = get_args(Death)
HANGS: tuple[Hang, ...] = get_args(Hang)
BAD_DATA: tuple[BadData, ...] = get_args(BadData)
NUISANCES: tuple[Nuisance, ...] = get_args(Nuisance)

EXIT_CODE = 3


class UnpicklableError(Exception):
    """Carries a lock, so it cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class NeedsArgsError(Exception):
    """Pickles, but cannot be unpickled: its constructor needs more than its ``args`` hold."""

    def __init__(self, text: str, detail: str) -> None:
        super().__init__(f"{text}: {detail}")


def _raise(text: str) -> NoReturn:
    raise ValueError(text)


def _raise_unpicklable(text: str) -> NoReturn:
    raise UnpicklableError(text)


def _raise_needs_args(text: str) -> NoReturn:
    raise NeedsArgsError(text, "two arguments")


def _raise_percent(text: str) -> NoReturn:
    raise ValueError(f"{text} with %s %d in its text")


def _keyboard_interrupt(text: str) -> NoReturn:
    raise KeyboardInterrupt(text)


def _sys_exit(text: str) -> NoReturn:
    sys.exit(EXIT_CODE)


def _os_exit(text: str) -> NoReturn:
    os._exit(EXIT_CODE)


def _sigkill(text: str) -> None:
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


def _sigsegv(text: str) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _abort(text: str) -> NoReturn:
    os.abort()


def _hang_sleep(text: str) -> NoReturn:
    while True:
        time.sleep(3600)


def _hang_spin(text: str) -> NoReturn:
    while True:
        pass


def _print(text: str) -> None:
    sys.stdout.write(f"{text}, to stdout\n")
    sys.stdout.flush()
    sys.stderr.write(f"{text}, to stderr\n")
    sys.stderr.flush()


ACTS: dict[str, Callable[[str], None]] = {
    "raise": _raise,
    "raise_unpicklable": _raise_unpicklable,
    "raise_needs_args": _raise_needs_args,
    "raise_percent": _raise_percent,
    "keyboard_interrupt": _keyboard_interrupt,
    "sys_exit": _sys_exit,
    "os_exit": _os_exit,
    "sigkill": _sigkill,
    "sigsegv": _sigsegv,
    "abort": _abort,
    "hang_sleep": _hang_sleep,
    "hang_spin": _hang_spin,
    "print": _print,
}


def unspoiled(observation: Any) -> Any:
    return observation


def _spoil_leaf(
    observation: Any, spoil: Callable[[Any], Any], fits: Callable[[Any], bool]
) -> tuple[Any, bool]:
    """The observation with its first fitting array spoiled, and whether there was one."""
    if isinstance(observation, np.ndarray):
        return (spoil(observation), True) if fits(observation) else (observation, False)
    if isinstance(observation, dict):
        for key, value in observation.items():
            spoiled, done = _spoil_leaf(value, spoil, fits)
            if done:
                return observation | {key: spoiled}, True
    return observation, False


def _spoiler(
    spoil: Callable[[Any], Any], fits: Callable[[Any], bool] = lambda array: array.ndim > 0
) -> Callable[[Any], Any]:
    def spoil_first(observation: Any) -> Any:
        spoiled, done = _spoil_leaf(observation, spoil, fits)
        if not done:
            raise TypeError(f"the observation has no array to spoil: got {observation!r}")
        return spoiled

    return spoil_first


def _fill_first(value: float) -> Callable[[Any], Any]:
    def fill(array: Any) -> Any:
        filled = array.copy()
        filled.reshape(-1)[0] = value
        return filled

    return _spoiler(fill, lambda array: array.size > 0 and array.dtype.kind == "f")


def _drop_key(observation: dict[str, Any]) -> dict[str, Any]:
    return dict(list(observation.items())[1:])


SPOILS: dict[str, Callable[[Any], Any]] = {
    "wrong_shape": _spoiler(lambda array: np.concatenate([array, array[:1]])),
    "broadcastable_shape": _spoiler(lambda array: array[:1]),
    "missing_key": _drop_key,
    "extra_key": lambda observation: observation | {"surprise": np.zeros(2)},
    "none_obs": lambda observation: None,
    "lossy_cast": _spoiler(
        lambda array: array.astype(np.float64) + 0.5, lambda array: array.dtype.kind in "iu"
    ),
    "nan": _fill_first(np.nan),
    "inf": _fill_first(np.inf),
}
