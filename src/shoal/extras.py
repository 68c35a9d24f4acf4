"""Packages that only a part of Shoal needs, imported on use."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shoal.errors import ConfigError


@contextmanager
def needs(package: str, extra: str = "train") -> Iterator[None]:
    """Around an import: `ConfigError` with the command that installs what cannot be imported."""
    try:
        yield
    except ImportError as problem:
        raise ConfigError(
            f'{package} cannot be imported ({problem}): pip install "shoal-rl[{extra}]".'
        ) from problem


def need(module: str, extra: str = "train") -> Any:
    """The module, imported now."""
    with needs(module.partition(".")[0], extra):
        return importlib.import_module(module)
