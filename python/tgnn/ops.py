"""The main kernels on arrays of NumPy, and on tensors of torch as autograd functions.

They run where their operands are: on the CPU, with every core, or on a CUDA device, on torch's current stream. Arrays
of f32, and of i64 for indices and times, are read in place, tensors by DLPack; others are converted. On a CUDA device,
ids of i32 are read in place, too. A call returns when the work is done; no operand may be changed meanwhile. Python's
lock is released.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from . import _cpu, _tgnn
from ._arrays import is_tensor, on_host, place, real, whole
from ._errors import DeviceError, UsageError

__all__ = ["Csr", "EventLists", "gru_memory", "sample_recent", "spmm", "temporal_attention"]


def _on(op: str, **operands: Any) -> Any:
    """What computes: the device of the operands."""
    places = {name: place(x) for name, x in operands.items() if x is not None}
    first, on = next(iter(places.items()))
    for name, other in places.items():
        if other != on:
            raise DeviceError(f"{op}: {first} is on {on}, and {name} on {other}; give all of them on one device")
    if on.partition(":")[0] not in ("cpu", "cuda", "emu"):
        raise DeviceError(f"{op}: {first} is on {on}, want the CPU or a CUDA device; give tensor.cpu()")
    return _cpu if on == "cpu" else _gpu(on)


@cache
def _gpu(name: str) -> Any:
    """A CUDA device, opened once."""
    from ._cuda import Gpu

    return Gpu(name)


# Sparse products


class Csr:
    """A square sparse matrix in CSR, ready to be multiplied from either side.

    `indptr` and `indices` can be replaced by a SciPy sparse matrix or a sparse CSR tensor. The matrix is prepared on the
    CPU, and copied once to every device on which it is multiplied.
    """

    def __init__(self, indptr: Any, indices: Any = None, values: Any = None):
        if indices is None and hasattr(indptr, "crow_indices"):
            indptr, indices, values = indptr.crow_indices(), indptr.col_indices(), indptr.values()
        elif indices is None and hasattr(indptr, "tocsr"):
            matrix = indptr.tocsr()
            indptr, indices, values = matrix.indptr, matrix.indices, matrix.data
        elif indices is None:
            raise UsageError(f"a {type(indptr).__name__} is not a sparse matrix; give indptr and indices")
        values = None if values is None else real(on_host(values))
        self._native = _tgnn.Csr(whole(on_host(indptr)), whole(on_host(indices)), values)
        self._copies: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self._native)

    def normalized(self) -> Csr:
        """The symmetric normalisation of graph convolutions, `D^-1/2 A D^-1/2`; self-loops are part of A."""
        normalized = Csr.__new__(Csr)
        normalized._native, normalized._copies = self._native.normalized(), {}
        return normalized


def spmm(a: Any, x: Any) -> Any:
    """A sparse matrix times a dense one, `[n, d]`; the gradient flows into `x`."""
    if not isinstance(a, Csr):
        if getattr(a, "requires_grad", False):
            raise UsageError("the values of a sparse matrix get no gradient; give a matrix that requires none")
        a = Csr(a)
    on = _on("spmm", x=x)
    return _functions()["spmm"].apply(on, a, x) if is_tensor(x) else on.multiply(a, x, False)


# Neighbours


class EventLists:
    """The events of each node in time order: what neighbours are sampled from. Nodes are numbers from 0.

    The lists are made on the CPU, and copied once to every device on which they are sampled.
    """

    def __init__(self, src: Any, dst: Any, time: Any, nodes: int | None = None):
        src, dst, time = (whole(on_host(x)) for x in (src, dst, time))
        if nodes is None:
            nodes = 1 + max((int(ids.max()) for ids in (src, dst) if len(ids)), default=-1)
        self._native = _tgnn.EventLists(src, dst, time, nodes)
        self._copies: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self._native)


def sample_recent(events: EventLists, nodes: Any, times: Any, k: int) -> tuple[Any, Any, Any, Any]:
    """The `k` latest events of every node that are strictly before its time.

    Returns `node`, `event` (`[n, k]`, latest first, -1 in unused slots), `dt` (`[n, k]`, time since the event), and
    `count` (`[n]`, slots in use, which come first).
    """
    return _on("sample_recent", nodes=nodes, times=times).recent(events, nodes, times, k)


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
    learned = {"query": query, "h": h, "time_w": time_w, "time_b": time_b}
    rows = {"row": row, "event": event, "dt": dt, "count": count, "edge": edge}
    on = _on("temporal_attention", **learned, **rows)
    rows |= {"heads": heads, "head_width": head_width}
    if any(map(is_tensor, learned.values())):
        return _functions()["temporal_attention"].apply(on, rows, *learned.values())
    return on.attend(rows, learned.values())[:2]


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
    tables = {"memory": memory, "memory_time": memory_time, "mail": mail, "mail_event": mail_event,
              "mail_time": mail_time, "edge": edge}  # fmt: skip
    weights = {"time_w": time_w, "time_b": time_b, "w_x": w_x, "w_h": w_h, "b_x": b_x, "b_h": b_h}
    on = _on("gru_memory", nodes=nodes, **tables, **weights)
    if any(map(is_tensor, weights.values())):
        return _functions()["gru_memory"].apply(on, nodes, tables, seconds_per_tick, *weights.values())
    return on.update(nodes, tables, weights.values(), seconds_per_tick)[:2]


@cache
def _functions() -> dict[str, Any]:
    """The autograd functions, made when torch is there."""
    import torch

    def described(tensors: Any) -> list[Any]:
        return [(x.shape, x.dtype) for x in tensors]

    def shaped(grads: Any, like: Any) -> Any:
        return (g.reshape(shape).to(dtype) for g, (shape, dtype) in zip(grads, like))

    class Spmm(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, on: Any, a: Csr, x: Any) -> Any:
            ctx.on, ctx.a, ctx.dtype = on, a, x.dtype
            return on.multiply(a, x, False).to(x.dtype)

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return None, None, ctx.on.multiply(ctx.a, dy, True).to(ctx.dtype)

    class TemporalAttention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, on: Any, rows: Any, *learned: Any) -> Any:
            ctx.on, ctx.like = on, described(learned)
            mix, sums, ctx.saved = on.attend(rows, learned)
            return mix, sums

        @staticmethod
        def backward(ctx: Any, dmix: Any, dsum: Any) -> Any:
            return None, None, *shaped(ctx.on.attend_grad(ctx.saved, dmix, dsum), ctx.like)

    class GruMemory(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, on: Any, nodes: Any, tables: Any, seconds_per_tick: float, *weights: Any) -> Any:
            ctx.on, ctx.like = on, described(weights)
            new, time, ctx.saved = on.update(nodes, tables, weights, seconds_per_tick)
            ctx.mark_non_differentiable(time)
            return new, time

        @staticmethod
        def backward(ctx: Any, dmemory: Any, _: Any) -> Any:
            return None, None, None, None, *shaped(ctx.on.update_grad(ctx.saved, dmemory), ctx.like)

    return {"spmm": Spmm, "temporal_attention": TemporalAttention, "gru_memory": GruMemory}
