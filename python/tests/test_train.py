"""Training: results, progress, errors, threads and interruption."""

import io
import json
import os
import re
import signal
import sys
import threading
import time
import typing
from pathlib import Path

import numpy as np
import pytest
from conftest import SMALL

import tgnn
from tgnn import _keys


def test_a_run_has_metrics_a_summary_and_a_configuration(run, events):
    assert [r["epoch"] for r in run.records] == [1, 2] and 0 < run.records[0]["val_ap"] < 1
    data = dict(run.summary["data"])
    assert data.pop("fingerprint")["events"] > 0
    assert data == {"name": "small", "events": 600, "nodes": 40, "edge_features": 2}
    assert run.config["tgn"]["memory"] == 8 and repr(run).startswith("Run(tgn, seed 1, epoch ")
    assert len(run.metrics) == 2


def test_the_same_call_gives_the_same_run_and_another_seed_another_one(run, events):
    again, other = (tgnn.train(events, seed=seed, progress=False, **SMALL) for seed in (1, 2))
    losses = [[r["train_loss"] for r in x.records] for x in (run, again, other)]
    assert losses[0] == losses[1] != losses[2]


def test_keys_are_dictionaries_or_have_dots(events):
    dots = {"tgn.memory": 8, "tgn.embedding": 8, "tgn.time": 6, "tgn.neighbors": np.int64(3), "epochs": 1}
    run = tgnn.train(events, progress=False, graph_mixer={"layers": 1}, **dots)
    assert run.config["tgn"]["neighbors"] == 3 and run.config["graph-mixer"]["layers"] == 1


def test_models_of_snapshots_read_events_too(events):
    keys = {"snapshots": {"every": "60e"}, "group": {"length": 2}, "epochs": 1}
    run = tgnn.train(events, "t_gcn", progress=False, **keys, **{"t-gcn.width": 4, "snapshots.width": 4})
    assert run.embed([0, 21]).shape == (2, 4)
    with pytest.raises(tgnn.UsageError, match="the model reads snapshots"):
        run.embed([0], [5])


def test_a_run_can_be_resumed(events, tmp_path):
    whole = tgnn.train(events, progress=False, **SMALL)
    first = tgnn.train(events, progress=False, out=tmp_path / "run", **(SMALL | {"epochs": 1}))
    resumed = tgnn.train(events, progress=False, out=first.folder, resume=True, **SMALL)
    assert [r["train_loss"] for r in resumed.records] == [r["train_loss"] for r in whole.records]


def test_a_run_with_nothing_to_resume_says_so(events, tmp_path, capsys):
    tgnn.train(events, out=tmp_path / "run", resume=True, **SMALL)
    assert "there is no epoch to resume" in capsys.readouterr().err


def test_progress_is_a_line_per_epoch_where_there_is_no_terminal(events, capsys):
    tgnn.train(events, **SMALL)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-3].startswith("epoch   1  loss ") and "  val AP 0." in lines[-2] and lines[-1].startswith("settled")


def test_progress_on_a_terminal_is_a_bar_in_one_line():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    shown = tgnn._progress.Progress(Terminal())
    shown("remark", "time", "a remark")
    shown("progress", ("train", 3), (50, 200, 0.25))
    shown("progress", ("val", 3), (0, 0, None))
    shown("epoch", json.dumps({"epoch": 3, "train_loss": 0.5, "train_seconds": 1, "val": {"ap": 0.75}}), None)
    shown.close()
    text = shown.stream.getvalue()
    assert "\r\x1b[Kepoch   3 train  ━━━━━━━━────────────────────────  25 %  loss 0.2500\r" in text
    assert text.count("\n") == 2 and "epoch   3  loss 0.5000  val AP 0.7500    1.00 s\n" in text


def refused(error, text, call, *arguments, **keys):
    with pytest.raises(error) as e:
        call(*arguments, **keys)
    assert isinstance(e.value, tgnn.Error) and text in str(e.value) and "\n" not in str(e.value), e.value


