"""Weights of a run as PyTorch has them. This file needs NumPy, and torch for `state_dict`: copy it where you like.

The names are those of docs/weights.md. `load` sorts the tensors of a run's checkpoint into `weights` (frequencies of
the time encoding included, also fixed ones), `optimizer`, and `state`: node memory and mails (`memory_time` and so on),
and, in ticks, the `longest_gap` as which longer gaps count.
"""

import json
import zlib
from pathlib import Path

import numpy as np

TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "U32": np.uint32, "U64": np.uint64}


def read(path, checksum=None):
    """The tensors of a safetensors file, which must have the CRC-32 `checksum`, if given; those of bf16 as f32."""
    raw = Path(path).read_bytes()
    if checksum is not None and zlib.crc32(raw) != checksum:
        raise ValueError(f"{Path(path).name} does not match its manifest: it is truncated or was changed")
    start = 8 + int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, about in json.loads(raw[8:start]).items():
        begin, end = (start + at for at in about.get("data_offsets", (0, 0)))
        if about.get("dtype") == "BF16":
            values = (np.frombuffer(raw[begin:end], np.uint16).astype(np.uint32) << 16).view(np.float32)
        elif name != "__metadata__":
            values = np.frombuffer(raw[begin:end], TYPES[about["dtype"]])
        else:
            continue
        tensors[name] = values.reshape(about["shape"])
    return tensors


def load(run, settled=False):
    """Weights, optimiser and state of the best epoch of the run in a folder, or of the model settled after it."""
    folder = Path(run) / "checkpoint" if (Path(run) / "checkpoint").exists() else Path(run)
    manifest = json.loads((folder / "manifest.json").read_text())
    file, checksum = f"epoch-{manifest['best_epoch']}", manifest["checksums"][1]
    if settled and (checksum := manifest.get("settled")) is None:
        raise ValueError("the run has no settled model")
    elif settled:
        file = f"settled-{checksum:08x}"
    weights, optimizer, state = {}, {}, {}
    for name, x in read(folder / f"{file}.safetensors", checksum).items():
        if name.split(".")[0].split(" ")[0] in ("adam", "sgd", "average"):
            optimizer[name.replace(" ", "_")] = x
        elif "." not in name:
            state[name.replace(" ", "_")] = x
        else:
            # One row is a vector, but for weights with a single output.
            one_row = len(x) == 1 and not name.endswith((".w_out", "value_head.w"))
            weights[name] = x[0] if one_row else x
    config = manifest["config"].get(manifest["config"]["model"], {})
    if "time.w" not in weights and "time" in config:
        t = config["time"]
        weights["time.w"] = (10.0 ** (-9.0 * np.arange(t) / max(t - 1, 1))).astype(np.float32)
        weights["time.b"] = np.zeros(t, np.float32)
    if extract := manifest.get("extract"):
        state |= {key: np.array(extract[key]) for key in ("longest_gap", "ticks_per_second")}
    return weights, optimizer, state


def state_dict(run, settled=False):
    """The weights as torch tensors, for `load_state_dict` of a module with these names."""
    import torch

    return {name: torch.from_numpy(x.copy()) for name, x in load(run, settled)[0].items()}
