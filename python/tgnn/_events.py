"""Event streams."""

from __future__ import annotations

import os
from typing import Any, Sequence

import numpy as np

from . import _ids, _tgnn
from ._clock import Clock
from ._errors import DataError


class Events:
    """A stream of timed events `(src, dst, time)`, in order of time.

    `src` and `dst` are whole numbers or text. `time` is whole or decimal numbers of a `unit` (`s`, `ms`, `us`, `ns`),
    or dates (datetime64, ISO 8601). Events out of order are sorted, with a note. `edge_features` have a row per event;
    `node_features` a row per node, in the order of :attr:`ids`, or a row per id from 0. `bipartite` says whether
    sources and destinations are different kinds of nodes; by default they are if no id is both.

    `label` is a number per event. `labels` are labels of nodes at times, which :func:`train` predicts unless its `task`
    says otherwise: a data frame, or a dictionary of arrays, with the columns `time`, `node`, `label` and, unless every
    weight is 1, `weight`. Labels are whole numbers or text; ids and times are written as those of the events.

    Features that are contiguous arrays or tensors of f32 (or f16, or a tensor of bf16) on the CPU are used in place, if
    the events are in order: do not change them. Ids and times are copied.
    """

    def __init__(
        self,
        src: Any,
        dst: Any,
        time: Any,
        edge_features: Any = None,
        node_features: Any = None,
        label: Any = None,
        *,
        labels: Any = None,
        name: str = "events",
        bipartite: bool | None = None,
        unit: str = "s",
    ):
        src, dst, names = _ids.columns(src, dst)
        self._clock, ticks = Clock.of(time, unit)
        self._stream = _tgnn.of_columns(
            name,
            src,
            dst,
            None if names is None else names.tolist(),
            np.ascontiguousarray(ticks),
            float(self._clock.ticks_per_second),
            self._clock.format,
            None if label is None else np.ascontiguousarray(label, dtype=np.float32),
            _features(edge_features),
            _features(node_features),
            bipartite,
            None if labels is None else self._labels(labels),
        )

    def _labels(self, table: Any) -> tuple[Any, ...]:
        """Columns of labels of nodes, as the crate takes them."""
        columns = list(getattr(table, "columns", table))
        missing = [name for name in ("time", "node", "label") if name not in columns]
        if missing:
            raise DataError(f"labels have no column {missing[0]!r}; they have {', '.join(map(str, columns))}")
        framed = hasattr(table, "columns")
        try:
            time = self._clock.ticks(_moments(table["time"]) if framed else table["time"])
            (nodes, ids), (labels, classes) = (
                _ids.coded(_plain(table[name]) if framed else table[name]) for name in ("node", "label")
            )
        except DataError as e:
            raise DataError(f"labels: {e}") from None
        weight = np.ascontiguousarray(table["weight"], dtype=np.float32) if "weight" in columns else None
        return np.ascontiguousarray(time), nodes, ids.astype(str).tolist(), labels, _ids.native(classes), weight

    @classmethod
    def _of(cls, stream: _tgnn.Stream) -> Events:
        events = cls.__new__(cls)
        events._stream = stream
        events._clock = Clock.by_format(stream.ticks_per_second, stream.time_format)
        return events

    @classmethod
    def from_pandas(
        cls,
        frame: Any,
        src: str = "src",
        dst: str = "dst",
        time: str = "time",
        *,
        edge_features: Sequence[str] = (),
        label: str | None = None,
        **options: Any,
    ) -> Events:
        """Events in the rows of a frame of pandas, or of polars: the arguments name its columns.

        `options` are those of `Events`.
        """
        column = lambda name: _column(frame, name)
        features = [_numbers(column(name)) for name in edge_features]
        return cls(
            _plain(column(src)),
            _plain(column(dst)),
            _moments(column(time)),
            edge_features=np.stack(features, 1) if features else None,
            label=None if label is None else _numbers(column(label)),
            **options,
        )

    from_polars = from_pandas

    @classmethod
    def from_pyg(cls, data: Any, **options: Any) -> Events:
        """Events of PyTorch Geometric's `TemporalData`: `src`, `dst`, `t`, and, if there are any, `msg` and `y`."""
        label = getattr(data, "y", None)
        if label is not None:
            options.setdefault("label", label.numpy())
        return cls(data.src.numpy(), data.dst.numpy(), data.t.numpy(), getattr(data, "msg", None), **options)

    def __len__(self) -> int:
        return len(self._stream)

    def __repr__(self) -> str:
        widths = [f"{len(self)} events", f"{self.num_nodes} nodes"]
        for what in ("edge", "node"):
            features = getattr(self, f"{what}_features")
            if features is not None:
                widths.append(f"{features.shape[1]} {what} features")
        return f"Events({self.name!r}: {', '.join(widths)})"

    @property
    def name(self) -> str:
        """The name of the data set."""
        return self._stream.name

    @property
    def notes(self) -> list[str]:
        """What was changed: events sorted, ids renumbered."""
        return self._stream.notes

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return self._stream.nodes

    @property
    def ids(self) -> np.ndarray:
        """The id of every node, in the order in which the crate numbers nodes."""
        names = self._stream.names
        if names is not None:
            return np.array(names)
        ids = _array(self._stream.ids)
        return np.arange(self.num_nodes) if ids is None else ids

    @property
    def src(self) -> np.ndarray:
        """The ids of the sources."""
        return self.ids[np.asarray(self._stream.src)]

    @property
    def dst(self) -> np.ndarray:
        """The ids of the destinations."""
        return self.ids[np.asarray(self._stream.dst)]

    @property
    def time(self) -> np.ndarray:
        """The times, as they were given."""
        return self._clock.times(np.asarray(self._stream.time) + self._stream.origin)

    @property
    def label(self) -> np.ndarray | None:
        """The label of every event."""
        return _array(self._stream.label)

    @property
    def edge_features(self) -> np.ndarray | None:
        """A row per event, which may only be read."""
        return _array(self._stream.edge_features)

    @property
    def node_features(self) -> np.ndarray | None:
        """A row per node, which may only be read."""
        return _array(self._stream.node_features)

    def _numbers(self, ids: Any, destinations: bool) -> np.ndarray:
        """The numbers of nodes."""
        first = (self._stream.first_destination or 0) if destinations else 0
        known = self.ids[first:]
        wanted = _ids.like(known, ids)
        order = np.argsort(known, kind="stable")
        at = np.searchsorted(known, wanted, sorter=order)
        numbers = order[np.minimum(at, len(order) - 1)]
        unknown = np.flatnonzero(known[numbers] != wanted)
        if unknown.size:
            raise DataError(f"there is no node {np.atleast_1d(ids)[unknown[0]]}; {self.name} has {len(known)} others")
        return numbers + first

    def _ticks(self, times: Any, count: int) -> np.ndarray:
        """Ticks since the first event for `count` times: those given, or just after the last event."""
        if times is None:
            ticks = np.asarray(self._stream.time)[-1:] + 1
        else:
            ticks = self._clock.ticks(times) - self._stream.origin
        return np.ascontiguousarray(np.broadcast_to(ticks, (count,)) if len(ticks) == 1 else ticks)


