"""Kernels against their formulas, on NumPy and on torch, with gradients."""

import copy
import pickle
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
        (lambda: ops.Csr([0, 1], [5]), "csr: indices name column 5, and there are 1 rows; a Csr is square"),
        (lambda: ops.Csr([0, 2], [0]), "csr: indptr goes from 0 to 2"),
        (lambda: ops.Csr([0, 1], [-2]), "csr: indices has -2; give numbers from 0"),
        (lambda: ops.Csr(3), "an int is not sparse; give indptr and indices, or a sparse matrix"),
        (lambda: ops.Csr(np.eye(2)), "a ndarray is not sparse"),
        (lambda: ops.Csr(3, [0]), "csr: indptr has the shape []; give one dimension"),
        (lambda: ops.Csr([0, 1], [[0]]), "csr: indices has the shape [1, 1]; give one dimension"),
        (lambda: sample_one(0, 9), "sample_recent: nodes has the shape []; give one dimension"),
        (lambda: ops.EventLists(0, 1, 5), "events: src has the shape []; give one dimension"),
        (lambda: memory_call(nodes=[[1]]), "gru_memory: nodes has the shape [1, 1]; give one dimension"),
        (lambda: ops.Csr([0, 1.5], [0]), "csr: indptr has 1.5; give whole numbers"),
        (lambda: ops.Csr([0, 1], [0], ["x"]), "csr: values is of type <U1; give numbers"),
        (lambda: ops.Csr([0, 1], [0], [1e300]), "csr: values has a number that is too large for 32 bits"),
        (lambda: ops.spmm(ops.Csr([0, 1], [0]), [["x"]]), "spmm: x is of type <U1; give numbers"),
        (lambda: ops.spmm(ops.Csr([0, 1], [0]), [[1j]]), "spmm: x is of type complex128; give numbers"),
        (lambda: ops.spmm(ops.Csr([0, 1], [0]), None), "spmm: x"),
        (lambda: ops.EventLists([0, 0], [1, 2], [5.2, 7.9]), "events: time has 5.2; give whole numbers"),
        (lambda: ops.EventLists([0], [1], [np.nan]), "events: time has nan; give whole numbers"),
        (lambda: ops.EventLists([0], [1], np.array(["2024-01-01"], "M8[s]")), "events: time is of type datetime64[s]"),
        (lambda: ops.EventLists([True], [1], [2]), "events: src is of type bool"),
        (lambda: ops.EventLists([0], [1], np.array([2**63], np.uint64)), "events: time has 9223372036854775808"),
        (lambda: ops.EventLists([0], [1], [5], nodes=2.5), "events: nodes is 2.5; give a whole number"),
        (lambda: ops.sample_recent(tgnn.Events([0], [1], [5]), [0], [9], 2), "events is an Events; give EventLists"),
        (lambda: sample_one([0.7], [9]), "sample_recent: nodes has 0.7; give whole numbers"),
        (lambda: sample_one([0], [5.9]), "sample_recent: times has 5.9; give whole numbers"),
        (lambda: sample_one([0], [9], -1), "sample_recent: k is -1; give 0 to"),
        (lambda: sample_one([0], [9], 1.5), "sample_recent: k is 1.5; give a whole number"),
        (lambda: sample_one([0], [9], 2**40), "sample_recent: k is 1099511627776"),
        (lambda: attention_call(count=np.full(6, 2.9)), "temporal_attention: count has 2.9; give whole numbers"),
        (
            lambda: attention_call(edge=None),
            "query has 24 columns, and rows have 5 of h, 0 because edge is None and 4 of time_w; give 2 x 9",
        ),
        (lambda: attention_call(heads="2"), "temporal_attention: heads is '2'; give a whole number"),
        (lambda: memory_call(edge=None), "w_x has 17 columns, and a message 2 x 5 of memory, 0 because edge is None"),
        (lambda: memory_call(memory=real(8)), "gru_memory: memory has the shape [8]; give two dimensions"),
        (lambda: memory_call(memory_time=np.full(8, 0.5)), "gru_memory: memory_time has 0.5; give whole numbers"),
        (lambda: ops.EventLists([0, 0], [1, 1], [5, 4]), "events: event 1 is earlier than the one before it"),
        (lambda: ops.sample_recent(ops.EventLists([0], [1], [5]), [7], [9], 2), "sample_neighbors"),
        (lambda: ops.sample_recent(ops.EventLists([0], [1], [5]), [0, 1], [9], 2), "sample_neighbors"),
        (lambda: memory_call(nodes=[1, 1]), "gru_memory: node 1 is listed twice"),
        (lambda: memory_call(nodes=[99]), "gru_memory: row 0 of `nodes` names row 99 of a smaller table"),
        (lambda: memory_call(mail=real(8, 4)), "gru_memory: mail has 32 elements, want 40"),
        (lambda: attention_call(row=np.full((6, 4), 99)), "temporal_attention"),
        (lambda: attention_call(heads=0), "temporal_attention: heads is 0; give 1 to"),
        (lambda: attention_call(dt=real(6, 4)[:, :2]), "temporal_attention"),
    ],
)
def test_operands_that_do_not_fit_are_refused_in_one_line(call, text):
    with pytest.raises(tgnn.Error) as e:
        call()
    assert text in str(e.value) and "\n" not in str(e.value)


