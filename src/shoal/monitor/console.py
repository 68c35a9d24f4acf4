"""What a person sees while a run is under way.

On a terminal, and in a notebook that has widgets: a display that is drawn over itself, with lines
above it for what happens only now and then. Anywhere else: plain lines, a few at a time. The
display has no thread; it is drawn when there is something new.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import rich.console
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shoal.monitor import progress as words
from shoal.monitor.progress import Progress, Undertaking
from shoal.monitor.sink import Metrics

DRAW_EVERY_S = 0.1
"""More often is not seen, and a drawing costs about a millisecond."""

# Closed, or full; SystemExit is how rich answers a pipe that nobody reads any more.
_GONE = (OSError, ValueError, SystemExit)


def is_seen() -> bool:
    """Whether somebody looks on: at a terminal, or in a notebook."""
    screen = rich.console.Console()
    return screen.is_jupyter or screen.file.isatty()


class Console:
    """A sink for people; says what is about to happen as soon as it is made.

    When its stream is gone it falls silent, and the run goes on.
    """

    def __init__(self, run: Undertaking, screen: rich.console.Console | None = None) -> None:
        self._screen = screen or rich.console.Console()
        self._progress = Progress(run, self._screen.get_time)
        self._live = self._make_live()
        self._drawn_s = -DRAW_EVERY_S
        self._is_gone = False
        self._is_closed = False
        self._say(*words.opening(run))

    def __str__(self) -> str:
        return "the console"

    def write(self, step: int, metrics: Metrics) -> None:
        if self._is_closed:
            return
        restarts = self._progress.latest.get("engine/restarts", 0)
        self._progress.take(step, metrics)
        if metrics.get("engine/restarts", 0) > restarts:
            self._say(words.restarted(restarts, metrics["engine/restarts"]))
        if "eval/return_mean" in metrics:
            self._say(words.evaluation(metrics))
        if self._live is not None:
            self._draw(self._live)
        elif self._progress.is_due():
            self._progress.mark_told()
            self._say(words.one_line(self._progress))

    def close(self) -> None:
        """Leave the terminal as it was, with the last state of the display on it."""
        self._is_closed = True
        live, self._live = self._live, None
        if live is not None and live.is_started:
            self._attempt(live.stop)

    def finish(self, summary: Mapping[str, str], paths: Mapping[str, Path]) -> None:
        """Close, and say what came out of it and where that was written."""
        self.close()
        if summary:
            table = Table("Summary", "", box=SIMPLE_HEAD)
            for name, value in summary.items():
                cells = (Text(self._encodable(cell), overflow="fold") for cell in (name, value))
                table.add_row(*cells)
            self._attempt(partial(self._screen.print, table))
        if paths:
            self._say("Written:", *(f"  {line}" for line in words.aligned(paths)))

    # --- showing -------------------------------------------------------------------------------

    def _make_live(self) -> Live | None:
        screen = self._screen
        widgets = screen.is_jupyter and importlib.util.find_spec("ipywidgets") is not None
        if not widgets and not (screen.is_terminal and screen.is_interactive):
            return None
        return Live(console=screen, auto_refresh=False, get_renderable=self._picture)

    def _say(self, *lines: str) -> None:
        for line in lines:
            text = Text(self._encodable(line))
            self._attempt(partial(self._screen.print, text, soft_wrap=True))

    def _encodable(self, line: str) -> str:
        encoding = self._screen.encoding
        return line.encode(encoding, "replace").decode(encoding)

    def _draw(self, live: Live) -> None:
        now_s = self._screen.get_time()
        if now_s - self._drawn_s < DRAW_EVERY_S:
            return
        self._drawn_s = now_s
        self._attempt(live.refresh if live.is_started else partial(live.start, refresh=True))

    def _attempt(self, show: Callable[[], object]) -> None:
        """Show something, unless there is nobody to show it to."""
        if self._is_gone:
            return
        try:
            show()
        except _GONE:
            self._is_gone = True
            if self._live is not None:
                with suppress(*_GONE):
                    self._live.stop()

    def _picture(self) -> RenderableType:
        progress = self._progress
        lines = [words.rewards(progress), f"{words.completed(progress)}{self._restarts()}"]
        table = Table.grid(padding=(0, 2))
        for group, numbers in words.details(progress).items():
            table.add_row(Text(group, style="dim"), Text(self._encodable(numbers)))
        texts = [Text(self._encodable(line), no_wrap=True, overflow="ellipsis") for line in lines]
        return Group(self._bar(), *texts, table)

    def _bar(self) -> RenderableType:
        progress, share = self._progress, self._progress.share()
        cells: list[RenderableType] = [Text(progress.position(), style="bold")]
        if share is not None:
            cells += [ProgressBar(total=1.0, completed=share), f"{share:.0%}"]
        grid = Table.grid(padding=(0, 2), expand=share is not None)
        for is_bar in itertools.islice((False, True, False), len(cells)):
            grid.add_column(ratio=1 if is_bar else None, no_wrap=True)
        grid.add_column(no_wrap=True)
        grid.add_row(*cells, Text(words.pace(progress)))
        return grid

    def _restarts(self) -> str:
        count = self._progress.latest.get("engine/restarts")
        return "" if count is None else f" | restarts: {words.whole_figure(count)}"
