//! Steps common to all ways of making snapshots: merging edges, marking vertices as present, choosing
//! features.
use super::{EdgeWeights, Presence, SnapshotOptions, Snapshots, VertexFeatures};
use crate::{Features, text::counted};
use rayon::prelude::*;
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::check_room,
};

/// Edges of a step as (source, destination, weight), in any order; pairs may repeat.
pub(super) type Edges = Vec<(u32, u32, f32)>;

impl Snapshots {
    /// Creates snapshots from the edges of each step: sorts them, merges repeated pairs and adds their
    /// weights in f64. The snapshots have weights only if `weighted` is set and not all weights are 1.
    pub(super) fn of_edges(
        name: String,
        nodes: usize,
        mut steps: Vec<Edges>,
        labels: Vec<String>,
        weighted: bool,
    ) -> Result<Self> {
        let given: usize = steps.iter().map(Vec::len).sum();
        steps.par_iter_mut().for_each(merge);
        let edges: usize = steps.iter().map(Vec::len).sum();
        if edges > u32::MAX as usize {
            return Err(
                Error::data(&name, "there are more than 2^32 edges in all steps").remedy("use fewer steps")
            );
        }
        let mut offsets = vec![0];
        let (mut src, mut dst) = (Vec::with_capacity(edges), Vec::with_capacity(edges));
        let mut weight = Vec::with_capacity(if weighted { edges } else { 0 });
        for step in &steps {
            src.extend(step.iter().map(|e| e.0));
            dst.extend(step.iter().map(|e| e.1));
            if weighted {
                weight.extend(step.iter().map(|e| e.2));
            }
            offsets.push(src.len());
        }
        let weight = Some(weight).filter(|w| weighted && w.iter().any(|w| *w != 1.0));
        let repeats = (given - edges) as u64;
        let notes =
            if repeats > 0 { vec![format!("merged {}", counted(repeats, "repeated edge"))] } else { vec![] };
        Ok(Snapshots {
            name,
            nodes,
            offsets,
            src,
            dst,
            weight,
            labels,
            present: None,
            features: None,
            targets: None,
            target_unit: 1.0,
            classes: None,
            encoding: None,
            class_values: None,
            ids: None,
            notes,
        })
    }

    /// Sets which vertices are present, according to the edges.
    pub(super) fn mark_present(&mut self, presence: Presence) -> Result<()> {
        if presence == Presence::All {
            return Ok(());
        }
        let (v, steps) = (self.nodes, self.len());
        check_room("which vertices are there in each step", v * steps, "take longer steps")?;
        let mut present = vec![false; steps * v];
        for s in 0..steps {
            let (before, row) = present[..(s + 1) * v].split_at_mut(s * v);
            if presence == Presence::Seen && s > 0 {
                row.copy_from_slice(&before[(s - 1) * v..]);
            }
            for i in self.edges(s) {
                row[self.src[i] as usize] = true;
                row[self.dst[i] as usize] = true;
            }
        }
        self.present = Some(present).filter(|p| p.contains(&false));
        Ok(())
    }

    /// Replaces the features by those that `options` select; `seed` determines random features.
    pub(super) fn choose_features(&mut self, options: &SnapshotOptions, seed: u64) -> Result<()> {
        if !matches!(options.features, VertexFeatures::Auto | VertexFeatures::Given) {
            self.encoding = None;
        }
        match options.features {
            VertexFeatures::Auto => {}
            VertexFeatures::Given if self.features.is_some() => {}
            VertexFeatures::Given => {
                let what = format!("snapshots.features is given, but {} has none", self.name);
                return Err(Error::new(ErrorKind::Usage, what).remedy("give degree, learned or random"));
            }
            VertexFeatures::Encoded => self.features = Some(self.encoded()?),
            VertexFeatures::Learned => self.features = None,
            VertexFeatures::Degree => self.features = Some(self.degrees()?),
            VertexFeatures::Random => {
                check_room(
                    "random features",
                    4 * self.nodes * options.width,
                    "take a smaller snapshots.width",
                )?;
                self.features = Some(Features::random(self.nodes, options.width, seed));
            }
        }
        Ok(())
    }

    /// Returns degree and transitivity, which the two columns of the features are, as 5 and 11 one-hot
    /// columns: `min(4, ceil(ln(1 + degree)))` and `floor(10 transitivity)`. The loader of Twitter Tennis
    /// does the same.
    fn encoded(&self) -> Result<Features> {
        let Some(f) = self.features.as_ref().filter(|f| f.cols() == 2) else {
            let what =
                format!("snapshots.features is encoded, but {} has {} features", self.name, self.width());
            return Err(Error::usage(what).remedy("give data with two, the degree and the transitivity"));
        };
        let mut values = vec![0f32; f.rows() * 16];
        for (i, one_hot) in values.chunks_exact_mut(16).enumerate() {
            let (degree, transitivity) = (f.row(i)[0], f.row(i)[1]);
            if degree < 0.0 || !(0.0..=1.0).contains(&transitivity) {
                let what = format!(
                    "row {i} of the features has the degree {degree} and the transitivity {transitivity}"
                );
                return Err(
                    Error::data(&self.name, what).remedy("leave out snapshots.features = \"encoded\"")
                );
            }
            one_hot[(f64::from(degree) + 1.0).ln().ceil().min(4.0) as usize] = 1.0;
            // The product in f32 is whole for tenths, as that of the loader in f64.
            one_hot[5 + (transitivity * 10.0).floor() as usize] = 1.0;
        }
        Features::from_vec(f.rows(), 16, values)
    }

