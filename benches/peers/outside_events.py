"""Checks of models of events; see `outside.py`."""

import sys
import types
from contextlib import contextmanager
from importlib.metadata import version
from itertools import combinations_with_replacement
from math import factorial, prod

import numpy as np
import torch
from outside_program import AS_DRAWN, ROUNDING, SEED, Trained, keys, largest, load, row, save, tell
from scipy import stats
from torch.nn.functional import layer_norm, scaled_dot_product_attention
from torch_geometric.nn import TGNMemory
from torch_geometric.nn.models.tgn import IdentityMessage, LastAggregator, MeanAggregator
from torch_geometric.utils import scatter

HEADS, NEIGHBORS = 2, 3
DYGLIB = "DyGLib, get_neighbor_sampler; torch, scaled_dot_product_attention"


def stream(folder, events=2_000, users=30, pages=20, ties=True, gaps=6, width=4):
    """Writes synthetic events to a folder that the program can read, and returns the arrays by name."""
    random = np.random.default_rng(SEED)
    arrays = {
        "src": (users * random.random(events) ** 6).astype(np.int64),  # a few users have most of the events
        "dst": users + random.integers(pages, size=events),
        "time": np.cumsum(random.integers(0 if ties else 1, gaps, size=events)),
        "edge_features": random.normal(size=(events, width)).astype(np.float32),
    }
    arrays["time"] -= arrays["time"][0]
    nodes, ends = np.unique(np.stack([arrays["src"], arrays["dst"]]), return_inverse=True)
    arrays["src"], arrays["dst"] = ends.reshape(2, -1)
    save(folder, arrays)
    return {name: torch.from_numpy(value) for name, value in arrays.items()} | {"nodes": len(nodes)}


class Sent(torch.nn.Module):
    """A message that contains the partner's memory at the time of sending: the columns `where` of the raw message."""

    def __init__(self, features, where, out_channels):
        super().__init__()
        self.features, self.where, self.out_channels = features, where, out_channels

    def forward(self, z_own, z_other, raw, t_enc):
        return torch.cat([z_own, raw[:, self.where], raw[:, : self.features], t_enc], -1)


class Kept(TGNMemory):
    """PyTorch Geometric's memory, except that a node without a message keeps its memory."""

    def _get_updated_memory(self, n_id):
        new, last_update = super()._get_updated_memory(n_id)
        return torch.where(self.mailed[n_id, None], new, self.memory[n_id]), last_update


def tgn_memory(trained, s, aggregator, as_it_is):
    """Returns PyTorch Geometric's memory after the stream, in training mode. With `as_it_is` the library's code is
    unchanged; otherwise its two deviations from our TGN are removed."""
    d, t, f = trained["memory"].shape[1], trained["time.w"].shape[1], s["edge_features"].shape[1]
    raw = f if as_it_is else f + 2 * d
    kind = TGNMemory if as_it_is else Kept
    memory = kind(s["nodes"], raw, d, t, IdentityMessage(raw, d, t), aggregator).double()
    if not as_it_is:
        memory.mailed = torch.zeros(s["nodes"], dtype=torch.bool)
        memory.gru = torch.nn.GRUCell(2 * d + f + t, d).double()
        memory.msg_s_module = Sent(f, slice(f + d, f + 2 * d), 2 * d + f + t)
        memory.msg_d_module = Sent(f, slice(f, f + d), 2 * d + f + t)
    load(memory.time_enc.lin, trained["time.w"], trained["time.b"])
    with torch.no_grad():
        for ours, name in (("w_x", "weight_ih"), ("w_h", "weight_hh"), ("b_x", "bias_ih"), ("b_h", "bias_hh")):
            weight = getattr(memory.gru, name)
            weight.copy_(trained[f"memory.{ours}"].view(weight.shape))
        memory.train()
        memory.reset_state()
        for batch in torch.arange(len(s["src"])).split(50):
            src, dst, message = s["src"][batch], s["dst"][batch], s["edge_features"][batch].double()
            if not as_it_is:
                new = memory(torch.arange(s["nodes"]))[0]  # it needs unique nodes
                message = torch.cat([message, new[src], new[dst]], 1)
            memory.update_state(src, dst, s["time"][batch], message)
            if not as_it_is:
                memory.mailed[torch.cat([src, dst])] = True
    return memory.memory


