"""Kernels on a CUDA device, with the functions of `_cpu`. They read and fill memory of torch's, on its current stream.

The orders of the operands are those of the tables in `src/ops`. Ids have 32 bits there: those of i32 are read in place.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator

import numpy as np
import torch

from . import _tgnn
from ._arrays import real, whole
from ._errors import DataError, ShapeError
from ._tgnn import Op

#: The id that is none. -1 becomes it in 32 bits without a sign.
_NONE = 2**32 - 1
#: Rows of a table without columns: as many as a table may have, because every id names one.
_MOST_ROWS = 2**31 - 1


class Gpu:
    """The device `cuda:N`; or, for tests, `emu`, on tensors of the CPU."""

    def __init__(self, name: str):
        self._name, self._device = name, torch.device("cpu" if name == "emu" else name)
        with self._stream():
            self._native = _tgnn.Gpu(name)

    def multiply(self, a: Any, x: Any, transpose: bool) -> Any:
        x = real(x, "spmm: x")
        if len(x) != len(a):
            raise ShapeError(f"spmm: x has {len(x)} rows, and the matrix {len(a)}")
        (y,) = self._run(Op.spmm(a._native, transpose), x, *self._tables(a, transpose))
        return y.reshape(x.shape)

    def recent(self, events: Any, nodes: Any, times: Any, k: int) -> tuple[Any, Any, Any, Any]:
        (nodes,) = self._ids("sample_recent", nodes=nodes)
        # All events are history; lists are searched from their ends.
        (batch,) = self._ids("sample_recent", events=torch.tensor([len(events)], device=self._device))
        positions, now = self._empty(0, 2, "int32"), self._empty(1, 2, "int32").zero_()
        inputs = (*self._tables(events), positions, nodes, whole(times, "sample_recent: times"), batch, now)
        node, event, dt, _, count = self._run(Op.sample_recent(k), *inputs)
        return whole(node, "node"), whole(event, "event"), dt, whole(count.flatten(), "count")

    def attend(self, shape: tuple[int, int], rows: dict[str, Any], learned: Any) -> tuple[Any, Any, Any]:
        op = "temporal_attention"
        row, event, count = self._ids(op, row=rows["row"], event=rows["event"], count=rows["count"])
        query, h, time_w, time_b = (real(x, op) for x in learned)
        n = len(count)
        if len(query) != n:
            raise ShapeError(f"temporal_attention: query has {len(query)} rows, and count {n}")
        # Every root has a query of its own.
        starts = torch.arange(n + 1, dtype=torch.int32, device=self._device)
        inputs = (query, starts, h, row, event, real(rows["dt"], op), count, self._features(rows["edge"]),
                  time_w.reshape(1, -1), time_b.reshape(1, -1), starts[:n], starts[:n])  # fmt: skip
        mix, sums, weight = self._run(Op.temporal_attention(*shape), *inputs)
        return (mix, sums), shape, (*inputs, weight)

    def attend_grad(self, shape: tuple[int, int], saved: Any, dmix: Any, dsum: Any) -> list[Any]:
        *inputs, weight = saved
        _, _, h, row, _, _, count, *_, order = inputs
        # The gradient of a row of h is summed over its slots in their order.
        starts, slots, _ = self._run(Op.group_slots(len(h)), row, count, order)
        operands = (*inputs, weight, real(dmix, "mix"), real(dsum, "sum"), starts, slots)
        query, time_w, time_b, h = self._run(Op.temporal_attention_grad(*shape), *operands)
        return [query, h, time_w, time_b]

    def update(self, nodes: Any, tables: dict[str, Any], seconds_per_tick: float, weights: Any) -> tuple[Any, Any, Any]:
        op = "gru_memory"
        nodes, mail_event = self._ids(op, nodes=nodes, mail_event=tables["mail_event"])
        ordered = nodes.sort().values
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(twice):
            raise DataError(f"gru_memory: node {int(twice[0])} is listed twice")
        time_w, time_b, w_x, w_h, b_x, b_h = (real(x, op) for x in weights)
        time_w, time_b, b_x, b_h = (x.reshape(1, -1) for x in (time_w, time_b, b_x, b_h))
        memory, mail = (real(tables[name], f"{op}: {name}") for name in ("memory", "mail"))
        memory_time, mail_time = (whole(tables[name], f"{op}: {name}") for name in ("memory_time", "mail_time"))
        inputs = (nodes, memory, memory_time, mail, mail_event, mail_time, self._features(tables["edge"]),
                  time_w, time_b, w_x, w_h, b_x, b_h)  # fmt: skip
        new, time, count, *saved = self._run(Op.gru_memory(seconds_per_tick), *inputs)
        # Only rows with a mail have gradients.
        saved = [x[: int(count)] for x in saved]
        return (new, time.flatten()), None, (*saved, time_w, time_b, w_x, w_h)

    def update_grad(self, _: None, saved: Any, dmemory: Any, dtime: Any) -> list[Any]:
        return self._run(Op.gru_memory_grad(), *saved, real(dmemory, "memory"))

    def _run(self, op: Op, *operands: Any) -> list[Any]:
        with self._stream() as stream:
            return self._native.run(op, [_aligned(x) for x in operands], stream, self._empty)

    @contextmanager
    def _stream(self) -> Iterator[int]:
        """torch's current stream on this device. The driver's current device, which calls change, is torch's again
        afterwards."""
        if self._name == "emu":
            yield 0
        else:
            with torch.cuda.device(self._device):
                yield torch.cuda.current_stream().cuda_stream

    def _empty(self, rows: int, columns: int, dtype: str) -> Any:
        return torch.empty((rows, columns), dtype=getattr(torch, dtype), device=self._device)

    def _tables(self, of: Any, *which: Any) -> list[Any]:
        """What a `Csr` or `EventLists` consists of, copied to this device once."""
        copies, key = of._copies, (self._name, *which)
        if key not in copies:
            tables = [np.asarray(table) for table in of._native.tables(*which)]
            tables = [table.view(np.int32) if table.dtype == np.uint32 else table for table in tables]
            copies[key] = [torch.tensor(table, device=self._device) for table in tables]
        return copies[key]

    def _features(self, edge: Any) -> Any:
        return self._empty(_MOST_ROWS, 0, "float32") if edge is None else real(edge, "edge")

    def _ids(self, op: str, **named: Any) -> list[Any]:
        """Ids in 32 bits. Whether they fit is read by the host, so that all are checked at once."""
        arrays = [x if x.dtype == torch.int32 else whole(x, f"{op}: {name}") for name, x in named.items()]
        wide = [x.flatten() for x in arrays if x.dtype != torch.int32]
        if wide:
            outside = [(x < -1) | (x >= _NONE) for x in wide]
            if torch.stack([x.any() for x in outside]).any():
                value = torch.cat([x[out] for x, out in zip(wide, outside)])[0]
                raise ShapeError(f"{op}: {int(value)} is not an index")
        return [x.to(torch.int32).contiguous() for x in arrays]


def _aligned(x: Any) -> Any:
    """Kernels read 16 bytes at a time."""
    return x if x.data_ptr() % 16 == 0 else x.clone()