    /// Returns the degree features `[steps * nodes, 2]`: `ln(1 + incoming edges)` and
    /// `ln(1 + outgoing edges)` of each vertex in each step.
    fn degrees(&self) -> Result<Features> {
        let v = self.nodes;
        check_room(
            "degrees of all vertices in each step",
            8 * v * self.len(),
            "take snapshots.features = \"learned\"",
        )?;
        let mut values = vec![0f32; self.len() * v * 2];
        for s in 0..self.len() {
            let row = &mut values[s * v * 2..][..v * 2];
            for i in self.edges(s) {
                row[2 * self.dst[i] as usize] += 1.0;
                row[2 * self.src[i] as usize + 1] += 1.0;
            }
            row.iter_mut().for_each(|d| *d = d.ln_1p());
        }
        Features::from_vec(self.len() * v, 2, values)
    }
}

/// Whether snapshots have edge weights; `given` says whether the input has weights.
pub(super) fn weighs(weights: EdgeWeights, given: bool) -> bool {
    match weights {
        EdgeWeights::Auto => given,
        EdgeWeights::None => false,
        EdgeWeights::Count | EdgeWeights::Feature(_) => true,
    }
}

/// Sorts edges by source, then destination, and merges equal pairs. Their weights are added in f64 in the
/// original order; the sort is stable.
fn merge(edges: &mut Edges) {
    edges.par_sort_by_key(|e| u64::from(e.0) << 32 | u64::from(e.1));
    let mut kept = 0;
    let mut at = 0;
    while at < edges.len() {
        let (src, dst, _) = edges[at];
        let mut sum = 0f64;
        while at < edges.len() && (edges[at].0, edges[at].1) == (src, dst) {
            sum += f64::from(edges[at].2);
            at += 1;
        }
        edges[kept] = (src, dst, sum as f32);
        kept += 1;
    }
    edges.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(weighted: bool) -> Snapshots {
        let steps = vec![vec![(2, 0, 0.5), (0, 1, 1.0), (2, 0, 0.25)], vec![], vec![(1, 1, 1.0)]];
        let labels = ["a", "b", "c"].map(str::to_owned).to_vec();
        Snapshots::of_edges("made".into(), 4, steps, labels, weighted).unwrap()
    }

    #[test]
    fn edges_are_sorted_and_repeated_ones_merged_and_a_loop_stays() {
        let s = made(true);
        s.validate("made").unwrap();
        assert_eq!(
            (&s.offsets[..], &s.src[..], &s.dst[..]),
            (&[0, 2, 2, 3][..], &[0, 2, 1][..], &[1, 0, 1][..])
        );
        assert_eq!(s.weight.unwrap(), [1.0, 0.75, 1.0]);
        assert_eq!(s.notes, ["merged 1 repeated edge"]);
        assert_eq!(made(false).weight, None);
    }

    #[test]
    fn a_vertex_is_present_once_seen_or_while_active_or_always() {
        let present = |presence| {
            let mut s = made(false);
            s.mark_present(presence).unwrap();
            s.validate("made").unwrap();
            s.present.map(|p| p.iter().map(|p| u8::from(*p)).collect::<Vec<_>>())
        };
        assert_eq!(present(Presence::Seen).unwrap(), [1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0]);
        assert_eq!(present(Presence::Active).unwrap(), [1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(present(Presence::All), None);
    }

    #[test]
    fn degree_and_transitivity_become_one_hot_columns() {
        let encoded = |values: Vec<f32>| {
            let mut s = made(false);
            s.features = Some(Features::from_vec(4, 2, values).unwrap());
            let options = SnapshotOptions { features: VertexFeatures::Encoded, ..SnapshotOptions::default() };
            s.choose_features(&options, 7).map(|()| s.features.unwrap())
        };
        let f = encoded(vec![0., 0., 1., 0.25, 29., 0.999, 1e6, 1.]).unwrap();
        let set = |i: usize| (0..16).filter(|&k| f.row(i)[k] == 1.0).collect::<Vec<_>>();
        assert_eq!([0, 1, 2, 3].map(set), [[0, 5], [1, 7], [4, 14], [4, 15]]);
        let said = encoded(vec![0., 0., 1., 1.5, 0., 0., 0., 0.]).unwrap_err().to_string();
        assert!(said.contains("row 1 of the features has the degree 1 and the transitivity 1.5; "), "{said}");
    }

    #[test]
    fn features_are_degrees_or_random_or_given_or_learned_by_the_model() {
        let chosen = |features| {
            let mut s = made(false);
            let options = SnapshotOptions { features, width: 3, ..SnapshotOptions::default() };
            s.choose_features(&options, 7).map(|()| s.features)
        };
        let degrees = chosen(VertexFeatures::Degree).unwrap().unwrap();
        let ln2 = 2f32.ln();
        assert_eq!((degrees.rows(), degrees.row(0)), (12, &[ln2, ln2][..]));
        assert_eq!(
            (degrees.row(2), degrees.row(5), degrees.row(9)),
            (&[0.0, ln2][..], &[0.0, 0.0][..], &[ln2, ln2][..])
        );
        assert_eq!(chosen(VertexFeatures::Random).unwrap().unwrap(), Features::random(4, 3, 7));
        assert_eq!(
            (chosen(VertexFeatures::Auto).unwrap(), chosen(VertexFeatures::Learned).unwrap()),
            (None, None)
        );
        assert!(
            chosen(VertexFeatures::Encoded).unwrap_err().to_string().contains("but made has 0 features; ")
        );
        let said = chosen(VertexFeatures::Given).unwrap_err().to_string();
        assert_eq!(said, "snapshots.features is given, but made has none; give degree, learned or random");
    }
}
