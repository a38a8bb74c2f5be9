"""What recorded measurements share: their head, which epochs are timed, and how values are shown. Needs only the standard library."""

import datetime
import platform
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def cpu():
    """Returns the model name of the processor."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    return next((l.split(":", 1)[1].strip() for l in lines if l.startswith("model name")), platform.processor())


def commit():
    """Returns the commit of the checkout. A copy without git, or without its history, has that of its bundle."""
    try:
        said = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    except OSError:
        said = ""
    bundled = ROOT / "out/gpu/commit"  # by scripts/gpu-bundle
    return said.strip() or (bundled.read_text().strip() if bundled.exists() else "unknown")


def head():
    """Returns date, commit of the checkout, machine, and the running command."""
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "machine": cpu(),
        "command": shlex.join(["python", *sys.argv]),
    }


def steady(epochs, on_device):
    """Returns the epochs that are timed; the last one if there is no other.

    The first one warms up. On a device, epochs that capture graphs take longer than those that replay them. Where a
    summary does not say how many graphs an epoch captured, the second one may have captured them.
    """
    told = all("graphs_captured" in e for e in epochs)
    first = 2 if on_device and not told else 1
    return [e for e in epochs[first:] if not e.get("graphs_captured")] or epochs[-1:]


def spread(values, digits):
    """Returns mean ± standard deviation with that many decimals; the value alone if there is only one."""
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{deviation}"