def test_errors_have_a_class_by_kind_and_the_text_of_the_program(events, run, tmp_path):
    train = lambda **keys: tgnn.train(events, progress=False, **keys)
    refused(tgnn.UsageError, "unknown field `epochz`; did you mean `epochs`?", train, epochz=3)
    refused(ValueError, "tgn.layers is 9; give 0 to 4", train, tgn={"layers": 9})
    refused(tgnn.UsageError, 'tgn.layers: "two" is not a whole number from 0', train, tgn={"layers": "two"})
    refused(tgnn.UsageError, "epochs: `-1` is not a whole number from 0", train, epochs=-1)
    refused(tgnn.UsageError, "batch: `1.5` is not a whole number from 0", train, batch=1.5)
    refused(tgnn.UsageError, 'learning_rate: "x" is not a number', train, learning_rate="x")
    refused(tgnn.UsageError, "evaluate: `3` is not True or False", train, evaluate=3)
    refused(tgnn.UsageError, "device: `3` is not text", train, device=3)
    refused(tgnn.UsageError, "tgn: `3` is not a dictionary", train, tgn=3)
    refused(tgnn.UsageError, 'seed: "x" is not a whole number from 0', train, seed="x")
    refused(tgnn.UsageError, "`seed` is 1180591620717411303424; give a number below 2^63", train, seed=2**70)
    refused(tgnn.UsageError, "`seed` is 9223372036854775808; give a number", train, seed=np.uint64(2**63))
    refused(tgnn.UsageError, "`patience` is None; leave it out", train, patience=None)
    refused(tgnn.UsageError, "`tgn.1` is not a key, which is text", train, tgn={1: 2})
    refused(tgnn.UsageError, "there is no snapshots.every `hour`; give day", train, snapshots={"every": "hour"})
    refused(tgnn.UsageError, "resume=True goes on with the run in a folder; give it as out", train, resume=True)
    refused(tgnn.UsageError, "out is an int; give a path", train, out=3)
    refused(tgnn.UsageError, "model is 3; give text", train, model=3)
    refused(tgnn.UsageError, "callback is an int; give a function of a record", train, callback=3)
    refused(tgnn.UsageError, "weights is a dict; give a path", train, weights={})
    refused(
        tgnn.UsageError, "a DataFrame is not events; give tgnn.Events, Events.from_pandas, or a path", tgnn.train, pd()
    )
    refused(tgnn.UsageError, "None is not events", tgnn.train, None)
    refused(tgnn.UsageError, "(out=), or go on with the run in it (resume=True)", train, out=run.folder)
    refused(tgnn.UsageError, "`epochs` is of type list", train, epochs=[1])
    refused(tgnn.UsageError, "unknown variant `tgm`", train, model="tgm")
    refused(tgnn.UsageError, "is not empty", train, out=run.folder)
    refused(tgnn.DeviceError, "there is no device `tpu`; give auto, cpu", train, device="tpu")
    refused(tgnn.DataError, "has no labels", train, task="node")
    refused(tgnn.IoError, "no such file.toml: cannot read", train, plan="no such file.toml")
    refused(tgnn.OutOfMemoryError, "take fewer nodes or slots", run.predictor, nodes=4 * 10**9)
    refused(MemoryError, "node memory, mailbox and history", run.predictor, nodes=4 * 10**9)
    refused(tgnn.DivergedError, "training diverged in epoch 1", train, **(SMALL | {"learning_rate": 1e38}))
    refused(tgnn.CheckpointError, "there is no checkpoint here", tgnn.open, tmp_path)
    refused(OSError, "/no/such: cannot open", tgnn.load, "/no/such")
    plan = tmp_path / "plan.toml"
    plan.write_text('name = "odd"\n[stages]\nstep = { lane = 2 }\nforward = { lane = 9 }\n')
    refused((tgnn.PlanError, tgnn.UsageError), "plan.toml", train, plan=str(plan))


def pd():
    return pytest.importorskip("pandas").DataFrame({"src": [1]})


