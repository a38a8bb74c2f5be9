"""Writes `metrics.json`, the figures that the tests of `src/task/metrics.rs` compare with.

    python tests/golden/metrics.py tests/golden/metrics.json

Tables of scores, the event in column 0 and its negatives after it; many scores are tied. AP and AUC are
scikit-learn's over all events and negatives at once. The rank of an event is SciPy's average rank, which is the
mean of its optimistic and its pessimistic one.
"""

import json
import sys
from pathlib import Path

import numpy
import scipy
import sklearn
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score, roc_auc_score

SEED = 8
# Events, negatives an event, number of distinct scores (0: as many as float32 has).
SIZES = [
    (1, 1, 0), (1, 1, 1), (5, 1, 2), (9, 1, 0), (20, 1, 5), (20, 1, 0), (30, 1, 1),
    (4, 2, 3), (10, 3, 0), (12, 5, 4), (6, 10, 0), (3, 49, 20), (2, 49, 0),
]  # fmt: skip


def table(random, events, negatives, distinct):
    shape = (events, 1 + negatives)
    if distinct:
        return random.integers(distinct, size=shape).astype(numpy.float32) / 4 - 1
    # The event scores a little higher than its negatives, as with a model that has learned something.
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


def main():
    random = numpy.random.default_rng(SEED)
    versions = {"scikit-learn": sklearn.__version__, "scipy": scipy.__version__, "numpy": numpy.__version__}
    cases = [json.dumps(case(table(random, *size))) for size in SIZES]
    head = f'{{"seed": {SEED}, "versions": {json.dumps(versions)}, "cases": [\n'
    Path(sys.argv[1]).write_text(head + ",\n".join(cases) + "\n]}\n")


if __name__ == "__main__":
    main()
