//! Discrete-time dynamic graphs: a sequence of snapshots of the same vertices, one per step.
//!
//! Source: the snapshot representation of a temporal graph as in BLAD (Fu et al. 2023), section 3.1.
mod arrays;
mod build;
mod classes;
mod every;
mod folder;
#[cfg(all(test, feature = "formats"))]
mod golden;
mod json;
mod load;
mod npy_archive;
mod options;
mod series;
mod stats;
mod synth;
mod window;
mod write;

use every::Cut;
pub use every::Every;
pub use options::{EdgeWeights, Normalise, Presence, SnapshotOptions, VertexFeatures};
pub use stats::{SnapshotStats, StepStats};
pub use synth::{SynthSnapshots, Trend};

use super::{ClassValue, FeatureEncoding, Features, Ids, NodeId, NodeNames};
use tgnn::{
    error::{Error, Result},
    runtime::NONE,
};

/// Snapshots in time order. All of them have the vertices `0..nodes`, some of which may be absent in a step.
///
/// Step `s` has the edges from `offsets[s]` to `offsets[s + 1]`, in ascending order of source, then
/// destination, each pair once. The fields are public because the whole crate reads them. Code that fills
/// them by hand should call [`validate`](Self::validate), because other code relies on the invariants that it
/// checks.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshots {
    /// The data set's name, for reports and results.
    pub name: String,
    /// Number of vertices.
    pub nodes: usize,
    /// Offset of the first edge of each step, followed by the number of edges: `steps + 1` entries.
    pub offsets: Vec<usize>,
    /// Source of each edge, below [`nodes`](Self::nodes).
    pub src: Vec<u32>,
    /// Destination of each edge, below [`nodes`](Self::nodes).
    pub dst: Vec<u32>,
    /// Positive and finite weight of each edge; if `None`, all weights are 1.
    pub weight: Option<Vec<f32>>,
    /// Name of each step, such as its first day.
    pub labels: Vec<String>,
    /// Whether vertex `v` is present in step `s`, at index `s * nodes + v`; if `None`, all vertices are
    /// always present. Both ends of an edge are present in its step.
    pub present: Option<Vec<bool>>,
    /// Vertex features: one row per vertex, or one row per step and vertex, at row `s * nodes + v`.
    pub features: Option<Features>,
    /// How columns of a table became the vertex features; `None` if they are no columns of one.
    pub encoding: Option<FeatureEncoding>,
    /// Values to predict for the vertices of each step from the steps before it, one row per step and vertex:
    /// for example, the values of a series at that step and the following ones. Unknown values are NaN.
    pub targets: Option<Features>,
    /// Size of one unit of the targets in units of the data: 1, or the standard deviation if targets were
    /// normalised.
    pub target_unit: f64,
    /// Class of each vertex in each step, one entry per step and vertex; [`NONE`](tgnn::runtime::NONE) if
    /// unknown.
    pub classes: Option<Vec<u32>>,
    /// What the classes are called in the data; if `None`, they are called by their numbers.
    pub class_values: Option<Vec<ClassValue>>,
    /// Original id of every vertex, such as the name of a county; if `None`, the id is the vertex index.
    pub ids: Option<Ids>,
    /// Notes on what a reader changed or found doubtful, such as `merged 12 repeated edges`.
    pub notes: Vec<String>,
}

impl Snapshots {
    /// Returns the original id of a vertex.
    ///
    /// # Panics
    /// If there is no vertex `vertex`.
    pub fn vertex_id(&self, vertex: u32) -> NodeId {
        match &self.ids {
            Some(ids) => ids.get(vertex as usize).expect("a vertex of the snapshots"),
            None => NodeId::Number(vertex.into()),
        }
    }

    /// Returns the vertices by their original ids.
    pub fn vertex_names(&self) -> NodeNames {
        NodeNames::new(self.ids.as_ref(), None, self.nodes, self.nodes, &[])
    }

    /// Returns the number of steps.
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Whether there is no step; never true for snapshots from a reader.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the edges of a step, as a range of indices into [`src`](Self::src) and [`dst`](Self::dst).
    pub fn edges(&self, step: usize) -> std::ops::Range<usize> {
        self.offsets[step]..self.offsets[step + 1]
    }

