"""Times as users write them, and the whole ticks that the crate counts."""

from __future__ import annotations

import re
import warnings
from datetime import datetime, timezone
from numbers import Real
from typing import Any

import numpy as np

from ._arrays import missing, vector
from ._errors import DataError, UsageError

#: Units of numbers, by the seconds' share.
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
#: Units of numbers that are several seconds. All other formats are dates, or count from a date.
LONG = ("min", "h", "d", "w")
#: Times are below this many ticks.
_MOST = 2.0**62
_DATE = re.compile(r"\d{4}-\d\d")
_WANTED = "give numbers, datetime64, or dates as ISO 8601"


class Clock:
    """Converts times of a stream: numbers of a unit, or dates (NumPy's datetime64)."""

    def __init__(self, ticks_per_second: float, unit: str = "s", dates: bool = False):
        self.ticks_per_second, self.unit, self.dates = ticks_per_second, unit, dates

    @classmethod
    def by_format(cls, ticks_per_second: float, format: str) -> Clock:
        """The clock of a stream that writes times in a format: a unit, or dates."""
        if format in UNITS:
            return cls(ticks_per_second, format)
        if format in LONG:
            return cls(ticks_per_second)  # given in seconds
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
        times = _array(times, "event")
        if times.dtype.kind == "M":
            nanoseconds = _nanoseconds(times, "event")
            for unit, per_second in UNITS.items():
                if not (nanoseconds % (10**9 // per_second)).any():
                    break
            return cls(per_second, unit, dates=True), nanoseconds // (10**9 // per_second)
        if times.dtype.kind in "iu":
            return cls(UNITS[unit], unit), _whole(times, "event")
        _check_finite(times, "event")
        largest, digits = np.abs(times).max(initial=0.0), 0
        while (np.rint(times * 10**digits) / 10**digits != times).any() and largest * 10 ** (digits + 1) < 2**53:
            digits += 1
        return cls(UNITS[unit] * 10**digits, unit), _whole(np.rint(times * 10**digits), "event")

    def ticks(self, times: Any, what: str = "query") -> np.ndarray:
        """Ticks of times, which must be written as those of the data; errors call a time's owner `what`."""
        times = _array(times, what)
        if times.size and self.dates != (times.dtype.kind == "M"):
            given, kept = ("numbers", "dates") if self.dates else ("dates", f"numbers of {self.unit}")
            raise DataError(f"times are {given}, and those of the data {kept}; give such, too")
        if times.dtype.kind == "M":
            ticks, rest = np.divmod(_nanoseconds(times, what), int(10**9 // self.ticks_per_second))
            return self._exact(ticks, rest != 0, times, what)
        per_unit = self.ticks_per_second / UNITS[self.unit]
        if times.dtype.kind in "iu" and per_unit == 1:
            return _whole(times, what)
        _check_finite(times, what)
        exact = times.astype(np.float64) * per_unit
        ticks = np.rint(exact)
        return self._exact(_whole(ticks, what), np.abs(exact - ticks) > 1e-6 + 1e-15 * np.abs(exact), times, what)

    def _exact(self, ticks: np.ndarray, wrong: np.ndarray, times: np.ndarray, what: str) -> np.ndarray:
        """Ticks, unless some are wrong."""
        for i in np.flatnonzero(wrong)[:1]:
            raise DataError(
                f"{what} {i} has time {times[i]}, and the data have {self.ticks_per_second:g} ticks per second; "
                "round the time"
            )
        return ticks

    def times(self, ticks: Any) -> np.ndarray:
        """Times of ticks, written as the user writes them."""
        ticks = np.asarray(ticks)
        if self.dates:
            per_unit, rest = divmod(UNITS[self.unit], self.ticks_per_second)
            exact = np.rint(ticks * (UNITS[self.unit] / self.ticks_per_second)) if rest else ticks * int(per_unit)
            return exact.astype(np.int64).astype(f"datetime64[{self.unit}]")
        per_unit = self.ticks_per_second / UNITS[self.unit]
        return ticks if per_unit == 1 else ticks / per_unit


def _array(times: Any, what: str) -> np.ndarray:
    """Numbers, or datetime64."""
    times = vector(times, "time")
    if times.dtype.kind == "O" and all(isinstance(t, Real) and not isinstance(t, bool) for t in times):
        times = np.array(times.tolist())
    if times.dtype.kind in "OUS":
        times = _dates(times, what)
    if times.size and times.dtype.kind not in "iufM":
        raise DataError(f"times are of type {times.dtype}; {_WANTED}")
    return times


def _dates(times: np.ndarray, what: str) -> np.ndarray:
    """Dates as text or Python's own; those with a zone are converted to UTC."""
    dates = [_date(t, f"{what} {i}") for i, t in enumerate(times.tolist())]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy warns that it converts to UTC
            # One by one, because an array of several types has the precision of the first.
            return np.array([np.datetime64(t) for t in dates])
    except (ValueError, TypeError, OverflowError) as e:
        raise DataError(f"{e}; {_WANTED}") from None


def _date(t: Any, what: str) -> Any:
    if isinstance(t, bytes):
        t = t.decode(errors="replace")
    if missing(t):
        raise DataError(f"{what} has no time; leave it out, or give it one")
    if isinstance(t, str) and not _DATE.match(t.strip()):
        raise DataError(f"{what} has time {t!r}, which is not a date; {_WANTED}")
    if isinstance(t, datetime) and t.tzinfo is not None:
        t = t.astimezone(timezone.utc).replace(tzinfo=None)
    return t.to_datetime64() if hasattr(t, "to_datetime64") else t


def _nanoseconds(times: np.ndarray, what: str) -> np.ndarray:
    for i in np.flatnonzero(np.isnat(times))[:1]:
        raise DataError(f"{what} {i} has no time; leave it out, or give it one")
    try:
        nanoseconds = times.astype("datetime64[ns]")
        outside = nanoseconds.astype(times.dtype) != times
    except OverflowError:
        outside = np.ones(len(times), bool)
    for i in np.flatnonzero(outside)[:1]:
        raise DataError(f"{what} {i} has time {times[i]}; dates are from 1678 to 2262")
    return nanoseconds.astype(np.int64)


def _check_finite(times: np.ndarray, what: str) -> None:
    for i in np.flatnonzero(~np.isfinite(times))[:1]:
        raise DataError(f"{what} {i} has time {times[i]}; leave it out, or give it one")


def _whole(ticks: np.ndarray, what: str) -> np.ndarray:
    """Whole numbers as i64."""
    for i in np.flatnonzero((ticks >= _MOST) | (ticks <= -_MOST))[:1]:
        raise DataError(f"{what} {i} has a time of more than 2^62 ticks; give times in the unit of the data")
    return ticks.astype(np.int64)
