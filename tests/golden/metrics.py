"""Writes `metrics.json`, the scores that the tests of `crates/training/src/task/metrics.rs` and `classify.rs` compare
with.

    python tests/golden/metrics.py tests/golden/metrics.json

`cases` are tables of scores, with the event in column 0 and its negatives after it; many scores are tied. AP and AUC
are scikit-learn's over all events and negatives together. The rank of an event is SciPy's average rank, which is the
mean of its optimistic and its pessimistic rank.

`labels` are tables of logits, one column per class, with the set of classes of every row. AP, AUC and F1 are
scikit-learn's with `average="micro"`. Accuracy is the mean over all ways to break ties of the greatest logit.
"""

import json
import sys
from pathlib import Path

import numpy
import scipy
import sklearn
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

SEED = 8
# Events, negatives per event, number of unique scores (0: any float32).
SIZES = [
    (1, 1, 0), (1, 1, 1), (5, 1, 2), (9, 1, 0), (20, 1, 5), (20, 1, 0), (30, 1, 1),
    (4, 2, 3), (10, 3, 0), (12, 5, 4), (6, 10, 0), (3, 49, 20), (2, 49, 0),
]  # fmt: skip


def table(random, events, negatives, unique):
    shape = (events, 1 + negatives)
    if unique:
        return random.integers(unique, size=shape).astype(numpy.float32) / 4 - 1
    # The event scores a little higher than its negatives, as with a trained model.
    return random.normal(size=shape).astype(numpy.float32) + numpy.eye(1, shape[1], dtype=numpy.float32)


def case(scores):
    labels = numpy.zeros(scores.shape, dtype=int)
    labels[:, 0] = 1
    ranks = [rankdata(-row, method="average")[0] for row in scores]
    return {
        "candidates": scores.shape[1],
        "ap": float(average_precision_score(labels.ravel(), scores.ravel())),
        "auc": float(roc_auc_score(labels.ravel(), scores.ravel())),
        "mrr": float(numpy.mean(1 / numpy.array(ranks))),
        "table": [float(x) for x in scores.ravel()],
    }


# Events, classes, maximum number of labels per event (0: exactly one), number of unique logits (0: any
# float32).
LABEL_SIZES = [
    (1, 1, 1, 0), (12, 1, 1, 3), (40, 1, 1, 0), (1, 4, 0, 0), (9, 5, 0, 3), (30, 7, 0, 0), (6, 3, 0, 1), (8, 6, 3, 4),
    (25, 10, 4, 0), (20, 4, 4, 5), (3, 2, 2, 0), (50, 30, 2, 0),
]  # fmt: skip


def label_case(random, events, classes, most, unique):
    truth = numpy.zeros((events, classes), dtype=int)
    for row in truth:
        size = random.integers(most + 1) if most else 1
        row[random.choice(classes, size, replace=False)] = 1
    if unique:
        logits = random.integers(unique, size=truth.shape).astype(numpy.float32) / 2 - 0.5
    else:
        logits = random.normal(size=truth.shape).astype(numpy.float32) + truth.astype(numpy.float32) - 0.5
    both = 0 < truth.sum() < truth.size
    first = logits == logits.max(axis=1, keepdims=True)
    one = classes > 1 and (truth.sum(axis=1) == 1).all()
    return {
        "classes": classes,
        "ap": float(average_precision_score(truth.ravel(), logits.ravel())) if both else None,
        "auc": float(roc_auc_score(truth.ravel(), logits.ravel())) if both else None,
        "f1": micro_f1(truth, logits > 0),
        "accuracy": float(((first & (truth == 1)).sum(axis=1) / first.sum(axis=1)).mean()) if one else None,
        "sets": [[int(c) for c in numpy.flatnonzero(row)] for row in truth],
        "logits": [float(x) for x in logits.ravel()],
    }


def micro_f1(truth, said):
    # For a single column scikit-learn averages over both answers, which gives the accuracy; "binary" gives
    # the F1 of the one class.
    if truth.shape[1] == 1:
        return float(f1_score(truth.ravel(), said.ravel(), average="binary", zero_division=0))
    return float(f1_score(truth, said, average="micro", zero_division=0))


def main():
    random = numpy.random.default_rng(SEED)
    versions = {"scikit-learn": sklearn.__version__, "scipy": scipy.__version__, "numpy": numpy.__version__}
    cases = [json.dumps(case(table(random, *size))) for size in SIZES]
    labels = [json.dumps(label_case(random, *size)) for size in LABEL_SIZES]
    head = f'{{"seed": {SEED}, "versions": {json.dumps(versions)}, "cases": [\n'
    Path(sys.argv[1]).write_text(head + ",\n".join(cases) + '\n], "labels": [\n' + ",\n".join(labels) + "\n]}\n")


if __name__ == "__main__":
    main()
