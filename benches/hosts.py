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
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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


def local(tgnn, ranks, flags):
    """Trains over ranks of one process, with one thread each, and returns the summary."""
    command = [tgnn, "train", "--ranks", str(ranks), "--threads", str(ranks), "--json", *map(str, flags)]
    return summary(command, subprocess.run(command, capture_output=True, text=True, timeout=LIMIT))


def summary(command, done):
    if done.returncode:
        said = (done.stdout + done.stderr).replace("\0", "").strip()
        raise RuntimeError(f"exit code {done.returncode} of {shlex.join(command)}\n{said}")
    return json.loads(done.stdout)


def traffic(run):
    """Returns the bytes that ranks have sent, by kind, according to the summary of a run."""
    return {of["kind"]: of["bytes"] for of in run["ranks"]["traffic"]}


def by_mpi(tgnn, ranks, flags):
    """Trains with ranks that are processes of this computer, by Open MPI, and returns the summary."""
    home = need_mpi()
    more = {"TGNN_MPI_LIB": f"{home}/lib/libmpi.so.40", "OMPI_MCA_mpi_yield_when_idle": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [f"{home}/bin/mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none"]
    command += [tgnn, "train", "--threads", "1", "--json", *map(str, flags)]
    more = {"env": os.environ | more, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    return summary(command, subprocess.run(command, timeout=LIMIT, **more))


def need_mpi():
    """Returns the folder of Open MPI; ends this program if it is not there."""
    home = ROOT / ".mpi/openmpi"
    if not (home / "bin/mpirun").exists():
        sys.exit("error: no Open MPI in .mpi/; get it by: scripts/fetch-mpi")
    return home


class Hosts:
    """Hosts that exist inside of a `with` block."""

    def __init__(self, count, rate):
        need_mpi()
        self.count = count
        # The folder is also for what Open MPI's daemons leave behind if they are killed.
        self.folder = tempfile.TemporaryDirectory(prefix="tgnn-hosts-")
        self.environment = os.environ | {"TGNN_CLUSTER": f"tgnn-{os.getpid()}", "TMPDIR": self.folder.name}
        # A signal that ends this program must not leave the hosts behind.
        for number in SIGNALS:
            signal.signal(number, lambda *_: sys.exit("error: ended by a signal"))
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
        # A signal waits until everything is removed.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        subprocess.run([CLUSTER, "down"], env=self.environment, capture_output=True)
        self.folder.cleanup()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def command(self, ranks, tgnn, flags):
        # Every host takes itself for a computer of its own, whose cores are all for its rank.
        return [CLUSTER, "mpirun", str(ranks), tgnn, "train", "--threads", "1", "--json", *map(str, flags)]

    def start(self, ranks, tgnn, flags, **more):
        command = self.command(ranks, tgnn, flags)
        return subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, **more)

    def train(self, ranks, tgnn, flags):
        """Trains with a rank on each of the first hosts. Returns the summary, and the bytes that each host
        sent and received meanwhile, by the counters of its link."""
        before, command = self.carried(), self.command(ranks, tgnn, flags)
        more = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": LIMIT}
        done = subprocess.run(command, env=self.environment, **more)
        both = zip(self.carried()[:ranks], before)
        return summary(command, done), [(sent - s, received - r) for (sent, received), (s, r) in both]

    def carried(self):
        """Returns the bytes that each host has sent and received so far, by the counters of its link."""
        return [(int(sent), int(received)) for sent, received in self("bytes")]

    def processes(self):
        """Returns what runs on the hosts: host, process id, command."""
        return [(int(host), int(id), command) for host, id, command in self("pids")]
