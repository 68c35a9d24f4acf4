"""Every error Shoal raises on purpose.

ShoalError
├── ConfigError          asked for something that cannot be; nothing was started
├── ContractError        an environment or a caller broke the contract of its spaces
├── ClosedError          used after close()
└── WorkerError          something happened in a worker; carries where
    ├── EnvRaised        an environment's own exception (its traceback is the cause)
    ├── WorkerDied       the process is gone
    └── WorkerTimeout    an environment took longer than it may

A message says, in this order: what happened, where, expected and got, what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gymnasium.error import ClosedEnvironmentError

__all__ = [
    "ClosedError",
    "ConfigError",
    "ContractError",
    "EnvRaised",
    "ShoalError",
    "WorkerDied",
    "WorkerError",
    "WorkerTimeout",
]


class ShoalError(Exception):
    """Root of all errors of this library."""

    others: Sequence[Exception] = ()
    """What went wrong in other environments at the same time."""


class ConfigError(ShoalError, ValueError):
    """The request cannot be carried out; nothing has been started."""


class ContractError(ShoalError, ValueError):
    """Data does not fit its space, or a call does not fit the state it was made in."""


class ClosedError(ShoalError, ClosedEnvironmentError):
    """The environments are closed already."""


class WorkerError(ShoalError):
    """Something happened in a worker.

    `worker` is its number, `pid` its process (None where it has none of its own), `env_ids` the
    environments concerned, `phase` what was being done ("construct", "reset", "step", "call", ...).
    """

    def __init__(
        self,
        message: str,
        *,
        worker: int,
        env_ids: Sequence[int] = (),
        phase: str = "",
        pid: int | None = None,
        capsule: str | None = None,
    ) -> None:
        super().__init__(message)
        self.worker = worker
        self.env_ids = tuple(env_ids)
        self.phase = phase
        self.pid = pid
        self.capsule = capsule

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), self.args[0], self.__dict__)


class EnvRaised(WorkerError):
    """An environment raised; its own exception, with the remote traceback, is the cause."""


class WorkerDied(WorkerError):
    """A worker process ended without being asked to."""


class WorkerTimeout(WorkerError):
    """One environment's reset or step took longer than `step_timeout_s`."""


class RemoteTraceback(Exception):
    """The text of a traceback from a worker, shown as the cause of what it led to."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _rebuild(cls: type[WorkerError], message: str, state: dict[str, Any]) -> WorkerError:
    error = cls(message, worker=state["worker"])
    error.__dict__.update(state)
    return error


def suggest(given: object, known: Iterable[str]) -> str:
    """' Did you mean ...?' for the nearest known name, or the list of all of them."""
    import difflib  # only where there is something to suggest: it costs a tenth of our import

    names = [str(name) for name in known]
    close = difflib.get_close_matches(str(given), names, n=1, cutoff=0.6)
    return (
        f"Did you mean {close[0]!r}?" if close else f"Choose one of {', '.join(map(repr, names))}."
    )


def shown(value: object, limit: int = 120) -> str:
    """A value as it appears in a message: its repr, on one line, cut where it is long."""
    try:
        text = " ".join(repr(value).split())
    except Exception as problem:
        text = f"<{type(value).__name__}, whose repr raised {type(problem).__name__}>"
    return text if len(text) <= limit else f"{text[:limit]}..."
