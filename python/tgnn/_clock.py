"""Times as users write them, and the whole ticks that the crate counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._errors import DataError, UsageError

#: Units of numbers, by the seconds' share.
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class Clock:
    """Converts times of a stream: numbers of a unit, or dates (NumPy's datetime64)."""

    def __init__(self, ticks_per_second: float, unit: str = "s", dates: bool = False):
        self.ticks_per_second, self.unit, self.dates = ticks_per_second, unit, dates

    @classmethod
    def by_format(cls, ticks_per_second: float, format: str) -> Clock:
        """The clock of a stream that writes times in a format: a unit, or dates."""
        if format in UNITS:
            return cls(ticks_per_second, format)
        if format != "iso" and "%" not in format:
            return cls(ticks_per_second)  # minutes, hours and days are given in seconds
        finest = (unit for unit, per_second in UNITS.items() if per_second >= ticks_per_second)
        return cls(ticks_per_second, next(finest, "ns"), dates=True)

    @property
    def format(self) -> str:
        """How the crate calls the way in which times are written."""
        return "iso" if self.dates else self.unit

    @classmethod
    def of(cls, times: Any, unit: str) -> tuple[Clock, np.ndarray]:
        """The clock that times need to be whole ticks, and these."""
        if unit not in UNITS:
            raise UsageError(f"there is no unit {unit!r}; give one of {', '.join(UNITS)}")
        times = _array(times)
        if times.dtype.kind == "M":
            nanoseconds = _nanoseconds(times)
            for unit, per_second in UNITS.items():
                if not (nanoseconds % (10**9 // per_second)).any():
                    break
            return cls(per_second, unit, dates=True), nanoseconds // (10**9 // per_second)
        if times.dtype.kind in "iub":
            return cls(UNITS[unit], unit), times.astype(np.int64)
        _check_finite(times)
        largest, digits = np.abs(times).max(initial=0.0), 0
        while (np.rint(times * 10**digits) / 10**digits != times).any() and largest * 10 ** (digits + 1) < 2**53:
            digits += 1
        return cls(UNITS[unit] * 10**digits, unit), np.rint(times * 10**digits).astype(np.int64)

    def ticks(self, times: Any) -> np.ndarray:
        """Ticks of times, rounded to the nearest."""
        times = _array(times)
        if times.dtype.kind == "M":
            return np.floor_divide(_nanoseconds(times), int(10**9 // self.ticks_per_second))
        per_unit = self.ticks_per_second / UNITS[self.unit]
        if times.dtype.kind in "iub" and per_unit == 1:
            return times.astype(np.int64)
        _check_finite(times)
        ticks = np.rint(times.astype(np.float64) * per_unit)
        if (np.abs(ticks) >= 2.0**62).any():
            raise DataError("a time is more than 2^62 ticks; give times in the unit of the data")
        return ticks.astype(np.int64)

    def times(self, ticks: np.ndarray) -> np.ndarray:
        """Times of ticks, written as the user writes them."""
        if self.dates:
            per_unit = UNITS[self.unit] / self.ticks_per_second
            return np.rint(ticks * per_unit).astype(np.int64).astype(f"datetime64[{self.unit}]")
        per_unit = self.ticks_per_second / UNITS[self.unit]
        return ticks if per_unit == 1 else ticks / per_unit


def _array(times: Any) -> np.ndarray:
    times = np.atleast_1d(np.asarray(times))
    if times.dtype.kind in "OUS":
        # Dates as text or Python's own, which NumPy reads without a zone.
        try:
            return times.astype("datetime64[ns]")
        except (ValueError, TypeError) as e:
            raise DataError(f"{e}; give numbers, datetime64, or dates as ISO 8601") from None
    return times


def _nanoseconds(times: np.ndarray) -> np.ndarray:
    missing = np.flatnonzero(np.isnat(times))
    if missing.size:
        raise DataError(f"event {missing[0]} has no time; leave it out, or give it one")
    return times.astype("datetime64[ns]").astype(np.int64)


def _check_finite(times: np.ndarray) -> None:
    bad = np.flatnonzero(~np.isfinite(times))
    if bad.size:
        raise DataError(f"event {bad[0]} has time {times[bad[0]]}; leave it out, or give it one")
