"""Side by side with PyTorch Geometric: the pieces of its TGN compute the same numbers."""

import numpy as np
import pytest
from conftest import columns

from tgnn import ops

torch = pytest.importorskip("torch", reason="torch is not installed")
models = pytest.importorskip("torch_geometric.nn.models.tgn", reason="PyTorch Geometric is not installed")


def test_recent_neighbours_are_those_of_its_last_neighbor_loader():
    src, dst, time, _ = columns(300)
    size, half = 5, 200
    loader = models.LastNeighborLoader(40, size=size)
    # One by one: of a node's many events in one call, it does not always keep the latest.
    for i in range(half):
        loader.insert(torch.from_numpy(src[i : i + 1]), torch.from_numpy(dst[i : i + 1]))
    nodes = torch.arange(40)
    n_id, edge_index, e_id = loader(nodes)
    events = ops.EventLists(src[:half], dst[:half], time[:half], 40)
    node, event, _, count = ops.sample_recent(events, nodes, torch.full((40,), int(time[half])), size)
    for v in range(40):
        theirs = edge_index[1] == v  # n_id begins with the nodes
        assert sorted(e_id[theirs].tolist()) == sorted(event[v, : count[v]].tolist())
        assert sorted(n_id[edge_index[0, theirs]].tolist()) == sorted(node[v, : count[v]].tolist())


def test_memory_is_updated_as_by_its_memory_module():
    torch.manual_seed(0)
    d, f, t, v = 6, 3, 5, 8
    memory = models.TGNMemory(
        v, f, d, t, message_module=models.IdentityMessage(f, d, t), aggregator_module=models.LastAggregator()
    )
    memory.memory.copy_(torch.randn(v, d))
    memory.last_update.copy_(torch.arange(v))
    src, dst, time = torch.tensor([0, 1, 2]), torch.tensor([3, 4, 5]), torch.tensor([20, 30, 40])
    message = torch.randn(3, f)
    memory.train()
    memory._update_msg_store(src, dst, time, message, memory.msg_s_store)
    memory._update_msg_store(dst, src, time, message, memory.msg_d_store)
    theirs, _ = memory(torch.arange(6))

    partner = torch.tensor([3, 4, 5, 0, 1, 2, 0, 0])
    event, mail_time = torch.tensor([0, 1, 2, 0, 1, 2, -1, -1]), torch.tensor([20, 30, 40, 20, 30, 40, 0, 0])
    gru, lin = memory.gru, memory.time_enc.lin
    weights = [lin.weight, lin.bias, gru.weight_ih, gru.weight_hh, gru.bias_ih, gru.bias_hh]
    learned = [w.detach().clone().requires_grad_() for w in weights]
    tables = memory.memory, memory.last_update, memory.memory[partner], event, mail_time, message
    ours, _ = ops.gru_memory(torch.arange(6), *tables, *learned)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)

    coefficients = torch.randn_like(theirs)
    want = torch.autograd.grad((theirs * coefficients).sum(), weights)
    found = torch.autograd.grad((ours * coefficients).sum(), learned)
    for g, e in zip(found, want):
        torch.testing.assert_close(g.view_as(e), e, rtol=1e-4, atol=1e-4)


def test_attention_is_that_of_its_transformer_convolution():
    conv_of = pytest.importorskip("torch_geometric.nn").TransformerConv
    torch.manual_seed(0)
    n, k, heads, d, f, t, p = 5, 3, 2, 4, 3, 6, 7
    conv = conv_of(d, p, heads=heads, edge_dim=f + t)
    h, edge, dt = torch.randn(9, d, requires_grad=True), torch.randn(11, f), torch.rand(n, k)
    row, event = torch.randint(0, 9, (n, k)), torch.randint(0, 11, (n, k))
    time_w, time_b = torch.randn(t), torch.randn(t)
    root = torch.randn(n, d)
    phi = torch.cos(dt[..., None] * time_w + time_b)
    features = torch.cat([edge[event], phi], -1).reshape(n * k, -1)
    ends = torch.stack([row.flatten(), torch.arange(n).repeat_interleave(k)])
    theirs = conv((h, root), ends, features)

    # The key of a neighbour is {W_k | W_e} z, and its bias cancels in the softmax.
    w_e = conv.lin_edge.weight
    w_k, w_v = (torch.cat([lin.weight, w_e], 1).view(heads, p, -1) for lin in (conv.lin_key, conv.lin_value))
    query = torch.einsum("nhp,hpc->nhc", conv.lin_query(root).view(n, heads, p), w_k).reshape(n, -1)
    count = torch.full((n,), k)
    rows = dict(row=row, event=event, dt=dt, count=count, edge=edge, time_w=time_w, time_b=time_b)
    mix, sums = ops.temporal_attention(query, h, **rows, heads=heads, head_width=p)
    values = torch.einsum("nhc,hpc->nhp", mix.view(n, heads, -1), w_v)
    ours = (values + sums[..., None] * conv.lin_value.bias.view(heads, p)).reshape(n, -1) + conv.lin_skip(root)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    parameters = [h, *conv.parameters()]
    coefficients = torch.randn_like(theirs)
    want, found = (torch.autograd.grad((y * coefficients).sum(), parameters, allow_unused=True) for y in (theirs, ours))
    for (name, _), g, e in zip([("h", h), *conv.named_parameters()], found, want):
        # The bias of keys has no gradient here, and rounding errors there.
        expected = torch.zeros_like(e) if g is None else g
        torch.testing.assert_close(e, expected, rtol=1e-3, atol=1e-4, msg=lambda text: f"{name}: {text}")
    assert np.isfinite(ours.detach().numpy()).all()
