"""Kernels on CUDA tensors against those on the CPU. Without a GPU, on an emulated device."""

import numpy as np
import pytest
from test_ops import attention_case, matrix, memory_case, real, stream, tensors

import tgnn
from tgnn import ops


def same(ours, want):
    """Compares tensors with arrays."""
    for y, expected in zip(ours, want):
        np.testing.assert_allclose(y.detach().cpu().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_products_of_all_kinds_of_matrices_are_those_of_the_cpu(torch):
    _, *csr = matrix(90, 0.6)  # some rows are long
    for a in (ops.Csr(*csr), ops.Csr(*csr[:2]), ops.Csr(*csr[:2]).normalized(), ops.Csr([0], [])):
        for x in (real(len(a), 5), real(len(a))):
            same([ops.spmm(a, torch.tensor(x))], [ops.spmm(a, x)])
    # A matrix on the device, and values that are not where the kernels want them.
    x = real(91, 3)
    at = torch.tensor(x)[1:]
    same([ops.spmm(ops.Csr(*tensors(torch, *csr)), at)], [ops.spmm(ops.Csr(*csr), x[1:])])
    same([ops.spmm(ops.Csr(*csr), at.T.contiguous().T)], [ops.spmm(ops.Csr(*csr), x[1:])])


def test_ids_of_32_bits_are_read_as_they_are(torch):
    events = ops.EventLists(*stream())
    nodes, times = np.array([0, -1, 3, 8], np.int32), np.array([50, 50, 20, 0])
    found = ops.sample_recent(events, *tensors(torch, nodes, times), 3)
    want = ops.sample_recent(events, nodes, times, 3)
    assert all((y.cpu().numpy() == expected).all() for y, expected in zip(found, want))
    assert found[3][1] == 0 and found[0].dtype == torch.int64


def test_nothing_to_do_is_no_error(torch):
    none = torch.empty(0, dtype=torch.int64)
    node, event, dt, count = ops.sample_recent(ops.EventLists([], [], [], 0), none, none, 3)
    assert node.shape == event.shape == dt.shape == (0, 3) and count.shape == (0,)
    tables, weights = memory_case()
    new, time = ops.gru_memory(none, *tensors(torch, *vars(tables).values()), *tensors(torch, *weights))
    assert new.shape == (0, 5) and time.shape == (0,)


@pytest.mark.parametrize("with_features", [True, False])
def test_attention_and_its_gradients_are_those_of_the_cpu(torch, monkeypatch, with_features):
    learned, rows, heads = attention_case(n=40, k=5, f=3 if with_features else 0)
    if not with_features:
        rows["edge"] = None
    coefficients = real(*learned[0].shape), real(40, heads)

    def attended(on_tensors):
        mine = tensors(torch, *learned, grad=True)
        as_tensors = {name: None if x is None else torch.tensor(x) for name, x in rows.items()}
        query, h, time_w, time_b = on_tensors(mine)
        operands = {name: x if x is None else on_tensors([x])[0] for name, x in as_tensors.items()}
        out = ops.temporal_attention(query, h, **operands, time_w=time_w, time_b=time_b, heads=heads, head_width=3)
        loss = sum((y * c).sum() for y, c in zip(out, on_tensors(tensors(torch, *coefficients))))
        return [y.detach().cpu() for y in (*out, *torch.autograd.grad(loss, mine))]

    ours = attended(lambda xs: xs)
    monkeypatch.undo()
    same(ours, attended(lambda xs: [x.cpu() for x in xs]))


@pytest.mark.parametrize("nodes", [[5, 2, 0], [2], [7, 6, 5, 4, 3, 2, 1, 0]])
def test_the_memory_update_and_its_gradients_are_those_of_the_cpu(torch, monkeypatch, nodes):
    tables, weights = memory_case()

    def updated(to):
        mine = tensors(torch, *weights, grad=True)
        operands = [to(x) for x in tensors(torch, nodes, *vars(tables).values())]
        new, time = ops.gru_memory(*operands, *map(to, mine), seconds_per_tick=0.5)
        grads = torch.autograd.grad((new * new).sum(), mine)
        return [y.detach().cpu() for y in (new, time, *grads)]

    ours = updated(lambda x: x)
    monkeypatch.undo()
    same(ours, updated(lambda x: x.cpu()))


def test_operands_on_different_devices_are_refused(torch, request):
    if request.node.callspec.params["torch"] == "cpu":
        pytest.skip("arrays and tensors of the CPU are on the same device")
    tables, weights = memory_case()
    with pytest.raises(tgnn.DeviceError) as e:
        ops.gru_memory([1], *tensors(torch, *vars(tables).values()), *tensors(torch, *weights))
    assert str(e.value).startswith("gru_memory: nodes is on cpu, and memory on ")
    assert str(e.value).endswith("; give all of them on one device")
