//! Snapshots in JSON, in the layouts of PyTorch Geometric Temporal's loaders (Rozemberczki et al. 2021).
//!
//! | file | contents | loaders |
//! | --- | --- | --- |
//! | a graph with a signal | `edges`, optional `weights`, and one row of values per step in `FX`, `X`, `y` or `block` | Chickenpox, PedalMe, Windmill |
//! | a graph with a signal | `edges`, optional `weights`, and `"0"`, `"1"`, ..: one object per step, with `y` | WikiMaths |
//! | a graph per step with a signal | `edge_mapping` with `edge_index` and optional `edge_weight`, each an object of lists by step; and a signal | England Covid |
//! | a node-link graph with a signal | `nodes`, each with `bus_stop` or `id`, and `y`; `links` with `source`, `target`, optional `weight` | Montevideo Bus |
//! | one object per step | `"0"`, `"1"`, ..: each with `edges` and optional `weights`, `X`, `y` | Twitter Tennis |
//! | a graph with moving vertices | `edges`, `"0"`, `"1"`, ..: the positions of a vertex, as text, by frame; `LABEL`: the class of each frame | MTM |
//!
//! `node_ids` are the names of vertices.
//!
//! A signal becomes features and targets in the same way as a [series](super::series). With one object per
//! step, `X` are the features of the step and `ln(1 + y)` its targets, which are predicted from the steps
//! before it: the original loader, too, shifts `y` by one step and takes its logarithm. The classes of MTM
//! are those of frames that a model has read, so the class of step `S` is that of frame `S - 1`.
mod file;
#[cfg(test)]
mod tests;

use super::{
    Normalise, SnapshotOptions, Snapshots, VertexFeatures,
    build::Edges,
    series::{Signal, normalise},
};
use crate::{
    Features, Ids, NodeId,
    format::{graph, stem},
};
use file::{File, Link, Mapping, Node, Pairs, Step};
use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};
use tgnn::{
    error::{Error, Result},
    runtime::NONE,
};

/// Maximum class of a frame.
const MOST_CLASS: u32 = 65_535;

/// Whether the file at `path` is named `.json` or `.json.gz`, in any case of letters, and does not have rows,
/// as events have.
pub(super) fn is_here(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    (name.ends_with(".json") || name.ends_with(".json.gz")) && !graph::has_json_rows(path)
}

/// Reads a JSON file.
pub(super) fn read(path: &Path, options: &SnapshotOptions) -> Result<Snapshots> {
    let mut file: File = serde_json::from_slice(&graph::bytes(path)?).map_err(|e| {
        let place = (e.line() as u64, e.column() as u64);
        let text = e.to_string();
        let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
        Error::data(path, what.to_owned())
            .at(place.0, place.1)
            .remedy("see docs/snapshots.md for the layout of a file of snapshots")
    })?;
    let bad = |what: String| Error::data(path, what).remedy("fix the file, or fetch it again");
    let reader = Reader { path, options, bad: &bad };
    let (count, object) = (file.steps.len(), if file.labels.is_some() { "joint" } else { "step" });
    if let Some((at, _)) = file.steps.keys().enumerate().find(|(i, step)| i != *step) {
        return Err(bad(format!("{object} {at} of {count} is missing")));
    }
    let (names, periods) = (std::mem::take(&mut file.names), file.periods);
    let mut s = reader.snapshots(file)?;
    if let Some(periods) = periods.filter(|periods| *periods != s.len()) {
        return Err(bad(format!("time_periods is {periods}, but there are {} steps", s.len())));
    }
    if !names.is_empty() {
        s.ids = Some(reader.ids(names, s.nodes)?);
    }
    Ok(s)
}

/// Returns a field of all steps; `None` if a step lacks it or there are no steps.
fn values<T>(steps: Vec<Step>, field: impl Fn(Step) -> Option<T>) -> Option<Vec<T>> {
    Some(steps.into_iter().map(field).collect::<Option<Vec<T>>>()?).filter(|values| !values.is_empty())
}

/// Returns the date of each step, as `2019-03-16`, or else its number.
fn labels(steps: &[Step]) -> Vec<String> {
    let label = |(i, step): (usize, &Step)| match step.date {
        [Some(year), Some(month), Some(day)] => format!("{year}-{month:02}-{day:02}"),
        _ => i.to_string(),
    };
    steps.iter().enumerate().map(label).collect()
}

/// Context of converting a parsed file.
struct Reader<'a> {
    path: &'a Path,
    options: &'a SnapshotOptions,
    /// Creates a data error about the file.
    bad: &'a dyn Fn(String) -> Error,
}

