"""Trains temporal graph neural networks, fast: the models, readers and kernels of the program `tgnn-bench`.

>>> import tgnn
>>> run = tgnn.train(tgnn.load("wikipedia"), model="tgn", epochs=3)
>>> run.metrics, run.plot()

docs/python.md has the whole interface.
"""

from . import load_tgnn, ops

# The kinds of errors are not in `__all__`, so that `help(tgnn)` does not list what each inherits.
from ._errors import CheckpointError as CheckpointError
from ._errors import CommError as CommError
from ._errors import DataError as DataError
from ._errors import DeviceError as DeviceError
from ._errors import DivergedError as DivergedError
from ._errors import Error
from ._errors import IoError as IoError
from ._errors import OutOfMemoryError as OutOfMemoryError
from ._errors import PlanError as PlanError
from ._errors import ShapeError as ShapeError
from ._errors import UsageError as UsageError
from ._events import Events, load
from ._predictor import Predictor
from ._run import Run, open, plot
from ._train import train

__all__ = ["Error", "Events", "Predictor", "Run", "load", "load_tgnn", "open", "ops", "plot", "train"]
__version__ = "0.1.0"
