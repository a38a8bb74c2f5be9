"""Events go in and come out as the user writes them."""

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
        (([0], [1], [2], None, np.ones((5, 1))[:1]), "1 rows of features for 2 nodes"),
    ],
)
def test_what_are_no_events_is_refused_in_one_line(arguments, text):
    with pytest.raises(tgnn.DataError) as e:
        tgnn.Events(*arguments)
    assert text in str(e.value) and "\n" not in str(e.value)
