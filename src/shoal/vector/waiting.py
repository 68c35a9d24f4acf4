"""One call at a time, started and waited for: the asynchronous half of other libraries' contracts.

Gymnasium's and AgileRL's vector environments have the same states, errors and messages here, and
both let an environment's own exception out as it is; so do the drop-ins for them.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

from gymnasium import logger
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector.async_vector_env import AsyncState

from shoal.engine.cells import EpisodeOver
from shoal.engine.pool import Pool
from shoal.errors import EnvRaised, RemoteTraceback
from shoal.vector.dropin import as_raised, original


class Waiting:
    """What a pool was told to start, and nobody has waited for yet."""

    def __init__(self, pool: Pool, name: str) -> None:
        """`name` is what users call the class that this is for."""
        self._pool, self._name = pool, name
        self.state = AsyncState.DEFAULT

    def check_open(self) -> None:
        if self._pool.closed:
            raise ClosedEnvironmentError(
                f"Trying to operate on `{self._name}`, after a call to `close()`."
            )

    def check_free(self, name: str, *, end: str = ".") -> None:
        """An error if something is pending; `end` is how the message ends."""
        if self.state is not AsyncState.DEFAULT:
            raise AlreadyPendingCallError(
                f"Calling `{name}` while waiting for a pending call to "
                f"`{self.state.value}` to complete{end}",
                str(self.state.value),
            )

    def begin(self, kind: AsyncState, start: Callable[..., None], *args: Any) -> None:
        """Start what `finish` is to wait for; if starting it fails, nothing is pending."""
        start(*args)
        self.state = kind

    def finish(self, kind: AsyncState, timeout: float | None) -> dict[int, Any]:
        """Wait for what was begun; results of calls, by env id.

        After a time-out the call stays pending: a later answer can never be taken for that of
        another call.
        """
        self.check_open()
        name = f"{kind.value}_wait"
        if self.state is not kind:
            raise NoAsyncCallError(
                f"Calling `{name}` without any prior call to `{kind.value}_async`.", kind.value
            )
        if not self._pool.await_started(timeout):
            raise multiprocessing.TimeoutError(
                f"The call to `{name}` has timed out after {timeout} second(s)."
            )
        self.state = AsyncState.DEFAULT
        results: dict[int, Any] = self.run(self._pool.finish)
        return results

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Do this at once; if environments raise, their errors are logged, and one is let out."""
        try:
            return function(*args)
        except EnvRaised as error:
            raise reported(error) from None

    def close(self, timeout: float | None, terminate: bool) -> None:
        """Close; with a call pending, wait for it at most `timeout` (not at all to terminate)."""
        if self.state is not AsyncState.DEFAULT:
            pending, self.state = self.state, AsyncState.DEFAULT
            logger.warn(
                f"Calling `close` while waiting for a pending call to `{pending.value}` "
                "to complete."
            )
        self._pool.close(0.0 if terminate else timeout)


def let_out(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call, and let out what environments raise as Gymnasium does: it asserts that none is over."""
    try:
        return as_raised(function, *args, **kwargs)
    except EpisodeOver as error:
        raise AssertionError(str(error)) from error


def reported(error: EnvRaised) -> BaseException:
    """Log as Gymnasium does and give what it raises: the environment's own exception."""
    for one in [error, *(other for other in error.others if isinstance(other, EnvRaised))]:
        last = original(one)
        logger.error(
            f"Received the following error from Worker-{one.env_ids[0]} - Shutting it down"
        )
        logger.error(_trace(one).replace("%", "%%"))
    logger.error("Raising the last exception back to the main process.")
    return last or error


def _trace(error: EnvRaised) -> str:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, RemoteTraceback):
        cause = cause.__cause__
    return cause.args[0] if cause is not None else str(error)
