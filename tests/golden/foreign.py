"""Writes `foreign/`, small files as other programs write them, which the tests of `crates/data/src/` read.

    python -P tests/golden/foreign.py tests/golden/foreign    # without -P, tgb.py would be imported as the package

| file | made by | contents |
| --- | --- | --- |
| `tgbl_NAME/` | pandas, NumPy, pickle | a folder of TGB with 20 events; its negatives for wiki, coin and uci |
| `tgb.json` | `py-tgb` | what `py-tgb` reads from those folders: nodes, times, edge features, masks |
| `NAME.pt` | PyTorch | the tensor `[[0, 0.5, 1], [1.5, 2, 2.5]]` in many ways |
| `NAME.parquet` | PyArrow | three events, good and bad |

Keys and values of negatives have the types that TGB's generator gives them: NumPy scalars, and arrays that are floats
if historical negatives were concatenated with random ones.
"""

import json
import pickle
import sys
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

import numpy
import pyarrow
import torch
from pyarrow import parquet
from tgb.utils import pre_process

SEED = 8
EVENTS = 20
PARTS = ("val", "test")


def edges(random, kind):
    """The lines of an edge list."""
    time = 1_288_483_200 + numpy.cumsum(random.integers(0, 40, EVENTS))
    src, dst = random.integers(0, 5, EVENTS), random.integers(0, 4, EVENTS)
    if kind == "wiki":
        yield "user_id,item_id,timestamp,state_label,comma_separated_list_of_features"
        for s, d, t, f in zip(src, dst, time - time[0], random.normal(size=(EVENTS, 2)).round(3)):
            yield f"{s},{d},{float(t)},0,{f[0]},{f[1]}"
    if kind == "uci":
        # Ids start at 1 and share one space, and not all of them occur; times have a fraction; the event's
        # number comes last.
        yield "u,i,ts,label,idx"
        for i, (s, d, t) in enumerate(zip(src * 2 + 1, dst * 3 + 1, time - time[0])):
            yield f"{s},{d},{t + 0.25 * (i % 4)},0.0,{i + 1}"
    if kind == "coin":
        yield "day,src,dst,weight"
        for s, d, t, w in zip(src, dst, time, (10 ** random.uniform(-2, 6, EVENTS)).round(4)):
            yield f"{t},0x{s:04x},0x{d + 3:04x},{w if d else 0.0}"
    if kind == "comment":
        yield "ts,src,dst,num_words,score"
        for s, d, t in zip(src, dst, time):
            yield f"{t},user{s},user{d + 2},{int(random.integers(1, 900))},{int(random.integers(-9, 90))}"
    if kind == "flight":
        yield "day,src,dst,callsign,typecode"
        calls, types = ["", "ual12", "DLH4XY", "BAW!9", "LONGCALL"], ["B738", "", "a320", "123456789"]
        for s, d, t in zip(src, dst, time):
            yield f"{t},K{s}AA,K{d + 3}AA,{calls[s]},{types[d]}"


def seen_by_tgb(kind, file):
    """The arrays that `py-tgb`'s data set class makes of the file (tgb/linkproppred/dataset.py, `pre_process`)."""
    reader = {
        "wiki": pre_process.load_edgelist_wiki, "uci": pre_process.load_edgelist_wiki,
        "coin": pre_process.csv_to_pd_data_sc, "comment": pre_process.csv_to_pd_data_rc,
        "flight": pre_process.csv_to_pd_data,
    }[kind]  # fmt: skip
    frame, features, _ = reader(str(file))
    weights = numpy.array(frame["w"]).reshape(-1, 1)
    if kind == "coin":
        features = weights
    if kind == "comment":
        features = numpy.concatenate((features, weights), axis=1)
    src, dst, time = (numpy.array(frame[column]).astype(int) for column in ("u", "i", "ts"))
    val_time, test_time = numpy.quantile(time, [1 - 0.15 - 0.15, 1 - 0.15])
    masks = {"val": (time > val_time) & (time <= test_time), "test": time > test_time}
    return src, dst, time, numpy.array(features, dtype=numpy.float64), masks


