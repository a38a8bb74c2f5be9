"""Trains PyTorch Geometric Temporal's models on values of vertices: peers in the benchmarks of regression.

    python temporal_regression.py --data chickenpox.json --model gconvgru --epochs 50 --json
    python temporal_regression.py --data twitter_tennis_rg17.json --model evolvegcno
    python temporal_regression.py --data LOS --model dcrnn     # a folder with *_speed.csv and *_adj.csv

The library's layers are unchanged and trained by our protocol. The value at step S is predicted from the `--length`
steps before S, whose features are the last `--lags` values of the series (for tennis: the library's encoding of the
file's X). Steps are split 70/15/15 by S. Training visits them in random order, with one Adam step on the
mean squared error of each. A series is normalised by the mean and standard deviation of the training part. The reported
errors are those on the test part, in the units of the data, at the epoch with the lowest validation RMSE.
"""

import argparse
import json
import math
import shlex
import sys
import time
import types
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from link_task import processor
from snapshots import split

try:
    import torch_sparse  # noqa: F401
except ImportError:
    # The library only names this type in an annotation of a field.
    sys.modules["torch_sparse"] = types.SimpleNamespace(SparseTensor=type("SparseTensor", (), {}))
import torch_geometric_temporal
from torch_geometric_temporal.dataset.twitter_tennis import encode_features
from torch_geometric_temporal.nn.recurrent import DCRNN, TGCN, EvolveGCNO, GConvGRU

# The data


class Series(NamedTuple):
    name: str
    features: torch.Tensor  # [steps, v, f]
    targets: torch.Tensor  # [steps, v], NaN where unknown
    edges: list  # of each step: [2, e]
    weights: list  # of each step: [e]
    unit: float  # size of a target difference of 1, in the units of the data


def of_signal(name, signal, edges, weights, lags, normalise):
    """Returns the data set of a signal [steps, v] on one graph."""
    steps, unit = len(signal), 1.0
    if normalise:
        known = signal[: split(steps)["train"].stop]
        unit = float(np.nanstd(known))
        signal = (signal - np.nanmean(known)) / unit
    # Before its first value the signal is padded with zeros, its mean.
    padded = np.concatenate([np.zeros((lags - 1, signal.shape[1])), np.nan_to_num(signal)])
    features = np.stack([padded[t : t + lags].T for t in range(steps)])
    real = lambda x: torch.tensor(x, dtype=torch.float32)
    return Series(name, real(features), real(signal), [edges] * steps, [weights] * steps, unit)


def load(path, lags, normalise):
    if path.is_dir():
        values = np.loadtxt(next(path.glob("*_speed.csv")), delimiter=",", skiprows=1)
        matrix = np.loadtxt(next(path.glob("*_adj.csv")), delimiter=",")
        edges = np.stack(matrix.nonzero())
        weights = torch.tensor(matrix[tuple(edges)], dtype=torch.float32)
        return of_signal(path.name, values, torch.from_numpy(edges), weights, lags, normalise)
    content = json.loads(path.read_text())
    if "FX" in content:
        edges = torch.tensor(content["edges"]).T
        return of_signal(path.stem, np.array(content["FX"]), edges, torch.ones(edges.shape[1]), lags, normalise)
    steps = [content[str(t)] for t in range(content["time_periods"])]
    features = torch.tensor(np.array([encode_features(np.array(s["X"])) for s in steps]), dtype=torch.float32)
    targets = torch.tensor(np.log(1.0 + np.array([s["y"] for s in steps])), dtype=torch.float32)
    edges = [torch.tensor(s["edges"]).T for s in steps]
    weights = [torch.tensor(s["weights"], dtype=torch.float32) for s in steps]
    return Series(path.stem, features, targets, edges, weights, 1.0)


# The models


