"""What can be done with a trained model."""

import copy
import gc
import json
import multiprocessing
import pickle
from pathlib import Path

import numpy as np
import pytest
from conftest import SMALL, columns

import tgnn


def test_embeddings_have_a_row_for_each_id_at_its_time(run, events):
    ids, last = [3, 21, 3], events.time[-1]
    z = run.embed(ids)
    assert z.shape == (3, 8) and np.isfinite(z).all() and (z[0] == z[2]).all()
    assert (run.embed(ids, last + 1) == z).all()
    assert (run.embed(ids, [last + 1, last + 1, events.time[300]])[2] != z[2]).any()
    with pytest.raises(tgnn.DataError, match="there is no node 99"):
        run.embed([99])


def test_ids_and_times_are_those_of_the_user():
    src, dst, time, _ = columns()
    plain = tgnn.train(tgnn.Events(src, dst, time), progress=False, **SMALL)
    when = np.datetime64("2024-01-01T00:00:00") + time.astype("timedelta64[s]")
    text = tgnn.Events([f"a{i:02}" for i in src], [f"b{i:02}" for i in dst], when)
    named = tgnn.train(text, progress=False, **SMALL)
    want = plain.embed([3, 21], time[500])
    assert (named.embed(["a03", "b21"], when[500]) == want).all()
    assert (named.embed(["a03", "b21"], str(when[500])) == want).all()
    later = np.arange(3) + time[-1]
    p = plain.predict([3, 4, 3], [21, 22, 23], later)
    assert (named.predict(["a03", "a04", "a03"], ["b21", "b22", "b23"], when[-1] + np.arange(3)) == p).all()
    with pytest.raises(tgnn.DataError, match="node zz does not fit"):
        named.predict(["zz"], ["b21"], when[-1])


def test_sparse_ids_are_ids_everywhere():
    src, dst, time, _ = columns()
    dense = tgnn.train(tgnn.Events(src, dst, time), progress=False, **SMALL)
    sparse = tgnn.train(tgnn.Events(src * 1000 + 5, dst * 1000 + 5, time), progress=False, **SMALL)
    assert (sparse.embed([3005, 21005]) == dense.embed([3, 21])).all()
    later = np.full(2, time[-1])
    assert (sparse.predict([3005, 5], [21005, 30005], later) == dense.predict([3, 0], [21, 30], later)).all()


def test_the_test_part_is_predicted_as_it_was_evaluated(events, run):
    start = int(np.searchsorted(events.time, np.quantile(events.time, 0.85), side="right"))
    part = slice(start, None)
    new = [array[part] for array in (events.src, events.dst, events.time, events.edge_features)]
    p = run.predict(*new, batch=100, after="validation")
    with pytest.raises(tgnn.Error, match="earlier"):
        run.predict(*new, batch=100)  # the model already knows them
    assert p.shape == (len(events) - start,) and ((0 < p) & (p < 1)).all()
    # A batch at a time, the same.
    predictor = run.predictor(100, after="validation")
    pieces = [slice(i, min(i + 100, len(events))) for i in range(start, len(events), 100)]
    one_by_one = [
        predictor.predict(events.src[s], events.dst[s], events.time[s], events.edge_features[s]) for s in pieces
    ]
    assert (np.concatenate(one_by_one) == p).all()


def test_a_stream_can_be_saved_and_continued(run, events, tmp_path):
    later = events.time[-1] + np.arange(4)
    src, dst, features = np.array([1, 2, 3, 1]), np.array([21, 22, 23, 24]), np.ones((4, 2))
    at_once = run.predict(src, dst, later, features, batch=2)
    first = run.predictor(2)
    head = first.predict(src[:2], dst[:2], later[:2], features[:2])
    first.save(tmp_path / "stream")
    tail = tgnn.open(tmp_path / "stream").predictor(2).predict(src[2:], dst[2:], later[2:], features[2:])
    assert (np.concatenate([head, tail]) == at_once).all()
    z = first.embed([1, 21], later[-1] + 1)
    assert z.shape == (2, 8) and (z == first.embed([1, 21], later[-1] + 1)).all()


