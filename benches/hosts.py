"""Runs `tgnn-bench train` over the hosts that scripts/cluster makes. Needs only the standard library."""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from record import ROOT

CLUSTER = str(ROOT / "scripts/cluster")
# Seconds after which a run that should end by itself is ended.
LIMIT = 600


def program(path):
    """Returns the absolute path of the program; ends this one if it is not there."""
    path = Path(path).resolve()
    if not os.access(path, os.X_OK):
        sys.exit(f"error: no program {path}; build it by: cargo build --release")
    return str(path)


def need_plans(tgnn, plans):
    """Ends this program if the other one lacks a plan: no plan is left out without a word."""
    for plan in plans:
        if subprocess.run([tgnn, "plan", "show", plan], capture_output=True).returncode:
            sys.exit(f"error: {tgnn} has no plan {plan}; leave it out with --plans")


def local(tgnn, ranks, flags, **more):
    """Trains over ranks of one process, with one thread each, and returns the summary."""
    command = [tgnn, "train", "--ranks", str(ranks), "--threads", str(ranks), "--json", *map(str, flags)]
    return summary(command, subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, **more))


def summary(command, done):
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode} of {shlex.join(command)}\n{done.stderr.strip()}")
    return json.loads(done.stdout)


def traffic(run):
    """Returns the bytes that ranks have sent, by kind, according to the summary of a run."""
    return {of["kind"]: of["bytes"] for of in run["ranks"]["traffic"]}


class Hosts:
    """Hosts that exist inside of a `with` block."""

    def __init__(self, count, rate):
        if not (ROOT / ".mpi/openmpi/bin/mpirun").exists():
            sys.exit("error: no Open MPI in .mpi/; get it by: scripts/fetch-mpi")
        self.count = count
        # The folder is also for what Open MPI's daemons leave behind if they are killed.
        self.folder = tempfile.TemporaryDirectory(prefix="tgnn-hosts-")
        self.environment = os.environ | {"TGNN_CLUSTER": f"tgnn-{os.getpid()}", "TMPDIR": self.folder.name}
        # A signal that ends this program must not leave the hosts behind.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("error: ended by a signal"))
        try:
            self("up", count, rate)
        except BaseException:
            self.close()
            raise

    def __call__(self, *command):
        """Runs a command of scripts/cluster, and returns the words of every line that it prints."""
        command = [CLUSTER, *map(str, command)]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr.strip())
        return [line.split() for line in done.stdout.splitlines()]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        subprocess.run([CLUSTER, "down"], env=self.environment, capture_output=True)
        self.folder.cleanup()

    def command(self, ranks, tgnn, flags):
        # Every host takes itself for a computer of its own, whose cores are all for its rank.
        return [CLUSTER, "mpirun", str(ranks), tgnn, "train", "--threads", "1", "--json", *map(str, flags)]

    def start(self, ranks, tgnn, flags, **more):
        command = self.command(ranks, tgnn, flags)
        return subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, **more)

    def train(self, ranks, tgnn, flags):
        """Trains with a rank on each of the first hosts, and returns the summary and the bytes that the links of
        the hosts have carried meanwhile."""
        before, command = self.sent(), self.command(ranks, tgnn, flags)
        more = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": LIMIT}
        done = subprocess.run(command, env=self.environment, **more)
        return summary(command, done), self.sent() - before

    def sent(self):
        """Returns the bytes that all hosts have sent so far, by the counters of their links."""
        return sum(int(sent) for sent, _ in self("bytes"))

    def processes(self):
        """Returns what runs on the hosts: host, process id, command."""
        return [(int(host), int(id), command) for host, id, command in self("pids")]
