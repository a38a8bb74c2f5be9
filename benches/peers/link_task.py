"""Link prediction on one stream of events: common code of the peers in the benchmarks.

Training and evaluation visit the events in batches. The model's state is reset before each epoch; validation continues
from the state after training, and the test from the state after validation. The best epoch is tested once more with a
state made anew: the state is reset and updated with the training and validation events by that epoch's weights
(`test_by_memory`, as in tgnn's summary).

Protocol `dyglib`: the stream is split 70/15/15 by time, at NumPy's quantiles. Each event has one negative, drawn
uniformly from the unique destinations of the stream, in training from those of training events. An evaluation draws the
same negatives in every epoch. AP, AUC and MRR are computed over a whole split. Transductive: all events of the split.
Inductive: events with a node that has no training event. MRR ranks an event against its one negative; a tie counts one
half.

A model is a module with `events`; `reset_state()`; `forward(batch, negatives)`, which returns the logits of the events
in the slice `batch` and of their negatives; and `observe(batch)`, which updates the state with these events.
"""

import argparse
import json
import resource
import shlex
import sys
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch.nn.functional import binary_cross_entropy_with_logits


def parser(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, help="`u,i,ts,label` (.csv) or `src dst time`; may be .gz")
    parser.add_argument("--batch", type=int, default=600, help="events a batch")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--neighbors", type=int, default=10, help="most recent neighbours of a node")
    parser.add_argument("--width", type=int, default=100, help="of memory, time encoding and embedding; even")
    parser.add_argument(
        "--random-edge-features", type=int, default=0, metavar="W", help="seeded normal values; 0: one zero column"
    )
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--max-batches", type=int, help="stop training and each evaluation after this many")
    parser.add_argument("--no-eval", action="store_true", help="train only")
    parser.add_argument("--protocol", choices=["dyglib"], default="dyglib")
    parser.add_argument("--json", action="store_true", help="print only the summary, as JSON")
    return parser


class Events:
    """A stream in time order, with dense node ids and times in whole seconds since the first event.

    Only source, destination and time are read from the file. Sources and destinations share one space of ids.
    """

    def __init__(self, path, edge_width, seed, device):
        csv = ".csv" in path.suffixes
        layout = {"delimiter": ",", "skiprows": 1} if csv else {}
        rows = np.loadtxt(path, usecols=(0, 1, 2), **layout)
        rows = rows[np.argsort(rows[:, 2], kind="stable")]
        names, ends = np.unique(rows[:, :2].astype(np.int64), return_inverse=True)
        self.nodes = len(names)
        self.src, self.dst = torch.from_numpy(ends.reshape(-1, 2)).T.contiguous()
        self.time = torch.from_numpy((rows[:, 2] - rows[0, 2]).astype(np.int64))
        if edge_width:
            generator = torch.Generator().manual_seed(seed)
            self.feature = torch.randn(len(rows), edge_width, generator=generator)
        else:
            self.feature = torch.zeros(len(rows), 1)
        self.node_feature = torch.zeros(self.nodes, 0)
        ends_of = np.quantile(rows[:, 2], [0.70, 0.85])
        first, second = (int(end) for end in np.searchsorted(rows[:, 2], ends_of, side="right"))
        self.splits = {"train": (0, first), "val": (first, second), "test": (second, len(rows))}
        self.destinations, self.training_destinations = self.dst.unique(), self.dst[:first].unique()
        in_training = torch.zeros(self.nodes, dtype=torch.bool)
        in_training[self.src[:first]] = True
        in_training[self.dst[:first]] = True
        self.inductive = ~(in_training[self.src] & in_training[self.dst])
        # All tables fit in the memory of the device.
        for name in ("src", "dst", "time", "feature", "node_feature", "destinations", "training_destinations"):
            setattr(self, name, getattr(self, name).to(device))

    def negatives(self, count, generator, training=False):
        among = self.training_destinations if training else self.destinations
        return among[torch.randint(len(among), (count,), generator=generator, device=generator.device)]


def batches(split, size, limit):
    starts = range(split[0], split[1], size)[:limit]
    return [slice(start, min(start + size, split[1])) for start in starts]


