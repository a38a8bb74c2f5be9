"""The main kernels on arrays of NumPy, and on tensors of torch as autograd functions.

Arrays of f32, and of i64 for indices and times, are read in place, tensors by DLPack; others are converted. They must
be on the CPU, and must not be changed during a call. Python's lock is released, and every core computes.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np

from . import _tgnn
from ._errors import ShapeError, UsageError

__all__ = ["Csr", "EventLists", "gru_memory", "sample_recent", "spmm", "temporal_attention"]


def _is_tensor(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _real(x: Any) -> Any:
    """Numbers as contiguous f32; None is an empty table."""
    if _is_tensor(x):
        return x.detach().to(sys.modules["torch"].float32).contiguous()
    return np.zeros((0, 0), np.float32) if x is None else np.ascontiguousarray(x, dtype=np.float32)


def _whole(x: Any) -> Any:
    """Whole numbers as contiguous i64."""
    if _is_tensor(x):
        return x.detach().to(sys.modules["torch"].int64).contiguous()
    return np.ascontiguousarray(x, dtype=np.int64)


def _empty(like: Any, shape: Any, dtype: str = "float32") -> Any:
    """A new array of the library of another one."""
    if _is_tensor(like):
        torch = sys.modules["torch"]
        return torch.empty(tuple(shape), dtype=getattr(torch, dtype), device=like.device)
    return np.empty(shape, dtype)


# Sparse products


class Csr:
    """A square sparse matrix in CSR, ready to be multiplied from either side; its entries are copied once.

    `indptr` and `indices` can be replaced by a SciPy sparse matrix or a sparse CSR tensor.
    """

    def __init__(self, indptr: Any, indices: Any = None, values: Any = None):
        if indices is None and hasattr(indptr, "crow_indices"):
            indptr, indices, values = indptr.crow_indices(), indptr.col_indices(), indptr.values()
        elif indices is None and hasattr(indptr, "tocsr"):
            matrix = indptr.tocsr()
            indptr, indices, values = matrix.indptr, matrix.indices, matrix.data
        elif indices is None:
            raise UsageError(f"a {type(indptr).__name__} is not a sparse matrix; give indptr and indices")
        values = None if values is None else _real(values)
        self._native = _tgnn.Csr(_whole(indptr), _whole(indices), values)

    def __len__(self) -> int:
        return len(self._native)

    def normalized(self) -> Csr:
        """The symmetric normalisation of graph convolutions, `D^-1/2 A D^-1/2`; self-loops are part of A."""
        normalized = Csr.__new__(Csr)
        normalized._native = self._native.normalized()
        return normalized


def spmm(a: Any, x: Any) -> Any:
    """A sparse matrix times a dense one, `[n, d]`; the gradient flows into `x`."""
    if not isinstance(a, Csr):
        if getattr(a, "requires_grad", False):
            raise UsageError("the values of a sparse matrix get no gradient; give a matrix that requires none")
        a = Csr(a)
    return _functions()["spmm"].apply(a, x) if _is_tensor(x) else _multiply(a, x, False)


def _multiply(a: Csr, x: Any, transpose: bool) -> Any:
    x = _real(x)
    y = _empty(x, x.shape)
    a._native.multiply(x, y, transpose)
    return y


# Neighbours


class EventLists:
    """The events of each node in time order: what neighbours are sampled from. Nodes are numbers from 0."""

    def __init__(self, src: Any, dst: Any, time: Any, nodes: int | None = None):
        src, dst, time = _whole(src), _whole(dst), _whole(time)
        if nodes is None:
            nodes = 1 + max((int(ids.max()) for ids in (src, dst) if len(ids)), default=-1)
        self._native = _tgnn.EventLists(src, dst, time, nodes)

    def __len__(self) -> int:
        return len(self._native)


def sample_recent(events: EventLists, nodes: Any, times: Any, k: int) -> tuple[Any, Any, Any, Any]:
    """The `k` latest events of every node that are strictly before its time.

    Returns `node`, `event` (`[n, k]`, latest first, -1 in unused slots), `dt` (`[n, k]`, time since the event), and
    `count` (`[n]`, slots in use, which come first).
    """
    nodes, times = _whole(nodes), _whole(times)
    n = len(nodes)
    node, event, count = (_empty(nodes, shape, "int32") for shape in ((n, k), (n, k), (n,)))
    dt = _empty(nodes, (n, k))
    events._native.recent(nodes, times, k, node, event, dt, count)
    return _whole(node), _whole(event), dt, _whole(count)


# Attention


def temporal_attention(
    query: Any,
    h: Any,
    row: Any,
    event: Any,
    dt: Any,
    count: Any,
    edge: Any,
    time_w: Any,
    time_b: Any,
    *,
    heads: int,
    head_width: int,
) -> tuple[Any, Any]:
    """Attention of `n` roots over `k` temporal neighbours, whose rows are `z = {h | e | cos(w dt + b)}` of width `c`.

    `query` `[n, heads * c]` is each head's query times the key weights, `W_k^T q`; `h` `[u, d]` are embeddings, of
    which `row` `[n, k]` are the neighbours'; `edge` `[e, f]` (or None) are features, of which `event` `[n, k]` are the
    rows; `dt` `[n, k]`; the first `count` `[n]` slots are in use; `time_w` and `time_b` `[t]`.

    Returns `mix` `[n, heads * c]`, the sum of the rows weighted by `softmax(q . z / sqrt(head_width))`, and `sum`
    `[n, heads]`, 1, or 0 for roots without neighbours: values are `W_v mix + b_v sum`. Gradients flow into `query`,
    `h`, `time_w` and `time_b`.
    """
    rows = {"row": _whole(row), "event": _whole(event), "dt": _real(dt), "count": _whole(count), "edge": _real(edge),
            "heads": heads, "head_width": head_width}  # fmt: skip
    if any(map(_is_tensor, (query, h, time_w, time_b))):
        return _functions()["temporal_attention"].apply(rows, query, h, time_w, time_b)
    return _attend(rows, query, h, time_w, time_b)[1:3]


def _attend(rows: dict[str, Any], query: Any, h: Any, time_w: Any, time_b: Any) -> tuple[Any, Any, Any, Any]:
    rows = rows | {"query": _real(query), "h": _real(h), "time_w": _real(time_w), "time_b": _real(time_b)}
    query, heads = rows["query"], rows["heads"]
    if query.ndim != 2 or rows["row"].ndim != 2:
        raise ShapeError("temporal_attention: query and row are matrices; give [n, heads * c] and [n, k]")
    n, k = rows["row"].shape
    mix, sums, weight = (_empty(query, shape) for shape in (query.shape, (n, heads), (n, heads * k)))
    _tgnn.temporal_attention(rows, mix, sums, weight)
    return rows, mix, sums, weight


# Memory


def gru_memory(
    nodes: Any,
    memory: Any,
    memory_time: Any,
    mail: Any,
    mail_event: Any,
    mail_time: Any,
    edge: Any,
    time_w: Any,
    time_b: Any,
    w_x: Any,
    w_h: Any,
    b_x: Any,
    b_h: Any,
    *,
    seconds_per_tick: float = 1.0,
) -> tuple[Any, Any]:
    """TGN's memory update of `nodes`: `GRU({s | s_partner | e | cos(w dt + b)}, s)`, with `GRUCell`'s weights.

    Tables have a row per node: `memory` `[v, d]`, `memory_time` `[v]` (of the last update), `mail` `[v, d]` (the
    partner's memory), `mail_event` `[v]` (a row of `edge`; -1 without a mail), `mail_time` `[v]`. Returns the new
    memory `[n, d]` and its times `[n]`; a node without a mail keeps both. Gradients flow into the weights only.
    """
    tables = {"memory": _real(memory), "memory_time": _whole(memory_time), "mail": _real(mail),
              "mail_event": _whole(mail_event), "mail_time": _whole(mail_time), "edge": _real(edge)}  # fmt: skip
    weights = (time_w, time_b, w_x, w_h, b_x, b_h)
    if any(map(_is_tensor, weights)):
        return _functions()["gru_memory"].apply(_whole(nodes), tables, seconds_per_tick, *weights)
    return _update(_whole(nodes), tables, seconds_per_tick, weights)[:2]


_WEIGHTS = ("time_w", "time_b", "w_x", "w_h", "b_x", "b_h")


def _update(nodes: Any, tables: dict[str, Any], seconds_per_tick: float, weights: Any) -> tuple[Any, Any, Any, Any]:
    named = dict(zip(_WEIGHTS, map(_real, weights)))
    if tables["memory"].ndim != 2:
        raise ShapeError("gru_memory: memory is a matrix; give [nodes, width]")
    new = _empty(named["w_x"], (len(nodes), tables["memory"].shape[1]))
    time = _empty(named["w_x"], (len(nodes),), "int64")
    saved = _tgnn.gru_memory(nodes, tables, named, seconds_per_tick, new, time)
    return new, time, named, saved


@cache
def _functions() -> dict[str, Any]:
    """The autograd functions, made when torch is there."""
    import torch

    def like(x: Any) -> Any:
        return torch.empty_like(x, dtype=torch.float32, memory_format=torch.contiguous_format)

    class Spmm(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Csr, x: Any) -> Any:
            ctx.a, ctx.dtype = a, x.dtype
            return _multiply(a, x, False).to(x.dtype)

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return None, _multiply(ctx.a, dy, True).to(ctx.dtype)

    class TemporalAttention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, rows: Any, *learned: Any) -> Any:
            ctx.rows, mix, sums, ctx.weight = _attend(rows, *learned)
            ctx.dtypes = [x.dtype for x in learned]
            return mix, sums

        @staticmethod
        def backward(ctx: Any, dmix: Any, dsum: Any) -> Any:
            grads = [like(ctx.rows[name]) for name in ("query", "h", "time_w", "time_b")]
            _tgnn.temporal_attention_grad(ctx.rows, ctx.weight, _real(dmix), _real(dsum), grads)
            return None, *(g.to(dtype) for g, dtype in zip(grads, ctx.dtypes))

    class GruMemory(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, nodes: Any, tables: Any, seconds_per_tick: float, *weights: Any) -> Any:
            new, time, ctx.weights, ctx.updated = _update(nodes, tables, seconds_per_tick, weights)
            ctx.dtypes = [w.dtype for w in weights]
            ctx.mark_non_differentiable(time)
            return new, time

        @staticmethod
        def backward(ctx: Any, dmemory: Any, _: Any) -> Any:
            grads = [like(ctx.weights[name]) for name in _WEIGHTS]
            _tgnn.gru_memory_grad(ctx.updated, ctx.weights, _real(dmemory), grads)
            return None, None, None, *(g.to(dtype) for g, dtype in zip(grads, ctx.dtypes))

    return {"spmm": Spmm, "temporal_attention": TemporalAttention, "gru_memory": GruMemory}
