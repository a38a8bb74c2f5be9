"""Writes the folders `foreign/thgl_NAME` and `foreign/tkgl_NAME`, small data sets of TGB whose edges have types, the
airports of `foreign/tgbl_flight`, and `foreign/tgb_types.json`: what `py-tgb` reads from all of them.

    pip install py-tgb
    python -P tests/golden/tgb_types.py tests/golden/foreign    # without -P, tgb.py would be imported as the package

`py-tgb`'s own `LinkPropPredDataset` numbers nodes and types, adds inverse edges, splits, and answers for the negatives
of every event (`query_batch`). Only its generators of negatives need PyTorch Geometric, so `lists` writes the files as
they do (`tgb/linkproppred/thg_negative_generator.py` and `tkg_negative_generator.py`, release 2.3).
"""

import json
import os
import pickle
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy
from tgb.linkproppred.dataset import LinkPropPredDataset
from tgb.utils.info import DATA_NS_STRATEGY_DICT, PROJ_DIR
from tgb.utils.pre_process import csv_to_pd_data, process_node_feat

SEED = 26
PARTS = ("val", "test")
# Edges, types and negatives per event of each set. icews has more types than fit one-hot features.
SETS = {
    "thgl-software": (40, 4, 3),
    "thgl-forum": (40, 2, 3),
    "tkgl-yago": (40, 5, 0),
    "tkgl-smallpedia": (40, 4, 0),
    "tkgl-wikidata": (40, 4, 3),
    "tkgl-icews": (80, 40, 0),
}


def write(file, header, rows):
    file.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")


def edges(random, name, count, types):
    """The rows of an edge list in order of time: several edges at most times, ids with gaps. Nodes of even id are of
    one type, those of odd id of the other, and an edge's type decides that of its destination."""
    step = 1 if name.startswith("tkgl") else 40
    time = (2000 if step == 1 else 1_288_483_200) + step * numpy.cumsum(random.random(count) < 0.6)
    seen = set()
    while len(seen) < count:
        t, kind = time[len(seen)], int(random.integers(types))
        src, dst = 10 * int(random.integers(8)) + 4, 10 * int(random.integers(8)) + 3 + kind % 2
        if (t, src, dst, kind) in seen:
            continue
        seen.add((int(t), src, dst, kind))
        row = (int(t), src, dst, kind)
        if name in ("tkgl-wikidata", "tkgl-smallpedia"):
            row = (row[0], f"Q{src}", f"Q{dst}", f"P{3 * kind + 7}")
        if name == "thgl-forum":
            row += (int(random.integers(1, 900)), int(random.integers(-9, 90)))
        yield row


def read(folder, name):
    """`py-tgb`'s data set of a copy of the folder, because it leaves files of its own there."""
    copy = Path(tempfile.mkdtemp()) / folder.name
    shutil.copytree(folder, copy)
    return LinkPropPredDataset(name, root=os.path.relpath(copy.parent, PROJ_DIR))


def lists(random, data, mask, per_event):
    """The dictionary of a part, by TGB's strategy for the set."""
    full, strategy = data.full_data, DATA_NS_STRATEGY_DICT[data.name]
    columns = ("sources", "destinations", "timestamps", "edge_type")
    src, dst, time, kind = (full[column][mask] for column in columns)
    met = {}
    for s, d, t, k in zip(src, dst, time, kind):
        met.setdefault((t, s, k), {})[d] = 1
    met = {key: numpy.array(list(nodes)) for key, nodes in met.items()}
    if strategy == "time-filtered":
        return met
    out = {}
    everyone = numpy.unique(numpy.concatenate([full["sources"], full["destinations"]]))
    for (t, s, k), nodes in met.items():
        if strategy == "node-type-filtered":
            pool = everyone[data.node_type[everyone] == data.node_type[nodes[0]]]
        else:
            pool = numpy.unique(full["destinations"][full["edge_type"] == k])
        pool = numpy.setdiff1d(pool, nodes)
        out[(t, s, k)] = random.permutation(pool)[:per_event]
    return out


def typed(random, out, name, count, types, per_event):
    folder = out / name.replace("-", "_")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rows = list(edges(random, name, count, types))
    header = "timestamp,head,tail,relation_type"
    write(folder / f"{name}_edgelist.csv", header + (",num_words,score" if name == "thgl-forum" else ""), rows)
    if name.startswith("thgl"):
        ids = sorted({node for row in rows for node in row[1:3]})
        # Types have a gap, and a node that has no row is of type 0.
        write(folder / f"{name}_nodetype.csv", "node_id,type", [(i, 2 * (i % 2)) for i in ids if i != 4])
    data = read(folder, name)
    full = data.full_data
    order = numpy.argsort(full["timestamps"], kind="stable")
    told = {
        "src": full["sources"], "dst": full["destinations"], "time": full["timestamps"], "type": full["edge_type"],
    }  # fmt: skip
    told = {key: values[order].tolist() for key, values in told.items()}
    if name == "thgl-forum":
        told["features"] = data.edge_feat[order].tolist()
    if data.node_type is not None:
        told["node_type"] = data.node_type.astype(int).tolist()
    for part, mask in zip(PARTS, (data.val_mask, data.test_mask)):
        given = lists(random, data, mask, per_event)
        (folder / f"{name}_{part}_ns.pkl").write_bytes(pickle.dumps(given, protocol=pickle.HIGHEST_PROTOCOL))
    data = read(folder, name)
    data.load_val_ns()
    data.load_test_ns()
    for part, mask in zip(PARTS, (data.val_mask, data.test_mask)):
        of_part = order[mask[order]]
        keys = ("sources", "destinations", "timestamps", "edge_type")
        asked = [full[key][of_part] for key in keys]
        found = data.negative_sampler.query_batch(*asked, split_mode=part)
        assert mask.any(), f"{name} has no events in its {part} part"
        told[part] = int(mask.sum())
        told[f"{part}_negatives"] = [[int(n) for n in nodes] for nodes in found]
    return told


def airports(random, out):
    """Airports for the edge list that `foreign.py` wrote, as `py-tgb` reads them. Their types and continents are
    eleven in number, because it has room for exactly twenty features."""
    folder = out / "tgbl_flight"
    nodes = csv_to_pd_data(str(folder / "tgbl-flight_edgelist_v2.csv"))[2]
    kinds = ["small_airport", "heliport", "closed", "large_airport", "balloonport", "medium_airport"]
    continents = ["EU", "", "AS", "SA", "OC"]
    codes = [*nodes][1:] + ["KXXX", [*nodes][1]] + [*nodes][1:5]
    rows = []
    for i, code in enumerate(codes):
        place = random.uniform(-90, 90, 2).round(4)
        kind, continent = kinds[i % len(kinds)], continents[i % len(continents)]
        rows.append((code, kind, continent, ["US-CA", "DE-be", "X!9", "ABCDEFG"][i % 4], *place))
    file = folder / "airport_node_feat_v2.csv"
    write(file, "airport_code,type,continent,iso_region,longitude,latitude", rows)
    return process_node_feat(str(file), nodes).tolist()


def main():
    out, random = Path(sys.argv[1]), numpy.random.default_rng(SEED)
    told = {name: typed(random, out, name, *sizes) for name, sizes in SETS.items()}
    told["airports"] = airports(random, out)
    told["versions"] = {name: version(name) for name in ("py-tgb", "numpy", "pandas")}
    (out / "tgb_types.json").write_text(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
