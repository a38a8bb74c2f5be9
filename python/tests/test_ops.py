"""Kernels against their formulas, on NumPy and on torch, with gradients."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

import tgnn
from tgnn import ops

rng = np.random.default_rng(7)


def real(*shape):
    return rng.normal(size=shape).astype(np.float32)


def matrix(n=17, share=0.3):
    dense = real(n, n) * (rng.random((n, n)) < share)
    indptr = np.concatenate([[0], np.cumsum((dense != 0).sum(1))])
    indices = np.concatenate([np.flatnonzero(row) for row in dense])
    return dense, indptr, indices, dense[dense != 0]


def test_spmm_is_the_product_of_a_sparse_and_a_dense_matrix():
    dense, *csr = matrix()
    a, x = ops.Csr(*csr), real(17, 5)
    np.testing.assert_allclose(ops.spmm(a, x), dense @ x, rtol=1e-5, atol=1e-5)
    # Other types, and other layouts, are converted.
    np.testing.assert_allclose(ops.spmm(a, np.asfortranarray(x, np.float64)), dense @ x, rtol=1e-5, atol=1e-5)
    one = ops.Csr(csr[0], csr[1])
    np.testing.assert_allclose(ops.spmm(one, x), (dense != 0) @ x, rtol=1e-5, atol=1e-5)
    degree = (dense != 0).sum(1)
    scale = np.where(degree > 0, 1 / np.sqrt(np.maximum(degree, 1)), 0)
    want = scale[:, None] * ((dense != 0) @ (scale[:, None] * x))
    np.testing.assert_allclose(ops.spmm(one.normalized(), x), want, rtol=1e-5, atol=1e-5)


def test_matrices_of_scipy_are_taken():
    sparse = pytest.importorskip("scipy.sparse")
    dense, *_ = matrix()
    x = real(17, 3)
    np.testing.assert_allclose(ops.spmm(sparse.coo_matrix(dense), x), dense @ x, rtol=1e-5, atol=1e-5)


def stream(n=80, nodes=9):
    return rng.integers(0, nodes, n), rng.integers(0, nodes, n), np.sort(rng.integers(0, 40, n))


def recent(src, dst, time, node, before, k):
    """The definition of `sample_recent` for one query, latest first."""
    seen = [i for i in range(len(src)) if node in (src[i], dst[i]) and time[i] < before][::-1][:k]
    return [(src[i] + dst[i] - node, i, before - time[i]) for i in seen]


def test_the_latest_events_before_a_time_are_sampled():
    src, dst, time = stream()
    nodes, times = rng.integers(0, 9, 30), rng.integers(0, 45, 30)
    node, event, dt, count = ops.sample_recent(ops.EventLists(src, dst, time), nodes, times, 4)
    assert node.shape == event.shape == dt.shape == (30, 4)
    for i in range(30):
        want = recent(src, dst, time, nodes[i], times[i], 4)
        assert count[i] == len(want)
        assert list(zip(node[i], event[i], dt[i]))[: count[i]] == want
        assert (node[i, count[i] :] == -1).all() and (event[i, count[i] :] == -1).all()


def cell(x, h, w_x, w_h, b_x, b_h, numpy):
    """A GRU cell, on NumPy or torch."""
    sigmoid = lambda y: 1 / (1 + numpy.exp(-y))
    x, h_, d = x @ w_x.T + b_x, h @ w_h.T + b_h, h.shape[1]
    r, z = sigmoid(x[:, :d] + h_[:, :d]), sigmoid(x[:, d : 2 * d] + h_[:, d : 2 * d])
    n = numpy.tanh(x[:, 2 * d :] + r * h_[:, 2 * d :])
    return (1 - z) * n + z * h


def memory_case(d=5, f=3, t=4, v=8):
    tables = SimpleNamespace(
        memory=real(v, d),
        memory_time=rng.integers(0, 50, v),
        mail=real(v, d),
        mail_event=rng.integers(0, 6, v),
        mail_time=rng.integers(50, 99, v),
        edge=real(6, f),
    )
    tables.mail_event[2] = -1
    weights = real(t), real(t), real(3 * d, 2 * d + f + t), real(3 * d, d), real(3 * d), real(3 * d)
    return tables, weights


def updated(tables, nodes, weights, numpy, cat):
    """The definition of `gru_memory`, for nodes with a mail."""
    time_w, time_b, *cell_weights = weights
    dt = (tables.mail_time - tables.memory_time)[nodes]
    phi = numpy.cos(dt[:, None] * 0.5 * time_w + time_b)
    message = cat([tables.memory[nodes], tables.mail[nodes], tables.edge[tables.mail_event[nodes]], phi], 1)
    return cell(message, tables.memory[nodes], *cell_weights, numpy)


def test_memory_is_updated_by_a_gru_where_there_is_a_mail():
    tables, weights = memory_case()
    nodes = np.array([5, 2, 0])
    new, time = ops.gru_memory(nodes, *vars(tables).values(), *weights, seconds_per_tick=0.5)
    want = updated(tables, nodes[[0, 2]], weights, np, np.concatenate)
    np.testing.assert_allclose(new[[0, 2]], want, rtol=1e-4, atol=1e-5)
    assert (new[1] == tables.memory[2]).all()
    assert time.tolist() == [tables.mail_time[5], tables.memory_time[2], tables.mail_time[0]]


def attention_case(n=6, k=4, heads=2, d=5, f=3, t=4, u=7):
    c = d + f + t
    learned = real(n, heads * c), real(u, d), real(t), real(t)
    count = rng.integers(0, k + 1, n)
    count[:2] = [0, k]
    used = np.arange(k) < count[:, None]
    row, event = np.where(used, rng.integers(0, u, (n, k)), -1), np.where(used, rng.integers(0, 9, (n, k)), -1)
    rows = {"row": row, "event": event, "dt": real(n, k) ** 2, "count": count, "edge": real(9, f)}
    return learned, rows, heads


def attended(learned, rows, heads, head_width, numpy, cat):
    """The definition of `temporal_attention`: mix and sum."""
    query, h, time_w, time_b = learned
    used = rows["row"] >= 0
    phi = numpy.cos(rows["dt"][:, :, None] * time_w + time_b)
    z = cat([h[rows["row"]], rows["edge"][rows["event"]], phi], -1)  # [n, k, c]
    q = query.reshape(len(query), heads, -1)
    score = (q[:, :, None] * z[:, None]).sum(-1) / head_width**0.5
    # Roots without neighbours get zeros.
    weight = numpy.exp(score - score.max() if numpy is np else score - score.detach().max()) * used[:, None]
    total = weight.sum(-1)
    weight = weight / numpy.where(total == 0, total + 1, total)[:, :, None]
    return (weight[..., None] * z[:, None]).sum(2).reshape(len(query), -1), weight.sum(-1)


def test_attention_mixes_the_rows_of_neighbours():
    learned, rows, heads = attention_case()
    query, h, time_w, time_b = learned
    mix, sums = ops.temporal_attention(query, h, **rows, time_w=time_w, time_b=time_b, heads=heads, head_width=3)
    want = attended(learned, rows, heads, 3, np, np.concatenate)
    np.testing.assert_allclose(mix, want[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(sums, want[1], rtol=1e-5, atol=1e-6)
    assert not mix[0].any() and not sums[0].any()


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: ops.spmm(ops.Csr(*matrix()[1:]), real(16, 2)), "spmm: x has 16 rows, and the matrix 17"),
        (lambda: ops.Csr([0, 1], [5]), "csr: index 0 names column 5, of 1 columns"),
        (lambda: ops.Csr([0, 2], [0]), "csr: indptr goes from 0 to 2"),
        (lambda: ops.Csr([0, 1], [-2]), "csr: -2 is not an index"),
        (lambda: ops.Csr(3), "a int is not a sparse matrix"),
        (lambda: ops.EventLists([0, 0], [1, 1], [5, 4]), "events: event 1 is earlier than the one before it"),
        (lambda: ops.sample_recent(ops.EventLists([0], [1], [5]), [7], [9], 2), "sample_neighbors"),
        (lambda: ops.sample_recent(ops.EventLists([0], [1], [5]), [0, 1], [9], 2), "sample_neighbors"),
        (lambda: memory_call(nodes=[1, 1]), "gru_memory: node 1 is listed twice"),
        (lambda: memory_call(nodes=[99]), "gru_memory: row 0 of `nodes` names row 99 of a smaller table"),
        (lambda: memory_call(mail=real(8, 4)), "gru_memory: mail has 32 elements, want 40"),
        (lambda: attention_call(row=np.full((6, 4), 99)), "temporal_attention"),
        (lambda: attention_call(heads=0), "temporal_attention: 0 heads, want 1 to 1024"),
        (lambda: attention_call(dt=real(6, 4)[:, :2]), "temporal_attention"),
    ],
)
def test_operands_that_do_not_fit_are_refused_in_one_line(call, text):
    with pytest.raises(tgnn.Error) as e:
        call()
    assert text in str(e.value) and "\n" not in str(e.value)


def memory_call(nodes=(1,), **change):
    tables, weights = memory_case()
    return ops.gru_memory(np.array(nodes), *(vars(tables) | change).values(), *weights)


def attention_call(heads=2, **change):
    (query, h, time_w, time_b), rows, _ = attention_case()
    rows["count"][:] = 4
    return ops.temporal_attention(query, h, **(rows | change), time_w=time_w, time_b=time_b, heads=heads, head_width=3)


def test_kernels_run_side_by_side_on_threads_of_the_caller():
    dense, *csr = matrix(200, 0.2)
    a, x = ops.Csr(*csr), real(200, 16)
    want, found = ops.spmm(a, x), []
    work = lambda: found.extend(ops.spmm(a, x) for _ in range(20))
    threads = [threading.Thread(target=work) for _ in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(found) == 60 and all((y == want).all() for y in found)


# On torch, on the CPU and on CUDA devices: the same numbers, and the gradients of the formulas by its autograd, in f64


def tensors(torch, *arrays, grad=False):
    return [torch.tensor(x, requires_grad=grad) for x in arrays]


def doubles(torch, *arrays):
    return [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in arrays]


def same_gradients(torch, ours, mine, theirs, want):
    """Compares outputs and the gradients of a random functional of them."""
    coefficients = [torch.randn(y.shape, dtype=torch.float64) for y in want]
    for y, expected in zip(ours, want):
        torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-5)
    found = torch.autograd.grad(sum((y * c).sum() for y, c in zip(ours, coefficients)), mine)
    expected = torch.autograd.grad(sum((y * c).sum() for y, c in zip(want, coefficients)), theirs)
    for g, e in zip(found, expected):
        torch.testing.assert_close(g.double(), e, rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_the_gradient_of_spmm_is_that_of_the_dense_product(torch):
    dense, *csr = matrix()
    x = real(17, 5)
    (mine,), (theirs,) = tensors(torch, x, grad=True), doubles(torch, x)
    a = torch.sparse_csr_tensor(*(torch.from_numpy(np.array(part)) for part in csr), size=dense.shape)
    same_gradients(torch, [ops.spmm(a, mine)], [mine], [theirs], [torch.tensor(dense, dtype=torch.float64) @ theirs])
    y = ops.spmm(a, mine.double())
    assert y.dtype == torch.float64 and y.requires_grad


def test_sampling_is_the_same_on_torch(torch):
    src, dst, time = stream()
    nodes, times = rng.integers(0, 9, 30), rng.integers(0, 45, 30)
    events = ops.EventLists(*tensors(torch, src, dst, time))
    for ours, want in zip(
        ops.sample_recent(events, *tensors(torch, nodes, times), 4),
        ops.sample_recent(ops.EventLists(src, dst, time), nodes, times, 4),
    ):
        assert isinstance(ours, torch.Tensor) and (ours.cpu().numpy() == want).all()


def test_the_gradients_of_the_memory_update_are_those_of_its_formula(torch):
    tables, weights = memory_case()
    nodes = np.array([5, 0, 7])
    mine, theirs = tensors(torch, *weights, grad=True), doubles(torch, *weights)
    as_tensors = SimpleNamespace(**{name: torch.tensor(x) for name, x in vars(tables).items()})
    new, time = ops.gru_memory(torch.tensor(nodes), *vars(as_tensors).values(), *mine, seconds_per_tick=0.5)
    exact = SimpleNamespace(**{n: x.double() if x.is_floating_point() else x for n, x in vars(as_tensors).items()})
    same_gradients(torch, [new], mine, theirs, [updated(exact, nodes, theirs, torch, torch.cat)])
    assert not time.requires_grad and (time == as_tensors.mail_time[nodes]).all()


def test_the_gradients_of_attention_are_those_of_its_formula(torch):
    learned, rows, heads = attention_case()
    mine, theirs = tensors(torch, *learned, grad=True), doubles(torch, *learned)
    as_tensors = {name: torch.tensor(x) for name, x in rows.items()}
    query, h, time_w, time_b = mine
    ours = ops.temporal_attention(query, h, **as_tensors, time_w=time_w, time_b=time_b, heads=heads, head_width=3)
    same_gradients(torch, ours, mine, theirs, attended(theirs, as_tensors, heads, 3, torch, torch.cat))


def test_no_gradient_flows_where_none_is_wanted(torch):
    dense, *csr = matrix()
    assert not ops.spmm(ops.Csr(*csr), torch.ones(17, 2)).requires_grad
    a = torch.tensor(dense).to_sparse_csr().requires_grad_()
    with pytest.raises(tgnn.UsageError, match="the values of a sparse matrix get no gradient"):
        ops.spmm(a, torch.ones(17, 2))


def device_memory_call(torch, nodes=(1,), **change):
    """`gru_memory` on tensors."""
    tables, weights = memory_case()
    tables = {name: torch.tensor(x) for name, x in vars(tables).items()} | change
    return ops.gru_memory(torch.tensor(nodes), *tables.values(), *tensors(torch, *weights))


def device_attention_call(torch, heads=2, **change):
    """`temporal_attention` on tensors."""
    learned, rows, _ = attention_case()
    rows["count"][:] = 4
    rows = {name: torch.tensor(x) for name, x in (rows | change).items()}
    query, h, time_w, time_b = tensors(torch, *learned)
    return ops.temporal_attention(query, h, **rows, time_w=time_w, time_b=time_b, heads=heads, head_width=3)


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda torch: ops.spmm(ops.Csr(*matrix()[1:]), torch.ones(16, 2)), "spmm: x has 16 rows, and the matrix 17"),
        (lambda torch: ops.spmm(ops.Csr(*matrix()[1:]), torch.ones(17, 2, 1)), "3 dimensions, want at most 2"),
        (lambda torch: sampled(torch, [7], [9]), "sample_neighbors: row 0 names row 7 of a smaller table"),
        (lambda torch: sampled(torch, [0, 1], [9]), "sample_neighbors"),
        (lambda torch: sampled(torch, [1 << 40], [9]), "sample_recent: 1099511627776 is not an index"),
        (lambda torch: device_memory_call(torch, [1, 1]), "gru_memory: node 1 is listed twice"),
        (lambda torch: device_memory_call(torch, [99]), "gru_memory: row 0 names row 99 of a smaller table"),
        (lambda torch: device_memory_call(torch, mail=torch.ones(8, 4)), "gru_memory: "),
        (lambda torch: device_attention_call(torch, row=np.full((6, 4), 99)), "names row 99 of a smaller table"),
        (lambda torch: device_attention_call(torch, row=np.full((6, 4), -2)), "temporal_attention: -2 is not an index"),
        (lambda torch: device_attention_call(torch, heads=0), "temporal_attention: 0 heads"),
        (lambda torch: device_attention_call(torch, dt=real(6, 3)), "temporal_attention: "),
        (
            lambda torch: ops.spmm(ops.Csr(*matrix()[1:]), torch.ones(17, 2, device="meta")),
            "spmm: x is on meta, want the CPU or a CUDA device; give tensor.cpu()",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused_in_one_line(torch, call, text):
    with pytest.raises(tgnn.Error) as e:
        call(torch)
    assert text in str(e.value) and "\n" not in str(e.value)


def sampled(torch, nodes, times):
    return ops.sample_recent(ops.EventLists([0], [1], [5]), *tensors(torch, nodes, times), 2)
