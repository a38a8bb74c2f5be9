"""Writes `foreign/temporal/`, tiny files in the layouts of PyTorch Geometric Temporal's data sets, and
`temporal.json`: what the loaders of that library make of them.

    python tests/golden/temporal.py tests/golden

A data set of `temporal.json` has one entry per snapshot of its loader in each of `edges`, `weights`, `features` and
`targets`. The loaders are those of the library's repository (0.56.2); they read our files instead of fetching theirs.
"""

import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch_geometric_temporal import dataset

random = np.random.default_rng(9)
STEPS, NODES = 12, 3
EDGES = [[0, 1], [1, 2], [2, 0], [2, 2]]
WEIGHTS = [1.0, 0.5, 2.5, 4.0]


def rows(steps=STEPS, nodes=NODES):
    return random.integers(0, 50, (steps, nodes)).tolist()


def layouts():
    """The content of each JSON file, with the loader and the arguments of `get_dataset`."""
    names = {"PEST": 1, "ZALA": 0, "BEKES": 2}
    yield "chickenpox", dataset.ChickenpoxDatasetLoader, {"edges": EDGES, "node_ids": names, "FX": rows()}
    yield "pedalme_london", dataset.PedalMeDatasetLoader, {"edges": EDGES, "weights": WEIGHTS, "X": rows()}
    yield (
        "windmill_output",
        dataset.WindmillOutputLargeDatasetLoader,
        {"edges": EDGES, "weights": WEIGHTS, "block": rows()},
    )
    wiki = {"edges": EDGES, "weights": WEIGHTS, "time_periods": STEPS, "node_ids": {"Set theory, naive": 0, "0": 1, "A": 2}}
    wiki |= {str(t): {"index": t, "year": 2019, "month": 3, "day": 16 + t, "y": y} for t, y in enumerate(rows())}
    yield "wikivital_mathematics", dataset.WikiMathsDatasetLoader, wiki
    of_step = [[(t + k) % 4 for k in range(2 + t % 2)] for t in range(STEPS)]
    order = [3, 1, 0, 2, *range(4, STEPS)]
    mapping = {
        "edge_index": {str(t): [EDGES[k] for k in of_step[t]] for t in order},
        "edge_weight": {str(t): [float(10 + t + k) for k in of_step[t]] for t in order},
    }
    yield (
        "england_covid",
        dataset.EnglandCovidDatasetLoader,
        {"edge_mapping": mapping, "time_periods": STEPS, "y": rows()},
    )
    stops = [5289, 41, 977]
    nodes = [
        {"bus_stop": stop, "in_degree": 0, "lon": 1, "lat": 2, "y": y, "X": {"y": y}, "id": stop}
        for stop, y in zip(stops, rows(NODES, STEPS))
    ]
    links = [{"weight": w, "source": stops[s], "target": stops[t]} for (s, t), w in zip(EDGES, WEIGHTS)]
    content = {"directed": True, "multigraph": False, "graph": {"name": "lines"}, "nodes": nodes, "links": links}
    yield "montevideo_bus", dataset.MontevideoBusDatasetLoader, content
    tennis = {"time_periods": STEPS, "node_ids": {"rolandgarros": 0, "RafaelNadal": 1, "stanwawrinka": 2}}
    for t in range(STEPS):
        x = [[int(d), float(c)] for d, c in zip(random.integers(0, 90, NODES), random.integers(0, 11, NODES) / 10)]
        edges = [EDGES[k] for k in of_step[t]]
        tennis[str(t)] = {"index": t, "edges": edges, "weights": [1 + t % 3] * len(edges), "y": rows(1)[0], "X": x}
    yield "twitter_tennis_rg17", dataset.TwitterTennisDatasetLoader, tennis
    frames = 20
    hand = {"edges": [[0, 1], [1, 2], [2, 20]]}
    for joint in range(21):
        at = random.normal(size=(frames, 3)).round(3).tolist()
        hand[str(joint)] = {str(f): str(tuple(xyz)) for f, xyz in enumerate(at)}
    hand["LABEL"] = {str(f): int(c) for f, c in enumerate([*range(6), *random.integers(0, 6, frames - 6)])}
    yield "mtm_1", dataset.MTMDatasetLoader, hand


def of_file(path, loader, content):
    """What the loader makes of the content of a JSON file."""
    path.write_text(json.dumps(content) + "\n")
    made = object.__new__(loader)
    made._dataset, made.index = content, False
    if loader is dataset.TwitterTennisDatasetLoader:
        made.N, made.target_offset, made.feature_mode = None, 1, "encoded"
    return made.get_dataset()


def of_arrays(folder, loader, prefix, archive):
    """What the loader makes of arrays in a folder, which a zip archive has, too."""
    folder.mkdir(exist_ok=True)
    matrix = np.zeros((NODES, NODES), np.float32)
    matrix[tuple(np.array(EDGES).T)] = WEIGHTS
    values = np.stack([rows(30), random.random((30, NODES))], axis=2)
    np.save(folder / f"{prefix}adj_mat.npy", matrix)
    np.save(folder / f"{prefix}node_values.npy", values)
    with zipfile.ZipFile(folder / archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name in (f"{prefix}adj_mat.npy", f"{prefix}node_values.npy"):
            zipped.writestr(zipfile.ZipInfo(name), (folder / name).read_bytes(), zipfile.ZIP_DEFLATED)
    return loader(raw_data_dir=str(folder)).get_dataset(num_timesteps_in=4, num_timesteps_out=2)


def of_simulation(folder):
    """What the loader makes of the signal and the tensor of edges in a folder."""
    folder.mkdir(exist_ok=True)
    made = object.__new__(dataset.SIDiffusionDatasetLoader)
    made._dataset = random.random((STEPS, NODES, 2)).round(4)
    tensor = torch.tensor([[*e, w] for e, w in zip(EDGES, WEIGHTS)])
    np.save(folder / "SI_equation_dataset.npy", made._dataset)
    torch.save(tensor, folder / "nuts3_adjacent_distances.pt")
    made._edges, made._edge_weights = tensor.T[:2].numpy(), tensor.T[2].numpy()
    return made.get_dataset()


def plain(signal):
    """The snapshots of a data set as lists."""
    lists = lambda of: [np.asarray(x, np.float64).round(6).tolist() for x in of]
    steps = [signal[t] for t in range(signal.snapshot_count)]
    return {
        "edges": [s.edge_index.T.tolist() for s in steps],
        "weights": lists(s.edge_attr for s in steps),
        "features": lists(signal.features),
        "targets": lists(signal.targets),
    }


def main():
    out = Path(sys.argv[1])
    folder = out / "foreign" / "temporal"
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for name, loader, content in layouts():
        made[name] = plain(of_file(folder / f"{name}.json", loader, content))
    made["METR-LA"] = plain(of_arrays(folder / "metr_la", dataset.METRLADatasetLoader, "", "METR-LA.zip"))
    made["PEMS-BAY"] = plain(of_arrays(folder / "pems_bay", dataset.PemsBayDatasetLoader, "pems_", "PEMS-BAY.zip"))
    made["SI"] = plain(of_simulation(folder / "si"))
    (out / "temporal.json").write_text(json.dumps(made, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
