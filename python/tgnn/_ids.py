"""Ids as users write them: whole numbers or text."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._errors import DataError


def columns(src: Any, dst: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Sources and destinations as whole numbers; if they are text, numbers are indices of the last array."""
    src, dst = np.atleast_1d(np.asarray(src)), np.atleast_1d(np.asarray(dst))
    if src.dtype.kind not in "OUS" and dst.dtype.kind not in "OUS":
        return _whole(src), _whole(dst), None
    both = np.concatenate([_text(src), _text(dst)])
    names, codes = np.unique(both, return_inverse=True)
    codes = codes.astype(np.int64)
    return codes[: len(src)], codes[len(src) :], names


def coded(ids: Any) -> tuple[np.ndarray, np.ndarray]:
    """Indices of different ids, and these: whole numbers in ascending order, or texts as they first appear."""
    ids = np.atleast_1d(np.asarray(ids))
    if ids.dtype.kind not in "OUS":
        known, codes = np.unique(_whole(ids), return_inverse=True)
        return codes.astype(np.int64), known.view(np.uint64)
    known, first, codes = np.unique(_text(ids), return_index=True, return_inverse=True)
    order = np.argsort(first)
    return np.argsort(order)[codes].astype(np.int64), known[order]


def like(known: np.ndarray, ids: Any) -> np.ndarray:
    """Ids of the type of `known`: text, or whole numbers."""
    ids = np.atleast_1d(np.asarray(ids))
    return _text(ids) if known.dtype.kind == "U" else _whole(ids).view(known.dtype)


def native(ids: Any) -> Any:
    """Ids as the crate takes them: whole numbers as i64, or a list of texts."""
    ids = np.atleast_1d(np.asarray(ids))
    return _text(ids).tolist() if ids.dtype.kind in "OUS" else _whole(ids)


def _text(ids: np.ndarray) -> np.ndarray:
    if ids.dtype.kind == "O":
        missing = [i for i, id in enumerate(ids) if id is None or id != id]
        if missing:
            raise DataError(f"event {missing[0]} has no id at one end; leave it out, or name it")
    return ids.astype(str)


def _whole(ids: np.ndarray) -> np.ndarray:
    """Whole numbers as i64, whose bits are those of u64 for large ones."""
    if ids.dtype.kind == "u" and ids.dtype.itemsize == 8:
        return np.ascontiguousarray(ids).view(np.int64)
    if ids.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(ids) | (ids != np.rint(ids)))
        if bad.size:
            raise DataError(f"event {bad[0]} has the id {ids[bad[0]]}; give whole numbers or text")
    elif ids.dtype.kind not in "iub":
        raise DataError(f"ids are of type {ids.dtype}; give whole numbers or text")
    ids = np.ascontiguousarray(ids, dtype=np.int64)
    negative = np.flatnonzero(ids < 0)
    if negative.size:
        raise DataError(f"event {negative[0]} has the id {ids[negative[0]]}; give ids from 0, or text")
    return ids
