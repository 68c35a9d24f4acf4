"""A user's program in a process of its own, and whatever comes from it.

Its processes are known by a variable in their environment, which all that it starts inherit; a
parent's list of children would lose those that were given to another parent.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

import shoal

SRC = str(Path(shoal.__file__).parents[1])
TESTS = str(Path(__file__).parents[1])
_MARK = "SHOAL_TEST_MARK"
_LOOK_S = 0.01


class Program:
    """A running script, with a folder for temporary files of its own.

    `inside` is a command line that is given the script's as its last arguments. When the `with`
    block is left, what still runs is killed.
    """

    def __init__(
        self, source: str, folder: Path, *, inside: Sequence[str] = (), **variables: str
    ) -> None:
        self._mark = secrets.token_hex(16)
        self._folder = folder / self._mark
        self.temporary = self._folder / "tmp"
        self.temporary.mkdir(parents=True)
        script = self._folder / "program.py"
        script.write_text(source)
        own = {
            "PYTHONPATH": os.pathsep.join((SRC, TESTS)),
            "TMPDIR": str(self.temporary),
            _MARK: self._mark,
        }
        with open(self._folder / "stderr", "w") as errors:
            self.process = subprocess.Popen(
                [*inside, sys.executable, str(script)],
                env=os.environ | own | variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.processes():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                pass
        self.process.communicate()

    @property
    def errors(self) -> str:
        """What it and its workers have written to stderr."""
        return (self._folder / "stderr").read_text()

    def wait_for(self, word: str) -> str:
        """Wait until it prints a line with this word; the line."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if word in line:
                return line
        raise AssertionError(f"the program ended before it printed {word!r}:\n{self.errors}")

    def kill(self, number: int, *, group: bool = False) -> None:
        """Send it, or its whole process group, a signal."""
        (os.killpg if group else os.kill)(self.process.pid, number)

    def output(self, timeout_s: float = 100.0) -> str:
        """Wait until it has ended, as it should; the rest of what it printed."""
        printed, _ = self.process.communicate(timeout=timeout_s)
        assert self.process.returncode == 0, self.errors
        return printed

    def processes(self) -> list[psutil.Process]:
        """All that run and come from this program, itself included."""
        return [process for process in psutil.process_iter() if self._is_own(process)]

    def left_after(self, within_s: float) -> list[psutil.Process]:
        """Those that still run after so long; returns sooner when there are none."""
        self.process.poll()  # so that it does not stay a zombie
        wait_until(lambda: not self.processes(), within_s)
        return self.processes()

    def _is_own(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(_MARK) == self._mark
        except psutil.Error:  # ended, or somebody else's
            return False


def wait_until(condition: Callable[[], bool], within_s: float) -> bool:
    """Look again and again until it holds; whether it did in time."""
    deadline, pause = time.monotonic() + within_s, threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            return False
        pause.wait(_LOOK_S)
    return True


def shared_names() -> set[str]:
    """What has a name where shared memory and semaphores live."""
    return set(os.listdir("/dev/shm"))


def lasting_names(before: set[str], within_s: float) -> set[str]:
    """New names of shared memory that stay.

    Other programs, such as tests beside this one, have names of their own, with their numbers in
    them; while they live these are not left behind.
    """
    suspects = {name for name in shared_names() - before if not _is_of_another(name)}
    wait_until(lambda: not suspects & shared_names(), within_s)
    return suspects & shared_names()


def _is_of_another(name: str) -> bool:
    """Whether a living program other than this one has made it."""
    number = re.search(r"shoal-(\d+)-", name)
    return (
        number is not None and int(number[1]) != os.getpid() and psutil.pid_exists(int(number[1]))
    )
