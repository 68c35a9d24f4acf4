"""What the checkers say: findings, collected once each, and the report that shows them."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

Severity = Literal["error", "warning", "note"]

_ORDER: tuple[Severity, ...] = ("error", "warning", "note")


class Problem(NamedTuple):
    """One breach of a contract, without its place: that is for the checker to add."""

    severity: Severity
    what: str
    expected: str
    got: str
    then: str
    """What to do about it: whole sentences."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One breach that a checker found, at the first place where it did."""

    severity: Severity
    """``"error"``: it breaks the contract. ``"warning"``: it works, but not as you may think.
    ``"note"``: nothing is wrong, but good to know."""
    where: str
    text: str
    """What happened, where, what was expected and what came, and what to do next."""
    times: int = 1
    """How often the same was seen, at this place and at later ones."""

    def __str__(self) -> str:
        again = f" (seen {self.times} times)" if self.times > 1 else ""
        return f"{self.severity}: {self.text}{again}"


@dataclass(frozen=True, slots=True)
class Report:
    """All findings about one environment: errors first, then warnings, then notes."""

    subject: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """True when there is no error; there may be warnings and notes."""
        return not self.errors

    @property
    def errors(self) -> tuple[Finding, ...]:
        return self._of("error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return self._of("warning")

    @property
    def notes(self) -> tuple[Finding, ...]:
        return self._of("note")

    def _of(self, severity: Severity) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity == severity)

    def __str__(self) -> str:
        counts = (_count(len(self._of(severity)), severity) for severity in _ORDER)
        verdict = "passes" if self.ok else "does not pass"
        lines = [f"{self.subject} {verdict}: {', '.join(counts)}"]
        return "\n".join(lines + [f"- {finding}" for finding in self.findings])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class Notebook:
    """Collects problems while a checker runs; the same one twice is one finding."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self._findings: dict[tuple[Severity, str], Finding] = {}

    def add(self, where: str, problem: Problem) -> None:
        key = (problem.severity, problem.what)
        known = self._findings.get(key)
        if known is None:
            text = (
                f"{problem.what} ({where}). Expected {problem.expected}; got {problem.got}. "
                f"{problem.then}"
            )
            self._findings[key] = Finding(problem.severity, where, text)
        else:
            self._findings[key] = replace(known, times=known.times + 1)

    def report(self) -> Report:
        found = sorted(self._findings.values(), key=lambda f: _ORDER.index(f.severity))
        return Report(self.subject, tuple(found))


class Stop(Exception):
    """Raised inside a checker when what was found leaves nothing to go on with."""


def describe(error: BaseException) -> str:
    """An exception in one line: its type, its text, and the file and line it came from."""
    text = " ".join(str(error).split()) or "no text"
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}: {text}"


def shorten(value: object, limit: int = 120) -> str:
    """The repr of any value, on one line, at most ``limit`` characters of it."""
    text = " ".join(repr(value).split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
