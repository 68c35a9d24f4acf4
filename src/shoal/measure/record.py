"""The file that a run leaves: the machine, what was asked, and every outcome."""

from __future__ import annotations

import datetime
import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from shoal.measure.contest import Outcome
from shoal.measure.fingerprint import Machine, fingerprint

SCHEMA = 1


@dataclass(slots=True)
class Record:
    """A run, as it is kept."""

    machine: Machine
    begun: str
    asked: str
    """The command that regenerates it."""
    outcomes: list[Outcome] = field(default_factory=list)
    name: str = ""
    """What was measured, fit for a file."""

    @classmethod
    def begin(cls, command: Sequence[str], name: str = "") -> Record:
        now = datetime.datetime.now(datetime.UTC)
        begun = now.strftime("%Y-%m-%d %H:%M UTC")
        return cls(fingerprint(), begun, shlex.join(command), name=name)

    @property
    def stem(self) -> str:
        """What its files are called; a second one of the same day is given a number by `claim`."""
        return "-".join(filter(None, (self.name, self.machine.name, self.begun[:10])))

    def to_json(self) -> str:
        content = {
            "schema": SCHEMA,
            "machine": asdict(self.machine),
            "begun": self.begun,
            "asked": self.asked,
            "name": self.name,
            "outcomes": [outcome.to_dict() for outcome in self.outcomes],
        }
        return json.dumps(_rounded(content), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Record:
        content = json.loads(text)
        outcomes = [Outcome.from_dict(one) for one in content["outcomes"]]
        machine = Machine(**content["machine"])
        name = content.get("name", "")  # records of before 2026-11-19 have none
        return cls(machine, content["begun"], content["asked"], outcomes, name)


def claim(folder: Path, stem: str, text: str) -> Path:
    """Write a new JSON file: a record that is there already is of another run, and stays."""
    folder.mkdir(parents=True, exist_ok=True)
    file, number = folder / f"{stem}.json", 1
    while True:
        try:
            with open(file, "x") as new:
                new.write(text)
            return file
        except FileExistsError:
            number += 1
            file = folder / f"{stem}-{number}.json"


def _rounded(value: Any) -> Any:
    """Six digits: more are noise, and make files that nobody wants to compare."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return value
