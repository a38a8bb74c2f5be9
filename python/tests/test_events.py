"""Events go in and come out as the user writes them."""

import copy
import datetime
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import columns

import tgnn


def test_events_come_back_in_order_of_time_with_their_own_ids_and_times():
    src, dst, time = [70, 10, 30], [10, 30, 70], [30, 10, 20]
    events = tgnn.Events(src, dst, time, [[3], [1], [2]], label=[3, 1, 2], name="mine")
    assert events.src.tolist() == [10, 30, 70] and events.dst.tolist() == [30, 70, 10]
    assert events.time.tolist() == [10, 20, 30] and events.label.tolist() == [1, 2, 3]
    assert events.edge_features.ravel().tolist() == [1, 2, 3]
    assert events.ids.tolist() == [10, 30, 70] and (len(events), events.num_nodes) == (3, 3)
    assert repr(events) == "Events('mine': 3 events, 3 nodes, 1 edge features)"
    assert events.notes == ["sorted 2 out-of-order events", "ids renumbered: 3 ids of up to 70"]


def test_ids_may_be_text_or_large_numbers():
    events = tgnn.Events(["u2", "u1", "ü"], ["p", "q", "p"], [1, 2, 3])
    assert events.src.tolist() == ["u2", "u1", "ü"] and events.dst.tolist() == ["p", "q", "p"]
    assert events.ids.tolist() == ["u1", "u2", "ü", "p", "q"]
    large = np.array([2**64 - 1, 7], np.uint64)
    assert tgnn.Events(large, large[::-1].copy(), [1, 2]).src.tolist() == [2**64 - 1, 7]


@pytest.mark.parametrize(
    "time",
    [
        np.array([1, 5, 9]),
        np.array([0.25, 0.5, 17.125]),
        np.array([1_700_000_000.1, 1_700_000_000.2, 1_700_000_001.3]),
        np.array(["2024-01-01", "2024-01-02", "2024-02-29"], "datetime64[D]"),
        np.array(["2024-01-01T00:00:00.001", "2024-01-01T00:00:00.002", "2024-01-02"], "datetime64[ns]"),
    ],
)
def test_times_are_exact_whatever_they_are(time):
    events = tgnn.Events([0, 1, 2], [1, 2, 0], time)
    assert (events.time == time).all()


def test_units_say_how_long_a_number_is():
    events = tgnn.Events([0, 1], [1, 0], [1_000, 3_500], unit="ms")
    assert events.time.tolist() == [1_000, 3_500] and events._stream.ticks_per_second == 1_000


def test_features_in_place_are_not_copied():
    src, dst, time, edges = columns(edge_width=4)
    events = tgnn.Events(src, dst, time, edges)
    assert np.shares_memory(events.edge_features, edges)
    # Out of order they are sorted, and doubles are converted.
    assert not np.shares_memory(tgnn.Events(src, dst, time[::-1].copy(), edges).edge_features, edges)
    assert (tgnn.Events(src, dst, time, edges.astype(np.float64)).edge_features == edges).all()


def test_the_memory_of_features_outlives_its_name():
    events = tgnn.Events(*columns(edge_width=4))
    want = columns(edge_width=4)[3]
    junk = [np.random.default_rng(i).normal(size=want.shape) for i in range(9)]
    assert (events.edge_features == want).all() and len(junk) == 9


def test_columns_of_pandas_frames_are_events():
    pandas = pytest.importorskip("pandas")
    when = pandas.to_datetime(["2024-01-01 01:00", "2024-01-01 02:00"]).tz_localize("Europe/Zurich")
    frame = pandas.DataFrame({"who": ["a", "b"], "what": ["x", "y"], "when": when, "w": [0.5, 1.5], "ok": [0, 1]})
    events = tgnn.Events.from_pandas(frame, "who", "what", "when", edge_features=["w"], label="ok", name="frame")
    assert events.src.tolist() == ["a", "b"] and events.edge_features.ravel().tolist() == [0.5, 1.5]
    assert events.time.astype(str).tolist() == ["2024-01-01T00:00:00", "2024-01-01T01:00:00"]
    with pytest.raises(tgnn.DataError, match="there is no column 'src'; the frame has who, what, when, w, ok"):
        tgnn.Events.from_pandas(frame)
    frame.loc[1, "who"] = None
    with pytest.raises(tgnn.DataError, match="event 1 has no id at one end"):
        tgnn.Events.from_pandas(frame, "who", "what", "when")