def negatives(random, src, dst, time, mask):
    """A dictionary of negatives, built as in `generate_negative_samples_hist_rnd`."""
    given = {}
    pool = numpy.arange(dst.min(), dst.max() + 1)
    for s, d, t in zip(src[mask], dst[mask], time[mask]):
        historical = numpy.array([]) if random.random() < 0.5 else random.permutation(numpy.setdiff1d(dst, [d]))[:1]
        drawn = random.permutation(numpy.setdiff1d(pool, [d]))[: random.integers(0, 4)]
        given[(s, d, t)] = numpy.concatenate((historical, drawn))
    return given


def tgb(random, out):
    told = {}
    for kind, number, protocol in [("wiki", "_v2", 5), ("coin", "_v2", 4), ("uci", "", 2), ("comment", "", 0), ("flight", "_v2", 0)]:  # fmt: skip
        folder = out / f"tgbl_{kind}"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"tgbl-{kind}_edgelist{number}.csv"
        file.write_text("\n".join(edges(random, kind)) + "\n")
        src, dst, time, features, masks = seen_by_tgb(kind, file)
        told[kind] = {
            "src": src.tolist(), "dst": dst.tolist(), "time": time.tolist(), "features": features.tolist(),
            **{part: int(masks[part].sum()) for part in PARTS},
        }  # fmt: skip
        for part in PARTS if protocol else ():
            given = negatives(random, src, dst, time, masks[part])
            data = pickle.dumps(given, protocol=protocol)
            (folder / f"tgbl-{kind}_{part}_ns{number}.pkl").write_bytes(data)
            rows = zip(src[masks[part]], dst[masks[part]], time[masks[part]])
            told[kind][f"{part}_negatives"] = [[int(n) for n in given[row]] for row in rows]
    told["versions"] = {name: version(name) for name in ("py-tgb", "numpy", "pandas", "torch", "pyarrow")}
    (out / "tgb.json").write_text(json.dumps(told) + "\n")


def tensors(out):
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3) / 2
    larger = torch.cat([torch.full((1, 3), 9.0), x])
    for name, tensor in {
        "f32": x, "f64": x.double(), "f16": x.half(), "bf16": x.bfloat16(), "bool": x > 1, "part": larger[1:],
        "transposed": x.T.contiguous().T, "dictionary": {"x": x},
    }.items():  # fmt: skip
        torch.save(tensor, out / f"{name}.pt")
    torch.save(x.double(), out / "old.pt", _use_new_zipfile_serialization=False)


def tables(out):
    def write(name, compression="snappy", **columns):
        parquet.write_table(pyarrow.table(columns), out / f"{name}.parquet", compression=compression)

    times = [datetime.fromtimestamp(1_288_483_200 + t, timezone.utc) for t in (0.25, 1.5, 61.0)]
    stamp = pyarrow.array(times, pyarrow.timestamp("us", "UTC"))
    ids = {"src": [7, 9, 7], "dst": pyarrow.array([9, 7, 11], pyarrow.int32())}
    lists = pyarrow.array([[0.5, 1.0], [1.5, 2.0], [2.5, 3.0]], pyarrow.list_(pyarrow.float32()))
    plain = {**ids, "ts": [10, 11, 71]}
    write("all", **ids, time=stamp, label=[0, 1, 0], text=["a", "b", "c"], speed=[0.25, 0.5, 0.75], vector=lists)
    write("zstd", "zstd", **plain, f0=pyarrow.array([1.0, 2.0, 3.0], pyarrow.float32()))
    write("gzip", "gzip", **{name: pyarrow.array(v, pyarrow.int64()) for name, v in plain.items()})
    write("seconds", "none", **ids, ts=[0.5, 1.25, 4.0], flag=[1, 2, 3])
    write("null", **{**plain, "ts": [10, None, 71]})
    write("text", **{**plain, "src": ["a", "b", "c"]})
    write("negative", **{**plain, "dst": [1, 2, -3]})
    write("ragged", **plain, vector=pyarrow.array([[1.0], [1.0, 2.0], [1.0]]))
    write("notime", src=[1], dst=[2])
    write("late", **{**plain, "ts": [10, 9, 71]})
    write("infinite", **plain, f0=[1.0, float("inf"), 2.0])


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    tgb(numpy.random.default_rng(SEED), out)
    tensors(out)
    tables(out)


if __name__ == "__main__":
    main()