def sample_one(nodes, times, k=2):
    return ops.sample_recent(ops.EventLists([0], [1], [5]), nodes, times, k)


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


@pytest.mark.filterwarnings("ignore:Sparse")
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
    for a in (torch.tensor(dense).to_sparse_csr(), torch.tensor(dense).to_sparse()):
        with pytest.raises(tgnn.UsageError, match="csr: values: no gradient flows into it; give it with .detach()"):
            ops.spmm(a.requires_grad_(), torch.ones(17, 2))
        with torch.no_grad():
            assert ops.spmm(a, torch.ones(17, 2)).shape == (17, 2)


@pytest.mark.parametrize("name", ["dt", "edge", "memory", "mail", "edge of mails", "values"])
def test_a_gradient_that_no_kernel_computes_is_refused(torch, name):
    calls = {
        "dt": lambda: device_attention_call(torch, dt=torch.ones(6, 4).requires_grad_()),
        "edge": lambda: device_attention_call(torch, edge=torch.ones(9, 3).requires_grad_()),
        "memory": lambda: device_memory_call(torch, memory=torch.ones(8, 5).requires_grad_()),
        "mail": lambda: device_memory_call(torch, mail=torch.ones(8, 5).requires_grad_()),
        "edge of mails": lambda: device_memory_call(torch, edge=torch.ones(6, 3).requires_grad_()),
        "values": lambda: ops.Csr([0, 1], [0], torch.ones(1).requires_grad_()),
    }
    with pytest.raises(tgnn.UsageError, match=f"{name.split()[0]}: no gradient flows into it; give it with .detach"):
        calls[name]()
    with torch.no_grad():
        calls[name]()


@pytest.mark.parametrize("changed", ["query", "h", "row", "event", "dt", "count", "edge", "time_w", "time_b"])
def test_attention_notices_that_an_operand_was_changed_before_the_backward_pass(torch, changed):
    learned, rows, heads = attention_case()
    operands = dict(zip(("query", "h", "time_w", "time_b"), tensors(torch, *learned)))
    operands |= {name: torch.tensor(x) for name, x in rows.items()}
    weight = torch.ones(1, requires_grad=True)
    used = operands | {"query": operands["query"] * weight}
    mix, _ = ops.temporal_attention(**used, heads=heads, head_width=3)
    (right,) = torch.autograd.grad(mix.sum(), weight, retain_graph=True)
    with torch.no_grad():
        used[changed].zero_()
    refused_or(lambda: torch.autograd.grad(mix.sum(), [weight]), [right], always=used[changed].is_floating_point())


def refused_or(gradients, right, always=False):
    """Checks that gradients after a change in place are refused or, where the kernel reads a copy, right."""
    try:
        found = gradients()
    except RuntimeError as e:
        assert "modified by an inplace operation" in str(e)
    else:
        assert not always and all((x == y).all() for x, y in zip(found, right))


