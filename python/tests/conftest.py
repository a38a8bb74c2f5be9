"""Small data that every test can afford."""

import numpy as np
import pytest

import tgnn
from tgnn import _arrays, _ops, _tgnn

#: A model that trains in a fraction of a second, whatever the build. Few events get pre-trained rows by default.
SMALL = {
    "epochs": 2,
    "batch": 100,
    "static": {"mode": "off"},
    "tgn": {"memory": 8, "embedding": 8, "time": 6, "neighbors": 3},
}


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


@pytest.fixture(params=["cpu", "emu", "cuda"])
def torch(request, monkeypatch):
    """torch, whose new tensors are on the CPU, taken for those of an emulated CUDA device, or on a CUDA device."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if request.param == "emu":
        try:
            _tgnn.Gpu("emu")
        except tgnn.DeviceError as e:
            pytest.skip(str(e))
        on = lambda x: "emu" if _arrays.is_tensor(x) and x.device.type == "cpu" else _arrays.place(x)
        monkeypatch.setattr(_ops, "place", on)
    elif request.param == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("there is no CUDA device")
        torch.set_default_device("cuda")
        request.addfinalizer(lambda: torch.set_default_device(None))
    return torch
