"""Runs: what training leaves in a folder."""

from __future__ import annotations

import html
import os
import shutil
from pathlib import Path
from typing import Any, Iterable, Sequence

import numpy as np

from . import _folders, _tgnn, load_tgnn
from ._arrays import a, choice, path
from ._errors import CheckpointError, IoError, UsageError
from ._events import Events
from ._predictor import Predictor, checked_after
from ._progress import METRICS


class Run(_folders.Unchanging):
    """A trained model with its records: the folder that `tgnn.train(out=...)` or the program wrote.

    A run is pickled as the path of its folder; one in a temporary folder, with the files in it.
    """

    def __init__(self, folder: str | os.PathLike[str], events: Events | None = None):
        if not (events is None or isinstance(events, Events)):
            raise UsageError(f"events is {a(events)}; give tgnn.Events")
        self.folder = folder if isinstance(folder, _folders.TemporaryFolder) else Path(path(folder, "folder"))
        self._events = events
        self._checkpoint = self.folder / "checkpoint"
        if not self._checkpoint.exists():
            self._checkpoint = self.folder
        manifest = self._checkpoint / "manifest.json"
        if not manifest.exists():
            raise CheckpointError(f"{manifest}: there is no checkpoint here; give the folder of a run")
        self._manifest = _folders.record(manifest)
        if not isinstance(self._manifest.get("config"), dict):
            raise CheckpointError(f"{manifest} is damaged: it has no configuration; take another copy of the run")

    def __repr__(self) -> str:
        test = (self.summary or {}).get("test") or {}
        figure = next(((k, v) for k, v in (test.get("transductive") or {}).items() if v is not None), None)
        scored = f", test {figure[0]} {figure[1]:.4f}" if figure else ""
        return f"Run({self.name}, epoch {self._manifest.get('best_epoch')}{scored})"

    def _repr_html_(self) -> str:
        return f"<code>{html.escape(repr(self))}</code>{_table(self.records)}"

    def __reduce__(self) -> Any:
        # Events in a file are read again.
        events = self._events if self._events is not None and self._events._path is None else None
        if isinstance(self.folder, _folders.TemporaryFolder):
            return _unpickled, (_folders.packed(self.folder), events)
        return Run, (self.folder.absolute(), events)

    @property
    def name(self) -> str:
        """Model and seed."""
        return f"{self.config.get('model')}, seed {self.config.get('seed')}"

    @property
    def config(self) -> dict[str, Any]:
        """The whole configuration."""
        return self._manifest["config"]

    @property
    def summary(self) -> dict[str, Any] | None:
        """The results (docs/summary.md); None if the run has not ended."""
        file = self.folder / "summary.json"
        return _folders.record(file) if file.exists() else None

    @property
    def classes(self) -> list[Any] | None:
        """The labels that the classes stand for: of two labels no, then yes. None if the run predicts no classes."""
        table = _folders.record(self._checkpoint / "manifest.json").get("classes")
        if table is None:
            return None
        (values,) = table.values()
        return [int(value) if isinstance(value, float) and value.is_integer() else value for value in values]

    @property
    def records(self) -> list[dict[str, Any]]:
        """A record per epoch: epoch, train_loss, train_seconds, events_per_second, wall_time, val_ap, ..."""
        file = self.folder / "metrics.jsonl"
        return [flat(record) for record in _folders.records(file)] if file.exists() else []

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
            try:
                self._events = Events._of(_tgnn.of_run(self.folder))
            except IoError as e:
                what = str(e).partition("; ")[0]
                raise IoError(f"{what}; give the events of the run: tgnn.open(folder, events)") from None
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
        or, with `after="validation"`, those of training and validation. Where sources and destinations share ids,
        `destinations` says which nodes are meant. Models of snapshots embed after the last snapshot. The events must be
        at hand: `tgnn.open(folder, events)` where they were made in Python.
        """
        events = self.events
        if times is not None and self._reads_snapshots():
            raise UsageError("times are given, and the model reads snapshots; leave them out")
        numbers = events._numbers(nodes, destinations)
        ticks = events._ticks(times, len(numbers))
        after, device = checked_after(after), choice(device, "device")
        return np.array(_tgnn.embed(self.folder, events._stream, numbers, ticks, after, device))

    def predict(
        self, src: Any, dst: Any, time: Any, features: Any = None, *, batch: int = 200, after: str = "stream"
    ) -> np.ndarray:
        """Probabilities of new events in order of time, as they come: each batch is scored, then becomes history.

        Starts from the state after all events in every call, or from that after validation (`after="validation"`);
        :meth:`predictor` goes on, and scores candidates. The folder is enough: the events need not be at hand.
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
        return Predictor(self.folder, batch, nodes, slots, after, device)

    def weights(self, *, settled: bool = False) -> dict[str, np.ndarray]:
        """The weights by the names of docs/weights.md, in PyTorch's shapes, with frequencies that are fixed.

        Those of the best epoch, as `predict`, `embed` and `summary["test"]` have them; with `settled`, those of the model
        that settled after it.
        """
        return self._loaded(load_tgnn.load, settled)[0]

    def state_dict(self, *, settled: bool = False) -> dict[str, Any]:
        """The same as torch tensors."""
        return self._loaded(load_tgnn.state_dict, settled)

    def _loaded(self, load: Any, settled: bool) -> Any:
        """What the loader, which stands alone, reads from the folder."""
        if settled and (self.summary or {}).get("settled") is None:
            raise UsageError("the run has no settled model; leave out settled=True")
        try:
            return load(self.folder, settled)
        except FileNotFoundError as e:
            raise CheckpointError(f"{e.filename} is missing; take another copy of the run") from None
        except (ValueError, KeyError, TypeError, OSError) as e:
            raise CheckpointError(f"{self._checkpoint} is damaged ({e}); take another copy of the run") from None

    def save(self, folder: str | os.PathLike[str]) -> Run:
        """Copies the run to a folder, which must be missing or empty; returns the run there."""
        folder = Path(path(folder, "folder"))
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
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