@pytest.mark.parametrize(
    "change, text",
    [
        ({"features": None}, "event 0 has 0 edge features"),
        ({"features": [[1, np.nan]]}, "feature 1 of event 0 is nan"),
        ({"features": [["a", "b"]]}, "features is of type <U1; give numbers"),
        ({"src": [-1]}, "src: node 0 has the id -1"),
        ({"src": ["x"]}, "node x is text, and the ids of the data are numbers"),
        ({"src": [None]}, "src: node 0 has no id"),
        ({"src": [0.5]}, "src: node 0 has the id 0.5"),
        ({"time": ["2024-01-01"]}, "times are dates, and those of the data numbers of s"),
        ({"time": [np.nan]}, "event 0 has time nan"),
        ({"time": [10**9 + 0.5]}, "event 0 has time 1000000000.5, and the data have 1 ticks per second"),
        ({"batch": "x"}, "batch is 'x'; give a whole number"),
        ({"after": "test"}, "after is 'test'; give 'stream' or 'validation'"),
        ({"features": np.ones((2, 2))}, "features are [2, 2]; give a row for each of 1 events"),
        ({"time": [0]}, "earlier than"),
        ({"dst": [99]}, "node 99"),
        ({"dst": [1, 2]}, "1 sources, 2 destinations and 1 times"),
        ({"batch": 0}, "batch is 0; give 1 to 1048576"),
    ],
)
def test_events_that_cannot_come_next_are_refused_in_one_line(run, events, change, text):
    arguments = {"src": [1], "dst": [21], "time": events.time[-1:], "features": np.ones((1, 2))} | change
    with pytest.raises(tgnn.Error) as e:
        run.predict(**arguments)
    assert text in str(e.value) and "\n" not in str(e.value)


def test_a_run_is_saved_opened_and_still_the_same(run, events, tmp_path):
    saved = run.save(tmp_path / "copy")
    opened = tgnn.open(tmp_path / "copy", events)
    assert saved.summary == opened.summary == run.summary and opened.records == run.records
    assert (opened.embed([3]) == run.embed([3])).all()
    with pytest.raises(tgnn.UsageError, match="is not empty"):
        run.save(tmp_path / "copy")
    # The events of this run were made in Python: the folder alone cannot embed, and says so.
    with pytest.raises(tgnn.IoError, match="small: cannot open"):
        tgnn.open(tmp_path / "copy").embed([3])
    with pytest.raises(tgnn.IoError, match=r"; give the events of the run: tgnn.open\(folder, events\)"):
        tgnn.open(tmp_path / "copy").embed([3])


def test_events_in_a_file_are_found_again(tmp_path):
    src, dst, time, _ = columns(nodes=7)
    path = tmp_path / "events.csv"
    np.savetxt(path, np.stack([src * 10, dst * 10, time], 1), "%d", ",", header="src,dst,time", comments="")
    run = tgnn.train(path, out=tmp_path / "run", progress=False, **SMALL)
    assert (tgnn.open(run.folder).embed([30, 100]) == run.embed([30, 100])).all()


def test_a_temporary_run_is_gone_when_nobody_has_it(events):
    run = tgnn.train(events, progress=False, **(SMALL | {"epochs": 1}))
    folder = Path(run.folder)
    assert folder.exists()
    del run
    gc.collect()
    assert not folder.exists()


def test_weights_have_shapes_as_in_pytorch_and_fixed_frequencies(run):
    weights = run.weights()
    assert weights["memory.w_x"].shape == (24, 2 * 8 + 2 + 6) and weights["memory.b_x"].shape == (24,)
    assert weights["decoder.w_out"].shape == (1, 8) and weights["decoder.b_out"].shape == (1,)
    assert np.allclose(weights["time.w"], 10.0 ** (-9 * np.arange(6) / 5)) and not weights["time.b"].any()
    assert all(" " not in name and "adam" not in name for name in weights)
    assert any((run.weights(settled=True)[name] != w).any() for name, w in weights.items())
    _, optimizer, state = tgnn.load_tgnn.load(run.folder)
    assert "adam.m.memory.w_x" in optimizer and {"memory", "memory_time", "mail"} <= set(state)


def test_plots_have_a_curve_for_every_run_and_the_mean(run, events):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    other = tgnn.train(events, seed=2, progress=False, **SMALL)
    ax = tgnn.plot([run, other])
    assert len(ax.lines) == 3 and ax.get_ylabel() == "validation AP"
    assert ax.get_legend().get_texts()[0].get_text() == "tgn, mean of 2"
    assert len(run.plot("train_loss").lines) == 1
    with pytest.raises(tgnn.UsageError, match="no run has the metric 'val_f2'"):
        run.plot("val_f2")
    matplotlib.pyplot.close("all")


def test_metrics_are_a_frame_where_there_is_pandas(run):
    pandas = pytest.importorskip("pandas")
    assert isinstance(run.metrics, pandas.DataFrame) and list(run.metrics.epoch) == [1, 2]


def test_the_example_notebook_is_a_notebook_without_results():
    path = Path(__file__).parents[1] / "examples" / "quickstart.ipynb"
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert cells and not any(cell["outputs"] for cell in cells)
    lines = [line for cell in cells for line in "".join(cell["source"]).splitlines() if line.strip()]
    assert len(lines) <= 10, "ten lines of code"


