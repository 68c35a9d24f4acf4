"""Lines for people: said as long as somebody is there to hear them, in letters that are known."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import rich.console
from rich.text import Text

# Closed, or full; SystemExit is how rich answers a pipe that nobody reads any more.
GONE = (OSError, ValueError, SystemExit)


class Speaker:
    """Says lines on a screen; when its stream is gone it falls silent, and calls `leave` once."""

    def __init__(
        self, screen: rich.console.Console | None = None, leave: Callable[[], None] = lambda: None
    ) -> None:
        self.screen = screen or rich.console.Console()
        self._leave = leave
        self._is_gone = False

    def say(self, *lines: str) -> None:
        for line in lines:
            text = Text(self.encodable(line))
            self.attempt(partial(self.screen.print, text, soft_wrap=True))

    def encodable(self, line: str) -> str:
        """The same, with question marks for what the stream cannot take."""
        encoding = self.screen.encoding
        return line.encode(encoding, "replace").decode(encoding)

    def attempt(self, show: Callable[[], object]) -> None:
        """Show something, unless there is nobody to show it to."""
        if self._is_gone:
            return
        try:
            show()
        except GONE:
            self._is_gone = True
            self._leave()
