//! Graphs that change in steps: a snapshot a step, of the same vertices.
//!
//! Source: the snapshot form of a temporal graph as in BLAD (Fu et al. 2023), section 3.1.
mod build;
mod every;
mod folder;
mod json;
mod load;
mod options;
mod series;
mod stats;
mod synth;
mod window;
mod write;

use every::Cut;
pub use every::Every;
pub use options::{EdgeWeights, Presence, SnapshotOptions, VertexFeatures};
pub use stats::{SnapshotStats, StepStats};
pub use synth::{SynthSnapshots, Trend};

use super::{Features, Ids};
use crate::error::{Error, Result};

/// Snapshots in order of time; all of them have the vertices `0..nodes`, of which a step may lack some.
///
/// Edges of step `s` are those from `offsets[s]` to `offsets[s + 1]`, ascending by source, then destination, each pair once.
/// The fields are public because every part of the crate reads them; whoever builds a value by hand should call
/// [`validate`](Self::validate), on whose promises the rest relies.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshots {
    /// The data set's name, for reports and results.
    pub name: String,
    /// Vertices.
    pub nodes: usize,
    /// Where the edges of each step begin, and where those of the last end: one number more than there are steps.
    pub offsets: Vec<usize>,
    /// Sources, each below [`nodes`](Self::nodes).
    pub src: Vec<u32>,
    /// Destinations, each below [`nodes`](Self::nodes).
    pub dst: Vec<u32>,
    /// A positive weight per edge; 1 each where there are none.
    pub weight: Option<Vec<f32>>,
    /// What each step is called, such as the day that it begins with.
    pub labels: Vec<String>,
    /// Whether vertex `v` is there in step `s`, at `s nodes + v`; all are, always, where this is missing. The ends of an edge
    /// are there in its step.
    pub present: Option<Vec<bool>>,
    /// Features of vertices: a row per vertex, or a row per step and vertex, at `s nodes + v`.
    pub features: Option<Features>,
    /// What is to be predicted for the vertices of each step from the steps before it, a row per step and vertex: such as the
    /// values of a series at that step and at the ones that follow. NaN where nobody knows.
    pub targets: Option<Features>,
    /// What a difference of targets by 1 is in the units of the data: 1, unless targets were normalised.
    pub target_unit: f64,
    /// The class of each vertex in each step, [`NONE`](crate::runtime::NONE) where nobody knows it: a number per step and vertex.
    pub classes: Option<Vec<u32>>,
    /// The original id of every vertex, where it is not the vertex's number.
    pub ids: Option<Ids>,
    /// What a reader changed or doubted, in words: `merged 12 repeated edges`.
    pub notes: Vec<String>,
}

impl Snapshots {
    /// The number of steps.
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Whether there is no step; a reader never returns that.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The edges of a step, as positions in [`src`](Self::src) and [`dst`](Self::dst).
    pub fn edges(&self, step: usize) -> std::ops::Range<usize> {
        self.offsets[step]..self.offsets[step + 1]
    }

    /// Whether a vertex is there in a step.
    pub fn has(&self, step: usize, vertex: usize) -> bool {
        self.present.as_ref().is_none_or(|p| p[step * self.nodes + vertex])
    }

    /// Columns of the features; 0 if there are none.
    pub fn width(&self) -> usize {
        self.features.as_ref().map_or(0, Features::cols)
    }

    /// Whether features have a row per step and vertex, not only one per vertex.
    pub fn features_change(&self) -> bool {
        self.features.as_ref().is_some_and(|f| f.rows() != self.nodes)
    }

    /// Checks every promise of the fields, in one pass; `place` is what errors call the data.
    ///
    /// # Errors
    /// Data, naming the first step and edge that break a promise (both count from 0).
    pub fn validate(&self, place: &str) -> Result<()> {
        let bad = |what: String| Err(Error::data(place, what).remedy("make the snapshots again"));
        let (steps, v, e) = (self.len(), self.nodes, self.src.len());
        if steps == 0 || v == 0 || v >= u32::MAX as usize || e > u32::MAX as usize {
            return bad(format!(
                "{steps} steps, {v} vertices, {e} edges; there must be a step and a vertex, and less than 2^32 of each"
            ));
        }
        if self.offsets[0] != 0 || self.offsets[steps] != e || self.offsets.windows(2).any(|w| w[0] > w[1]) {
            return bad("the steps do not divide the edges".into());
        }
        let rows = steps * v;
        let lengths = [
            ("destinations", self.dst.len(), e),
            ("weights", self.weight.as_ref().map_or(e, Vec::len), e),
            ("labels", self.labels.len(), steps),
            ("presences", self.present.as_ref().map_or(rows, Vec::len), rows),
            ("targets", self.targets.as_ref().map_or(rows, Features::rows), rows),
            ("classes", self.classes.as_ref().map_or(rows, Vec::len), rows),
            ("ids", self.ids.as_ref().map_or(v, |ids| ids.original().len()), v),
        ];
        if let Some((what, len, want)) = lengths.iter().find(|(_, len, want)| len != want) {
            return bad(format!("{len} {what}, want {want}"));
        }
        if let Some(f) = self.features.as_ref().filter(|f| f.rows() != v && f.rows() != rows) {
            return bad(format!("{} rows of features for {v} vertices in {steps} steps", f.rows()));
        }
        for s in 0..steps {
            for i in self.edges(s) {
                let pair = (self.src[i], self.dst[i]);
                if pair.0 as usize >= v || pair.1 as usize >= v {
                    return bad(format!(
                        "edge {} of step {s} is {pair:?}, of {v} vertices",
                        i - self.offsets[s]
                    ));
                }
                if i > self.offsets[s] && (self.src[i - 1], self.dst[i - 1]) >= pair {
                    return bad(format!(
                        "edge {} of step {s} does not follow the one before it",
                        i - self.offsets[s]
                    ));
                }
                if !self.has(s, pair.0 as usize) || !self.has(s, pair.1 as usize) {
                    return bad(format!("an end of edge {} of step {s} is not there", i - self.offsets[s]));
                }
                if self.weight.as_ref().is_some_and(|w| !(w[i] > 0.0 && w[i].is_finite())) {
                    return bad(format!(
                        "the weight of edge {} of step {s} is no positive number",
                        i - self.offsets[s]
                    ));
                }
            }
        }
        Ok(())
    }
}