@pytest.fixture(scope="module")
def dated():
    src, dst, time, _ = columns(300)
    when = np.datetime64("2024-01-01T00:00:00") + time.astype("timedelta64[s]")
    return tgnn.train(
        tgnn.Events(src, dst, when), "jodie", progress=False, batch=100, **{"epochs": 1, "jodie.memory": 8}
    )


def test_candidates_are_scored_without_becoming_history(run, events):
    later, features = events.time[-1] + np.arange(3), np.ones((3, 2))
    predictor, other = run.predictor(), run.predictor()
    p = predictor.score([1], [21, 22, 23, 21], later[0])
    assert p.shape == (4,) and p[0] == p[3] and len(set(p)) == 3
    assert (predictor.score([1] * 4, [21, 22, 23, 21], later[0]) == p).all()
    assert (predictor.score([1, 2], 21, later[0]) == predictor.score([1, 2], [21, 21], later[:1])).all()
    # The first event of a stream is scored as a candidate is.
    assert np.isclose(other.predict([1], [21], later[:1], features[:1])[0], p[0], atol=1e-6)
    call = lambda predictor: predictor.predict([1, 2, 3], [21, 22, 23], later, features)
    assert (call(predictor) == call(run.predictor())).all()
    assert (predictor.score([1], [21], later[-1]) != p[0]).all()
    for arguments, text in (
        (([1, 2], [21, 22, 23], later[:1]), "2 sources, 3 destinations and 1 times; give one of each per pair"),
        (([1], [21, 22], later), "1 sources, 2 destinations and 3 times; give one of each per pair"),
        (([1], [99], later[:1]), "node 99"),
    ):
        with pytest.raises(tgnn.Error, match=text):
            predictor.score(*arguments)
    each = [float(predictor.score([1], [d], t)[0]) for d, t in zip([21, 22, 21], later[[1, 0, 1]])]
    assert np.allclose(predictor.score([1], [21, 22, 21], later[[1, 0, 1]]), each, atol=1e-6)
    assert (predictor.score(1, 21, later) == predictor.score([1] * 3, [21] * 3, later)).all()
    assert predictor.score([], [], later[0]).shape == predictor.score([], [], []).shape == (0,)


def test_a_refused_call_changes_nothing_and_counts_its_own_events():
    src, dst, time, _ = columns(300)
    run = tgnn.train(tgnn.Events(src * 3, dst * 3, time), "jodie", progress=False, batch=100, epochs=1)
    at = int(time[-1])
    calls = (
        (
            ([0, 3, 6], [60] * 3, [at + 5, at + 6, at + 5]),
            rf"event 2 has time {at + 5}, earlier than {at + 6} before it",
        ),
        (([0, 3, 6], [60] * 3, [at - 1, at, at]), rf"event 0 has time {at - 1}, earlier than {at} before it"),
        (([0, 1, 2], [60] * 3, [at + 5] * 3), "node 2 does not fit: the predictor holds 41 nodes"),
    )
    predictor = run.predictor(2, nodes=41)
    for call, text in calls:
        with pytest.raises(tgnn.DataError, match=text):
            predictor.predict(*call)
    fresh = run.predictor(2, nodes=41)
    # Node 2 is new; the refused call did not take the only place for a new one.
    good = ([0, 2, 6], [60, 63, 66], [at + 1, at + 2, at + 3])
    assert (predictor.predict(*good) == fresh.predict(*good)).all()


def test_errors_have_times_as_the_user_writes_them(dated):
    last = dated.events.time[-1]
    with pytest.raises(tgnn.DataError) as e:
        dated.predict([1, 2], [21, 22], [last + 60, last])
    assert str(e.value).startswith(f"event 1 has time {last}, earlier than {last + 60} before it")
    for times in ([5], [1.5]):
        with pytest.raises(tgnn.DataError, match="times are numbers, and those of the data dates; give such, too"):
            dated.embed([1], times)
    with pytest.raises(tgnn.DataError, match="node 0 has the id -1"):
        dated.embed([-1])
    with pytest.raises(tgnn.UsageError, match="2 nodes and 3 times; give a time for every node, or one for all"):
        dated.embed([1, 2], [last] * 3)
    with pytest.raises(tgnn.UsageError, match="nodes is -1; give 1 to"):
        dated.predictor(nodes=-1)


