"""Checkpoints: one file each, with named tensors and one JSON document about them.

The file is a safetensors file, so reading it runs no code from it. Its checksum covers every byte.
Writing is atomic: whatever happens, the name is borne by the old checkpoint or by the new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from shoal.errors import ConfigError, shown
from shoal.extras import need
from shoal.monitor import whole
from shoal.monitor.whole import sweep

if TYPE_CHECKING:
    import torch

__all__ = ["Checkpoint", "newest", "read", "sweep", "write"]

log = logging.getLogger("shoal")

FORMAT = 1
"""Raise it when what is kept in checkpoints changes its shape, and add a migration."""
SUFFIX = ".safetensors"

_BLANK = b"0" * 64
"""Stands where the checksum will be, while that is computed."""
_LARGEST_HEAD_BYTES = 100_000_000
_INSTEAD = "Use another checkpoint, or start without one."


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Tensors, and what JSON can hold: counters, settings, states of generators.

    Read from a file, tensors are on the CPU, tuples have become lists, and keys text.
    """

    tensors: dict[str, torch.Tensor]
    about: dict[str, Any]


_MIGRATIONS: dict[int, Callable[[Checkpoint], Checkpoint]] = {}
"""From each format to the one after it."""


def write(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """OSError if it cannot be written; then the file that was there, if any, is as it was."""
    whole.write(Path(path), _encode(checkpoint))


def read(path: str | os.PathLike[str]) -> Checkpoint:
    """`ConfigError` says what is wrong with a file, and what to do about it."""
    place = Path(path)
    with _opened(place) as file:
        head = _read_head(file, place)
        document = _document_in(head, place)
        _check_known(document["format"], place)
        data = file.read()
    checksum = document["checksum"]
    if checksum != _checksum(head.replace(checksum.encode(), _BLANK, 1), data):
        raise ConfigError(f"{place} is damaged: its checksum is another. {_INSTEAD}")
    checkpoint = Checkpoint(_tensors_in(head + data, place), document["about"])
    for version in range(document["format"], FORMAT):
        checkpoint = _MIGRATIONS[version](checkpoint)
    return checkpoint


def newest(
    folder: str | os.PathLike[str], is_meant: Callable[[dict[str, Any]], bool] = lambda about: True
) -> tuple[Path, Checkpoint]:
    """The readable checkpoint whose `about["step"]` is highest, the later one of two equals.

    Those that are not meant by what is said about them are left out, and those that cannot be read
    are passed over with a warning each.
    """
    need("safetensors.torch")  # or each would be passed over for want of it
    for _, _, path in sorted(_ranked(Path(folder), is_meant), reverse=True):
        try:
            return path, read(path)
        except ConfigError as problem:
            log.warning("passed over a checkpoint: %s", problem)
    raise ConfigError(
        f"there is no readable checkpoint in {folder}. Name the folder or the file that holds one, "
        "or start without."
    )


def _ranked(
    folder: Path, is_meant: Callable[[dict[str, Any]], bool]
) -> Iterator[tuple[int, int, Path]]:
    for path in folder.glob(f"*{SUFFIX}"):
        try:
            with _opened(path) as file:
                about = _document_in(_read_head(file, path), path)["about"]
                written_ns = os.fstat(file.fileno()).st_mtime_ns
            if not isinstance(about.get("step"), int):
                raise ConfigError(f"{path} does not say at which step it was written.")
            if is_meant(about):
                yield about["step"], written_ns, path
        except ConfigError as problem:
            log.warning("passed over a checkpoint: %s", problem)


# --- to bytes ------------------------------------------------------------------------------------


def _encode(checkpoint: Checkpoint) -> tuple[bytes, memoryview]:
    """The head (size of the header, header), and the data of the tensors."""
    document = json.dumps(
        {"format": FORMAT, "checksum": _BLANK.decode(), "about": checkpoint.about}
    )
    raw = need("safetensors.torch").save(_packed(checkpoint.tensors), {"shoal": document})
    end = 8 + int.from_bytes(raw[:8], "little")
    head, data = raw[:end], memoryview(raw)[end:]
    return head.replace(_BLANK, _checksum(head, data).encode(), 1), data


def _packed(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies in one piece, on the CPU, that share no memory: as the format wants them."""
    torch = need("torch")
    packed = {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"tensors[{name!r}] must be a tensor, got {shown(tensor)}.")
        resolved = tensor.detach().cpu().resolve_conj().resolve_neg()
        packed[name] = resolved.clone(memory_format=torch.contiguous_format)
    return packed


def _checksum(head: bytes, data: bytes | memoryview) -> str:
    digest = hashlib.blake2b(head, digest_size=32)
    digest.update(data)
    return digest.hexdigest()


# --- and back ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise ConfigError(f"there is no checkpoint {path}. Check the path.") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder. Name one of the checkpoints in it.") from None
    except OSError as problem:
        raise ConfigError(f"{path} cannot be read: {problem.strerror}. {_INSTEAD}") from problem


def _read_head(file: BinaryIO, path: Path) -> bytes:
    size = file.read(8)
    length = int.from_bytes(size, "little")
    if len(size) == 8 and length > _LARGEST_HEAD_BYTES:
        raise ConfigError(f"{path} is no checkpoint. {_INSTEAD}")
    header = file.read(length) if len(size) == 8 else b""
    if len(header) < length or not length:
        what = "is cut short" if size else "is empty"
        raise ConfigError(f"{path} {what}: it was not written to its end. {_INSTEAD}")
    return size + header


def _document_in(head: bytes, path: Path) -> dict[str, Any]:
    """The document; only its own three entries are checked."""
    try:
        document = json.loads(json.loads(head[8:])["__metadata__"]["shoal"])
        fits = isinstance(document["format"], int) and isinstance(document["about"], dict)
        if not fits or not re.fullmatch("[0-9a-f]{64}", document["checksum"]):
            raise ValueError("an entry of the document is of another type")
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise ConfigError(f"{path} is damaged, or no checkpoint of Shoal. {_INSTEAD}") from problem
    return dict(document)


def _check_known(version: int, path: Path) -> None:
    if version > FORMAT:
        raise ConfigError(
            f"{path} is of format {version}, and this version of Shoal knows formats up to "
            f'{FORMAT}. Update it: pip install -U "shoal-rl[train]"'
        )
    if any(one not in _MIGRATIONS for one in range(version, FORMAT)):
        raise ConfigError(f"{path} is of format {version}, which is not read any more. {_INSTEAD}")


def _tensors_in(raw: bytes, path: Path) -> dict[str, torch.Tensor]:
    safetensors = need("safetensors.torch")
    try:
        tensors: dict[str, torch.Tensor] = safetensors.load(raw)
    except Exception as problem:  # its checksum is right, so somebody made it so
        raise ConfigError(f"{path} holds no tensors: {problem}. {_INSTEAD}") from problem
    return tensors
