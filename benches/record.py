"""The head of every recorded measurement. Needs only the standard library."""

import datetime
import platform
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def cpu():
    """Returns the model name of the processor."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    return next((l.split(":", 1)[1].strip() for l in lines if l.startswith("model name")), platform.processor())


def head():
    """Returns date, commit of the checkout, machine, and the running command."""
    said = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return {
        "date": datetime.date.today().isoformat(),
        "commit": said.stdout.strip(),
        "machine": cpu(),
        "command": shlex.join(["python", *sys.argv]),
    }
