"""What a run shows while it trains: a line per epoch and a bar, on a terminal and in a notebook."""

from __future__ import annotations

import json
import sys
from time import monotonic
from typing import Any

from ._errors import as_arguments

METRICS = {"ap": "AP", "auc": "AUC", "mrr": "MRR", "hits_at_10": "hits@10", "f1": "F1", "accuracy": "accuracy",
            "ndcg": "NDCG@10", "mae": "MAE", "rmse": "RMSE"}  # fmt: skip
_WIDTH = 32


def scores(of: dict[str, Any] | None) -> str:
    """The metrics that are defined, as the program prints them."""
    return "  ".join(f"{name} {of[key]:.4f}" for key, name in METRICS.items() if of and of.get(key) is not None)


class Progress:
    """Hears what a run tells, and shows it on `stream` or in a notebook."""

    def __init__(self, stream: Any = None):
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self.lines: list[str] = []
        self.pass_, self.began = ("", 0), 0.0
        self.handle = _notebook_display()

    def __call__(self, kind: str, what: Any, more: Any) -> None:
        if kind == "remark":
            self._line(f"{what:<8}  {as_arguments(more)}")
        elif kind == "progress":
            self._bar(*what, *more)
        else:
            record = json.loads(what)
            name = f"epoch {record['epoch']:>3}" if kind == "epoch" else "settled  "
            validated = f"  val {scores(record['val'])}" if record["val"] else ""
            self._line(f"{name}  loss {record['train_loss']:.4f}{validated}  {record['train_seconds']:6.2f} s")

    def _bar(self, name: str, epoch: int, done: int, total: int, loss: float | None) -> None:
        if self.pass_ != (name, epoch):
            self.pass_, self.began = (name, epoch), monotonic()
        full = _WIDTH * done // max(total, 1)
        seconds = monotonic() - self.began
        rate = f"{int(done / seconds):>11,} events/s" if seconds > 0.2 else ""
        learned = f"  loss {loss:.4f}" if loss is not None else ""
        bar = "━" * full + "─" * (_WIDTH - full)
        self._show(f"epoch {epoch:>3} {name:<6} {bar} {100 * done // max(total, 1):>3} %{rate}{learned}")

    def _line(self, text: str) -> None:
        if self.handle is not None:
            self.lines.append(text)
            self._show("")
        else:
            print(("\r\x1b[K" if self.live else "") + text, file=self.stream, flush=True)

    def _show(self, bar: str) -> None:
        if self.handle is not None:
            self.handle.update({"text/plain": "\n".join([*self.lines, bar]).rstrip()}, raw=True)
        elif self.live:
            print(f"\r\x1b[K{bar}", end="", file=self.stream, flush=True)

    def close(self) -> None:
        """Removes the bar."""
        self._show("")


def _notebook_display() -> Any:
    """A display that can be updated, in a notebook's kernel; else None."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is None or type(shell).__name__ != "ZMQInteractiveShell":
        return None
    return ipython.display.display({"text/plain": ""}, raw=True, display_id=True)