    /// Whether a vertex is present in a step.
    pub fn has(&self, step: usize, vertex: usize) -> bool {
        self.present.as_ref().is_none_or(|p| p[step * self.nodes + vertex])
    }

    /// Returns the width of the vertex features; 0 if there are none.
    pub fn width(&self) -> usize {
        self.features.as_ref().map_or(0, Features::cols)
    }

    /// Whether features change over time: they have one row per step and vertex instead of one per vertex.
    #[doc(hidden)]
    pub fn features_change(&self) -> bool {
        self.features.as_ref().is_some_and(|f| f.rows() != self.nodes)
    }

    /// Checks every invariant of the fields in one pass; error messages name the data `place`.
    ///
    /// # Errors
    /// Data, naming the first step and edge (both from 0) that violate an invariant.
    pub fn validate(&self, place: &str) -> Result<()> {
        let bad = |what: String| Err(Error::data(place, what).remedy("make the snapshots again"));
        let (steps, v, e) = (self.len(), self.nodes, self.src.len());
        if steps == 0 || v == 0 || v >= u32::MAX as usize || e > u32::MAX as usize {
            return bad(format!(
                "{steps} steps, {v} vertices, {e} edges; there must be at least one step and one vertex, and fewer \
                 than 2^32 vertices and edges"
            ));
        }
        if self.offsets[0] != 0 || self.offsets[steps] != e || self.offsets.windows(2).any(|w| w[0] > w[1]) {
            return bad("the offsets of the steps do not divide the edges".into());
        }
        let rows = steps * v;
        let lengths = [
            ("destinations", self.dst.len(), e),
            ("weights", self.weight.as_ref().map_or(e, Vec::len), e),
            ("labels", self.labels.len(), steps),
            ("presences", self.present.as_ref().map_or(rows, Vec::len), rows),
            ("targets", self.targets.as_ref().map_or(rows, Features::rows), rows),
            ("classes", self.classes.as_ref().map_or(rows, Vec::len), rows),
            ("ids", self.ids.as_ref().map_or(v, Ids::len), v),
        ];
        if let Some((what, len, want)) = lengths.iter().find(|(_, len, want)| len != want) {
            return bad(format!("{len} {what}, expected {want}"));
        }
        if let Some(f) = self.features.as_ref().filter(|f| f.rows() != v && f.rows() != rows) {
            return bad(format!("{} rows of features for {v} vertices in {steps} steps", f.rows()));
        }
        let named = self.class_values.as_ref().map_or(usize::MAX, Vec::len);
        if let Some(class) = self.classes.iter().flatten().find(|&&c| c != NONE && c as usize >= named) {
            return bad(format!("class {class} of {named}"));
        }
        for s in 0..steps {
            for i in self.edges(s) {
                if let Some(fault) = self.edge_fault(s, i) {
                    return bad(fault);
                }
            }
        }
        Ok(())
    }

    /// Describes the invariant that edge `i` of step `s` violates, if any.
    fn edge_fault(&self, s: usize, i: usize) -> Option<String> {
        let (v, first, pair) = (self.nodes, self.offsets[s], (self.src[i], self.dst[i]));
        if pair.0 as usize >= v || pair.1 as usize >= v {
            let edge = i - first;
            return Some(format!("edge {edge} of step {s} is {pair:?}, but there are only {v} vertices"));
        }
        if i > first && (self.src[i - 1], self.dst[i - 1]) >= pair {
            let edge = i - first;
            return Some(format!(
                "edge {edge} of step {s} is not in ascending order after the one before it"
            ));
        }
        if !self.has(s, pair.0 as usize) || !self.has(s, pair.1 as usize) {
            return Some(format!("an end of edge {} of step {s} is absent in that step", i - first));
        }
        if self.weight.as_ref().is_some_and(|w| !(w[i] > 0.0 && w[i].is_finite())) {
            return Some(format!("the weight of edge {} of step {s} is not positive and finite", i - first));
        }
        None
    }
}
