"""The keys of a configuration, as type checkers and editors see them; docs/config.md says what they mean."""

from __future__ import annotations

from os import PathLike
from typing import TypedDict


class Data(TypedDict, total=False):
    path: str | PathLike[str]
    format: str
    columns: str
    delimiter: str
    time_format: str
    missing: str
    bipartite: bool
    edge_features: str | PathLike[str]
    node_features: str | PathLike[str]
    labels: str | PathLike[str]
    strict: bool
    random_edge_features: int
    train: float
    val: float


class Optimizer(TypedDict, total=False):
    name: str
    weight_decay: float
    momentum: float
    clip_norm: float
    schedule: str
    warmup: int
    base_batch: int


class Snapshots(TypedDict, total=False):
    every: str
    weights: str
    presence: str
    directed: bool
    classes: bool
    features: str
    width: int
    lags: int
    horizon: int
    target: int
    normalise: bool | str


class Group(TypedDict, total=False):
    length: int
    negatives: int
    batch: int


class Classify(TypedDict, total=False):
    width: int
    positive_weight: float
    frozen: bool
    positive: str | int | float


class Property(TypedDict, total=False):
    rows: int


class Tgn(TypedDict, total=False):
    memory: int
    updater: str
    time: int
    time_encoding: str
    embedding: int
    gap_quantile: float
    heads: int
    layers: int
    neighbors: int
    sampling: str
    combiner: str
    dropout: float
    edge_features: bool
    node_features: bool


class Jodie(TypedDict, total=False):
    memory: int
    time: int
    time_encoding: str
    gap_quantile: float
    edge_features: bool
    node_features: bool


class Dyrep(TypedDict, total=False):
    memory: int
    time: int
    time_encoding: str
    gap_quantile: float
    heads: int
    neighbors: int
    sampling: str
    dropout: float
    edge_features: bool
    node_features: bool


class Apan(TypedDict, total=False):
    memory: int
    mails: int
    neighbors: int
    time: int
    time_encoding: str
    gap_quantile: float
    heads: int
    combiner: str
    dropout: float
    edge_features: bool
    node_features: bool


class Tgat(TypedDict, total=False):
    time: int
    time_encoding: str
    embedding: int
    gap_quantile: float
    heads: int
    layers: int
    neighbors: int
    sampling: str
    neighbor_time: str
    dropout: float
    edge_features: bool
    node_features: bool


class GraphMixer(TypedDict, total=False):
    time: int
    width: int
    embedding: int
    gap_quantile: float
    layers: int
    neighbors: int
    token_expansion: float
    channel_expansion: float
    dropout: float
    edge_features: bool
    node_features: bool


class Static(TypedDict, total=False):
    mode: str
    width: int
    epochs: int
    batch: int
    learning_rate: float


class WdGcn(TypedDict, total=False):
    width: int
    layers: int
    order: str


class TGcn(TypedDict, total=False):
    width: int
    layers: int
    order: str


class EvolveGcn(TypedDict, total=False):
    width: int
    layers: int
    order: str


class Keys(TypedDict, total=False):
    task: str
    protocol: str
    negatives: str
    history: str
    device: str
    plan: str
    partition: str
    features_on: str
    memory_on: str
    features_as: str
    memory_as: str
    threads: int
    precision: str
    epochs: int
    batch: int
    eval_batch: int
    chunks: int
    settle: bool
    patience: int
    tensorboard: bool
    max_batches: int
    learning_rate: float
    deterministic: bool
    check_memory: bool
    evaluate: bool
    rules: bool
    data: Data
    optimizer: Optimizer
    snapshots: Snapshots
    group: Group
    classify: Classify
    property: Property
    tgn: Tgn
    jodie: Jodie
    dyrep: Dyrep
    apan: Apan
    tgat: Tgat
    graph_mixer: GraphMixer
    static: Static
    wd_gcn: WdGcn
    t_gcn: TGcn
    evolve_gcn: EvolveGcn
