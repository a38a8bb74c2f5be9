"""Small data that every test can afford."""

import numpy as np
import pytest

import tgnn

#: A model that trains in a fraction of a second, whatever the build.
SMALL = {"epochs": 2, "batch": 100, "tgn": {"memory": 8, "embedding": 8, "time": 6, "neighbors": 3}}


def columns(n=600, nodes=20, seed=0, edge_width=0):
    """Events between two kinds of nodes, of which every source prefers a few destinations."""
    rng = np.random.default_rng(seed)
    src = rng.integers(0, nodes, n)
    dst = nodes + (3 * src + rng.integers(0, 3, n)) % nodes
    time = np.cumsum(rng.integers(1, 100, n))
    edges = rng.normal(size=(n, edge_width)).astype(np.float32) if edge_width else None
    return src, dst, time, edges


@pytest.fixture(scope="session")
def events():
    return tgnn.Events(*columns(edge_width=2), name="small")


@pytest.fixture(scope="session")
def run(events, tmp_path_factory):
    return tgnn.train(events, out=tmp_path_factory.mktemp("runs") / "first", progress=False, **SMALL)
