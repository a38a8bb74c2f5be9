"""Runs: what training leaves in a folder."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, Sequence

import numpy as np

from . import _ids, _tgnn, load_tgnn
from ._clock import Clock
from ._errors import CheckpointError, IoError, UsageError
from ._events import Events
from ._progress import METRICS


class Run:
    """A trained model with its records: the folder that `tgnn.train(out=...)` or the program wrote."""

    def __init__(self, folder: str | os.PathLike[str], events: Events | None = None):
        self.folder = Path(folder)
        self._events = events
        self._checkpoint = self.folder / "checkpoint"
        if not self._checkpoint.exists():
            self._checkpoint = self.folder
        path = self._checkpoint / "manifest.json"
        if not path.exists():
            raise CheckpointError(f"{path}: there is no checkpoint here; give the folder of a run")
        self._manifest = json.loads(path.read_text())

    def __repr__(self) -> str:
        test = (self.summary or {}).get("test") or {}
        figure = next(((k, v) for k, v in (test.get("transductive") or {}).items() if v is not None), None)
        scored = f", test {figure[0]} {figure[1]:.4f}" if figure else ""
        return f"Run({self.name}, epoch {self._manifest['best_epoch']}{scored})"

    @property
    def name(self) -> str:
        """Model and seed."""
        return f"{self.config['model']}, seed {self.config['seed']}"

    @property
    def config(self) -> dict[str, Any]:
        """The whole configuration."""
        return self._manifest["config"]

    @property
    def summary(self) -> dict[str, Any] | None:
        """The results (docs/summary.md); None if the run has not ended."""
        path = self.folder / "summary.json"
        return json.loads(path.read_text()) if path.exists() else None

    @property
    def records(self) -> list[dict[str, Any]]:
        """A record per epoch: epoch, train_loss, train_seconds, events_per_second, wall_time, val_ap, ..."""
        path = self.folder / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [_flat(json.loads(line)) for line in lines]

    @property
    def metrics(self) -> Any:
        """The records as a pandas frame; as a list of dictionaries without pandas."""
        try:
            import pandas
        except ImportError:
            return self.records
        return pandas.DataFrame(self.records)

    def plot(self, metric: str | None = None, ax: Any = None) -> Any:
        """Draws a validation metric by epoch with matplotlib; see :func:`tgnn.plot`."""
        return plot([self], metric, ax)

    @property
    def events(self) -> Events:
        """The events of training: those that were given, else read from where the configuration says."""
        if self._events is None:
            self._events = Events._of(_tgnn.of_run(self.folder))
        return self._events

    def embed(
        self,
        nodes: Any,
        times: Any = None,
        *,
        after: str = "stream",
        destinations: bool = False,
        device: str | None = None,
    ) -> np.ndarray:
        """Embeddings `[n, width]` of nodes at times, by default just after the last event.

        Nodes are ids, and times are written, as in the events. The best epoch embeds them; its memory knows all events
        or, with `after="validation"`, those of training and validation. Where sources and destinations share ids, `destinations` says which nodes
        are meant. Models of snapshots embed after the last snapshot. The events must be at hand: `tgnn.open(folder,
        events)` where they were made in Python.
        """
        events = self.events
        if times is not None and self._reads_snapshots():
            raise UsageError("times are given, and the model reads snapshots; leave them out")
        numbers = events._numbers(nodes, destinations)
        ticks = events._ticks(times, len(numbers))
        return np.array(_tgnn.embed(self.folder, events._stream, numbers, ticks, after, device))

    def predict(
        self, src: Any, dst: Any, time: Any, features: Any = None, *, batch: int = 200, after: str = "stream"
    ) -> np.ndarray:
        """Probabilities of new events in order of time, as they come: each batch is scored, then becomes history.

        Starts from the state after all events in every call, or from that after validation (`after="validation"`);
        :meth:`predictor` goes on. The folder is enough: the events need not be at hand.
        """
        return self.predictor(batch, after=after).predict(src, dst, time, features)

    def predictor(
        self,
        batch: int = 200,
        *,
        nodes: int | None = None,
        slots: int | None = None,
        after: str = "stream",
        device: str | None = None,
    ) -> Predictor:
        """The model on a stream that continues after its last event, or after validation (`after="validation"`);
        arguments as `tgnn-bench predict` has them."""
        return Predictor(self.folder, self._events, batch, nodes, slots, device, after=after)

    def weights(self, *, settled: bool = True) -> dict[str, np.ndarray]:
        """The weights by the names of docs/weights.md, in PyTorch's shapes, with frequencies that are fixed.

        Those of the model that settled after the best epoch, if it did and `settled` is true.
        """
        return load_tgnn.load(self.folder, settled)[0]

    def state_dict(self, *, settled: bool = True) -> dict[str, Any]:
        """The same as torch tensors."""
        return load_tgnn.state_dict(self.folder, settled)

    def save(self, folder: str | os.PathLike[str]) -> Run:
        """Copies the run to a folder, which must be missing or empty; returns the run there."""
        folder = Path(folder)
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty; give another folder")
        beside = folder.with_name(f"{folder.name}.partial")
        try:
            shutil.copytree(self.folder, beside, dirs_exist_ok=True)
            if folder.exists():
                folder.rmdir()
            beside.rename(folder)
        except OSError as e:
            shutil.rmtree(beside, ignore_errors=True)
            raise IoError(f"{folder}: cannot write ({e})") from None
        return Run(folder, self._events)

    def _reads_snapshots(self) -> bool:
        return bool(((self.summary or {}).get("data") or {}).get("snapshots"))


class Predictor:
    """A trained model on a stream that continues: see :meth:`Run.predictor`."""

    def __init__(
        self,
        folder: Any,
        events: Events | None,
        batch: int,
        nodes: Any,
        slots: Any,
        device: Any,
        after: str = "stream",
    ):
        if not 1 <= batch <= 1 << 20:
            raise UsageError(f"batch is {batch}; give 1 to 1048576")
        self._native = _tgnn.Predictor(folder, batch, nodes, slots, after, device)
        self._clock = Clock.by_format(self._native.ticks_per_second, self._native.time_format)

    def predict(self, src: Any, dst: Any, time: Any, features: Any = None) -> np.ndarray:
        """Probabilities of events in order of time; then they are history.

        An error in a batch leaves the batches before it in the history.
        """
        src, dst = _ids.native(src), _ids.native(dst)
        ticks = self._ticks(time)
        if not len(src) == len(dst) == len(ticks):
            raise UsageError(
                f"{len(src)} sources, {len(dst)} destinations and {len(ticks)} times; give one of each per event"
            )
        if features is not None:
            features = np.ascontiguousarray(features, dtype=np.float32)
            if features.ndim != 2 or len(features) != len(src):
                raise UsageError(f"features are {list(features.shape)}; give a row for each of {len(src)} events")
        logits = np.empty(len(src), np.float32)
        self._native.advance(src, dst, ticks, features, logits)
        return 1 / (1 + np.exp(-logits))

    def embed(self, nodes: Any, times: Any) -> np.ndarray:
        """Embeddings of nodes at times after all events so far. Changes nothing."""
        ids = _ids.native(nodes)
        ticks = self._ticks(times)
        ticks = np.ascontiguousarray(np.broadcast_to(ticks, len(ids))) if len(ticks) == 1 else ticks
        return np.array(self._native.embed(ids, ticks))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Saves the state; `tgnn.open(folder).predictor()` goes on from there."""
        self._native.save(folder)

    def _ticks(self, times: Any) -> np.ndarray:
        return np.ascontiguousarray(self._clock.ticks(times) - self._native.origin)