def test_runs_and_predictors_are_pickled_and_copied(run, events, dated, tmp_path):
    kept = pickle.loads(pickle.dumps(run))
    assert kept.folder == run.folder and (kept.embed([3]) == run.embed([3])).all()
    # A run in a temporary folder takes its files along, and copies share the folder.
    again = pickle.loads(pickle.dumps(dated))
    assert again.folder != dated.folder and again.summary == dated.summary
    assert (again.embed([3]) == dated.embed([3])).all()
    shallow, deep, folder = copy.copy(again), copy.deepcopy(again), again.folder
    del again
    gc.collect()
    assert shallow.folder == deep.folder == folder and shallow.records and (deep.embed([3]) == dated.embed([3])).all()
    path = folder.joinpath("checkpoint", "manifest.json")
    del shallow, deep, folder
    gc.collect()
    assert path.exists()
    gone = Path(path)
    del path
    gc.collect()
    assert not gone.exists()
    predictor, time = run.predictor(2), events.time[-1] + np.arange(4)
    call = lambda of, at: of.predict([1, 2], [21, 22], time[at], np.ones((2, 2)))
    call(predictor, slice(2))
    others = pickle.loads(pickle.dumps(predictor)), copy.deepcopy(predictor), copy.copy(predictor)
    want = call(predictor, slice(2, 4))
    assert all((call(other, slice(2, 4)) == want).all() and other._batch == 2 for other in others)
    assert repr(predictor) == f"Predictor(40 nodes, 4 events since training, the last at {time[3]})"


def trained(seed):
    return tgnn.train(tgnn.Events(*columns(300)), "jodie", seed, epochs=1, batch=100, progress=False)


def test_workers_return_runs():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        run = pool.apply(trained, (2,))
    want = trained(2)
    assert run.records[0]["train_loss"] == want.records[0]["train_loss"] and (run.embed([3]) == want.embed([3])).all()


@pytest.mark.parametrize("file", ["checkpoint/manifest.json", "metrics.jsonl", "summary.json"])
@pytest.mark.parametrize("content", [b"garbage\0", b"", b"[1]", b'{"config": 3}', b"\xff\xfe"])
def test_a_damaged_folder_is_a_checkpoint_error(run, tmp_path, file, content):
    run.save(tmp_path / "run")
    (tmp_path / "run" / file).write_bytes(content)
    try:
        opened = tgnn.open(tmp_path / "run")
        repr(opened), opened.metrics, opened._repr_html_()
    except tgnn.CheckpointError as e:
        assert file in str(e) and "damaged" in str(e) and "\n" not in str(e)
    else:
        # An empty table has no rows; a record of JSON is a record.
        assert (file, content) in (
            ("metrics.jsonl", b""),
            *((f, b'{"config": 3}') for f in ("metrics.jsonl", "summary.json")),
        )


def test_damaged_weights_are_a_checkpoint_error(run, tmp_path):
    run.save(tmp_path / "run")
    for file in (tmp_path / "run" / "checkpoint").glob("*.safetensors"):
        file.write_bytes(b"garbage")
    opened = tgnn.open(tmp_path / "run")
    for call in (opened.weights, opened.predictor, lambda: opened.predict([1], [21], [10**6])):
        with pytest.raises(tgnn.CheckpointError):
            call()


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("call", ["weights", "state_dict"])
def test_weights_of_a_file_with_one_wrong_bit_are_a_checkpoint_error(run, tmp_path, call, settled):
    if call == "state_dict":
        pytest.importorskip("torch")
    run.save(tmp_path / "run")
    for file in (tmp_path / "run" / "checkpoint").glob("*.safetensors"):
        content = bytearray(file.read_bytes())
        content[-3] ^= 64
        file.write_bytes(content)
    opened = tgnn.open(tmp_path / "run")
    with pytest.raises(tgnn.CheckpointError, match="does not match its manifest"):
        getattr(opened, call)(settled=settled)


def test_what_is_no_run_or_no_events_is_refused(run, tmp_path):
    for call, text in (
        (lambda: run.events["a":], "give an index of theirs"),
        (lambda: tgnn.plot([]), "there is no run to plot"),
        (lambda: tgnn.plot([3]), "an int is not a run"),
        (lambda: tgnn.open(3), "folder is an int; give a path"),
        (lambda: tgnn.open(run.folder, [1]), "events is a list; give tgnn.Events"),
        (lambda: tgnn.load(3), "the path of events is an int; give a path"),
        (lambda: tgnn.load("x", format=3), "format is 3; give text"),
        (lambda: run.embed([3], device=3), "device is 3; give text"),
        (lambda: run.embed([3], after="test"), "after is 'test'"),
    ):
        with pytest.raises(tgnn.UsageError, match=text):
            call()


def test_a_run_is_shown_in_a_notebook(run):
    assert "Run(tgn, seed 1" in run._repr_html_() and "<table" in run._repr_html_()


def test_a_changed_record_of_an_epoch_is_a_checkpoint_error(run, tmp_path):
    run.save(tmp_path / "run")
    file = tmp_path / "run" / "metrics.jsonl"
    assert "checksum" not in tgnn.open(tmp_path / "run").records[0]
    file.write_text(file.read_text().replace('"epoch":1,', '"epoch":3,'))
    with pytest.raises(tgnn.CheckpointError, match="metrics.jsonl:1 is damaged: it does not have its own checksum"):
        tgnn.open(tmp_path / "run").records
