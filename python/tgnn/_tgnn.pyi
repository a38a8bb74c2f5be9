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
    label_names: Optional[list[str]]
    ids: Optional[Buffer]
    names: Optional[list[str]]
    time_format: str
    edge_features: Optional[Buffer]
    node_features: Optional[Buffer]
    has_classes: bool
    node_labels: Optional[list[tuple[int, int, str, float]]]
    labels_are_numbers: bool
    def save(self, folder: Any) -> None: ...
    def __len__(self) -> int: ...

class Predictor:
    origin: int
    ticks_per_second: float
    time_format: str
    edge_width: int
    nodes: int
    seen: int
    latest: Optional[int]
    def __init__(
        self,
        folder: Any,
        batch: int,
        nodes: Optional[int],
        slots: Optional[int],
        after: str,
        device: Optional[str],
    ) -> None: ...
    def advance(self, src: Any, dst: Any, time: Any, features: Any, logits: Any) -> None: ...
    def score(self, src: Any, dst: Any, time: int) -> Buffer: ...
    def embed(self, ids: Any, time: Any, destinations: bool) -> Buffer: ...
    def save(self, folder: Any) -> None: ...

class Csr:
    def __init__(self, indptr: Any, indices: Any, values: Any) -> None: ...
    def __len__(self) -> int: ...
    def normalized(self) -> Csr: ...
    def multiply(self, x: Any, y: Any, transpose: bool) -> None: ...
    def tables(self, transpose: bool) -> list[Buffer]: ...

class EventLists:
    def __init__(self, src: Any, dst: Any, time: Any, nodes: int) -> None: ...
    def __len__(self) -> int: ...
    def tables(self) -> list[Buffer]: ...
    def recent(self, nodes: Any, times: Any, k: int, node: Any, event: Any, dt: Any, count: Any) -> None: ...

class Updated: ...

class Op:
    @staticmethod
    def spmm(a: Csr, transpose: bool) -> Op: ...
    @staticmethod
    def sample_recent(k: int) -> Op: ...
    @staticmethod
    def temporal_attention(heads: int, head_width: int) -> Op: ...
    @staticmethod
    def group_slots(rows: int) -> Op: ...
    @staticmethod
    def temporal_attention_grad(heads: int, head_width: int) -> Op: ...
    @staticmethod
    def gru_memory(seconds_per_tick: float) -> Op: ...
    @staticmethod
    def gru_memory_grad() -> Op: ...

class Gpu:
    def __init__(self, name: str) -> None: ...
    def run(self, op: Op, inputs: list[Any], stream: int, empty: Callable[[int, int, str], Any]) -> list[Any]: ...

def of_columns(
    name: str,
    src: Any,
    dst: Any,
    names: Optional[list[str]],
    time: Any,
    ticks_per_second: float,
    time_format: str,
    label: Any,
    label_names: Optional[list[str]],
    edge_features: Any,
    node_features: Any,
    bipartite: Optional[bool],
    labels: Optional[tuple[Any, ...]],
) -> Stream: ...
def load(
    path: str,
    format: Optional[str],
    columns: Optional[str],
    time_format: Optional[str],
    missing: Optional[str],
    bipartite: Optional[bool],
    strict: bool,
    edge_features: Optional[str],
    node_features: Optional[str],
    labels: Optional[str],
    delimiter: Optional[str],
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
def embed(folder: Any, stream: Stream, nodes: Any, times: Any, after: str, device: Optional[str]) -> Buffer: ...
def temporal_attention(rows: dict[str, Any], mix: Any, sum: Any, weight: Any) -> None: ...
def temporal_attention_grad(rows: dict[str, Any], weight: Any, dmix: Any, dsum: Any, grads: list[Any]) -> None: ...
def gru_memory(
    nodes: Any, tables: dict[str, Any], weights: dict[str, Any], seconds_per_tick: float, new: Any, new_time: Any
) -> Updated: ...
def gru_memory_grad(updated: Updated, weights: dict[str, Any], dmemory: Any, grads: list[Any]) -> None: ...
