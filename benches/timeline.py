"""What a timeline of kernels says of a training step: which lanes are busy, what runs on them, and the gaps before it.

A timeline is what the library of `scripts/timeline.cpp` writes, or the SQLite file that Nsight Systems exports. The
lanes of a step are CUDA streams. Needs only the standard library.
"""

import csv
import sqlite3
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass

STEPS = 32  # that are looked at
ENDS_STEP = "adam"  # kernel of which every step has one, at its end


@dataclass
class Kernel:
    start: float  # us
    end: float
    lane: int
    name: str


def read(path):
    """Returns the kernels of a file of `scripts/timeline.cpp`, in the order of their starts."""
    with open(path, newline="") as file:
        kernels = [Kernel(int(start) / 1e3, int(end) / 1e3, int(stream), name)
                   for start, end, stream, _, name in csv.reader(file)]
    return sorted(kernels, key=lambda k: k.start)


def read_nsys(path):
    """Returns the kernels of a file that `nsys export --type sqlite` has written."""
    query = ("SELECT k.start, k.end, k.streamId, s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k "
             "JOIN StringIds s ON s.id = k.shortName ORDER BY k.start")
    with closing(sqlite3.connect(path)) as file:
        return [Kernel(start / 1e3, end / 1e3, stream, name) for start, end, stream, name in file.execute(query)]


def tracks(kernels):
    """Gives kernels that all have one stream a lane each, such that those of a lane do not overlap."""
    ends = []
    for k in kernels:
        free = next((lane for lane, end in enumerate(ends) if end <= k.start), len(ends))
        ends[free:free + 1] = [k.end]
        k.lane = free
    return kernels


def of_steps(kernels, epochs):
    """Returns the kernels of some steps in the middle of the last of several epochs, the steps' number and their us."""
    ends = [k.end for k in kernels if k.name == ENDS_STEP]
    an_epoch = len(ends) // epochs
    steps = min(STEPS, an_epoch // 2)
    if steps < 1:
        raise ValueError(f"the timeline has {len(ends)} kernels `{ENDS_STEP}` in {epochs} epochs")
    first = len(ends) - an_epoch + an_epoch // 4
    start, end = ends[first - 1], ends[first - 1 + steps]
    return [k for k in kernels if start <= k.start < end], steps, (end - start) / steps


def busy(kernels):
    """Returns the us in which any of the kernels ran."""
    total, until = 0.0, float("-inf")
    for k in sorted(kernels, key=lambda k: k.start):
        total += max(0.0, k.end - max(k.start, until))
        until = max(until, k.end)
    return total


def summary(kernels, epochs):
    """Returns what a step consists of, in us, and the kernels from which this is known."""
    kernels, steps, step = of_steps(kernels, epochs)
    streams = {k.lane for k in kernels}
    if len(streams) == 1:
        kernels = tracks(kernels)
    by_lane = defaultdict(list)
    for k in kernels:
        by_lane[k.lane].append(k)
    of_kernel = defaultdict(lambda: [0, 0.0, 0.0])
    for lane, own in by_lane.items():
        for before, k in zip([None, *own], own):
            found = of_kernel[lane, k.name]
            found[0] += 1
            found[1] += k.end - k.start
            found[2] += k.start - before.end if before else 0.0
    lanes = {str(lane): round(busy(own) / steps, 2) for lane, own in sorted(by_lane.items())}
    any_busy = busy(kernels) / steps
    rows = [{"kernel": name, "lane": lane, "a_step": round(runs / steps, 2), "us": round(us / runs, 2),
             "gap_us": round(gap / runs, 2)} for (lane, name), (runs, us, gap) in of_kernel.items()]
    found = {"steps": steps, "streams": len(streams), "step_us": round(step, 2), "busy_us": lanes,
             "idle_us": round(step - any_busy, 2), "several_busy_us": round(sum(lanes.values()) - any_busy, 2),
             "kernels": sorted(rows, key=lambda row: -row["us"] * row["a_step"])}
    return found, kernels