def open(folder: str | os.PathLike[str], events: Events | None = None) -> Run:
    """The run in a folder, of this package or of the program; with its events if they were made in Python."""
    return Run(folder, events)


def plot(runs: Sequence[Run] | Run, metric: str | None = None, ax: Any = None) -> Any:
    """Draws a validation metric of runs by epoch with matplotlib, and returns the axes.

    Runs of a model have one colour: a thin line each, and their mean. `metric` is a column of :attr:`Run.metrics`, by
    default the first one of validation.
    """
    import matplotlib.pyplot

    runs = [runs] if isinstance(runs, Run) else list(runs)
    records = [run.records for run in runs]
    metric = metric or next(
        (key for r in records for key in (r[0] if r else {}) if key.startswith("val_")), "train_loss"
    )
    if not any(metric in record for r in records for record in r):
        raise UsageError(f"no run has the metric {metric!r}; give a column of Run.metrics")
    if ax is None:
        _, ax = matplotlib.pyplot.subplots(figsize=(6, 4), layout="constrained")
    by_model: dict[str, list[dict[int, float]]] = {}
    for run, r in zip(runs, records):
        by_model.setdefault(run.config["model"], []).append(
            {x["epoch"]: x[metric] for x in r if x.get(metric) is not None}
        )
    for colour, (model, curves) in enumerate(by_model.items()):
        style = {"color": f"C{colour}"}
        epochs = sorted({epoch for curve in curves for epoch in curve})
        mean = [np.mean([curve[epoch] for curve in curves if epoch in curve]) for epoch in epochs]
        if len(curves) > 1:
            for curve in curves:
                ax.plot(curve.keys(), curve.values(), lw=0.8, alpha=0.45, **style)
        label = model if len(curves) == 1 else f"{model}, mean of {len(curves)}"
        ax.plot(epochs, mean, marker="o", ms=3, label=label, **style)
    ax.set_xlabel("epoch")
    name = metric.removeprefix("val_")
    ax.set_ylabel(f"validation {METRICS.get(name, name)}" if name != metric else metric.replace("_", " "))
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.grid(alpha=0.25)
    ax.legend(frameon=False)
    return ax


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    val = record.pop("val", None) or {}
    return record | {f"val_{name}": value for name, value in val.items() if value is not None and np.isscalar(value)}
