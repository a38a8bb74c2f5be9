"""What can be done with a trained model."""

import gc
import json
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


def test_events_in_a_file_are_found_again(tmp_path):
    src, dst, time, _ = columns(nodes=7)
    path = tmp_path / "events.csv"
    np.savetxt(path, np.stack([src * 10, dst * 10, time], 1), "%d", ",", header="src,dst,time", comments="")
    run = tgnn.train(path, out=tmp_path / "run", progress=False, **SMALL)
    assert (tgnn.open(run.folder).embed([30, 100]) == run.embed([30, 100])).all()


def test_a_temporary_run_is_gone_when_nobody_has_it(events):
    run = tgnn.train(events, progress=False, **(SMALL | {"epochs": 1}))
    folder = run.folder
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
    assert any((run.weights(settled=False)[name] != w).any() for name, w in weights.items())
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
