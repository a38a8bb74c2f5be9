"""The kernels of `tgnn.ops`: what users give is checked, and goes to the device of the operands."""

from __future__ import annotations

from functools import partial
from math import inf, prod
from numbers import Real
from typing import Any

import numpy as np

from . import _cpu, _tgnn
from ._arrays import a as a_kind_of
from ._arrays import count as counted
from ._arrays import is_tensor, on_host, place, real, refuse_gradient, whole_vector
from ._errors import DeviceError, ShapeError, UsageError
from ._folders import Unchanging


def _on(op: str, **operands: Any) -> Any:
    """What computes: the device of the operands."""
    places = {name: place(x) for name, x in operands.items() if x is not None}
    first, on = next(iter(places.items()), (op, "cpu"))
    for name, other in places.items():
        if other != on:
            raise DeviceError(f"{op}: {first} is on {on}, and {name} on {other}; give all of them on one device")
    if on.partition(":")[0] not in ("cpu", "cuda", "emu"):
        raise DeviceError(f"{op}: {first} is on {on}, want the CPU or a CUDA device; give tensor.cpu()")
    return _cpu if on == "cpu" else _gpu(on)


_GPUS: dict[str, Any] = {}


def _gpu(name: str) -> Any:
    """A CUDA device, opened once."""
    if name not in _GPUS:
        from ._cuda import Gpu

        _GPUS[name] = Gpu(name)
    return _GPUS[name]


def _refuse_gradients(op: str, **operands: Any) -> None:
    for name, x in operands.items():
        refuse_gradient(x, f"{op}: {name}")


def _columns(x: Any, what: str) -> int:
    """The columns of a table; None has none."""
    shape = (0, 0) if x is None else np.shape(x)
    if len(shape) != 2:
        raise ShapeError(f"{what} has the shape {list(shape)}; give two dimensions")
    return int(shape[1])


# Sparse products


class Csr(Unchanging):
    """A square sparse matrix in CSR, ready to be multiplied from either side.

    `indptr` and `indices` can be replaced by a SciPy sparse matrix or a sparse tensor. The matrix is prepared on the
    CPU, and copied once to every device on which it is multiplied.
    """

    def __init__(self, indptr: Any, indices: Any = None, values: Any = None):
        if indices is None:
            indptr, indices, values = _parts(indptr)
        _refuse_gradients("csr", values=values)
        values = None if values is None else real(on_host(values), "csr: values")
        indptr, indices = _from_0(indptr, "csr: indptr"), _from_0(indices, "csr: indices")
        n, widest = len(indptr) - 1, int(indices.max()) if len(indices) else -1
        if widest >= n > 0:
            raise ShapeError(
                f"csr: indices name column {widest}, and there are {n} rows; a Csr is square: add empty rows"
            )
        self._set(_tgnn.Csr(indptr, indices, values), False)

    def _set(self, native: _tgnn.Csr, normalized: bool) -> Csr:
        self._native, self._normalized = native, normalized
        self._copies: dict[Any, Any] = {}
        return self

    def __len__(self) -> int:
        return len(self._native)

    def __repr__(self) -> str:
        _, _, _, columns, *_ = self._native.tables(False)
        kind = ", normalized" if self._normalized else ""
        return f"Csr({len(self)} x {len(self)}, {len(np.asarray(columns))} entries{kind})"

    def __reduce__(self) -> Any:
        _, begin, _, columns, _, _, _, *values = (np.array(table) for table in self._native.tables(False))
        indptr = np.append(begin.ravel(), len(columns)).astype(np.int64)
        return _csr, (indptr, columns.ravel(), values[0].ravel() if values else None, self._normalized)

    def normalized(self) -> Csr:
        """The symmetric normalisation of graph convolutions, `D^-1/2 A D^-1/2`; self-loops are part of A."""
        return Csr.__new__(Csr)._set(self._native.normalized(), True)


def _from_0(x: Any, what: str) -> Any:
    x = whole_vector(on_host(x), what)
    if len(x) and x.min() < 0:
        raise ShapeError(f"{what} has {int(x.min())}; give numbers from 0")
    return x


def _csr(indptr: Any, indices: Any, values: Any, normalized: bool) -> Csr:
    a = Csr(indptr, indices, values)
    return a.normalized() if normalized else a


def _parts(matrix: Any) -> tuple[Any, Any, Any]:
    """A sparse matrix as indptr, indices and values."""
    tensor = is_tensor(matrix)
    if not (hasattr(matrix, "tocsr") or tensor and str(matrix.layout) != "torch.strided"):
        raise UsageError(f"{a_kind_of(matrix)} is not sparse; give indptr and indices, or a sparse matrix")
    _refuse_gradients("csr", values=matrix)
    rows, *others = matrix.shape
    if others != [rows]:
        size = " x ".join(map(str, matrix.shape))
        raise ShapeError(f"csr: the matrix is {size}; a Csr is square: add empty rows or columns")
    if not tensor:
        matrix = matrix.tocsr()
        return matrix.indptr, matrix.indices, matrix.data
    if str(matrix.layout) == "torch.sparse_csr":
        return matrix.crow_indices(), matrix.col_indices(), matrix.values()
    matrix = matrix.to_sparse_coo().coalesce()
    row, column = matrix.indices()
    return row.bincount(minlength=rows + 1).roll(1).cumsum(0), column, matrix.values()