def tgn(o):
    """Compares PyTorch Geometric's `TGNMemory` after a stream, in training mode, with the memory in our checkpoint."""
    data = o.folder / "events-tgn"
    s = stream(data, ties=False)
    peer = f"torch_geometric {version('torch_geometric')}, TGNMemory"
    for combiner, aggregator in (("last", LastAggregator), ("mean", MeanAggregator)):
        model = keys("tgn", memory=16, time=8, embedding=16, time_encoding="learned", gap_quantile=1, combiner=combiner)
        trained = Trained(o.tgnn, o.folder, data, *AS_DRAWN, *model)
        far = lambda as_it_is: largest(trained["memory"], tgn_memory(trained, s, aggregator(), as_it_is))
        if combiner == "last":
            what = "TGN, memory: it reads the partner's memory when a mail is consumed, and has a GRU step without a mail"
            yield row(what, peer, far(True), None)
            yield row("TGN, memory, without these two", peer, far(False), ROUNDING)
        else:
            what = "TGN, memory by mean mails, without these two: it averages time encodings, we encode the latest time"
            yield row(what, peer, far(False), None)


@contextmanager
def imports_from(path):
    sys.path.insert(0, str(path))
    yield
    sys.path.remove(str(path))


def tgl_modules(path):
    """Imports TGL's `memorys` and `layers`, which import DGL and torch_scatter but need one function of them."""
    sys.modules.setdefault("dgl", types.ModuleType("dgl"))
    torch_scatter = types.ModuleType("torch_scatter")
    torch_scatter.scatter = scatter
    sys.modules.setdefault("torch_scatter", torch_scatter)
    with imports_from(path):
        import layers
        import memorys
    return memorys, layers


class Block:
    """The attributes of a DGL block that TGL's modules read."""

    def __init__(self, **values):
        self.srcdata = values

    def num_src_nodes(self):
        return len(self.srcdata["ID"])