def loss_of(positive, negative):
    loss = binary_cross_entropy_with_logits(positive, torch.ones_like(positive))
    return loss + binary_cross_entropy_with_logits(negative, torch.zeros_like(negative))


def train(model, optimizer, work, generator):
    """Trains one epoch from empty state; returns the mean loss per event and the seconds."""
    model.train()
    model.reset_state()
    total = count = 0
    began = time.perf_counter()
    for batch in work:
        size = batch.stop - batch.start
        optimizer.zero_grad()
        loss = loss_of(*model(batch, model.events.negatives(size, generator, training=True)))
        model.observe(batch)
        loss.backward()
        optimizer.step()
        total += loss.item() * size
        count += size
    seconds = time.perf_counter() - began
    return {"train_loss": total / count, "train_seconds": seconds, "events_per_second": count / seconds}


@torch.no_grad()
def score(model, work, seed):
    """Returns the logits [2, n] of a split's events and negatives; the state advances to the end of the split."""
    model.eval()
    generator = torch.Generator(model.events.src.device).manual_seed(seed)
    logits = []
    for batch in work:
        logits.append(torch.stack(model(batch, model.events.negatives(batch.stop - batch.start, generator))))
        model.observe(batch)
    return torch.cat(logits, dim=1).cpu()


def metrics(logits):
    """Returns AP, AUC and MRR of positive and negative logits [2, n]; None for an empty set."""
    positive, negative = logits
    if len(positive) == 0:
        return None
    labels = torch.cat([torch.ones_like(positive), torch.zeros_like(negative)])
    rank = 1 + (negative > positive).double() + 0.5 * (negative == positive).double()
    return {
        "ap": float(average_precision_score(labels, logits.flatten())),
        "auc": float(roc_auc_score(labels, logits.flatten())),
        "mrr": float((1 / rank).mean()),
    }


def processor():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")


def run(args, name, plan, version, build):
    """Trains and evaluates the model that `build(events)` returns, and prints the summary."""
    if args.data is None:
        sys.exit("which events? give --data FILE")
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    events = Events(args.data, args.random_edge_features, args.seed, args.device)
    model = build(events).to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    generator = torch.Generator(args.device).manual_seed(args.seed)
    work = {name: batches(split, args.batch, args.max_batches) for name, split in events.splits.items()}

    def tested():
        logits = score(model, work["test"], args.seed + 2)
        start = work["test"][0].start
        inductive = events.inductive[start : start + logits.size(1)]
        return {"transductive": metrics(logits), "inductive": metrics(logits[:, inductive])}

    epochs, best_epoch, test, best = [], None, None, None
    for number in range(1, args.epochs + 1):
        epoch = {"epoch": number} | train(model, optimizer, work["train"], generator) | {"val": None}
        epochs.append(epoch)
        if not args.no_eval:
            epoch["val"] = metrics(score(model, work["val"], args.seed + 1))
            if best_epoch is None or epoch["val"]["ap"] > epochs[best_epoch - 1]["val"]["ap"]:
                best_epoch, test = number, tested()
                best = [parameter.detach().clone() for parameter in model.parameters()]
        if not args.json:
            print(json.dumps(epoch), flush=True)

    by_memory = None
    if best is not None:
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), best):
                parameter.copy_(value)
        model.eval()
        model.reset_state()
        for part in ("train", "val"):
            score(model, work[part], args.seed)
        by_memory = {"as_trained": test, "replayed": tested()}

    on_gpu = args.device != "cpu"
    summary = {
        "schema": 1,
        "version": version,
        "commit": None,
        "command": shlex.join(["python", *sys.argv]),
        "device": {"kind": args.device, "name": torch.cuda.get_device_name() if on_gpu else processor()},
        "data": {
            "name": args.data.name.split(".")[0],
            "events": len(events.src),
            "nodes": events.nodes,
            "edge_features": args.random_edge_features,
        },
        "model": name,
        "plan": plan,
        "seed": args.seed,
        "protocol": args.protocol,
        "batch": args.batch,
        "epochs": epochs,
        "best_epoch": best_epoch,
        "test": test,
        "test_by_memory": by_memory,
        "peak_memory_bytes": {
            "host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "device": torch.cuda.max_memory_allocated() if on_gpu else 0,
        },
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "threads": args.threads,
    }
    print(json.dumps(summary))
