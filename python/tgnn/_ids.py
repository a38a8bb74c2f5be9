"""Ids as users write them: whole numbers or text. Errors call the owner of an id `what`: an event, or a node."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from ._arrays import missing, vector
from ._errors import DataError


def columns(src: Any, dst: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Sources and destinations as whole numbers; if they are text, numbers are indices of the last array."""
    src, dst = _array(src, "src"), _array(dst, "dst")
    if not (_is_text(src) or _is_text(dst)):
        return _whole(src, "event"), _whole(dst, "event"), None
    both = np.concatenate([_text(src, "event"), _text(dst, "event")])
    names, codes = np.unique(both, return_inverse=True)
    codes = codes.astype(np.int64)
    return codes[: len(src)], codes[len(src) :], names


def coded(ids: Any, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Indices of different ids, and these: whole numbers in ascending order, or texts as they first appear."""
    ids = _array(ids, what)
    if not _is_text(ids):
        known, codes = np.unique(_whole(ids, "event"), return_inverse=True)
        return codes.astype(np.int64), known.view(np.uint64)
    known, first, codes = np.unique(_text(ids, "event"), return_index=True, return_inverse=True)
    order = np.argsort(first)
    return np.argsort(order)[codes].astype(np.int64), known[order]


def like(known: np.ndarray, ids: Any) -> np.ndarray:
    """Ids of the type of `known`: text, or whole numbers."""
    ids = _array(ids, "nodes")
    if _is_text(known):
        return _text(ids, "node")
    if _is_text(ids):
        raise DataError(
            f"node {_text(ids, 'node')[0]} is text, and the ids of the data are numbers; give numbers from 0"
        )
    return _whole(ids, "node").view(known.dtype)


def native(ids: Any, name: str) -> Any:
    """Ids as the crate takes them: whole numbers as i64, or a list of texts."""
    ids = _array(ids, name)
    return _text(ids, f"{name}: node").tolist() if _is_text(ids) else _whole(ids, f"{name}: node")


def _array(ids: Any, name: str) -> np.ndarray:
    """A column of ids; objects that are whole numbers are numbers."""
    ids = vector(ids, name)
    if ids.dtype.kind == "O" and all(isinstance(id, Integral) for id in ids):
        return np.array(ids.tolist(), dtype=None if len(ids) else np.int64)
    return ids


def _is_text(ids: np.ndarray) -> bool:
    return ids.dtype.kind in "OUS"


def _text(ids: np.ndarray, what: str) -> np.ndarray:
    if ids.dtype.kind == "O":
        for i in (i for i, id in enumerate(ids) if missing(id)):
            raise DataError(f"{what} {i} has no id at one end; leave it out, or name it")
    try:
        return np.char.decode(ids) if ids.dtype.kind == "S" else ids.astype(str)
    except UnicodeDecodeError as e:
        raise DataError(f"ids are bytes that are not UTF-8 ({e}); decode them") from None


def _whole(ids: np.ndarray, what: str) -> np.ndarray:
    """Whole numbers as i64, whose bits are those of u64 for large ones."""
    if ids.dtype.kind == "u" and ids.dtype.itemsize == 8:
        return np.ascontiguousarray(ids).view(np.int64)
    if ids.dtype.kind == "f":
        for i in np.flatnonzero(np.isnan(ids))[:1]:
            raise DataError(f"{what} {i} has no id at one end; leave it out, or name it")
        for i in np.flatnonzero(~np.isfinite(ids) | (ids != np.rint(ids)) | (ids >= 2.0**63))[:1]:
            raise DataError(f"{what} {i} has the id {ids[i]}; give whole numbers or text")
    elif ids.dtype.kind not in "iub":
        raise DataError(f"ids are of type {ids.dtype}; give whole numbers or text")
    for i in np.flatnonzero(ids < 0)[:1]:
        raise DataError(f"{what} {i} has the id {ids[i]}; give ids from 0, or text")
    return np.ascontiguousarray(ids, dtype=np.int64)