def jodie(o):
    """Compares TGL's mailbox, RNN and projection in time after a stream with our memory, mails and embeddings."""
    memorys, layers = tgl_modules(o.tgl)
    data = o.folder / "events-jodie"
    s = stream(data)
    d, t, f = 16, 8, s["edge_features"].shape[1]
    model = keys("jodie", memory=d, time=t, time_encoding="learned", gap_quantile=1)
    trained = Trained(o.tgnn, o.folder, data, "--model", "jodie", *AS_DRAWN, *model)
    settings = {"type": "node", "dim_out": d, "mailbox_size": 1, "deliver_to": "self", "mail_combine": "last"}
    settings["combine_node_feature"] = True
    cell = memorys.RNNMemeoryUpdater(settings, 2 * d + f, d, t, 0).double()
    project = layers.JODIETimeEmbedding(d).double()
    load(cell.time_enc.w, trained["time.w"], trained["time.b"])
    with torch.no_grad():
        for ours, name in (("w_x", "weight_ih"), ("w_h", "weight_hh"), ("b_x", "bias_ih"), ("b_h", "bias_hh")):
            weight = getattr(cell.updater, name)
            weight.copy_(trained[f"memory.{ours}"].view(weight.shape))
        load(project.time_emb, trained["project.w"], trained["project.b"])

    def updated(box, node, now=None):
        """Returns the memory after its mails, and its time. With `now`, the time of the query, as TGL does; without it,
        at the time of the mail, and with no update without a mail."""
        mailed = (box.mailbox[node, 0] != 0).any(1)
        # As in TGL's `prep_input_mails`, which needs a GPU.
        block = Block(ID=node, mem=box.node_memory[node], mem_ts=box.node_memory_ts[node].double())
        at = box.mailbox_ts[node, 0] if now is None else now
        block.srcdata |= {"ts": at.double(), "mem_input": box.mailbox[node].flatten(1)}
        with torch.no_grad():
            cell([block])
        if now is not None:
            return block.srcdata["h"], block.srcdata["ts"]
        new = torch.where(mailed[:, None], block.srcdata["h"], block.srcdata["mem"])
        return new, torch.where(mailed, block.srcdata["ts"], block.srcdata["mem_ts"])

    def replay(as_it_is):
        box = memorys.MailBox(settings, s["nodes"], f)
        box.node_memory, box.mailbox = box.node_memory.double(), box.mailbox.double()
        for batch in torch.arange(len(s["src"])).split(50):
            roots, now = torch.cat([s["src"][batch], s["dst"][batch]]), s["time"][batch].repeat(2)
            memory, at = updated(box, roots, now if as_it_is else None)
            with_negatives = np.concatenate([roots, roots[: len(batch)]])
            # In TGL's list of mails the two mails of an event are adjacent, but in its list of times they are not, so
            # mails get the times of other events.
            times = now if as_it_is else s["time"][batch].repeat_interleave(2)
            box.update_mailbox(None, memory, with_negatives, times.float().numpy(), s["edge_features"][batch].double(), None)
            box.update_memory(roots, memory, with_negatives, at.float())
        return box

    peer = "TGL, MailBox, RNNMemeoryUpdater"
    what = "JODIE, memory: TGL takes the query's time for the mail's, has a step without a mail, mixes up times of a batch's mails"
    yield row(what, peer, largest(trained["memory"], replay(True).node_memory), None)
    box = replay(False)
    yield row("JODIE, memory, without these", peer, largest(trained["memory"], box.node_memory), ROUNDING)
    yield row("JODIE, mails: the partner's memory", peer, largest(trained["mail"], box.mailbox[:, 0, d : 2 * d]), ROUNDING)
    yield row("JODIE, mails: times", peer, largest(trained["mail time"][:, 0], box.mailbox_ts[:, 0]), 0)

    node = torch.arange(s["nodes"])
    now = s["time"][-1] + torch.randint(1, 500, (len(node),), generator=torch.Generator().manual_seed(SEED))
    z = trained.embed(node, now)
    memory, at = updated(box, node)
    peer = "TGL, JODIETimeEmbedding, IdentityNormLayer"
    norm = load(layers.IdentityNormLayer(d).double().norm, trained["project.norm_gain"], trained["project.norm_bias"])
    with torch.no_grad():
        last = box.node_memory_ts.double()
        own = project(norm(memory), last, now.double())
        yield row("JODIE, embeddings: TGL norms first, projects from the time of the update before", peer, largest(z, own), None)
        yield row("JODIE, embeddings, projected from the last update's time and normed then", peer,
                  largest(z, norm(project(memory, at, now.double()))), ROUNDING)  # fmt: skip


class Scores(torch.nn.Module):
    """Replaces TGL's activation of attention scores: scales them, and masks empty slots if a mask is set."""

    def __init__(self, scale):
        super().__init__()
        self.scale, self.filled = scale, None

    def forward(self, scores):
        scores = self.scale * scores
        return scores if self.filled is None else scores.masked_fill(~self.filled[..., None], -1e30)


class Weights(torch.nn.Module):
    """Replaces TGL's drop-out of attention weights: empty slots get weight zero, even if all slots are empty."""

    def __init__(self, scores):
        super().__init__()
        self.scores = scores

    def forward(self, weights):
        return weights if self.scores.filled is None else weights * self.scores.filled[..., None]


def recent(s, batch, side, k):
    """Yields, for each event of `batch`, its position there and each of the k latest neighbours of its end `side`, from
    events before the time of the event; found by sorting with NumPy."""
    for place, event in enumerate(batch.tolist()):
        node = s[side][event]
        ends = [(s[a] == node) & (s["time"] < s["time"][event]) for a in ("src", "dst")]
        latest = np.sort(np.flatnonzero(ends[0] | ends[1]))[::-1][:k].copy()
        yield from ((place, int(s["dst" if ends[0][i] else "src"][i])) for i in latest)