@pytest.mark.parametrize("changed", range(6))
def test_the_memory_update_notices_changed_weights_and_does_not_need_the_tables(torch, changed):
    tables, weights = memory_case()
    tables = {name: torch.tensor(x) for name, x in vars(tables).items()}
    mine = tensors(torch, *weights, grad=True)
    call = lambda: ops.gru_memory(torch.tensor([5, 0, 7]), *tables.values(), *mine)[0].pow(2).sum()
    right = torch.autograd.grad(call(), mine)
    loss = call()
    for name in ("memory", "mail", "edge"):
        tables[name] += 1  # written before the backward pass, as in PyTorch Geometric's TGN
    for found, want in zip(torch.autograd.grad(loss, mine, retain_graph=True), right):
        torch.testing.assert_close(found, want)
    with torch.no_grad():
        mine[changed].add_(1)
    refused_or(lambda: torch.autograd.grad(loss, mine), right, always=True)


def test_a_gradient_of_a_gradient_is_right_or_refused(torch):
    dense = torch.tensor([[1.0, 2.0], [0.0, 3.0]])
    a, x = ops.Csr([0, 2, 3], [0, 1, 1], [1.0, 2.0, 3.0]), torch.tensor([[0.1], [0.3]], requires_grad=True)

    def penalised(product):
        (g,) = torch.autograd.grad(product().pow(2).sum(), x, create_graph=True)
        return torch.autograd.grad(product().pow(2).sum() + g.pow(2).sum(), x)[0]

    torch.testing.assert_close(penalised(lambda: ops.spmm(a, x)), penalised(lambda: dense @ x), rtol=1e-5, atol=1e-4)
    weights = tensors(torch, *memory_case()[1], grad=True)
    tables = [torch.tensor(table) for table in vars(memory_case()[0]).values()]
    new, _ = ops.gru_memory(torch.tensor([5]), *tables, *weights)
    (g,) = torch.autograd.grad(new.pow(2).sum(), weights[2], create_graph=True)
    penalty = new.sum() + g.pow(2).sum()
    for of in (weights, weights[2:3], [new]):
        with pytest.raises(tgnn.UsageError, match="gru_memory can be differentiated once"):
            torch.autograd.grad(penalty, of, retain_graph=True)
    with pytest.raises(tgnn.UsageError, match="gru_memory can be differentiated once"):
        penalty.backward(retain_graph=True)
    (g,) = torch.autograd.grad(new.pow(2).sum(), weights[2])
    assert not g.requires_grad and g.any()