def _table(records: list[dict[str, Any]]) -> str:
    """The records of epochs as a table in HTML."""

    def row(cells: Iterable[Any], tag: str) -> str:
        shown = (f"{cell:.6g}" if isinstance(cell, float) else html.escape(str(cell)) for cell in cells)
        return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in shown) + "</tr>"

    if not records:
        return ""
    keys = list(records[0])
    rows = (row((record.get(key, "") for key in keys), "td") for record in records)
    return f"<table>{row(keys, 'th')}{''.join(rows)}</table>"


def open(folder: str | os.PathLike[str], events: Events | None = None) -> Run:
    """The run in a folder, of this package or of the program; with its events if they were made in Python."""
    return Run(folder, events)


def plot(runs: Sequence[Run] | Run, metric: str | None = None, ax: Any = None) -> Any:
    """Draws a validation metric of runs by epoch with matplotlib, and returns the axes.

    Runs of a model have one colour: a thin line each, and their mean. `metric` is a column of :attr:`Run.metrics`, by
    default the first one of validation.
    """
    runs = [runs] if isinstance(runs, Run) else list(runs)
    if not runs:
        raise UsageError("there is no run to plot; give some that tgnn.train returned")
    for run in runs:
        if not isinstance(run, Run):
            raise UsageError(f"{a(run)} is not a run; give some that tgnn.train returned")
    import matplotlib.pyplot

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


def _unpickled(files: dict[str, bytes], events: Events | None) -> Run:
    folder = _folders.TemporaryFolder.make()
    _folders.write(files, folder)
    return Run(folder, events)


def flat(record: dict[str, Any]) -> dict[str, Any]:
    """The record of an epoch in one level."""
    val = record.pop("val", None) or {}
    return record | {f"val_{name}": value for name, value in val.items() if value is not None and np.isscalar(value)}