def test_columns_of_polars_frames_are_events():
    polars = pytest.importorskip("polars")
    src, dst, time, edges = columns(edge_width=1)
    frame = polars.DataFrame({"src": src, "dst": dst, "time": time, "w": edges[:, 0]})
    events = tgnn.Events.from_polars(frame, edge_features=["w"])
    assert (events.src == src).all() and (events.time == time).all() and (events.edge_features == edges).all()
    text = polars.DataFrame({"src": ["a", "b"], "dst": ["b", "c"], "time": [1.5, 2.25]})
    assert tgnn.Events.from_polars(text).src.tolist() == ["a", "b"]


def test_temporal_data_of_pytorch_geometric_are_events_without_a_copy_of_messages():
    torch = pytest.importorskip("torch")
    src, dst, time, edges = columns(edge_width=3)
    fields = {"src": src, "dst": dst, "t": time, "msg": edges, "y": np.ones(len(src), np.float32)}
    data = SimpleNamespace(**{name: torch.from_numpy(x) for name, x in fields.items()})
    events = tgnn.Events.from_pyg(data)
    assert np.shares_memory(events.edge_features, edges) and (events.label == 1).all()


def test_files_are_read_as_by_the_program(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text("src,dst,time\n7,8,100\n9,8,160\n")
    events = tgnn.load(path)
    assert events.src.tolist() == [7, 9] and events.time.tolist() == [100, 160]
    with pytest.raises(tgnn.DataError, match=r"events.csv:3:.*`x` is not a"):
        path.write_text("src,dst,time\n7,8,100\n9,8,x\n")
        tgnn.load(path)


def test_counts_of_days_are_dates_and_other_units_numbers(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text("src,dst,time\n7,8,45244\n9,8,45244.5\n")
    dates = np.array(["2023-11-14T00:00:00", "2023-11-14T12:00:00"], "datetime64[s]")
    assert (tgnn.load(path, time_format="excel").time == dates).all()
    assert tgnn.load(path, time_format="w").time.tolist() == [45_244 * 604_800, 45_244 * 604_800 + 302_400]


@pytest.mark.parametrize(
    "change, text",
    [
        ({"time": None}, "labels have no column 'time'; they have node, label"),
        ({"node": [1, 1]}, "3 times of labels and 2 nodes; give one of each"),
        ({"node": [7, 8, 9]}, "none of its nodes has an event, such as `7`; `7` is not a node; nodes are 0 to 2"),
        ({"time": [1, 2, np.nan]}, "labels: event 2 has time nan"),
        ({"weight": [1, 1, -1]}, "a node label has the weight -1; weights are 0 or more"),
    ],
)
def test_what_are_no_labels_of_nodes_is_refused_in_one_line(change, text):
    table = {"time": [1, 2, 3], "node": [0, 1, 2], "label": ["a", "b", "a"]} | change
    with pytest.raises(tgnn.DataError) as e:
        tgnn.Events([0, 1], [1, 2], [5, 6], labels={k: v for k, v in table.items() if v is not None})
    assert text in str(e.value) and "\n" not in str(e.value)


@pytest.mark.parametrize(
    "arguments, text",
    [
        (([1], [2, 3], [4]), "events: 1 sources and 2 destinations; give one of each for every event"),
        (([1], [2], [4, 5]), "events: 1 sources and 2 times"),
        (([], [], []), "there are no events"),
        (([0.5], [1], [2]), "event 0 has the id 0.5; give whole numbers or text"),
        (([-1], [1], [2]), "event 0 has the id -1"),
        (([0], [1], [np.inf]), "event 0 has time inf"),
        (([0], [1], ["soon"]), "give numbers, datetime64, or dates as ISO 8601"),
        (([0], [1], np.array(["NaT"], "datetime64[s]")), "event 0 has no time"),
        (([0], [1], [2], [[np.nan]]), "the feature in row 0, column 0 is NaN"),
        (([0], [1], [2], [[1], [2]]), "events: 1 sources and 2 rows of edge features"),
        (([[0, 1]], [1, 1], [0, 5]), "src has the shape [1, 2]; give one value for each"),
        (([0], [1], [[2]]), "time has the shape [1, 1]"),
        (({0}, [1], [2]), "src is a set; give an array or a list"),
        (([0], [1], [True]), "times are of type bool"),
        (([0], [1], ["5"]), "event 0 has time '5', which is not a date"),
        (([0], [1], ["3000-01-01"]), "event 0 has time 3000-01-01; dates are from 1678 to 2262"),
        (([0], [1], [1e300]), "event 0 has a time of more than 2^62 ticks"),
        (([0], [1], np.array([2**63], np.uint64)), "event 0 has a time of more than 2^62 ticks"),
        (([0], [1], [None]), "event 0 has no time"),
        (([0], [1], np.array([5], "m8[s]")), "times are of type timedelta64[s]"),
        (([0], [1], [2], np.zeros((1, 0))), "edge_features have no columns; leave them out"),
        (([np.nan], [1], [2]), "event 0 has no id at one end"),
        (([0], [1], [2], [["x"]]), "edge_features is of type <U1; give numbers"),
        (([0], [1], [2], np.array([["x"]], object)), "edge_features has the text 'x'; give numbers"),
        (([0], [1], [2], [[1e300]]), "edge_features has a number that is too large for 32 bits"),
        (([0], [1], [2], [[1], [2, 3]]), "edge_features is not an array"),
        (([0], [1], [2], None, None, [np.inf]), "event 0 has the label inf; give a finite number, or NaN for none"),
        (([0, 1], [1, 0], [2, 3], None, None, np.array(["a", 1], object)), "labels are text, and 1 is none; give"),
        (([0], [1], [2], None, np.ones((5, 1))[:1]), "1 rows of features for 2 nodes"),
    ],
)
def test_what_are_no_events_is_refused_in_one_line(arguments, text):
    with pytest.raises(tgnn.DataError) as e:
        tgnn.Events(*arguments)
    assert text in str(e.value) and "\n" not in str(e.value)


def test_labels_are_numbers_or_text_and_may_be_missing():
    of = lambda label: tgnn.Events([0, 1, 2], [1, 2, 0], [1, 2, 3], label=label)
    assert of([True, False, True]).label.tolist() == [1, 0, 1]
    numbers = of([1, None, 0])
    assert np.isnan(numbers.label[1]) and numbers.label[[0, 2]].tolist() == [1, 0]
    assert numbers.notes[-1] == "1 event has no label"
    for texts in (["legit", "fraud", "legit"], np.array([b"legit", b"fraud", b"legit"])):
        assert of(texts).label.tolist() == ["legit", "fraud", "legit"]
    some = of(["b", None, "a"])
    assert some.label.tolist() == ["b", None, "a"] and some[1:].label.tolist() == [None, "a"]
    assert of([None, np.nan, None]).label is None


def test_whole_numbers_and_dates_of_any_type_are_what_they_are():
    pandas = pytest.importorskip("pandas")
    assert tgnn.Events(np.array([3, 1], object), pandas.array([1, 3], "Int64"), [0, 5]).src.tolist() == [3, 1]
    utc = datetime.timezone(datetime.timedelta(hours=2))
    dates = [datetime.datetime(2024, 1, 1, 2, tzinfo=utc), pandas.Timestamp("2024-01-01T00:00:00.000000007")]
    assert tgnn.Events([0, 1], [1, 2], dates).time.astype(str).tolist()[1] == "2024-01-01T00:00:00.000000007"
    zoned = ["2024-01-01T02:00:00+02:00", "2024-01-01T00:00:01Z"]
    assert tgnn.Events([0, 1], [1, 2], zoned).time.astype(str).tolist()[0] == "2024-01-01T00:00:00"


def test_frames_are_refused_by_column():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    frame = pandas.DataFrame({"src": [0, 1], "dst": [1, 2], "time": [0, 5], "a": [1.0, np.nan], "b": ["x", "y"]})
    for features, text in (
        ("a", "column 'a' is nan in row 1"),
        (["b"], "column 'b'"),
        (["c"], "there is no column 'c'"),
    ):
        with pytest.raises(tgnn.DataError, match=text):
            tgnn.Events.from_pandas(frame, edge_features=features)
    lazy = polars.LazyFrame({"src": [0, 1], "dst": [1, 2], "time": [0, 5]})
    assert tgnn.Events.from_polars(lazy).dst.tolist() == [1, 2]
    for other in ({"src": [0]}, [1], None):
        with pytest.raises(tgnn.DataError, match="is not a frame of pandas or polars"):
            tgnn.Events.from_pandas(other)
    with pytest.raises(tgnn.DataError, match="there are several columns 'src'"):
        tgnn.Events.from_pandas(pandas.concat([frame, frame], axis=1))
    with pytest.raises(tgnn.DataError, match="a SimpleNamespace without src, dst, t has no events"):
        tgnn.Events.from_pyg(SimpleNamespace())


def test_features_that_want_a_gradient_are_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(tgnn.UsageError, match="edge_features: no gradient flows into it; give it with .detach()"):
        tgnn.Events([0], [1], [2], torch.ones(1, 2, requires_grad=True))


def same(events, others):
    for name in ("src", "dst", "time", "label", "edge_features", "node_features", "ids"):
        ours, want = getattr(events, name), getattr(others, name)
        assert (ours is None) == (want is None) and (
            ours is None or (ours.dtype == want.dtype and (ours == want).all())
        )
    assert events.name == others.name and events._stream.first_destination == others._stream.first_destination


def some_events(n=40, text=True):
    src, dst, time, edges = columns(n, nodes=5, edge_width=2)
    if text:
        src, dst = np.char.add("u", src.astype(str)), np.char.add("i", dst.astype(str))
        time = np.datetime64("2024-01-01") + time.astype("m8[ms]")
    rows = np.arange(2.0 * 10).reshape(10, 2)[: len(np.unique(np.concatenate([src, dst])))]
    labels = {"time": time[::4], "node": src[::4], "label": np.arange(10) % 3, "weight": np.linspace(0, 1, 10)}
    return tgnn.Events(src, dst, time, edges, rows, np.arange(n) % 2, labels=labels, name="some/é")


@pytest.mark.parametrize("text", [True, False])
def test_events_are_pickled_copied_and_saved_as_they_are(text, tmp_path):
    events = some_events(text=text)
    events.save(tmp_path / "saved")
    for again in (pickle.loads(pickle.dumps(events)), tgnn.load(tmp_path / "saved")):
        same(again, events)
        assert all((again.labels[name] == column).all() for name, column in events.labels.items())
    assert copy.copy(events) is copy.deepcopy(events) is events
    with pytest.raises(tgnn.UsageError, match="saved already exists and is not empty|not empty|exists"):
        events.save(tmp_path / "saved")


@pytest.mark.parametrize("text", [True, False])
def test_some_of_the_events_are_events(text):
    events = some_events(text=text)
    same(events[:], events)
    part = events[10:30]
    assert (part.src == events.src[10:30]).all() and (part.time == events.time[10:30]).all()
    assert (part.edge_features == events.edge_features[10:30]).all() and (part.label == events.label[10:30]).all()
    rows = dict(zip(events.ids.tolist(), events.node_features.tolist()))
    assert part.node_features.tolist() == [rows[id] for id in part.ids.tolist()]
    assert part.labels["time"].tolist() == events.labels["time"][3:8].tolist()
    mask = np.arange(40) % 2 == 1
    assert (events[mask].dst == events.dst[1::2]).all() and (events[[-1, 3]].time == events.time[[3, -1]]).all()
    assert np.shares_memory(events[5:].edge_features, events.edge_features)
    for index, what in (
        (slice(0), "no event of"),
        ([40], "has 40 events"),
        ("a", "have no <U1 index"),
        (mask[:3], "40"),
    ):
        with pytest.raises(tgnn.UsageError, match=what):
            events[index]


def test_columns_of_events_can_only_be_read_and_make_a_frame():
    pandas = pytest.importorskip("pandas")
    events = some_events()
    for name in ("src", "dst", "time", "ids", "label", "edge_features", "node_features"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(events, name)[0] = getattr(events, name)[0]
    frame = events.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == 40
    assert list(frame) == ["src", "dst", "time", "label", "feature_0", "feature_1"]
    again = tgnn.Events.from_pandas(frame, edge_features=["feature_0", "feature_1"], label="label")
    assert (again.src == events.src).all() and (again.edge_features == events.edge_features).all()
    assert "some/é" in events._repr_html_() and "2024-01-01" in events._repr_html_()
