"""The main kernels on arrays of NumPy, and on tensors of torch as autograd functions.

They run where their operands are: on the CPU, with every core, or on a CUDA device, on torch's current stream. Arrays
of f32, and of i64 for indices and times, are read in place, tensors by DLPack; others are converted. On a CUDA device,
ids of i32 are read in place, too. A call returns when the work is done; no operand may be changed meanwhile. Python's
lock is released.
"""

from ._ops import Csr, EventLists, gru_memory, sample_recent, spmm, temporal_attention

__all__ = ["Csr", "EventLists", "gru_memory", "sample_recent", "spmm", "temporal_attention"]


def __dir__() -> list[str]:
    return __all__