@pytest.mark.parametrize(
    "text, want",
    [
        ("leave out --after, or train without --no-eval", "leave out after=, or train without evaluate=False"),
        ("(--after validation)", '(after="validation")'),
        ("give --columns src=1,dst=2; or", 'give columns="src=1,dst=2"; or'),
        ("use --device cpu", 'use device="cpu"'),
        ("give --from with the folder", "give start_from= with the folder"),
        ("or --set data.train=0.5", "or **{'data.train': 0.5}"),
        ("cut by time: --every week", 'cut by time: snapshots={"every": "week"}'),
        ("build with --features emu", "build with --features emu"),
        ("sort the file, or leave out --strict", "sort the file, or leave out strict=True"),
    ],
)
def test_flags_of_the_program_are_arguments(text, want):
    assert tgnn._errors.as_arguments(text) == want


def test_a_function_is_called_after_every_epoch_and_can_end_the_run(events, tmp_path):
    heard = []
    run = tgnn.train(events, progress=False, callback=heard.append, **SMALL)
    assert heard == run.records and heard[0]["val_ap"] > 0

    class Enough(Exception):
        pass

    def stop(record):
        raise Enough(record["epoch"])

    call = lambda **keys: tgnn.train(events, progress=False, out=tmp_path / "run", **(SMALL | keys))
    with pytest.raises(Enough, match="1"):
        call(epochs=100_000, callback=stop)
    done = len(tgnn.open(tmp_path / "run").records)
    assert len(call(resume=True, epochs=done).summary["test"]) > 0


def test_a_run_starts_from_one_that_nothing_else_holds(events):
    again = tgnn.train(events, progress=False, start_from=tgnn.train(events, progress=False, **SMALL), **SMALL)
    assert again.records and json.loads(
        (tgnn.train(events, progress=False, **SMALL).folder / "summary.json").read_text()
    )


@pytest.mark.skipif(sys.version_info < (3, 10), reason="Python 3.9 cannot read the types at run time")
def test_type_checkers_know_the_keys_of_the_program(run):
    keys = {}
    for name, kind in typing.get_type_hints(_keys.Keys).items():
        section = {"": kind} if kind in (bool, int, float, str) else typing.get_type_hints(kind)
        keys |= {f"{name}.{key}".rstrip("."): typing.get_args(of) or (of,) for key, of in section.items()}
    values = {}
    for name, value in run.config.items():
        section = value if isinstance(value, dict) else {"": value}
        values |= {f"{name.replace('-', '_')}.{key}".rstrip("."): x for key, x in section.items()}
    assert all(type(value) in keys[key] for key, value in values.items() if key not in ("model", "seed"))
    # Keys without a default have none in the configuration of a run; docs/config.md has all.
    listed = re.findall(r"^\| `([a-z_.-]+)` \|", (Path(__file__).parents[2] / "docs" / "config.md").read_text(), re.M)
    assert keys.keys() | {"model", "seed"} == {key.replace("-", "_") for key in listed}


def test_an_array_that_is_none_is_a_type_error():
    with pytest.raises(TypeError, match="a list is not an array"):
        tgnn._tgnn.EventLists([0], [1], [2], 2)


def test_other_threads_run_while_a_model_trains(events):
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        # Callbacks take the lock; a run without any would starve the other thread if it kept it.
        before = counted[0]
        tgnn.train(events, progress=False, **(SMALL | {"epochs": 8}))
        assert counted[0] - before > 5
    finally:
        done.set()
        thread.join()


def test_two_runs_can_train_at_the_same_time(events):
    runs = {}

    def work(seed):
        runs[seed] = tgnn.train(events, seed=seed, progress=False, **SMALL)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    alone = tgnn.train(events, seed=2, progress=False, **SMALL)
    assert [r["train_loss"] for r in runs[2].records] == [r["train_loss"] for r in alone.records]


def test_ctrl_c_ends_a_run_between_two_steps_and_leaves_what_can_be_resumed(events, tmp_path):
    out = tmp_path / "run"
    # Jobs that a shell starts in the background ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt():
        while not (out / "checkpoint" / "manifest.json").exists():
            time.sleep(0.002)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        tgnn.train(events, progress=False, out=out, **(SMALL | {"epochs": 100_000}))
    thread.join()
    signal.signal(signal.SIGINT, before)
    epochs = tgnn.open(out)._manifest["epochs"]
    assert 1 <= epochs < 100_000
    resumed = tgnn.train(events, progress=False, out=out, resume=True, **(SMALL | {"epochs": epochs + 1}))
    assert len(resumed.records) == epochs + 1


