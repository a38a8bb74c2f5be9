"""Exceptions, one for each kind of error. Their text is what the program prints: what, where, and what to do."""

from __future__ import annotations

import re


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


#: Flags of the program that are not arguments of the same name.
_ARGUMENTS = {"from": "start_from", "no_eval": "evaluate"}
#: Flags without a value, and what they say as an argument.
_SWITCHES = {"no_eval": "False", "resume": "True", "strict": "True", "bipartite": "True", "deterministic": "True"}
#: A flag, and its value unless the sentence goes on.
_FLAG = re.compile(
    r"--(?!features|mpi|force)([a-z][a-z-]*)(?: (?!with\b|or\b|and\b|in\b|has\b)([^\s;,)`]+(?:,\S+=[^\s;,)`]*)*))?"
)


def of_program(kind: str, text: str) -> Error:
    """The exception of an error of the program, whose flags are arguments here."""
    error: Error = globals()[kind](as_arguments(text))
    return error


def as_arguments(text: str) -> str:
    """A text of the program with arguments for its flags."""
    return _FLAG.sub(_argument, text)


def _argument(flag: re.Match[str]) -> str:
    name, value = flag[1].replace("-", "_"), flag[2]
    argument = _ARGUMENTS.get(name, name)
    if name in _SWITCHES:
        return f"{argument}={_SWITCHES[name]}" + (f" {value}" if value else "")
    if name == "set" and value:
        return "**{{{!r}: {}}}".format(*value.split("=", 1))
    if name == "every" and value:
        return f'snapshots={{"every": "{value}"}}'
    quoted = value is None or value.startswith("'") or value.isupper()
    return f"{argument}={value or ''}" if quoted else f'{argument}="{value}"'
