"""Exceptions, one for each kind of error. Their text is what the program prints: what, where, and what to do."""


class Error(Exception):
    """Any error of tgnn."""


class UsageError(Error, ValueError):
    """An argument or a key of the configuration is wrong."""


class DataError(Error, ValueError):
    """Data are malformed, or contradict themselves."""


class PlanError(Error, ValueError):
    """A plan breaks one of its rules."""


class DeviceError(Error, RuntimeError):
    """A device is missing, or refuses to work."""


class OutOfMemoryError(Error, MemoryError):
    """The work does not fit in memory."""


class DivergedError(Error, ArithmeticError):
    """Training produced infinite numbers or NaN."""


class CommError(Error, RuntimeError):
    """A rank is lost, or the ranks disagree."""


class CheckpointError(Error, ValueError):
    """A checkpoint is damaged, or belongs to another model."""


class IoError(Error, OSError):
    """The operating system refused to read or write."""


class ShapeError(Error, ValueError):
    """Arrays do not fit together."""