impl Reader<'_> {
    /// Creates the snapshots, by the keys that the file has.
    fn snapshots(&self, file: File) -> Result<Snapshots> {
        let steps: Vec<Step> = file.steps.into_values().collect();
        let signal = file.signal.map(|(_, rows)| rows);
        if let Some(mapping) = file.mapping {
            let signal = signal.ok_or_else(|| (self.bad)("there is edge_mapping, but no y".into()))?;
            return self.changing(mapping, &signal);
        }
        if let Some(nodes) = file.nodes {
            return self.node_link(&nodes, file.links);
        }
        match (file.edges, file.labels, signal) {
            (Some(edges), Some(classes), _) => self.moving(edges, &steps, &classes),
            (Some(edges), None, Some(signal)) => self.series(edges, file.weights, &signal),
            (Some(edges), None, None) => {
                let labels = labels(&steps);
                let signal = values(steps, |step| step.y).ok_or_else(|| {
                    (self.bad)("there are edges, but neither FX, X, y, block nor a y in each step".into())
                })?;
                let mut s = self.series(edges, file.weights, &signal)?;
                s.labels = labels;
                Ok(s)
            }
            (None, None, None) if !steps.is_empty() => self.steps(steps),
            _ => {
                let keys = match file.unknown.join(", ") {
                    keys if keys.is_empty() => String::new(),
                    keys => format!("; it has {keys}"),
                };
                Err(Error::data(self.path, format!("there are neither edges nor steps{keys}"))
                    .remedy("see docs/snapshots.md for the layouts of snapshots"))
            }
        }
    }

    /// Creates snapshots of a static graph with a signal.
    fn series(&self, edges: Pairs, weights: Option<Vec<f32>>, signal: &[Vec<f32>]) -> Result<Snapshots> {
        let nodes = signal.first().map_or(0, Vec::len);
        let signal = self.rows(signal, nodes, "values")?;
        let weighted = weights.is_some() && self.options.reads_weights(self.path)?;
        let graph = self.edges(edges, weights, weighted, nodes, "the graph")?;
        let signal = Signal::of_column(signal, nodes);
        Snapshots::of_series(stem(self.path), (vec![graph], weighted), signal, self.options)
    }

    /// Creates snapshots of a graph that changes, with a signal.
    fn changing(&self, mapping: Mapping, signal: &[Vec<f32>]) -> Result<Snapshots> {
        let (steps, nodes) = (signal.len(), signal.first().map_or(0, Vec::len));
        let signal = self.rows(signal, nodes, "values")?;
        let given = mapping.edge_weight.is_some();
        let mut weights = mapping.edge_weight.unwrap_or_default().0;
        let lists = [
            (true, "edge_index", mapping.edge_index.0.keys().copied().collect::<Vec<_>>()),
            (given, "edge_weight", weights.keys().copied().collect()),
        ];
        for (_, key, keys) in lists.iter().filter(|(given, ..)| *given) {
            let missing = (0..steps).find(|step| keys.binary_search(step).is_err());
            if missing.is_some() || keys.len() != steps {
                let lacks =
                    missing.map_or(String::new(), |step| format!(", and none is that of step {step}"));
                let what =
                    format!("y has {steps} rows, but edge_mapping.{key} has {} lists{lacks}", keys.len());
                return Err((self.bad)(what));
            }
        }
        let weighted = given && self.options.reads_weights(self.path)?;
        let edges = |(step, edges): (usize, Pairs)| {
            self.edges(edges, weights.remove(&step), weighted, nodes, &format!("step {step}"))
        };
        let graphs = mapping.edge_index.0.into_iter().map(edges).collect::<Result<_>>()?;
        let signal = Signal::of_column(signal, nodes);
        Snapshots::of_series(stem(self.path), (graphs, weighted), signal, self.options)
    }

    /// Creates snapshots of a static graph whose nodes have a series each.
    fn node_link(&self, nodes: &[Node], links: Vec<Link>) -> Result<Snapshots> {
        let mut by_id = HashMap::new();
        for (i, node) in nodes.iter().enumerate() {
            let id = node.id().ok_or_else(|| (self.bad)(format!("node {i} has neither bus_stop nor id")))?;
            if by_id.insert(id, i as u32).is_some() {
                return Err((self.bad)(format!("node {i} has the id {id} of an earlier one")));
            }
        }
        let rows: Vec<&[f32]> = nodes.iter().map(|node| node.y.as_slice()).collect();
        let steps = rows.first().map_or(0, |row| row.len());
        let of_nodes = self.rows(&rows, steps, "values of y")?;
        let signal = (0..steps).flat_map(|t| of_nodes.iter().skip(t).step_by(steps)).copied().collect();
        let weighted = links.iter().any(|link| link.weight.is_some());
        let (mut edges, mut weights) = (Pairs::new(), Vec::new());
        for (i, Link { source, target, weight }) in links.into_iter().enumerate() {
            let end = |id: &str| {
                by_id
                    .get(id)
                    .copied()
                    .ok_or_else(|| (self.bad)(format!("link {i} has an end {id}, and no node has")))
            };
            edges.push((end(&source.0)?, end(&target.0)?));
            weights.extend(weight);
        }
        let weights = weighted.then_some(weights);
        let weighted = weighted && self.options.reads_weights(self.path)?;
        let graph = self.edges(edges, weights, weighted, nodes.len(), "the graph")?;
        let signal = Signal::of_column(signal, nodes.len());
        let mut s = Snapshots::of_series(stem(self.path), (vec![graph], weighted), signal, self.options)?;
        s.ids = Some(nodes.iter().filter_map(|node| node.id()).map(NodeId::parse).collect());
        let unread = nodes.iter().flat_map(|node| node.features.keys()).find(|key| *key != "y");
        s.notes.extend(unread.map(|key| format!("not read: X.{key}; y is the feature and the target")));
        Ok(s)
    }

    /// Creates snapshots of a static graph whose vertices, the `joints`, move from frame to frame. The class
    /// of step `S` is that of frame `S - 1`.
    fn moving(&self, edges: Pairs, joints: &[Step], classes: &[u32]) -> Result<Snapshots> {
        let (nodes, frames) = (joints.len(), classes.len());
        if let Some(i) = joints.iter().position(|joint| joint.frames.len() != frames) {
            let (positions, classes) = (joints[i].frames.len(), classes.len());
            return Err((self.bad)(format!(
                "joint {i} has {positions} positions, but there are {classes} labels"
            )));
        }
        if let Some(i) = classes.iter().position(|class| *class > MOST_CLASS) {
            return Err((self.bad)(format!(
                "the label of frame {i} is {}; at most {MOST_CLASS} are read",
                classes[i]
            )));
        }
        let graph = self.edges(edges, None, false, nodes, "the graph")?;
        let labels = (0..frames).map(|frame| frame.to_string()).collect();
        let graph = Snapshots::of_edges(stem(self.path), nodes, vec![graph], Vec::new(), false)?;
        let mut s = graph.repeated(frames, labels)?;
        let position = |t: usize| {
            joints
                .iter()
                .map(move |joint| joint.frames[t].0.map(|x| if x.is_nan() { 0.0 } else { x }).to_vec())
        };
        s.features = Some(self.features((0..frames).map(|t| position(t).collect()).collect(), nodes)?);
        let earlier = |step: usize| step.checked_sub(1).map_or(NONE, |frame| classes[frame]);
        s.classes = Some((0..frames).flat_map(|step| std::iter::repeat_n(earlier(step), nodes)).collect());
        s.notes.push(
            "the class of a step is the label of the frame before it, the last that a model reads".into(),
        );
        Ok(s)
    }

    /// Creates snapshots with the edges, features and targets of each step.
    fn steps(&self, steps: Vec<Step>) -> Result<Snapshots> {
        let (t, options) = (steps.len(), self.options);
        let weighted = steps.iter().any(|s| s.weights.is_some()) && options.reads_weights(self.path)?;
        let (labels, first) = (labels(&steps), &steps[0]);
        let known = first.y.as_ref().map(Vec::len).or(first.features.as_ref().map(Vec::len));
        let last_vertex = || steps.iter().flat_map(|s| s.edges.iter().flatten()).map(|e| e.0.max(e.1)).max();
        let nodes = known.unwrap_or_else(|| last_vertex().map_or(0, |v| v as usize + 1));
        let (mut edges, mut features, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        for (i, step) in steps.into_iter().enumerate() {
            let place = format!("step {i}");
            edges.push(self.edges(step.edges.unwrap_or_default(), step.weights, weighted, nodes, &place)?);
            features.extend(step.features);
            targets.extend(step.y);
        }
        let mut s = Snapshots::of_edges(stem(self.path), nodes, edges, labels, weighted)?;
        for (what, n) in [("X", features.len()), ("y", targets.len())] {
            if n > 0 && n < t {
                return Err((self.bad)(format!("only {n} of {t} steps have {what}")));
            }
        }
        if !features.is_empty() {
            s.features = Some(self.features(features, nodes)?);
        }
        if !targets.is_empty() {
            let (targets, unit) = self.targets(&targets, nodes)?;
            (s.targets, s.target_unit) = (Some(targets), unit);
            s.notes.push("targets are ln(1 + y), as in the loader of PyTorch Geometric Temporal".into());
        }
        if s.targets.is_none() && s.features.is_none() {
            s.mark_present(options.presence)?;
        }
        Ok(s)
    }

    /// Returns the features `[steps * nodes, width]`, normalised column by column if the options say so;
    /// `steps` has the rows of each step.
    fn features(&self, steps: Vec<Vec<Vec<f32>>>, nodes: usize) -> Result<Features> {
        let t = steps.len();
        let rows: Vec<Vec<f32>> = steps.into_iter().flatten().collect();
        if rows.len() != t * nodes {
            return Err((self.bad)(format!("{} rows of X for {nodes} vertices in {t} steps", rows.len())));
        }
        let cols = rows.first().map_or(0, Vec::len);
        let mut values = self.rows(&rows, cols, "features of a vertex")?;
        let train = self.options.trains(t) * nodes * cols;
        match self.options.normalise {
            _ if self.options.features == VertexFeatures::Encoded => {} // of values as they are
            Normalise::Off => {}
            Normalise::Column => drop(normalise(&mut values, cols, train)),
            Normalise::Vertex => drop(normalise(&mut values, nodes * cols, train)),
        }
        Features::from_vec(rows.len(), cols, values)
    }

    /// Returns the targets `ln(1 + y)`, `[steps * nodes, 1]`, normalised if the options say so, and the size
    /// of one unit of them; `steps` has the values `y` of each step.
    fn targets(&self, steps: &[Vec<f32>], nodes: usize) -> Result<(Features, f64)> {
        let mut values = self.rows(steps, nodes, "targets")?;
        if let Some(i) = values.iter().position(|y| *y < 0.0) {
            let (step, vertex) = (i / nodes, i % nodes);
            return Err((self.bad)(format!("y of vertex {vertex} in step {step} is {}", values[i])));
        }
        values.iter_mut().for_each(|y| *y = y.ln_1p());
        let train = self.options.trains(steps.len()) * nodes;
        let unit = match self.options.normalise {
            Normalise::Off => 1.0,
            Normalise::Column => normalise(&mut values, 1, train)[0],
            Normalise::Vertex => {
                normalise(&mut values, nodes, train);
                1.0
            }
        };
        Ok((Features::from_vec(steps.len() * nodes, 1, values)?, unit))
    }

    /// Concatenates rows, each of which must have `width` numbers; error messages call the numbers `what`.
    fn rows(&self, rows: &[impl AsRef<[f32]>], width: usize, what: &str) -> Result<Vec<f32>> {
        if rows.is_empty() || width == 0 {
            return Err((self.bad)(format!("there are no {what}")));
        }
        let mut values = Vec::with_capacity(rows.len() * width);
        for (i, row) in rows.iter().map(AsRef::as_ref).enumerate() {
            if row.len() != width {
                let what = format!("row {i} has {} {what}, the first one has {width}", row.len());
                return Err((self.bad)(what));
            }
            values.extend_from_slice(row);
        }
        Ok(values)
    }

    /// Returns the ids of `nodes` vertices.
    fn ids(&self, by_name: BTreeMap<String, u32>, nodes: usize) -> Result<Ids> {
        if by_name.len() != nodes {
            return Err((self.bad)(format!("node_ids has {} names for {nodes} vertices", by_name.len())));
        }
        let mut names = vec![None; nodes];
        for (name, vertex) in by_name {
            match names.get_mut(vertex as usize) {
                Some(free @ None) => *free = Some(name),
                Some(Some(other)) => {
                    return Err((self.bad)(format!("node_ids names vertex {vertex} {other} and {name}")));
                }
                None => {
                    let what = format!("node_ids.{name} is {vertex}, but there are only {nodes} vertices");
                    return Err((self.bad)(what));
                }
            }
        }
        // As many different vertices as there are have names.
        Ok(names.into_iter().flatten().map(|name| NodeId::parse(&name)).collect())
    }

    /// Checks edges and combines them with their weights, which are 1 unless `weighted`. Error messages call
    /// the list of edges `place`.
    fn edges(
        &self,
        edges: Vec<(u32, u32)>,
        weights: Option<Vec<f32>>,
        weighted: bool,
        nodes: usize,
        place: &str,
    ) -> Result<Edges> {
        if let Some(weights) = weights.as_ref().filter(|w| w.len() != edges.len()) {
            return Err((self.bad)(format!(
                "{place} has {} weights for {} edges",
                weights.len(),
                edges.len()
            )));
        }
        let weight = |i: usize| weights.as_ref().filter(|_| weighted).map_or(1.0, |w| w[i]);
        let edge = |(i, (src, dst)): (usize, (u32, u32))| {
            if src.max(dst) as usize >= nodes {
                let what =
                    format!("edge {i} of {place} is ({src}, {dst}), but there are only {nodes} vertices");
                return Err((self.bad)(what));
            }
            match weight(i) {
                w if w > 0.0 => Ok((src, dst, w)),
                w => Err((self.bad)(format!("edge {i} of {place} has the weight {w}, which is not above 0"))),
            }
        };
        edges.into_iter().enumerate().map(edge).collect()
    }
}
