"""Writes `tgb.json`, lists of candidates and the ranks that TGB's own evaluator gives to their events.

    pip install py-tgb
    python -P tests/golden/tgb.py tests/golden/tgb.json    # without -P this file would be imported as the package

A list holds the event's score and then its negatives' scores. The lists of a case differ in length, as TGB's lists of
negatives do. Each list is evaluated alone, as in TGB's examples, so MRR and hits@10 are given list by list; TGB
computes both in float32.
"""

import importlib.metadata
import json
import sys
from pathlib import Path

import numpy
from tgb.linkproppred.evaluate import Evaluator

SEED = 11
# Lists, minimum and maximum number of negatives, number of unique scores (0: any float32).
SIZES = [
    (4, 1, 1, 0), (6, 1, 1, 1), (6, 1, 1, 2), (8, 0, 5, 3), (8, 1, 30, 1), (8, 1, 30, 4),
    (10, 5, 40, 0), (6, 20, 60, 6), (3, 100, 100, 0),
]  # fmt: skip


def scores(random, count, unique):
    if unique:
        return random.integers(unique, size=count).astype(numpy.float32) / 4 - 1
    # Six digits keep the file short.
    return numpy.array([float(f"{x:.6g}") for x in random.normal(size=count)], dtype=numpy.float32)


def evaluate(row):
    figures = Evaluator(name="tgbl-wiki").eval(
        {"y_pred_pos": row[:1], "y_pred_neg": row[None, 1:], "eval_metric": ["mrr"]}
    )
    return figures["mrr"], figures["hits@10"]


def case(random, lists, fewest, most, unique):
    rows = [scores(random, 1 + random.integers(fewest, most + 1), unique) for _ in range(lists)]
    mrr, hits = zip(*map(evaluate, rows))
    return {
        "mrr": [float(x) for x in mrr],
        "hits": [float(x) for x in hits],
        "lists": [[float(f"{x:.6g}") for x in row] for row in rows],
    }


def main():
    random = numpy.random.default_rng(SEED)
    versions = {"py-tgb": importlib.metadata.version("py-tgb"), "numpy": numpy.__version__}
    cases = [json.dumps(case(random, *size)) for size in SIZES]
    head = f'{{"seed": {SEED}, "versions": {json.dumps(versions)}, "cases": [\n'
    Path(sys.argv[1]).write_text(head + ",\n".join(cases) + "\n]}\n")


if __name__ == "__main__":
    main()
