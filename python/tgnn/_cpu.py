"""Kernels on the CPU. Arrays and tensors are read in place; results are of the library of the operands."""

from __future__ import annotations

from typing import Any

from . import _tgnn
from ._arrays import empty, real, whole
from ._errors import ShapeError


def multiply(a: Any, x: Any, transpose: bool) -> Any:
    x = real(x)
    y = empty(x, x.shape)
    a._native.multiply(x, y, transpose)
    return y


def recent(events: Any, nodes: Any, times: Any, k: int) -> tuple[Any, Any, Any, Any]:
    nodes, times = whole(nodes), whole(times)
    n = len(nodes)
    node, event, count = (empty(nodes, shape, "int32") for shape in ((n, k), (n, k), (n,)))
    dt = empty(nodes, (n, k))
    events._native.recent(nodes, times, k, node, event, dt, count)
    return whole(node), whole(event), dt, whole(count)


_LEARNED = ("query", "h", "time_w", "time_b")


def attend(rows: dict[str, Any], learned: Any) -> tuple[Any, Any, Any]:
    """Mix, sum, and what the backward pass reads."""
    rows = rows | {name: whole(rows[name]) for name in ("row", "event", "count")}
    rows |= {"dt": real(rows["dt"]), "edge": real(rows["edge"])} | dict(zip(_LEARNED, map(real, learned)))
    query, heads = rows["query"], rows["heads"]
    if query.ndim != 2 or rows["row"].ndim != 2:
        raise ShapeError("temporal_attention: query and row are matrices; give [n, heads * c] and [n, k]")
    n, k = rows["row"].shape
    mix, sums, weight = (empty(query, shape) for shape in (query.shape, (n, heads), (n, heads * k)))
    _tgnn.temporal_attention(rows, mix, sums, weight)
    return mix, sums, (rows, weight)


def attend_grad(saved: Any, dmix: Any, dsum: Any) -> list[Any]:
    rows, weight = saved
    grads = [empty(rows[name], rows[name].shape) for name in _LEARNED]
    _tgnn.temporal_attention_grad(rows, weight, real(dmix), real(dsum), grads)
    return grads


_WHOLE = ("memory_time", "mail_event", "mail_time")
_WEIGHTS = ("time_w", "time_b", "w_x", "w_h", "b_x", "b_h")


def update(nodes: Any, tables: dict[str, Any], weights: Any, seconds_per_tick: float) -> tuple[Any, Any, Any]:
    """The new memory, its times, and what the backward pass reads."""
    nodes, named = whole(nodes), dict(zip(_WEIGHTS, map(real, weights)))
    tables = {name: whole(x) if name in _WHOLE else real(x) for name, x in tables.items()}
    if tables["memory"].ndim != 2:
        raise ShapeError("gru_memory: memory is a matrix; give [nodes, width]")
    new = empty(named["w_x"], (len(nodes), tables["memory"].shape[1]))
    time = empty(named["w_x"], (len(nodes),), "int64")
    return new, time, (named, _tgnn.gru_memory(nodes, tables, named, seconds_per_tick, new, time))


def update_grad(saved: Any, dmemory: Any) -> list[Any]:
    named, updated = saved
    grads = [empty(named[name], named[name].shape) for name in _WEIGHTS]
    _tgnn.gru_memory_grad(updated, named, real(dmemory), grads)
    return grads
