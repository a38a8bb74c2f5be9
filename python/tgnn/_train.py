"""Training."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from typing import Any

from . import _tgnn
from ._events import Events, load
from ._progress import Progress
from ._run import Run


def train(
    events: Events | str | os.PathLike[str],
    model: str = "tgn",
    seed: int = 1,
    *,
    out: str | os.PathLike[str] | None = None,
    progress: bool = True,
    resume: bool = False,
    weights: str | os.PathLike[str] | None = None,
    start_from: str | os.PathLike[str] | Run | None = None,
    **keys: Any,
) -> Run:
    """Trains a model, validates after every epoch, and tests the best one.

    `keys` are those of docs/config.md: `epochs=3`, `batch=600`, and sections as dictionaries, `tgn={"layers": 2}`, or
    with dots, `**{"tgn.layers": 2}`; `graph_mixer` is the section `graph-mixer`. `out` is the folder of the run, which
    the program reads, too; without one, the run lives in a temporary folder, until :meth:`Run.save`. `resume` goes on
    with the run in `out`; `weights` and `start_from` are the program's `--weights` and `--from`.

    Python's lock is released. Ctrl-C ends the run between two steps; with `out`, the epochs so far can be resumed.
    """
    if not isinstance(events, Events):
        events = load(events)
    keys |= {"model": model.replace("_", "-"), "seed": seed}
    if "path" not in keys.get("data", {}) and "data.path" not in keys:
        keys["data.path"] = events._stream.path or events.name
    made = None if out is not None else tempfile.mkdtemp(prefix="tgnn-")
    folder = made or os.fspath(out or "")
    if isinstance(start_from, Run):
        start_from = start_from.folder
    shown = Progress() if progress else None
    try:
        _tgnn.train(events._stream, keys, folder, resume, weights, start_from, shown or (lambda *_: None))
    except BaseException:
        if made:
            shutil.rmtree(made, ignore_errors=True)
        raise
    finally:
        if shown:
            shown.close()
    run = Run(folder, events)
    if made:
        weakref.finalize(run, shutil.rmtree, made, ignore_errors=True)
    return run
