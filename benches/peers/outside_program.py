"""Common code of the checks of `outside.py`: running the program, trained models, and rows of results."""

import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

SEED = 8
ROUNDING = 1e-5  # allowed error in float32, for numbers of about 1 after a few consecutive products


def tell(*command):
    """Returns the output of a command."""
    command = [*map(str, command)]
    print("  $", shlex.join(command), file=sys.stderr, flush=True)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


class Trained:
    """A model trained by the program: its checkpoint, summary and embeddings."""

    def __init__(self, tgnn, folder, data, *flags):
        self.tgnn = tgnn
        self.run = Path(tempfile.mkdtemp(dir=folder))
        words = ["train", "--data", data, "--threads", "1", "--json", "--out", self.run, *flags]
        self.summary = json.loads(tell(tgnn, *words))
        best = json.loads((self.run / "checkpoint/manifest.json").read_text())["best_epoch"]
        self.values = load_file(self.run / f"checkpoint/epoch-{best}.safetensors")

    def __getitem__(self, name):
        """Returns a weight or a state; real numbers in float64, integers as they are."""
        value = self.values[name]
        return value.double() if value.is_floating_point() else value

    def embed(self, nodes, times=None):
        """Returns the embeddings by `tgnn-bench embed`: float32 values, as float64."""
        lists = {"nodes": nodes} | ({} if times is None else {"times": times})
        words = [self.tgnn, "embed", "--checkpoint", self.run, "--out", self.run / "z.npy"]
        for name, values in lists.items():
            file = self.run / f"{name}.txt"
            file.write_text("\n".join(str(int(v)) for v in values))
            words += [f"--{name}", file]
        tell(*words)
        return torch.from_numpy(np.load(self.run / "z.npy")).double()

    def predict(self, s, first, batch):
        """Returns the embeddings [2, n, h] of both ends of a stream's events by `tgnn-bench predict`, from `first` on,
        the first event of the test part."""
        columns = [c[first:].tolist() for c in (s["src"], s["dst"], s["time"], *s["edge_features"].T)]
        file = self.run / "events.csv"
        file.write_text("".join(",".join(map(str, line)) + "\n" for line in zip(*columns)))
        words = ["predict", "--checkpoint", self.run, "--input", file, "--after", "validation", "--batch", batch]
        lines = tell(self.tgnn, *words, "--embeddings").splitlines()
        rows = torch.from_numpy(np.loadtxt(lines, delimiter=",")[:, 3:])
        return rows.unflatten(1, (2, -1)).transpose(0, 1)


def keys(section, **values):
    """Returns the flags that set keys of a section."""
    return [word for key, value in values.items() for word in ("--set", f"{section}.{key}={value}")]


# The learning rate is too small to change a float32 weight, so the state after a pass is that of known weights.
AS_DRAWN = ["--epochs", "1", "--batch", "50", "--learning-rate", "1e-30", *keys("data", train=1, val=0)]
AS_DRAWN += keys("static", mode="off")  # on by default for so few events


def row(what, against, difference, allowed):
    """Returns the row of one comparison; without a limit if `allowed` is None."""
    return {"what": what, "against": against, "difference": float(difference), "allowed": allowed}


def largest(a, b):
    """Returns the largest difference."""
    return (a - b).abs().max().item()


def load(linear, weight, bias):
    with torch.no_grad():
        linear.weight.copy_(weight.reshape(linear.weight.shape))
        linear.bias.copy_(bias.reshape(linear.bias.shape))
    return linear


def save(folder, arrays):
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in arrays.items():
        np.save(folder / f"{name}.npy", value)
