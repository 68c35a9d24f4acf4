"""Pinning: memory that a GPU reads by itself, while others compute.

PyTorch pins memory that it has made. That which workers write to was made by the engine, and is
registered with CUDA where it lies, for as long as it exists.
"""

from __future__ import annotations

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
    if problem.value != 0:
        log.info("%d bytes could not be pinned: %s", array.nbytes, problem)
        return
    owner = array if array.base is None else array.base
    weakref.finalize(owner, _unpin, address)


def _unpin(address: int) -> None:
    _pinned.discard(address)
    torch.cuda.cudart().cudaHostUnregister(address)
