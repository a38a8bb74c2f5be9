"""Event streams."""

from __future__ import annotations

import html
import os
import tempfile
from pathlib import Path
from typing import Any, Sequence

import numpy as np

from . import _folders, _ids, _tgnn
from ._arrays import a, array, choice, is_tensor, missing, real, refuse_gradient, truth, vector
from ._arrays import path as path_of
from ._clock import Clock
from ._errors import DataError, UsageError, as_arguments


class Events(_folders.Unchanging):
    """A stream of timed events `(src, dst, time)`, in order of time.

    `src` and `dst` are whole numbers or text. `time` is whole or decimal numbers of a `unit` (`s`, `ms`, `us`, `ns`),
    or dates (datetime64, ISO 8601). Events out of order are sorted, with a note. `edge_features` have a row per event;
    `node_features` a row per node, in the order of :attr:`ids`, or a row per id from 0. `bipartite` says whether
    sources and destinations are different kinds of nodes; by default they are if no id is both.

    `label` is a number or a text per event; NaN or None where an event has none. `labels` are labels of nodes at times, which :func:`train` predicts unless its `task`
    says otherwise: a data frame, or a dictionary of arrays, with the columns `time`, `node`, `label` and, unless every
    weight is 1, `weight`. Labels are whole numbers or text; ids and times are written as those of the events.

    Features that are contiguous arrays or tensors of f32 (or f16, or a tensor of bf16) on the CPU are used in place, if
    the events are in order: do not change them. Ids and times are copied.

    `events[10:20]` are some of the events, with their features, and labels of nodes from their span of time. Events
    can be pickled, and saved to a folder that :func:`load` reads.
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
        #: Where the events can be read again; None if they were made in Python.
        self._path: str | None = None
        self._clock, ticks = Clock.of(time, unit)
        values, texts = (None, None) if label is None else _label(label)
        self._stream = _tgnn.of_columns(
            str(name),
            src,
            dst,
            None if names is None else names.tolist(),
            np.ascontiguousarray(ticks),
            float(self._clock.ticks_per_second),
            self._clock.format,
            values,
            texts,
            _features(edge_features, "edge_features"),
            _features(node_features, "node_features"),
            truth(bipartite, "bipartite"),
            None if labels is None else self._labels(labels),
        )

    def _labels(self, table: Any) -> tuple[Any, ...]:
        """Columns of labels of nodes, as the crate takes them."""
        if not hasattr(table, "__getitem__") or is_tensor(table) or isinstance(table, (np.ndarray, list, str)):
            raise DataError(f"labels are {a(table)}; give a data frame, or a dictionary of columns")
        columns = list(getattr(table, "columns", table))
        missing = [name for name in ("time", "node", "label") if name not in columns]
        if missing:
            raise DataError(f"labels have no column {missing[0]!r}; they have {', '.join(map(str, columns))}")
        framed = hasattr(table, "columns")
        try:
            time = self._clock.ticks(_moments(table["time"]) if framed else table["time"], "event")
            (nodes, ids), (labels, classes) = (
                _ids.coded(_plain(table[name]) if framed else table[name], name) for name in ("node", "label")
            )
        except DataError as e:
            raise DataError(f"labels: {e}") from None
        weight = real(vector(table["weight"], "weight"), "labels: weight") if "weight" in columns else None
        return (
            np.ascontiguousarray(time),
            nodes,
            ids.astype(str).tolist(),
            labels,
            _ids.native(classes, "label"),
            weight,
        )

    @classmethod
    def _of(cls, stream: _tgnn.Stream) -> Events:
        events = cls.__new__(cls)
        events._stream, events._path = stream, stream.path
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
        frame = frame.collect() if hasattr(frame, "collect") else frame  # a LazyFrame of polars
        column = lambda name: _column(frame, name)
        names = [edge_features] if isinstance(edge_features, str) else edge_features
        features = [_numbers(column(name), name) for name in names]
        return cls(
            _plain(column(src)),
            _plain(column(dst)),
            _moments(column(time)),
            edge_features=np.stack(features, 1) if features else None,
            label=None if label is None else column(label).to_numpy(),
            **options,
        )

    from_polars = from_pandas

    @classmethod
    def from_pyg(cls, data: Any, **options: Any) -> Events:
        """Events of PyTorch Geometric's `TemporalData`: `src`, `dst`, `t`, and, if there are any, `msg` and `y`."""
        missing = [name for name in ("src", "dst", "t") if getattr(data, name, None) is None]
        if missing:
            raise DataError(f"{a(data)} without {', '.join(missing)} has no events; give a TemporalData")
        if getattr(data, "y", None) is not None:
            options.setdefault("label", data.y)
        return cls(data.src, data.dst, data.t, getattr(data, "msg", None), **options)

    def __len__(self) -> int:
        return len(self._stream)

    def __repr__(self) -> str:
        widths = [f"{len(self)} events", f"{self.num_nodes} nodes"]
        for what in ("edge", "node"):
            features = getattr(self, f"{what}_features")
            if features is not None:
                widths.append(f"{features.shape[1]} {what} features")
        return f"Events({self.name!r}: {', '.join(widths)})"

    def _repr_html_(self) -> str:
        time = self.time
        return f"<code>{html.escape(repr(self))}</code><br>{time[0]} to {time[-1]}"

    #: Neither Python nor NumPy takes events for a list of events.
    __iter__ = None

    def __getitem__(self, which: Any) -> Events:
        """Some of the events: a slice, or a mask or numbers of events, in order of time."""
        if not isinstance(which, slice):
            which = vector(which, "the index of events")
            if which.dtype.kind not in "biu":
                raise UsageError(f"events have no {which.dtype} index; give a slice, a mask, or numbers of events")
        try:
            at = np.unique(np.arange(len(self))[which])
        except (IndexError, TypeError) as e:
            raise UsageError(f"{self.name} has {len(self)} events ({e}); give an index of theirs") from None
        if not at.size:
            raise UsageError(f"no event of {self.name} is chosen; it has {len(self)}")
        return self._part(slice(at[0], at[-1] + 1) if at[-1] - at[0] + 1 == len(at) else at)

    def _part(self, at: Any) -> Events:
        """Some of the events, in order."""
        if self._stream.has_classes:
            raise UsageError(f"events of {self.name} have classes, and cannot be divided")
        src, dst, time = self.src[at], self.dst[at], self.time[at]
        of_events = lambda column: None if column is None else column[at]
        nodes = np.unique(np.concatenate([np.asarray(self._stream.src)[at], np.asarray(self._stream.dst)[at]]))
        rows = self.node_features
        return Events(
            src,
            dst,
            time,
            of_events(self.edge_features),
            None if rows is None else rows[nodes],
            of_events(self.label),
            labels=self._labels_of(at, self.ids[nodes]),
            name=self.name,
            bipartite=self._stream.first_destination is not None,
            unit="s" if self._clock.dates else self._clock.unit,
        )

    def _labels_of(self, at: Any, ids: np.ndarray) -> dict[str, np.ndarray] | None:
        """The labels of some nodes that come after some events and before the next one."""
        labels = self.labels
        if labels is None:
            return None
        chosen = np.zeros(len(self) + 1, bool)
        chosen[1:][at] = True
        chosen[0] = chosen[1]
        latest = np.searchsorted(self.time, labels["time"], side="right")
        kept = chosen[latest] & np.isin(labels["node"], ids)
        return {name: column[kept] for name, column in labels.items()} if kept.any() else None

    def __reduce__(self) -> Any:
        with tempfile.TemporaryDirectory(prefix="tgnn-") as folder:
            self.save(Path(folder) / "events")
            return _unpickled, (_folders.packed(Path(folder)), self._path)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the events to a folder, which must be missing or empty. :func:`load` reads them from there."""
        self._stream.save(path_of(folder, "folder"))

    def to_pandas(self) -> Any:
        """A data frame with a row per event: `src`, `dst`, `time`, maybe `label`, and a column per edge feature."""
        import pandas

        columns = {"src": self.src, "dst": self.dst, "time": self.time}
        if self.label is not None:
            columns["label"] = self.label
        features = self.edge_features
        if features is not None:
            columns |= {f"feature_{i}": column for i, column in enumerate(features.T)}
        return pandas.DataFrame(columns)

    @property
    def name(self) -> str:
        """The name of the data set."""
        return self._stream.name

    @property
    def notes(self) -> list[str]:
        """What was changed: events sorted, ids renumbered."""
        return [as_arguments(note) for note in self._stream.notes]

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return self._stream.nodes

    @property
    def ids(self) -> np.ndarray:
        """The id of every node, in the order in which the crate numbers nodes."""
        names = self._stream.names
        if names is not None:
            return _read_only(np.array(names))
        ids = _array(self._stream.ids)
        return _read_only(np.arange(self.num_nodes)) if ids is None else ids

    @property
    def src(self) -> np.ndarray:
        """The ids of the sources."""
        return _read_only(self.ids[np.asarray(self._stream.src)])

    @property
    def dst(self) -> np.ndarray:
        """The ids of the destinations."""
        return _read_only(self.ids[np.asarray(self._stream.dst)])

    @property
    def time(self) -> np.ndarray:
        """The times, as they were given."""
        return _read_only(self._clock.times(np.asarray(self._stream.time) + self._stream.origin))

    @property
    def label(self) -> np.ndarray | None:
        """The label of every event: numbers, NaN where there is none; or texts, None where there is none."""
        values, names = _array(self._stream.label), self._stream.label_names
        if values is None or names is None:
            return values
        lacks = np.isnan(values)
        texts = np.array(names)[np.where(lacks, 0, values).astype(np.int64)]
        return _read_only(np.where(lacks, None, texts.astype(object)) if lacks.any() else texts)

    @property
    def labels(self) -> dict[str, np.ndarray] | None:
        """The labels of nodes at times: the columns `time`, `node`, `label` and `weight`."""
        rows = self._stream.node_labels
        if rows is None:
            return None
        ticks, nodes, labels, weight = zip(*rows)
        return {
            "time": self._clock.times(np.array(ticks) + self._stream.origin),
            "node": self.ids[np.array(nodes)],
            "label": np.array(labels, dtype=np.uint64 if self._stream.labels_are_numbers else None),
            "weight": np.array(weight, np.float32),
        }

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
            raise DataError(f"there is no node {wanted[unknown[0]]}; {self.name} has {len(known)} others")
        return numbers + first

    def _ticks(self, times: Any, count: int) -> np.ndarray:
        """Ticks since the first event for `count` times: those given, or just after the last event."""
        if times is None:
            ticks = np.asarray(self._stream.time)[-1:] + 1
        else:
            ticks = self._clock.ticks(times) - self._stream.origin
        if len(ticks) not in (1, count):
            raise UsageError(f"{count} nodes and {len(ticks)} times; give a time for every node, or one for all")
        return np.ascontiguousarray(np.broadcast_to(ticks, (count,)))


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
    texts: dict[str, Any] = {"format": format, "columns": columns, "time_format": time_format, "missing": missing,
                             "delimiter": delimiter}  # fmt: skip
    files: dict[str, Any] = {"edge_features": edge_features, "node_features": node_features, "labels": labels}
    stream = _tgnn.load(
        path_of(path, "the path of events"),
        bipartite=truth(bipartite, "bipartite"),
        strict=bool(truth(strict, "strict")),
        **{name: choice(value, name) for name, value in texts.items()},
        **{name: None if value is None else path_of(value, name) for name, value in files.items()},
    )
    return Events._of(stream)


def _unpickled(files: dict[str, bytes], path: str | None) -> Events:
    with _folders.unpacked(files) as folder:
        events = load(folder / "events")
    events._path = path
    return events


def _array(buffer: Any) -> np.ndarray | None:
    return None if buffer is None else np.asarray(buffer)


def _read_only(x: np.ndarray) -> np.ndarray:
    """An array that does not seem to change the events."""
    x.flags.writeable = False
    return x


def _features(features: Any, what: str) -> Any:
    """Features in a layout that is used in place, converted if need be. A tensor is handed on by DLPack."""
    if features is None:
        return None
    refuse_gradient(features, what)
    if is_tensor(features):
        features = features.detach().cpu()
        kept = str(features.dtype) in ("torch.float16", "torch.bfloat16")
    else:
        features = array(features, what)
        kept = features.dtype == np.float16
    if features.ndim == 2 and not features.shape[1]:
        raise DataError(f"{what} have no columns; leave them out")
    if kept:
        return features.contiguous() if is_tensor(features) else np.ascontiguousarray(features)
    return real(features, what)


def _label(label: Any) -> tuple[np.ndarray, list[str] | None]:
    """Labels as f32, NaN where there is none; or indices of different texts, which are in order, and these."""
    if is_tensor(label):
        return _not_infinite(real(vector(label, "label"), "label")), None
    column = vector(label, "label")
    if column.dtype.kind == "O":
        given = [value for value in column.tolist() if not missing(value)]
        if not any(isinstance(value, (str, bytes)) for value in given):
            numbers = np.array([np.nan if missing(value) else value for value in column.tolist()])
            return _not_infinite(real(numbers, "label")), None
        numbers = [value for value in given if not isinstance(value, (str, bytes))]
        if numbers:
            raise DataError(f"labels are text, and {numbers[0]!r} is none; give numbers, or text")
    elif column.dtype.kind not in "US":
        return _not_infinite(real(column, "label")), None
    lacks = np.array([missing(value) or len(value) == 0 for value in column.tolist()], bool)
    codes = np.full(len(column), np.nan, np.float32)
    given = column[~lacks]
    try:
        texts = np.char.decode(given) if given.dtype.kind == "S" else given.astype(str)
    except UnicodeDecodeError as e:
        raise DataError(f"labels are bytes that are not UTF-8 ({e}); decode them") from None
    names, codes[~lacks] = np.unique(texts, return_inverse=True)
    return codes, names.tolist()


def _not_infinite(label: np.ndarray) -> np.ndarray:
    for i in np.flatnonzero(np.isinf(label))[:1]:
        raise DataError(f"event {i} has the label {label[i]}; give a finite number, or NaN for none")
    return label


def _column(frame: Any, name: Any) -> Any:
    if not (hasattr(frame, "columns") and hasattr(frame, "to_dict")):
        raise DataError(f"{a(frame)} is not a frame of pandas or polars; give one, or Events(...)")
    if name not in list(frame.columns):
        raise DataError(f"there is no column {name!r}; the frame has {', '.join(map(str, frame.columns))}")
    column = frame[name]
    if hasattr(column, "columns"):
        raise DataError(f"there are several columns {name!r}; rename them")
    return column


def _plain(column: Any) -> np.ndarray:
    """A column of ids as an array: numbers, else objects."""
    values = column.to_numpy()
    if values.dtype.kind == "O" and getattr(column.dtype, "kind", "O") in "iu":
        return column.to_numpy(np.int64)  # a nullable column of pandas, without missing ids
    return values


def _numbers(column: Any, name: Any) -> np.ndarray:
    what = f"column {name!r}"
    numbers = real(column.to_numpy(), what)
    for i in np.flatnonzero(~np.isfinite(numbers))[:1]:
        raise DataError(f"{what} is {numbers[i]} in row {i}; give a finite number, or leave out the row")
    return numbers


def _moments(column: Any) -> np.ndarray:
    """A column of times; those of pandas with a zone are UTC."""
    if getattr(column.dtype, "tz", None) is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    return column.to_numpy()
