"""Trains temporal graph neural networks, fast: the models, readers and kernels of the program `tgnn-bench`.

>>> import tgnn
>>> run = tgnn.train(tgnn.load("wikipedia"), model="tgn", epochs=3)
>>> run.metrics, run.plot()

docs/python.md has the whole interface.
"""

from . import load_tgnn, ops
from ._errors import (
    CheckpointError,
    CommError,
    DataError,
    DeviceError,
    DivergedError,
    Error,
    IoError,
    OutOfMemoryError,
    PlanError,
    ShapeError,
    UsageError,
)
from ._events import Events, load
from ._run import Predictor, Run, open, plot
from ._train import train

__all__ = [
    "CheckpointError",
    "CommError",
    "DataError",
    "DeviceError",
    "DivergedError",
    "Error",
    "Events",
    "IoError",
    "OutOfMemoryError",
    "PlanError",
    "Predictor",
    "Run",
    "ShapeError",
    "UsageError",
    "load",
    "load_tgnn",
    "open",
    "ops",
    "plot",
    "train",
]
__version__ = "0.1.0"