class Model(torch.nn.Module):
    def __init__(self, name, inputs, width, hops):
        super().__init__()
        make = {
            "gconvgru": lambda: GConvGRU(inputs, width, hops),
            "tgcn": lambda: TGCN(inputs, width),
            "dcrnn": lambda: DCRNN(inputs, width, hops),
            "evolvegcno": lambda: EvolveGCNO(inputs),
        }
        self.layer = make[name]()
        self.evolves = name == "evolvegcno"
        self.head = torch.nn.Linear(inputs if self.evolves else width, 1)

    def forward(self, series, steps):
        h = None
        if self.evolves:
            self.layer.reinitialize_weight()
        for s in steps:
            graph = series.features[s], series.edges[s], series.weights[s]
            h = self.layer(*graph) if self.evolves else self.layer(*graph, h)
        return self.head(h.relu())[:, 0]


def errors(model, series, targets, length):
    """Returns MAE and RMSE in the units of the data."""
    off = []
    with torch.no_grad():
        model.eval()
        for target in targets:
            difference = model(series, range(max(target - length, 0), target)) - series.targets[target]
            off.append(difference[~difference.isnan()] * series.unit)
    off = torch.cat(off).double()
    return {"mae": float(off.abs().mean()), "rmse": float(off.square().mean().sqrt())}


def train(args, series):
    torch.manual_seed(args.seed)
    model = Model(args.model, series.features.shape[2], args.width, args.hops)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    parts, epochs, best_epoch, test = split(len(series.targets)), [], None, None
    for number in range(1, args.epochs + 1):
        model.train()
        began = time.perf_counter()
        for i in torch.randperm(len(parts["train"])).tolist():
            target = parts["train"][i]
            want = series.targets[target]
            known = ~want.isnan()
            if not known.any():
                continue
            optimizer.zero_grad()
            pred = model(series, range(max(target - args.length, 0), target))
            (pred[known] - want[known]).square().mean().backward()
            optimizer.step()
        seconds = time.perf_counter() - began
        epoch = {"epoch": number, "train_seconds": seconds, "val": errors(model, series, parts["val"], args.length)}
        epochs.append(epoch)
        best = math.inf if best_epoch is None else epochs[best_epoch - 1]["val"]["rmse"]
        if epoch["val"]["rmse"] < best:
            best_epoch, test = number, {"transductive": errors(model, series, parts["test"], args.length)}
        if not args.json:
            print(json.dumps(epoch), flush=True)
    if test is None:
        sys.exit(f"{args.model} predicts no numbers on {series.name}: the library's DCRNN divides by degrees, which may be 0")
    return {
        "epochs": epochs,
        "best_epoch": best_epoch,
        "test": test,
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def main():
    options = argparse.ArgumentParser(description="Trains models of PyTorch Geometric Temporal on values of vertices.")
    options.add_argument("--data", type=Path, required=True, help="the library's JSON, or a folder of tables")
    options.add_argument("--model", choices=["gconvgru", "tgcn", "dcrnn", "evolvegcno"], default="gconvgru")
    options.add_argument("--epochs", type=int, default=50)
    options.add_argument("--length", type=int, default=5, help="steps that a model reads")
    options.add_argument("--lags", type=int, default=4, help="values of a series that are a step's features")
    options.add_argument("--width", type=int, default=64)
    options.add_argument("--hops", type=int, default=2, help="K of gconvgru and dcrnn")
    options.add_argument("--lr", type=float, default=5e-4)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--no-normalise", action="store_true", help="take a series as it is")
    options.add_argument("--json", action="store_true", help="print only the summary, as JSON")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    series = load(args.data, args.lags, not args.no_normalise)
    summary = {
        "schema": 1,
        "version": f"torch_geometric_temporal {torch_geometric_temporal.__version__}, torch {torch.__version__}",
        "command": shlex.join(["python", *sys.argv]),
        "device": {"kind": "cpu", "name": processor()},
        "data": {"name": series.name, "steps": len(series.targets), "nodes": series.targets.shape[1]},
        "model": args.model,
        "length": args.length,
        "seed": args.seed,
        "threads": args.threads,
    } | train(args, series)
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