def load(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    columns: str | None = None,
    time_format: str | None = None,
    missing: str | None = None,
    bipartite: bool | None = None,
    strict: bool = False,
    edge_features: str | os.PathLike[str] | None = None,
    node_features: str | os.PathLike[str] | None = None,
    labels: str | os.PathLike[str] | None = None,
    delimiter: str | None = None,
) -> Events:
    """Reads events: a file in any layout that the program reads, a folder of `.npy`, or the bundled `wikipedia`.

    The options are those of `tgnn-bench data import`; `labels` is a table of labels of nodes at times, which
    :func:`train` predicts unless its `task` says otherwise.
    """
    how = (format, columns, time_format, missing, bipartite, strict, edge_features, node_features, labels, delimiter)
    stream = _tgnn.load(os.fspath(path), *how)
    return Events._of(stream)


def _array(buffer: Any) -> np.ndarray | None:
    return None if buffer is None else np.asarray(buffer)


def _features(features: Any) -> Any:
    """Features in a layout that is used in place, converted if need be. A tensor is handed on by DLPack."""
    if features is None:
        return None
    if hasattr(features, "detach"):
        features = features.detach().cpu().contiguous()
        return (
            features
            if str(features.dtype) in ("torch.float32", "torch.float16", "torch.bfloat16")
            else features.float()
        )
    features = np.asarray(features)
    kept = features.dtype if features.dtype in (np.float16, np.float32) else np.dtype(np.float32)
    return np.ascontiguousarray(features, dtype=kept)


def _column(frame: Any, name: str) -> Any:
    if name not in frame.columns:
        raise DataError(f"there is no column {name!r}; the frame has {', '.join(map(str, frame.columns))}")
    return frame[name]


def _plain(column: Any) -> np.ndarray:
    """A column of ids as an array: numbers, else objects."""
    values = column.to_numpy()
    if values.dtype.kind == "O" and getattr(column.dtype, "kind", "O") in "iu":
        return column.to_numpy(np.int64)  # a nullable column of pandas, without missing ids
    return values


def _numbers(column: Any) -> np.ndarray:
    return column.to_numpy().astype(np.float32)


def _moments(column: Any) -> np.ndarray:
    """A column of times; those of pandas with a zone are UTC."""
    if getattr(column.dtype, "tz", None) is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    return column.to_numpy()