def test_an_exception_in_the_display_ends_the_run(events, monkeypatch):
    class Broken(tgnn._progress.Progress):
        def __call__(self, kind, what, more):
            raise RuntimeError("the display broke")

    monkeypatch.setattr(tgnn._train, "Progress", Broken)
    with pytest.raises(RuntimeError, match="the display broke"):
        tgnn.train(events, **(SMALL | {"epochs": 100_000}))


def test_labels_of_nodes_are_the_task_of_events_that_have_them(tmp_path):
    times = range(0, 3000, 10)
    events = [f"u{t // 10 % 4},i{t // 30 % 3},{t}" for t in times]
    labels = [f"{t + 5},u{t // 10 % 4},c{t // 30 % 3},0.5" for t in times]
    (tmp_path / "events.csv").write_text("\n".join(["src,dst,time", *events]))
    (tmp_path / "labels.csv").write_text("\n".join(["time,node,label,weight", *labels]))
    loaded = tgnn.load(tmp_path / "events.csv", labels=tmp_path / "labels.csv", time_format="s")
    keys = {"progress": False, "epochs": 1, "max_batches": 5, "tgn.memory": 8, "tgn.embedding": 8}
    run = tgnn.train(loaded, **keys)
    assert run.config["task"] == "property" and 0 <= run.records[0]["val_ndcg"] <= 1
    assert [b["name"] for b in run.summary["baselines"]] == ["persistent forecast", "moving average"]
    assert tgnn.train(loaded, **keys, task="link").config["task"] == "link"
    # The same from memory.
    columns = lambda lines, names: dict(zip(names.split(), zip(*(line.split(",") for line in lines))))
    made, table = columns(events, "src dst time"), columns(labels, "node_time node label weight")
    numbers = lambda texts: np.array([float(text) for text in texts])
    table = table | {"time": numbers(table["node_time"]), "weight": numbers(table["weight"])}
    made = tgnn.Events(made["src"], made["dst"], numbers(made["time"]), labels=table)
    again = tgnn.train(made, **keys)
    assert again.records[0]["val_ndcg"] == run.records[0]["val_ndcg"] and again.summary["test"] == run.summary["test"]


def test_a_run_knows_what_its_classes_stand_for():
    rng = np.random.default_rng(3)
    src, dst, time = rng.integers(0, 9, 300), rng.integers(9, 20, 300), np.arange(300)
    of = lambda label: tgnn.Events(src, dst, time, label=label)
    train = lambda events, **keys: tgnn.train(events, progress=False, task="node", **(SMALL | keys))
    kinds = np.where(rng.random(300) < 0.3, "fraud", "legit")
    run = train(of(kinds), **{"classify.positive": "fraud"})
    assert run.classes == ["legit", "fraud"]
    numbers = train(of(np.where(kinds == "fraud", 2, 1)))
    assert numbers.classes == [1, 2] and numbers.summary["test"] == run.summary["test"]
    assert train(of(rng.choice([3, 7, 40], 300))).classes == [3, 7, 40]


def test_the_rule_of_neighbours_and_the_batch_of_evaluation_are_keys_and_rules_are_in_the_summary(events):
    tests = []
    for history in ("time", "batch"):
        summary = tgnn.train(events, history=history, eval_batch=50, progress=False, **SMALL).summary
        assert (summary["history"], summary["eval_batch"]) == (history, 50)
        rules = {rule["name"]: rule["test"]["transductive"]["ap"] for rule in summary["baselines"]}
        assert {"local recency", "local recency, then global recency", "PopTrack", "t-CoMem"} <= set(rules)
        tests.append((summary["test"], rules))
    assert tests[0][0] != tests[1][0] and tests[0][1] == tests[1][1]