def spmm(a: Any, x: Any) -> Any:
    """A sparse matrix times a dense one, `[n, d]`; the gradient flows into `x`."""
    a = a if isinstance(a, Csr) else Csr(a)
    on = _on("spmm", x=x)
    if not is_tensor(x):
        return on.multiply(a, x, False)
    from ._autograd import Spmm

    return Spmm.apply(on, a, x, False)


# Neighbours


class EventLists(Unchanging):
    """The events of each node in time order: what neighbours are sampled from. Nodes are numbers from 0.

    The lists are made on the CPU, and copied once to every device on which they are sampled.
    """

    def __init__(self, src: Any, dst: Any, time: Any, nodes: int | None = None):
        named = {"src": src, "dst": dst, "time": time}
        src, dst, time = (whole_vector(on_host(x), f"events: {name}") for name, x in named.items())
        if nodes is None:
            nodes = 1 + max((int(ids.max()) for ids in (src, dst) if len(ids)), default=-1)
        self._nodes = counted(nodes, "events: nodes", 0)
        self._native = _tgnn.EventLists(src, dst, time, self._nodes)
        self._copies: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self._native)

    def __repr__(self) -> str:
        return f"EventLists({len(self)} events, {self._nodes} nodes)"

    def __reduce__(self) -> Any:
        offsets, entries = (np.asarray(table) for table in self._native.tables())
        # An entry is a time, the node at the other end, and the event.
        other, event = np.ascontiguousarray(entries[:, 1]).view(np.uint32).reshape(-1, 2).T
        ends, time = np.zeros((2, len(self)), np.int64), np.zeros(len(self), np.int64)
        ends[:, event] = np.repeat(np.arange(self._nodes), np.diff(offsets.ravel())), other
        time[event] = entries[:, 0]
        return EventLists, (*ends, time, self._nodes)


def sample_recent(events: EventLists, nodes: Any, times: Any, k: int) -> tuple[Any, Any, Any, Any]:
    """The `k` latest events of every node that are strictly before its time.

    Returns `node`, `event` (`[n, k]`, latest first, -1 in unused slots), `dt` (`[n, k]`, time since the event), and
    `count` (`[n]`, slots in use, which come first).
    """
    if not isinstance(events, EventLists):
        remedy = "give EventLists(src, dst, time), with nodes from 0 and whole times"
        raise UsageError(f"sample_recent: events is {a_kind_of(events)}; {remedy}")
    k = counted(k, "sample_recent: k", 0, max(1 << 16, len(events)))
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
    _refuse_gradients("temporal_attention", **rows)
    shape = counted(heads, "temporal_attention: heads"), counted(head_width, "temporal_attention: head_width")
    _check_width(shape[0], learned, edge)
    if not any(map(is_tensor, (*learned.values(), *rows.values()))):
        return on.attend(shape, rows, learned.values())[0]
    from . import _autograd

    attend = partial(on.attend, shape, _autograd.tensors("temporal_attention", rows))
    learned = _autograd.tensors("temporal_attention", learned)
    return _autograd.apply("temporal_attention", attend, on.attend_grad, learned.values())


def _check_width(heads: int, learned: dict[str, Any], edge: Any) -> None:
    """Checks that the query is as wide as the rows for which it asks."""
    op = "temporal_attention"
    d, f, t = _columns(learned["h"], f"{op}: h"), _columns(edge, f"{op}: edge"), prod(np.shape(learned["time_w"]))
    query = _columns(learned["query"], f"{op}: query")
    if query != heads * (d + f + t):
        raise ShapeError(
            f"{op}: query has {query} columns, and rows have {d} of h, {_of_edge(edge, f)} and {t} of time_w; "
            f"give {heads} x {d + f + t} columns for {heads} heads"
        )


def _of_edge(edge: Any, columns: int) -> str:
    return "0 because edge is None" if edge is None else f"{columns} of edge"


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
    _refuse_gradients("gru_memory", nodes=nodes, **tables)
    if not (isinstance(seconds_per_tick, Real) and 0 < seconds_per_tick < inf):
        raise UsageError(f"gru_memory: seconds_per_tick is {seconds_per_tick!r}; give a positive number")
    _check_message(memory, edge, time_w, w_x)
    if not any(map(is_tensor, (nodes, *tables.values(), *weights.values()))):
        return on.update(nodes, tables, seconds_per_tick, weights.values())[0]
    from . import _autograd

    update = partial(on.update, nodes, _autograd.tensors("gru_memory", tables), seconds_per_tick)
    return _autograd.apply("gru_memory", update, on.update_grad, _autograd.tensors("gru_memory", weights).values())


def _check_message(memory: Any, edge: Any, time_w: Any, w_x: Any) -> None:
    """Checks that the weights are as wide as the message that they multiply."""
    op = "gru_memory"
    d, f, t = _columns(memory, f"{op}: memory"), _columns(edge, f"{op}: edge"), prod(np.shape(time_w))
    if _columns(w_x, f"{op}: w_x") != 2 * d + f + t:
        raise ShapeError(
            f"{op}: w_x has {_columns(w_x, 'w_x')} columns, and a message 2 x {d} of memory, {_of_edge(edge, f)} and "
            f"{t} of time_w; give {2 * d + f + t} columns"
        )