@pytest.mark.filterwarnings("ignore:`torch.jit.script`")
def test_transforms_of_torch_are_right_or_refused(torch):
    dense, *csr = matrix()
    a, dense, x = ops.Csr(*csr), torch.tensor(dense), torch.randn(3, 17, 2)
    for dim in (0, 1, 2):
        at = x.movedim(0, dim)
        torch.testing.assert_close(torch.vmap(lambda x: ops.spmm(a, x), dim)(at), dense @ x, rtol=1e-4, atol=1e-5)
    _, tangent = torch.func.jvp(lambda x: ops.spmm(a, x), (x[0],), (x[1],))
    torch.testing.assert_close(tangent, dense @ x[1], rtol=1e-4, atol=1e-5)
    found = torch.func.grad(lambda x: ops.spmm(a, x).pow(2).sum())(x[0])
    torch.testing.assert_close(found, 2 * dense.T @ (dense @ x[0]), rtol=1e-4, atol=1e-4)
    learned, rows, heads = attention_case()
    query, h, time_w, time_b = tensors(torch, *learned)
    rows = {name: torch.tensor(x) for name, x in rows.items()}
    call = lambda q: ops.temporal_attention(q, h, **rows, time_w=time_w, time_b=time_b, heads=heads, head_width=3)[
        0
    ].sum()
    with pytest.raises(tgnn.UsageError, match="temporal_attention has no rules for torch.func and vmap"):
        torch.func.grad(call)(query)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors_of_every_layout_are_taken(torch):
    dense, *_ = matrix()
    x = real(17, 3)
    dense = torch.tensor(dense)
    for sparse in (dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc()):
        torch.testing.assert_close(ops.spmm(sparse, torch.tensor(x)), dense @ torch.tensor(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(tgnn.UsageError, match="a Tensor is not sparse"):
        ops.Csr(dense)
    with pytest.raises(tgnn.ShapeError, match="the matrix is 16 x 17; a Csr is square"):
        ops.Csr(dense[:16].to_sparse())


def test_arrays_among_tensors_may_change_before_the_backward_pass(torch, request):
    if request.node.callspec.params["torch"] != "cpu":
        pytest.skip("arrays are on the CPU")
    learned, rows, heads = attention_case()
    query = torch.tensor(learned[0], requires_grad=True)
    loss = lambda: ops.temporal_attention(query, learned[1], **rows, time_w=learned[2], time_b=learned[3], heads=heads,
                                          head_width=3)[0].pow(2).sum()  # fmt: skip
    (right,) = torch.autograd.grad(loss(), query)
    later = loss()
    learned[1][:] = 0
    torch.testing.assert_close(torch.autograd.grad(later, query)[0], right)


def device_memory_call(torch, nodes=(1,), **change):
    """`gru_memory` on tensors."""
    tables, weights = memory_case()
    tables = {name: torch.tensor(x) for name, x in vars(tables).items()} | change
    return ops.gru_memory(torch.tensor(nodes), *tables.values(), *tensors(torch, *weights))


def device_attention_call(torch, heads=2, **change):
    """`temporal_attention` on tensors."""
    learned, rows, _ = attention_case()
    rows["count"][:] = 4
    rows = {name: torch.tensor(x) for name, x in rows.items()} | change
    query, h, time_w, time_b = tensors(torch, *learned)
    return ops.temporal_attention(query, h, **rows, time_w=time_w, time_b=time_b, heads=heads, head_width=3)


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda torch: ops.spmm(ops.Csr(*matrix()[1:]), torch.ones(16, 2)), "spmm: x has 16 rows, and the matrix 17"),
        (lambda torch: ops.spmm(ops.Csr(*matrix()[1:]), torch.ones(17, 2, 1)), "3 dimensions, want at most 2"),
        (lambda torch: sampled(torch, [7], [9]), "names row 7 of a smaller table"),
        (lambda torch: sampled(torch, [0, 1], [9]), "sample_neighbors"),
        (lambda torch: sampled(torch, [1 << 40], [9]), "sample_recent: 1099511627776 is not an index"),
        (lambda torch: device_memory_call(torch, [1, 1]), "gru_memory: node 1 is listed twice"),
        (lambda torch: device_memory_call(torch, [99]), "names row 99 of a smaller table"),
        (lambda torch: device_memory_call(torch, mail=torch.ones(8, 4)), "gru_memory: "),
        (lambda torch: device_attention_call(torch, row=torch.full((6, 4), 99)), "names row 99 of a smaller table"),
        (
            lambda torch: device_attention_call(torch, row=torch.full((6, 4), -2)),
            "temporal_attention: -2 is not an index",
        ),
        (lambda torch: device_attention_call(torch, heads=0), "temporal_attention: heads is 0"),
        (lambda torch: device_attention_call(torch, dt=torch.ones(6, 3)), "temporal_attention: "),
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


def test_operands_that_are_prepared_are_copied_and_pickled():
    dense, *csr = matrix()
    x, normalized = real(17, 2), ops.Csr(*csr[:2]).normalized()
    for a in (ops.Csr(*csr), ops.Csr(*csr[:2]), normalized, ops.Csr([0], [])):
        again = pickle.loads(pickle.dumps(a))
        assert repr(again) == repr(a) and (ops.spmm(again, x[: len(a)]) == ops.spmm(a, x[: len(a)])).all()
        assert copy.deepcopy(a) is a
    assert repr(normalized) == f"Csr(17 x 17, {len(csr[1])} entries, normalized)"
    src, dst, time = stream()
    lists = ops.EventLists(src, dst, time, 12)
    again = pickle.loads(pickle.dumps(lists))
    assert repr(lists) == repr(again) == "EventLists(80 events, 12 nodes)"
    for ours, want in zip(ops.sample_recent(again, src, time + 1, 5), ops.sample_recent(lists, src, time + 1, 5)):
        assert (ours == want).all()


def test_names_of_the_module_are_those_of_the_kernels():
    assert dir(ops) == ops.__all__ and all(hasattr(ops, name) for name in ops.__all__)
