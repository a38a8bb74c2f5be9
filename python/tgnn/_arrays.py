"""What users give: arrays of NumPy, tensors of torch, and what NumPy makes an array of; and single arguments."""

from __future__ import annotations

import operator
import os
import sys
from typing import Any

import numpy as np

from ._errors import DataError, OutOfMemoryError, ShapeError, UsageError


def a(x: Any) -> str:
    """What something is, with its article."""
    if x is None:
        return "None"
    name = type(x).__name__
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


def is_tensor(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def place(x: Any) -> str:
    """The device that holds an array."""
    return str(x.device) if is_tensor(x) else "cpu"


def refuse_gradient(x: Any, what: str) -> None:
    """Refuses a tensor that wants a gradient where none flows."""
    if is_tensor(x) and x.requires_grad and sys.modules["torch"].is_grad_enabled():
        raise UsageError(f"{what}: no gradient flows into it; give it with .detach()")


def array(x: Any, what: str) -> np.ndarray:
    """Anything as an array of NumPy's; a tensor is brought to the host."""
    refuse_gradient(x, what)
    if is_tensor(x):
        x = x.detach().cpu()
        x = x.float() if str(x.dtype) == "torch.bfloat16" else x
    try:
        x = x.numpy() if is_tensor(x) else np.asarray(x)
    except (TypeError, ValueError, RuntimeError) as e:
        raise DataError(f"{what} is not an array ({str(e).splitlines()[0]}); give numbers of one shape") from None
    if x.ndim == 0 and x.dtype.kind == "O" and (x.item() is None or hasattr(x.item(), "__iter__")):
        raise DataError(f"{what} is {a(x.item())}; give an array or a list")
    return x


def vector(x: Any, what: str) -> np.ndarray:
    """A column; a single value is a column of one."""
    x = np.atleast_1d(array(x, what))
    if x.ndim != 1:
        raise DataError(f"{what} has the shape {list(x.shape)}; give one value for each, as a list")
    return x


def missing(x: Any) -> bool:
    """Whether a value is None, NaN, NaT or NA."""
    try:
        return x is None or bool(x != x)
    except TypeError:
        return True  # pandas' NA


def real(x: Any, what: str) -> Any:
    """Numbers as contiguous f32, in the library of `x`; None is an empty table."""
    if x is None:
        return np.zeros((0, 0), np.float32)
    if is_tensor(x):
        torch = sys.modules["torch"]
        if x.is_complex() or x.layout != torch.strided:
            raise DataError(f"{what} is a tensor of {x.dtype}, {x.layout}; give a dense one of real numbers")
        y = x.detach().to(torch.float32).contiguous()
        beyond = x.dtype == torch.float64 and (y.isinf() & x.isfinite()).any()
    else:
        x = array(x, what)
        if x.dtype.kind == "O":
            x = _numbers(x, what)
        if x.dtype.kind not in "fiub":
            raise DataError(f"{what} is of type {x.dtype}; give numbers")
        with np.errstate(over="ignore"):
            y = np.ascontiguousarray(x, dtype=np.float32)
        beyond = x.dtype.itemsize > 4 and (np.isinf(y) & np.isfinite(x)).any()
    if beyond:
        raise DataError(f"{what} has a number that is too large for 32 bits; scale it")
    return y.reshape(x.shape)


def _numbers(x: np.ndarray, what: str) -> np.ndarray:
    """An array of objects as doubles."""
    texts = [value for value in x.flat if isinstance(value, (str, bytes))]
    if texts:
        raise DataError(f"{what} has the text {texts[0]!r}; give numbers")
    try:
        return x.astype(np.float64)
    except (TypeError, ValueError) as e:
        raise DataError(f"{what}: {e}; give numbers") from None


def whole(x: Any, what: str) -> Any:
    """Whole numbers as contiguous i64, in the library of `x`."""
    if is_tensor(x):
        torch = sys.modules["torch"]
        refuse_gradient(x, what)
        x = x.detach()
        if x.is_complex() or x.dtype == torch.bool or x.layout != torch.strided:
            raise DataError(f"{what} is a tensor of {x.dtype}, {x.layout}; give a dense one of whole numbers")
        if x.is_floating_point():
            _refuse_parts(x[(x != x.round()) | ~x.isfinite()], what)
        return x.to(torch.int64).contiguous()
    x = array(x, what)
    x = _numbers(x, what) if x.dtype.kind == "O" else x
    if x.size and x.dtype.kind not in "iuf":
        raise DataError(f"{what} is of type {x.dtype}; give whole numbers")
    if x.dtype.kind == "f":
        _refuse_parts(x[(x != np.rint(x)) | ~np.isfinite(x)], what)
    if x.size and x.dtype.kind in "uf" and x.max() >= 2**63:
        raise DataError(f"{what} has {x.max()}; give numbers below 2^63")
    return np.ascontiguousarray(x, dtype=np.int64).reshape(x.shape)


def whole_vector(x: Any, what: str) -> Any:
    """Whole numbers in one dimension."""
    x = whole(x, what)
    if x.ndim != 1:
        raise ShapeError(f"{what} has the shape {list(x.shape)}; give one dimension")
    return x


def _refuse_parts(parts: Any, what: str) -> None:
    if len(parts):
        unit = ", in a smaller unit" if "time" in what else ""
        raise DataError(f"{what} has {parts[0].item():g}; give whole numbers{unit}")


def empty(like: Any, shape: Any, dtype: str = "float32") -> Any:
    """A new array of the library of another one."""
    try:
        if is_tensor(like):
            torch = sys.modules["torch"]
            return torch.empty(tuple(shape), dtype=getattr(torch, dtype))
        return np.empty(shape, dtype)
    except (MemoryError, ValueError, RuntimeError):
        raise OutOfMemoryError(f"there is no memory for {list(shape)} numbers; ask for fewer at once") from None


def count(x: Any, what: str, least: int = 1, most: int = 2**31 - 1) -> int:
    """A whole number as an argument."""
    try:
        n = operator.index(x)
    except TypeError:
        raise UsageError(f"{what} is {x!r}; give a whole number") from None
    if not least <= n <= most:
        raise UsageError(f"{what} is {n}; give {least} to {most}")
    return n


def path(x: Any, what: str) -> str:
    """The path of a file or folder."""
    try:
        return os.fsdecode(x)
    except TypeError:
        raise UsageError(f"{what} is {a(x)}; give a path") from None


def truth(x: Any, what: str) -> Any:
    """True, False or None as an argument."""
    if x is None or isinstance(x, (bool, np.bool_)):
        return x if x is None else bool(x)
    raise UsageError(f"{what} is {x!r}; give True or False")


def choice(x: Any, what: str) -> Any:
    """Text or None as an argument; what texts there are, the crate knows."""
    if x is None or isinstance(x, str):
        return x
    raise UsageError(f"{what} is {x!r}; give text")


def on_host(x: Any) -> Any:
    """A tensor in the host's memory; other arrays as they are."""
    return x.detach().cpu() if is_tensor(x) else x
