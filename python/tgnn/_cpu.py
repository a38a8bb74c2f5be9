"""Kernels on the CPU. Arrays and tensors are read in place; results are of the library of the operands.

A kernel with gradients returns its outputs, some state, and the arrays that its gradients need.
"""

from __future__ import annotations

from typing import Any

from . import _tgnn
from ._arrays import empty, real, whole, whole_vector
from ._errors import ShapeError


def multiply(a: Any, x: Any, transpose: bool) -> Any:
    x = real(x, "spmm: x")
    y = empty(x, x.shape)
    a._native.multiply(x, y, transpose)
    return y


def recent(events: Any, nodes: Any, times: Any, k: int) -> tuple[Any, Any, Any, Any]:
    nodes, times = whole_vector(nodes, "sample_recent: nodes"), whole_vector(times, "sample_recent: times")
    n = len(nodes)
    node, event, count = (empty(nodes, shape, "int32") for shape in ((n, k), (n, k), (n,)))
    dt = empty(nodes, (n, k))
    events._native.recent(nodes, times, k, node, event, dt, count)
    return whole(node, "node"), whole(event, "event"), dt, whole(count, "count")


_LEARNED = ("query", "h", "time_w", "time_b")
_ROWS = ("row", "event", "count")


def attend(shape: tuple[int, int], rows: dict[str, Any], learned: Any) -> tuple[Any, Any, Any]:
    op = "temporal_attention: "
    query, h, time_w, time_b = (real(x, op + name) for name, x in zip(_LEARNED, learned))
    row, event, count = (whole(rows[name], op + name) for name in _ROWS)
    edge = empty(query, (0, 0)) if rows["edge"] is None else real(rows["edge"], op + "edge")
    if row.ndim != 2:
        raise ShapeError(f"temporal_attention: row has the shape {list(row.shape)}; give [n, k]")
    n, k = row.shape
    mix, sums, weight = (empty(query, of) for of in (query.shape, (n, shape[0]), (n, shape[0] * k)))
    operands = [query, h, row, event, real(rows["dt"], op + "dt"), count, edge, time_w, time_b]
    _tgnn.temporal_attention(_attention(shape, operands), mix, sums, weight)
    return (mix, sums), shape, [*operands, weight]


def attend_grad(shape: tuple[int, int], saved: Any, dmix: Any, dsum: Any) -> list[Any]:
    rows, weight = _attention(shape, saved[:-1]), saved[-1]
    grads = [empty(rows[name], rows[name].shape) for name in _LEARNED]
    _tgnn.temporal_attention_grad(rows, weight, real(dmix, "mix"), real(dsum, "sum"), grads)
    return grads


def _attention(shape: tuple[int, int], operands: Any) -> dict[str, Any]:
    names = ("query", "h", "row", "event", "dt", "count", "edge", "time_w", "time_b")
    return dict(zip(names, operands)) | dict(zip(("heads", "head_width"), shape))


_WHOLE = ("memory_time", "mail_event", "mail_time")
_WEIGHTS = ("time_w", "time_b", "w_x", "w_h", "b_x", "b_h")


def update(nodes: Any, tables: dict[str, Any], seconds_per_tick: float, weights: Any) -> tuple[Any, Any, Any]:
    op = "gru_memory: "
    nodes = whole_vector(nodes, op + "nodes")
    named = {name: real(x, op + name) for name, x in zip(_WEIGHTS, weights)}
    tables = {name: (whole if name in _WHOLE else real)(x, op + name) for name, x in tables.items()}
    new = empty(named["w_x"], (len(nodes), tables["memory"].shape[1]))
    time = empty(named["w_x"], (len(nodes),), "int64")
    updated = _tgnn.gru_memory(nodes, tables, named, seconds_per_tick, new, time)
    return (new, time), updated, list(named.values())


def update_grad(updated: Any, weights: Any, dmemory: Any, _: Any) -> list[Any]:
    named = dict(zip(_WEIGHTS, weights))
    grads = [empty(named[name], named[name].shape) for name in _WEIGHTS]
    _tgnn.gru_memory_grad(updated, named, real(dmemory, "memory"), grads)
    return grads
