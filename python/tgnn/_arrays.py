"""Operands of kernels: arrays of NumPy, and tensors of torch where it is there."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def is_tensor(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def place(x: Any) -> str:
    """The device that holds an array."""
    return str(x.device) if is_tensor(x) else "cpu"


def real(x: Any) -> Any:
    """Numbers as contiguous f32; None is an empty table."""
    if is_tensor(x):
        return x.detach().to(sys.modules["torch"].float32).contiguous()
    return np.zeros((0, 0), np.float32) if x is None else np.ascontiguousarray(x, dtype=np.float32)


def whole(x: Any) -> Any:
    """Whole numbers as contiguous i64."""
    if is_tensor(x):
        return x.detach().to(sys.modules["torch"].int64).contiguous()
    return np.ascontiguousarray(x, dtype=np.int64)


def empty(like: Any, shape: Any, dtype: str = "float32") -> Any:
    """A new array of the library of another one."""
    if is_tensor(like):
        torch = sys.modules["torch"]
        return torch.empty(tuple(shape), dtype=getattr(torch, dtype))
    return np.empty(shape, dtype)


def on_host(x: Any) -> Any:
    """A tensor in the host's memory; other arrays as they are."""
    return x.detach().cpu() if is_tensor(x) else x
