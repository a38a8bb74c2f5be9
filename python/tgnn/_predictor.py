"""A trained model on a stream that continues."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from . import _folders, _ids, _tgnn
from ._arrays import array, choice, count, path, real
from ._clock import Clock
from ._errors import DataError, UsageError


class Predictor:
    """A trained model on a stream that continues: see :meth:`Run.predictor`. It can be pickled and copied."""

    def __init__(
        self,
        folder: Any,
        batch: int = 200,
        nodes: int | None = None,
        slots: int | None = None,
        after: str = "stream",
        device: str | None = None,
    ):
        self._batch, self._device = count(batch, "batch", most=1 << 20), choice(device, "device")
        nodes = None if nodes is None else count(nodes, "nodes", most=2**32 - 2)
        slots = None if slots is None else count(slots, "slots", most=2**32 - 2)
        self._native = _tgnn.Predictor(folder, self._batch, nodes, slots, checked_after(after), self._device)
        self._clock = Clock.by_format(self._native.ticks_per_second, self._native.time_format)

    def __repr__(self) -> str:
        native = self._native
        latest = "" if native.latest is None else f", the last at {self._time(native.latest)}"
        return f"Predictor({native.nodes} nodes, {native.seen} events since training{latest})"

    def __reduce__(self) -> Any:
        with tempfile.TemporaryDirectory(prefix="tgnn-") as folder:
            self._native.save(folder)
            return _unpickled, (_folders.packed(Path(folder)), self._batch, self._device)

    def predict(self, src: Any, dst: Any, time: Any, features: Any = None) -> np.ndarray:
        """Probabilities of events in order of time; then they are history.

        Each batch is scored before it becomes history. A call that is refused changes nothing.
        """
        src, dst = _ids.native(src, "src"), _ids.native(dst, "dst")
        ticks = self._ticks(time, "event")
        if not len(src) == len(dst) == len(ticks):
            raise UsageError(
                f"{len(src)} sources, {len(dst)} destinations and {len(ticks)} times; give one of each per event"
            )
        self._check_order(ticks)
        features = self._features(features, len(src))
        logits = np.empty(len(src), np.float32)
        self._native.advance(src, dst, ticks, features, logits)
        return _probabilities(logits)

    def score(self, src: Any, dst: Any, time: Any) -> np.ndarray:
        """Probabilities of pairs at times, after all events so far: of candidates, for example. Changes nothing.

        A single source, destination or time is that of all pairs. Scores do not read features of the pairs.
        """
        src, dst = _ids.native(src, "src"), _ids.native(dst, "dst")
        ticks = self._ticks(time, "query")
        lengths = [len(src), len(dst), len(ticks)]
        n = max(lengths) if min(lengths) else 0
        src, dst, ticks = _repeated(src, n), _repeated(dst, n), _repeated(ticks, n)
        if not len(src) == len(dst) == len(ticks):
            raise UsageError(
                f"{lengths[0]} sources, {lengths[1]} destinations and {lengths[2]} times; give one of each per pair"
            )
        # Pairs at the same time are scored together.
        at = [0, *(np.flatnonzero(np.diff(ticks)) + 1), n] if n else [0]
        parts = [self._native.score(src[a:b], dst[a:b], int(ticks[a])) for a, b in zip(at, at[1:])]
        return _probabilities(np.concatenate([np.zeros(0, np.float32), *map(np.asarray, parts)]))

    def embed(self, nodes: Any, times: Any, *, destinations: bool = False) -> np.ndarray:
        """Embeddings of nodes at times after all events so far. Changes nothing."""
        ids, ticks = _ids.native(nodes, "nodes"), self._ticks(times, "query")
        if len(ticks) not in (1, len(ids)):
            raise UsageError(f"{len(ids)} nodes and {len(ticks)} times; give a time for every node, or one for all")
        ticks = np.ascontiguousarray(np.broadcast_to(ticks, len(ids)))
        return np.array(self._native.embed(ids, ticks, destinations))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Saves the state; `tgnn.open(folder).predictor()` goes on from there."""
        self._native.save(path(folder, "folder"))

    def _ticks(self, times: Any, what: str) -> np.ndarray:
        return np.ascontiguousarray(self._clock.ticks(times, what) - self._native.origin)

    def _time(self, ticks: int) -> Any:
        return self._clock.times([ticks + self._native.origin])[0]

    def _check_order(self, ticks: np.ndarray) -> None:
        """Refuses events that are earlier than one before them, in the user's own times."""
        latest = self._native.latest
        before = np.concatenate([ticks[:1] if latest is None else [latest], ticks[:-1]])[: len(ticks)]
        for i in np.flatnonzero(ticks < before)[:1]:
            raise DataError(
                f"event {i} has time {self._time(ticks[i])}, earlier than {self._time(before[i])} before it; "
                "give events in order of time"
            )

    def _features(self, features: Any, events: int) -> np.ndarray | None:
        """A row of finite numbers per event."""
        width = self._native.edge_width
        given = np.zeros((events, 0), np.float32) if features is None else real(array(features, "features"), "features")
        if given.ndim != 2 or len(given) != events:
            raise UsageError(f"features are {list(given.shape)}; give a row for each of {events} events")
        if events and given.shape[1] != width:
            raise DataError(f"event 0 has {given.shape[1]} edge features; give {width} finite numbers per event")
        for row, column in np.argwhere(~np.isfinite(given))[:1]:
            raise DataError(f"feature {column} of event {row} is {given[row, column]}; give a finite number")
        return given if width else None


def checked_after(after: Any) -> str:
    """Which events a model knows."""
    if after not in ("stream", "validation"):
        raise UsageError(f"after is {after!r}; give 'stream' or 'validation'")
    return str(after)


def _probabilities(logits: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-logits))


def _repeated(ids: Any, n: int) -> Any:
    """A single id `n` times; other ids as they are."""
    if len(ids) != 1:
        return ids
    return ids * n if isinstance(ids, list) else np.repeat(ids, n)


def _unpickled(files: dict[str, bytes], batch: int, device: str | None) -> Predictor:
    with _folders.unpacked(files) as folder:
        return Predictor(folder, batch, device=device)
