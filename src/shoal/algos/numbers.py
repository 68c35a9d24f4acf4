"""Numbers: tensors, or the same in a CPU's memory as NumPy arrays.

An operation on a few hundred numbers takes NumPy a third of the time that PyTorch needs. So on a
CPU whatever autograd has no part in is computed by NumPy; on a GPU by PyTorch. The formulas are
written once: `library` has the functions that both have under one name, and where they differ there
is one here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.layout import Array

Numbers = Any
"""A tensor, or an array."""


def bare(tensor: Tensor) -> Numbers:
    """The numbers of a tensor, apart from autograd."""
    tensor = tensor.detach()
    return tensor.numpy() if tensor.device.type == "cpu" else tensor


def like(numbers: Numbers, tensor: Tensor) -> Numbers:
    """Those of a tensor, of the kind of others."""
    return tensor.detach().numpy() if isinstance(numbers, np.ndarray) else tensor.detach()


def library(numbers: Numbers) -> Any:
    """Whose functions they are for: NumPy's or PyTorch's."""
    return torch if isinstance(numbers, Tensor) else np


def array(numbers: Numbers) -> Array:
    """As an array, wherever they were."""
    return numbers if isinstance(numbers, np.ndarray) else numbers.cpu().numpy()


def log_softmax(logits: Numbers) -> Numbers:
    """Of each row."""
    found = torch.as_tensor(logits).log_softmax(-1)
    return found.numpy() if isinstance(logits, np.ndarray) else found


def log_sigmoid(logits: Numbers) -> Numbers:
    found = torch.nn.functional.logsigmoid(torch.as_tensor(logits))
    return found.numpy() if isinstance(logits, np.ndarray) else found


def pick(rows: Numbers, at: Numbers) -> Numbers:
    """One of each row."""
    if isinstance(rows, np.ndarray):
        return rows[np.arange(len(rows)), at]
    return rows.gather(-1, at[:, None])[:, 0]


def add_at(rows: Numbers, at: Numbers, more: Numbers) -> None:
    """Add to one of each row."""
    if isinstance(rows, np.ndarray):
        rows[np.arange(len(rows)), at] += more
    else:
        rows.scatter_add_(-1, at[:, None], more[:, None])
