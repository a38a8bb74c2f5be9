"""Weights to PyTorch: a TGN in plain torch with the weights of a run computes what the program computes."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import SMALL

import tgnn

torch = pytest.importorskip("torch", reason="torch is not installed")
HEADS, NEIGHBOURS, NONE = 2, 3, 2**32 - 1


def parameters(**shapes):
    module = torch.nn.Module()
    for name, shape in shapes.items():
        module.register_parameter(name, torch.nn.Parameter(torch.empty(shape)))
    return module


class Tgn(torch.nn.Module):
    """A TGN of one layer, of memory and embeddings of width d, edge features of width f, and t frequencies."""

    def __init__(self, d, f, t):
        super().__init__()
        self.time = parameters(w=t, b=t)
        self.memory = parameters(w_x=(3 * d, 2 * d + f + t), w_h=(3 * d, d), b_x=3 * d, b_h=3 * d)
        layer = parameters(w_q=(d, d), w_q_time=(d, t), b_q=d, w_k=(d, d + f + t), w_v=(d, d + f + t), b_v=d,
                           w_o=(d, d), w_o_root=(d, d), b_o=d, norm_gain=d, norm_bias=d)  # fmt: skip
        self.embed = torch.nn.ModuleList([layer])
        self.decoder = parameters(w_src=(d, d), w_dst=(d, d), b=d, w_out=(1, d), b_out=1)

    def phi(self, dt):
        return torch.cos(dt[..., None] * self.time.w + self.time.b)

    def update(self, state, edge):
        """Memory after every node's mail."""
        has_mail = state["mail_event"] != NONE
        gap = self.gap(state["mail_time"] - state["memory_time"])
        event = torch.where(has_mail, state["mail_event"], 0)
        x = torch.cat([state["memory"], state["mail"], edge[event], self.phi(gap)], -1)
        m = self.memory
        new = torch.gru_cell(x, state["memory"], m.w_x, m.w_h, m.b_x, m.b_h)
        return torch.where(has_mail[:, None], new, state["memory"])

    def gap(self, ticks):
        return ticks.clamp(max=self.longest_gap).float() / self.ticks_per_second

    def attend(self, h, node, time, near, near_edge, near_time, used):
        """Embeddings of nodes at times from their neighbours, all with one or more."""
        p, n = self.embed[0], len(node)
        z = torch.cat([h[near], near_edge, self.phi(self.gap(time[:, None] - near_time))], -1)
        heads = lambda x: x.view(n, -1, HEADS, x.shape[-1] // HEADS).transpose(1, 2)
        query = h[node] @ p.w_q.T + self.phi(torch.zeros(n)) @ p.w_q_time.T + p.b_q
        query, key, value = heads(query[:, None]), heads(z @ p.w_k.T), heads(z @ p.w_v.T + p.b_v)
        score = (query @ key.transpose(-1, -2)) / query.shape[-1] ** 0.5
        weight = score.masked_fill(~used[:, None, None], float("-inf")).softmax(-1).nan_to_num()
        mixed = (weight @ value).transpose(1, 2).reshape(n, -1)
        out = mixed @ p.w_o.T + h[node] @ p.w_o_root.T + p.b_o
        return torch.nn.functional.layer_norm(out.relu(), out.shape[-1:], p.norm_gain, p.norm_bias)

    def decode(self, src, dst):
        p = self.decoder
        return (src @ p.w_src.T + dst @ p.w_dst.T + p.b).relu() @ p.w_out[0] + p.b_out[0]


def neighbours(events, first, node, time):
    """The latest events of a node before `first` and strictly before its time, latest first, padded."""
    src, dst, times = (np.asarray(x) for x in (events._stream.src, events._stream.dst, events._stream.time))
    seen = np.flatnonzero(((src == node) | (dst == node)) & (times < time) & (np.arange(len(src)) < first))
    seen = seen[::-1][:NEIGHBOURS]
    other = np.where(src[seen] == node, dst[seen], src[seen])
    pad = lambda x: np.pad(x, (0, NEIGHBOURS - len(seen)))
    return pad(other), pad(seen), np.arange(NEIGHBOURS) < len(seen)


def test_a_tgn_in_torch_with_the_weights_of_a_run_gives_the_same_embeddings_and_logits(run, events):
    # The state of the best epoch after validation.
    _, _, state = tgnn.load_tgnn.load(run.folder)
    model = Tgn(SMALL["tgn"]["memory"], 2, SMALL["tgn"]["time"])
    model.load_state_dict(run.state_dict())  # every name and shape must fit
    model.longest_gap, model.ticks_per_second = int(state["longest_gap"]), float(state["ticks_per_second"])
    columns = ("memory_time", "mail_time", "mail_event")
    state = {name: torch.from_numpy(x.astype(np.int64) if name in columns else x.copy()) for name, x in state.items()}
    state |= {name: state[name].flatten() for name in columns}
    edge = torch.tensor(events.edge_features)

    times = np.asarray(events._stream.time)
    first = int(np.searchsorted(events.time, np.quantile(events.time, 0.85), side="right"))
    batch = slice(first, first + 50)
    ends = np.concatenate([np.asarray(events._stream.src)[batch], np.asarray(events._stream.dst)[batch]])
    at = np.tile(times[batch], 2)

    @torch.no_grad()
    def embedded(first):
        near, event, used = map(np.stack, zip(*(neighbours(events, first, *query) for query in zip(ends, at))))
        near_time = torch.from_numpy(times[event])
        node, time = torch.from_numpy(ends.astype(np.int64)), torch.from_numpy(at)
        near, used = torch.from_numpy(near.astype(np.int64)), torch.from_numpy(used)
        assert used.any(), "nothing was compared"
        return model.attend(model.update(state, edge), node, time, near, edge[torch.from_numpy(event)], near_time, used)

    # `embed` knows no event after validation; `predict` knows those of the batch, too, by their time.
    ours = run.embed(events.ids[ends], np.tile(events.time[batch], 2), after="validation")
    np.testing.assert_allclose(ours, embedded(first), rtol=1e-4, atol=1e-5)
    new = (array[batch] for array in (events.src, events.dst, events.time, events.edge_features))
    p = run.predict(*new, batch=50, after="validation")
    with torch.no_grad():
        logits = model.decode(*embedded(len(times)).chunk(2))
    np.testing.assert_allclose(p, torch.sigmoid(logits), rtol=1e-4, atol=1e-6)
    assert np.ptp(p) > 0.01


def test_the_loader_alone_needs_nothing_of_the_package(run, tmp_path):
    import importlib.util

    path = shutil.copy(Path(tgnn.__file__).with_name("load_tgnn.py"), tmp_path / "copied.py")
    spec = importlib.util.spec_from_file_location("copied", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    state = module.state_dict(run.folder)
    assert {name: tuple(x.shape) for name, x in state.items()} == {n: x.shape for n, x in run.weights().items()}
    assert "tgnn" not in Path(path).read_text().replace("load_tgnn", "").split('"""', 2)[2]


def test_files_of_safetensors_are_read_as_by_its_own_library(run, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    path = tmp_path / "some.safetensors"
    tensors = {"half": torch.randn(3, 2).bfloat16(), "one": torch.randn(2).double(), "none": torch.zeros(0, 3)}
    safetensors.save_file(tensors, path, metadata={"by": "a test"})
    read = tgnn.load_tgnn.read(path)
    assert all((torch.from_numpy(read[name].copy()).double() == x.double()).all() for name, x in tensors.items())
    assert read.keys() == tensors.keys() and read["none"].shape == (0, 3)


def test_weights_return_as_the_start_of_another_run(run, events, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    safetensors.save_file(run.state_dict(), tmp_path / "w.safetensors")
    keys = SMALL | {"epochs": 1, "learning_rate": 1e-30, "settle": False, "evaluate": False}
    again = tgnn.train(events, weights=tmp_path / "w.safetensors", progress=False, **keys)
    assert all((again.weights()[name] == w).all() for name, w in run.weights().items())
