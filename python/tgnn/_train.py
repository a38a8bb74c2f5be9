"""Training."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Callable

from . import _tgnn
from ._arrays import a, choice, path, truth
from ._errors import UsageError
from ._events import Events, load
from ._folders import TemporaryFolder
from ._progress import Progress
from ._run import Run, flat

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._keys import Keys


def train(
    events: Events | str | os.PathLike[str],
    model: str = "tgn",
    seed: int = 1,
    *,
    out: str | os.PathLike[str] | None = None,
    progress: bool = True,
    callback: Callable[[dict[str, Any]], object] | None = None,
    resume: bool = False,
    weights: str | os.PathLike[str] | None = None,
    start_from: str | os.PathLike[str] | Run | None = None,
    **keys: Unpack[Keys],
) -> Run:
    """Trains a model, validates after every epoch, and tests the best one.

    `keys` are those of docs/config.md: `epochs=3`, `batch=600`, and sections as dictionaries, `tgn={"layers": 2}`, or
    with dots, `**{"tgn.layers": 2}`; `graph_mixer` is the section `graph-mixer`. `out` is the folder of the run, which
    the program reads, too; without one, the run lives in a temporary folder, until :meth:`Run.save`. `resume` goes on
    with the run in `out`; `weights` and `start_from` are the program's `--weights` and `--from`.

    `callback` is called after every epoch with its record, as in :attr:`Run.records`. If it raises an exception, the
    run ends with that exception.

    Python's lock is released. Ctrl-C ends the run between two steps; with `out`, the epochs so far can be resumed.
    """
    if isinstance(events, (str, os.PathLike)):
        events = load(events)
    if not isinstance(events, Events):
        raise UsageError(f"{a(events)} is not events; give tgnn.Events, Events.from_pandas, or a path")
    if truth(resume, "resume") and out is None:
        raise UsageError("resume=True goes on with the run in a folder; give it as out")
    folder = TemporaryFolder.make() if out is None else path(out, "out")
    # A run whose folder is temporary must live until it is read.
    start = start_from.folder if isinstance(start_from, Run) else start_from
    shown = Progress() if progress else None
    try:
        _tgnn.train(
            events._stream,
            _all_keys(events, model, seed, dict(keys)),
            folder,
            bool(resume),
            None if weights is None else path(weights, "weights"),
            None if start is None else path(start, "start_from"),
            _listener(shown, callback),
        )
    finally:
        if shown:
            shown.close()
    return Run(folder, events)


def _all_keys(events: Events, model: Any, seed: Any, keys: dict[str, Any]) -> dict[str, Any]:
    keys |= {"model": (choice(model, "model") or "None").replace("_", "-"), "seed": seed}
    data = keys.get("data")
    if not (isinstance(data, dict) and "path" in data) and "data.path" not in keys:
        # Not a path, so that no file or bundled data set of this name is taken for these events later.
        keys["data.path"] = events._path or f"(in memory) {events.name}"
    return keys


def _listener(shown: Progress | None, callback: Any) -> Callable[[str, Any, Any], None]:
    """What hears the messages of a run."""
    if callback is not None and not callable(callback):
        raise UsageError(f"callback is {a(callback)}; give a function of a record")

    def hear(kind: str, what: Any, more: Any) -> None:
        if shown:
            shown(kind, what, more)
        if kind == "epoch" and callback is not None:
            callback(flat(json.loads(what)))

    return hear
