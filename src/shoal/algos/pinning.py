"""Pinning: memory that a GPU reads by itself, while others compute.

PyTorch pins memory that it has made. That which workers write to was made by the engine, and is
registered with CUDA where it lies, for as long as it exists.
"""

from __future__ import annotations

import contextlib
import logging
import weakref

import torch

from shoal.layout import Array

log = logging.getLogger("shoal")

_pinned: set[int] = set()
"""Where the arrays begin that are registered."""


def pin(array: Array) -> None:
    """Register the memory of an array; once, however often it is asked for."""
    address, runtime = array.ctypes.data, torch.cuda.cudart()
    if address in _pinned:
        return
    _pinned.add(address)  # also if it is refused: then it is slower, and that is all
    problem = runtime.cudaHostRegister(address, array.nbytes, 0)
    is_refused = problem.value != 0
    if is_refused:
        log.info("%d bytes could not be pinned: %s", array.nbytes, problem)
        with contextlib.suppress(RuntimeError):  # CUDA tells whoever comes next of it
            torch.zeros(1, device="cuda")
    owner = array if array.base is None else array.base
    forget = weakref.finalize(owner, _forget, address, is_refused)
    forget.atexit = False  # with the process all of it goes


def _forget(address: int, is_refused: bool) -> None:
    _pinned.discard(address)
    if not is_refused:
        torch.cuda.cudart().cudaHostUnregister(address)
