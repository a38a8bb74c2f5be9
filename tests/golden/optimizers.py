"""Writes `optimizers.json`: parameters after every step of PyTorch's optimisers, in float64.

    python tests/golden/optimizers.py tests/golden/optimizers.json

The loss is the mean squared distance of two matrices from targets that change in every step. A case holds
keys of the configuration's section `optimizer`, the learning rate, and the elements of both matrices and the
norm of their gradients after every step.
"""

import json
import sys
from pathlib import Path

import torch
from torch.optim import lr_scheduler

STEPS = 7
SHAPES = [(3, 4), (1, 5)]
CASES = [
    ({}, 0.05),
    ({"weight_decay": 0.1}, 0.05),
    ({"name": "adamw", "weight_decay": 0.1}, 0.05),
    ({"name": "sgd"}, 0.3),
    ({"name": "sgd", "momentum": 0.9}, 0.1),
    ({"name": "sgd", "momentum": 0.9, "weight_decay": 0.2, "clip_norm": 0.5}, 0.1),
    ({"clip_norm": 0.5, "weight_decay": 0.1}, 0.05),
    ({"name": "adamw", "weight_decay": 0.1, "clip_norm": 0.7, "schedule": "cosine", "warmup": 3}, 0.05),
    ({"name": "sgd", "schedule": "linear", "clip_norm": 100.0}, 0.3),
    ({"schedule": "linear", "warmup": 2}, 0.05),
    ({"warmup": 4}, 0.05),
]


def optimizer_of(keys, parameters, rate):
    decay = keys.get("weight_decay", 0.0)
    match keys.get("name", "adam"):
        case "adam":
            return torch.optim.Adam(parameters, lr=rate, weight_decay=decay)
        case "adamw":
            return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay)
        case "sgd":
            return torch.optim.SGD(parameters, lr=rate, momentum=keys.get("momentum", 0.0), weight_decay=decay)


def scheduler_of(keys, optimizer):
    warmup = keys.get("warmup", 0)
    match keys.get("schedule", "constant"):
        case "constant":
            then = lr_scheduler.ConstantLR(optimizer, factor=1.0)
        case "linear":
            then = lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=STEPS - warmup)
        case "cosine":
            then = lr_scheduler.CosineAnnealingLR(optimizer, STEPS - warmup)
    if warmup == 0:
        return then
    rise = lr_scheduler.LinearLR(optimizer, 1 / warmup, 1.0, total_iters=warmup - 1)
    return lr_scheduler.SequentialLR(optimizer, [rise, then], milestones=[warmup])


def case(keys, rate, start, targets):
    parameters = [x.clone().requires_grad_() for x in start]
    optimizer = optimizer_of(keys, parameters, rate)
    scheduler = scheduler_of(keys, optimizer)
    steps = []
    for target in targets:
        optimizer.zero_grad()
        sum(((x - y) ** 2).mean() for x, y in zip(parameters, target)).backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, keys.get("clip_norm", float("inf")))
        optimizer.step()
        scheduler.step()
        steps.append({"norm": norm.item(), "values": [x.flatten().tolist() for x in parameters]})
    return {"keys": keys, "learning_rate": rate, "steps": steps}


def main():
    torch.manual_seed(8)
    torch.set_default_dtype(torch.float64)
    start = [torch.randn(shape) for shape in SHAPES]
    targets = [[torch.randn(shape) for shape in SHAPES] for _ in range(STEPS)]
    numbers = {
        "torch": torch.__version__,
        "shapes": SHAPES,
        "start": [x.flatten().tolist() for x in start],
        "targets": [[y.flatten().tolist() for y in target] for target in targets],
    }
    head = "".join(f"{json.dumps(name)}: {json.dumps(value)},\n" for name, value in numbers.items())
    cases = ",\n".join(json.dumps(case(*c, start, targets)) for c in CASES)
    Path(sys.argv[1]).write_text(f'{{{head}"cases": [\n{cases}\n]}}\n')


if __name__ == "__main__":
    main()