def apan(o):
    """Compares TGL's attention over mails and its deliveries after a stream with our memory, mails and embeddings."""
    memorys, _ = tgl_modules(o.tgl)
    data = o.folder / "events-apan"
    s = stream(data, events=600, users=80)
    d, t, f, slots, heads, k = 16, 8, s["edge_features"].shape[1], 4, 2, 3
    model = {"memory": d, "time": t, "mails": slots, "neighbors": k, "heads": heads, "combiner": "mean"}
    model |= {"time_encoding": "learned", "gap_quantile": 1, "dropout": 0}
    trained = Trained(o.tgnn, o.folder, data, "--model", "apan", *AS_DRAWN, *keys("apan", **model))
    settings = {"type": "node", "dim_out": d, "mailbox_size": slots, "attention_head": heads}
    settings |= {"deliver_to": "neighbors", "mail_combine": "mean"}
    update = memorys.TransformerMemoryUpdater(settings, 2 * d + f, d, t, {"dropout": 0, "att_dropout": 0}).double()
    load(update.time_enc.w, trained["time.w"], trained["time.b"])
    load(update.w_q, trained["update.w_q"], trained["update.b_q"])
    load(update.w_k, trained["update.w_k"], torch.zeros(d))  # a bias of keys cancels in the softmax
    load(update.w_v, trained["update.w_v"], trained["update.b_v"])
    load(update.layer_norm, trained["update.norm_gain"], trained["update.norm_bias"])
    load(update.mlp, trained["update.w"], trained["update.b"])
    leaky, scores = update.att_act, Scores((d // heads) ** -0.5)
    update.att_act, update.att_dropout = scores, Weights(scores)
    box = memorys.MailBox(settings, s["nodes"], f)
    box.node_memory, box.mailbox = box.node_memory.double(), box.mailbox.double()

    def updated(node, now, masked=True):
        scores.filled = (box.mailbox[node] != 0).any(2) if masked else None
        block = Block(ID=node, mem=box.node_memory[node], mem_input=box.mailbox[node].flatten(1))
        block.srcdata |= {"ts": now.double(), "mail_ts": box.mailbox_ts[node].double()}
        with torch.no_grad():
            update([block])
        return block.srcdata["h"]

    for batch in torch.arange(len(s["src"])).split(50):
        roots, times = torch.cat([s["src"][batch], s["dst"][batch]]), s["time"][batch].repeat(2)
        new = updated(roots, times)
        near = [(place, v) for place, v in recent(s, batch, "src", k)]
        near += [(len(batch) + place, v) for place, v in recent(s, batch, "dst", k)]
        of, receivers = torch.tensor(near, dtype=torch.long).view(-1, 2).T
        block = Block()
        block.to, block.edges = lambda _: block, lambda: (of, None)
        block.dstdata = {"ID": torch.cat([roots, receivers])}
        negatives = roots[: len(batch)].numpy()
        node, row_of = block.dstdata["ID"].unique(return_inverse=True)
        slot = box.next_mail_pos[node]
        box.update_mailbox(None, new, np.concatenate([roots, negatives]), times.float().numpy(), s["edge_features"][batch].double(), block)
        # TGL also averages the times of mails that arrive together; ours take the latest time.
        box.mailbox_ts[node, slot] = scatter(torch.cat([times, times[of]]), row_of, reduce="max").float()
        box.update_memory(roots, new, np.concatenate([roots, negatives]), times.float())

    filled = (box.mailbox != 0).any(2)
    assert filled.all(1).any() and not filled.all(1).all(), "some mailboxes are full, and not all"
    ours = torch.cat([trained["mail"].view(-1, slots, 2 * d), trained["mail features"].view(-1, slots, f)], 2)
    peer = "TGL, MailBox, TransformerMemoryUpdater with another activation of scores and drop-out of weights"
    yield row("APAN, memory", peer, largest(trained["memory"], box.node_memory), ROUNDING)
    yield row("APAN, mails", peer, largest(ours, box.mailbox), ROUNDING)
    yield row("APAN, mails: times", peer, largest(trained["mail time"], box.mailbox_ts), 0)
    node = torch.arange(s["nodes"])
    now = s["time"][-1] + torch.randint(1, 500, (len(node),), generator=torch.Generator().manual_seed(SEED))
    z = trained.embed(node, now)
    yield row("APAN, new memory", peer, largest(z, updated(node, now)), ROUNDING)
    peer = "TGL, TransformerMemoryUpdater"
    yield row("APAN, new memory: TGL has empty slots in the softmax", peer, largest(z, updated(node, now, masked=False)), None)
    update.att_act = leaky
    what = "APAN, new memory: that, and LeakyReLU(0.2) of the scores in the place of their scale"
    yield row(what, peer, largest(z, updated(node, now, masked=False)), None)


def attend(trained, layer, root, near, features, dt, there):
    """Computes a TGAT layer with PyTorch's attention, of rows `root` [n, h] over `near` [n, k, h]; `there` masks the
    slots in use."""
    w = {name.rsplit(".", 1)[1]: trained[name] for name in trained.values if name.startswith(f"embed.{layer}.")}
    heads = lambda rows: rows.unflatten(-1, (HEADS, -1)).transpose(1, 2)  # [n, heads, k, d]
    phi = lambda gap: torch.cos(gap[..., None] * trained["time.w"][0] + trained["time.b"][0])
    query = root @ w["w_q"].T + phi(torch.zeros(len(root)).double()) @ w["w_q_time"].T + w["b_q"]
    x = torch.cat([near, features, phi(dt)], -1)
    key, value = heads(x @ w["w_k"].T), heads(x @ w["w_v"].T + w["b_v"])
    some = there.any(1, keepdim=True)
    seen = scaled_dot_product_attention(heads(query[:, None]), key, value, (there | ~some)[:, None, None])
    seen = seen.transpose(1, 2).flatten(1) * some  # zeros for a root without neighbours
    out = (seen @ w["w_o"].T + root @ w["w_o_root"].T + w["b_o"]).relu()
    return layer_norm(out, out.shape[1:], w["norm_gain"][0], w["norm_bias"][0])


def dyglib_sampler(o, s, strategy, until=None):
    """Returns DyGLib's sampler of a stream, or of its events before `until`; node 0 and event 0 are padding."""
    with imports_from(o.dyglib):
        from utils.DataLoader import Data
        from utils.utils import get_neighbor_sampler
    src, dst, time = (s[name][:until].numpy() for name in ("src", "dst", "time"))
    data = Data(src + 1, dst + 1, time.astype(np.float64), np.arange(1, len(src) + 1), np.zeros(len(src)))
    return get_neighbor_sampler(data, strategy, seed=SEED)


def embedded(trained, s, sampler, node, time, at_events):
    """Computes the embeddings of a TGAT as in `tgat_keys` over DyGLib's samples."""
    features = torch.cat([torch.zeros(1, s["edge_features"].shape[1]), s["edge_features"]]).double()

    def embed(node, time, layers):
        if layers == 0:
            return torch.zeros(len(node), 0).double()
        near, event, near_time = sampler.get_historical_neighbors(node, time, NEIGHBORS)
        below_time = near_time if at_events else np.broadcast_to(time[:, None], near.shape)
        below = embed(near.flatten(), below_time.flatten(), layers - 1).unflatten(0, near.shape)
        root, dt = embed(node, time, layers - 1), torch.from_numpy(time[:, None] - near_time)
        return attend(trained, layers - 1, root, below, features[event], dt.double(), torch.from_numpy(near > 0))

    return embed(node + 1, time.astype(np.float64), 2)


def tgat_keys(neighbor_time):
    """Returns the flags of a TGAT of two layers."""
    model = {"embedding": 16, "time": 6, "heads": HEADS, "layers": 2, "neighbors": NEIGHBORS}
    model |= {"neighbor_time": neighbor_time, "time_encoding": "learned", "gap_quantile": 1, "dropout": 0}
    return ["--model", "tgat", *AS_DRAWN, *keys("tgat", **model)]


def both_ends(s, events):
    """Returns the sources of events, then their destinations, and the times of both."""
    return torch.cat([s["src"][events], s["dst"][events]]).numpy(), s["time"][events].repeat(2).numpy()


def tgat(o):
    """Compares a TGAT of two layers over DyGLib's samples, with neighbours at the times of their events and at the time
    of the query: both ends of every event at its time, and all nodes after the last one."""
    data = o.folder / "events-tgat"
    s = stream(data)
    sampler = dyglib_sampler(o, s, "recent")
    node, now = both_ends(s, slice(None))
    after = s["time"][-1].item() + np.random.default_rng(SEED).integers(1, 500, size=s["nodes"])
    node, now = np.concatenate([node, np.arange(s["nodes"])]), np.concatenate([now, after])
    for neighbor_time in ("event", "query"):
        trained = Trained(o.tgnn, o.folder, data, *tgat_keys(neighbor_time))
        far = largest(trained.embed(node, now), embedded(trained, s, sampler, node, now, neighbor_time == "event"))
        what = f"TGAT, two layers, neighbours at the time of the {neighbor_time}, {len(node)} queries"
        yield row(what, DYGLIB, far, ROUNDING)


def history(o):
    """Compares a TGAT of two layers in the batches of a test part, where most queries have earlier events in their batch:
    `history=time` over DyGLib's samples of the whole stream, `history=batch` over those of the stream before the batch."""
    data, size = o.folder / "events-history", 200
    s = stream(data, gaps=2)  # half of the events have the time of the one before
    first = int((s["time"] <= np.quantile(s["time"], 0.5)).sum())
    batches = torch.arange(first, len(s["src"])).split(size)
    whole = dyglib_sampler(o, s, "recent")
    samplers = {"time": [whole] * len(batches)}
    samplers["batch"] = [dyglib_sampler(o, s, "recent", batch[0]) for batch in batches]

    def theirs(trained, rule):
        pairs = zip(samplers[rule], batches)
        z = [embedded(trained, s, of, *both_ends(s, batch), False).unflatten(0, (2, -1)) for of, batch in pairs]
        return torch.cat(z, 1)

    for rule, of in (("time", "the whole stream"), ("batch", "the events before each batch")):
        flags = [*tgat_keys("query"), *keys("data", train=0.4, val=0.1), "--history", rule]
        trained = Trained(o.tgnn, o.folder, data, *flags)
        ours = trained.predict(s, first, size)
        what = f"TGAT, history={rule}, {ours[..., 0].numel()} queries in test batches of {size}"
        yield row(what, f"{DYGLIB}; over {of}", largest(ours, theirs(trained, rule)), ROUNDING)
    far = (ours - theirs(trained, "time")).abs().amax(-1)
    apart = far[far > ROUNDING]
    what = "TGAT, history=batch over the samples of history=time"
    what += f": {len(apart) / far.numel():.1%} of the queries differ, by {apart.min():.2g} or more"
    yield row(what, f"{DYGLIB}; over the whole stream", far.max(), None)


def sampling(o):
    """Compares uniform draws of neighbours, recovered from embeddings of a TGAT, with their distribution."""
    data = o.folder / "events-sampling"
    s = stream(data)
    k, draws = 3, 20_000
    model = {"embedding": 8, "time": 6, "heads": HEADS, "layers": 1, "neighbors": k, "sampling": "uniform"}
    model |= {"time_encoding": "learned", "gap_quantile": 1, "dropout": 0}
    trained = Trained(o.tgnn, o.folder, data, "--model", "tgat", *AS_DRAWN, *keys("tgat", **model))
    # A node at the time of one of its own events: that event, and others at that time, are not sampled yet.
    mine = lambda node: ((s["src"] == node) | (s["dst"] == node)).nonzero()[:, 0]
    earlier = lambda node, now: [i for i in mine(node).tolist() if s["time"][i] < now]
    rare = (node for node in range(s["nodes"]) if len(mine(node)) > 8)
    node, now = next((v, s["time"][i].item()) for v in rare for i in mine(v)[6:8] if len(earlier(v, s["time"][i])) in (5, 6))
    events = earlier(node, now)
    z = trained.embed([node] * draws, [now] * draws)

    sets = list(combinations_with_replacement(range(len(events)), k))
    drawn = torch.tensor(events)[torch.tensor(sets)]
    nothing = torch.zeros(*drawn.shape, 0).double()  # the node and its neighbours have no features
    dt, features = (now - s["time"][drawn]).double(), s["edge_features"][drawn].double()
    possible = attend(trained, 0, nothing[:, 0], nothing, features, dt, torch.ones_like(drawn, dtype=torch.bool))
    off, which = torch.cdist(z, possible).min(1)
    peer = f"torch {torch.__version__}, scaled_dot_product_attention over {k} of the {len(events)} events before {now}"
    yield row(f"uniform sampling: every one of {draws} embeddings is of events strictly before the query", peer, off.max(), ROUNDING)
    ways = np.array([factorial(k) / prod(factorial(drawn.count(i)) for i in set(drawn)) for drawn in sets])
    found = np.bincount(which.numpy(), minlength=len(sets))
    likely = lambda freedom: float(stats.chi2.ppf(0.9999, freedom))
    peer = f"scipy {version('scipy')}, {k} even draws with replacement"
    chi2 = stats.chisquare(found, draws * ways / ways.sum()).statistic
    what = f"uniform sampling, chi-squared of {len(sets)} sets of events; its 99.99 % quantile is allowed"
    yield row(what, peer, chi2, likely(len(sets) - 1))
    if o.dyglib:
        sampler = dyglib_sampler(o, s, "uniform")
        _, drawn, _ = sampler.get_historical_neighbors(np.full(draws, node + 1), np.full(draws, float(now)), k)
        place = {event + 1: i for i, event in enumerate(events)}
        number = {drawn: i for i, drawn in enumerate(sets)}
        others = np.bincount([number[tuple(sorted(place[i] for i in line))] for line in drawn], minlength=len(sets))
        both = stats.chi2_contingency(np.stack([found, others])).statistic
        yield row("uniform sampling, chi-squared of the same and DyGLib's; its 99.99 % quantile is allowed",
                  "DyGLib, get_neighbor_sampler", both, likely(len(sets) - 1))  # fmt: skip


HALVES = {"bf16": torch.bfloat16, "f16": torch.float16}


def half(o):
    """Checks tables in 16 bits: the bits written, trainings on such tables, and node memory stored in 16 bits."""
    random = np.random.default_rng(SEED)
    s = stream(o.folder / "events-half", events=400, width=8)
    for name, kind in HALVES.items():
        # Numbers of every magnitude, including subnormal ones: 16-bit numbers, midpoints between two of them, and the
        # float32 neighbours of both.
        bits = random.integers(0, 1 << 16, size=16_000).astype(np.uint16)
        some = torch.from_numpy(bits.view(np.int16)).view(kind)
        some = some[some.isfinite() & (some.abs() < 0.99 * torch.finfo(kind).max)].float().numpy()
        step = np.spacing(some) * 2.0 ** (16 if name == "bf16" else 13)
        between = (some + 0.5 * step * random.choice([-1, 0, 1], size=some.shape)).astype(np.float32)
        beside = np.nextafter(between, random.choice([-np.inf, np.inf], size=between.shape)).astype(np.float32)
        values = np.concatenate([between, beside])
        values = values[: len(values) // len(s["src"]) * len(s["src"])].reshape(len(s["src"]), -1)
        arrays = {key: s[key].numpy() for key in ("src", "dst", "time")}
        folder = o.folder / f"bits-{name}"
        save(folder, arrays | {"edge_features": values})
        tell(o.tgnn, "data", "import", folder, "--out", f"{folder}-in", "--features-as", name)
        kept = np.load(f"{folder}-in/edge_features.npy").view(np.int16)
        wanted = torch.from_numpy(values).to(kind).view(torch.int16).numpy()
        what = f"{name}, features as imported: bits that differ of {values.size}"
        yield row(what, f"torch {torch.__version__}, {kind}", (kept != wanted).sum(), 0)

        rounded = o.folder / f"rounded-{name}"
        save(rounded, arrays | {"edge_features": s["edge_features"].to(kind).float().numpy()})
        flags = ["--epochs", "2", "--batch", "50", *keys("tgn", memory=16, time=8, embedding=16)]
        a = Trained(o.tgnn, o.folder, o.folder / "events-half", *flags, "--set", f"features_as={name}")
        b = Trained(o.tgnn, o.folder, rounded, *flags)
        far = max(largest(a[value], b[value]) for value in a.values if a.values[value].is_floating_point())
        what = f"{name}, features: weights and memory after two epochs"
        yield row(what, f"float32 training on features rounded by torch, {kind}", far, 0)

        two = o.folder / "two-batches"
        save(two, {key: value[:100] for key, value in (arrays | {"edge_features": s["edge_features"].numpy()}).items()})
        flags = [*AS_DRAWN, *keys("tgn", memory=16, time=8, embedding=16)]
        a, b = (Trained(o.tgnn, o.folder, two, *flags, "--set", f"memory_as={of}") for of in (name, "f32"))
        assert b["memory"].abs().max() > 0.01, "the second batch writes what the first one's mails made"
        far = max(largest(a[table], b.values[table].to(kind).double()) for table in ("memory", "mail"))
        yield row(f"{name}, memory and mails after two batches", f"float32 ones rounded by torch, {kind}", far, 0)
