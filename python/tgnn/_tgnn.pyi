"""The native module; private. The package turns what users give into what these functions take."""

from typing import Any, Callable, Optional

class Buffer:
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

class Stream:
    name: str
    path: Optional[str]
    nodes: int
    first_destination: Optional[int]
    notes: list[str]
    ticks_per_second: float
    origin: int
    src: Buffer
    dst: Buffer
    time: Buffer
    label: Optional[Buffer]
    ids: Optional[Buffer]
    edge_features: Optional[Buffer]
    node_features: Optional[Buffer]
    def __len__(self) -> int: ...

class Predictor:
    origin: int
    ticks_per_second: float
    latest: Optional[int]
    def __init__(
        self, folder: Any, batch: int, nodes: Optional[int], slots: Optional[int], device: Optional[str]
    ) -> None: ...
    def advance(self, src: Any, dst: Any, time: Any, features: Any, logits: Any) -> None: ...
    def embed(self, ids: Any, time: Any) -> Buffer: ...
    def save(self, folder: Any) -> None: ...

class Csr:
    def __init__(self, indptr: Any, indices: Any, values: Any) -> None: ...
    def __len__(self) -> int: ...
    def normalized(self) -> Csr: ...
    def multiply(self, x: Any, y: Any, transpose: bool) -> None: ...

class EventLists:
    def __init__(self, src: Any, dst: Any, time: Any, nodes: int) -> None: ...
    def __len__(self) -> int: ...
    def recent(self, nodes: Any, times: Any, k: int, node: Any, event: Any, dt: Any, count: Any) -> None: ...

class Updated: ...

def of_columns(
    name: str,
    src: Any,
    dst: Any,
    time: Any,
    ticks_per_second: float,
    label: Any,
    edge_features: Any,
    node_features: Any,
    bipartite: Optional[bool],
) -> Stream: ...
def load(
    path: str,
    format: Optional[str],
    columns: Optional[str],
    time_format: Optional[str],
    missing: Optional[str],
    bipartite: Optional[bool],
    strict: bool,
    edge_features: Any,
    node_features: Any,
    labels: Any = None,
) -> Stream: ...
def of_run(folder: Any) -> Stream: ...
def train(
    stream: Stream,
    keys: dict[str, Any],
    out: Any,
    resume: bool,
    weights: Any,
    start_from: Any,
    heard: Callable[[str, Any, Any], None],
) -> str: ...
def embed(folder: Any, stream: Stream, nodes: Any, times: Any, device: Optional[str]) -> Buffer: ...
def temporal_attention(rows: dict[str, Any], mix: Any, sum: Any, weight: Any) -> None: ...
def temporal_attention_grad(rows: dict[str, Any], weight: Any, dmix: Any, dsum: Any, grads: list[Any]) -> None: ...
def gru_memory(
    nodes: Any, tables: dict[str, Any], weights: dict[str, Any], seconds_per_tick: float, new: Any, new_time: Any
) -> Updated: ...
def gru_memory_grad(updated: Updated, weights: dict[str, Any], dmemory: Any, grads: list[Any]) -> None: ...
