//! Planted classes of synthetic streams: the rule that determines the labels of their events.
use super::{
    Features,
    classes::make_set,
    draw::Draws,
    features::{hash, noise},
};
use rayon::prelude::*;
use tgnn::error::Result;

/// Number of hidden types of nodes.
pub(super) const TYPES: usize = 8;
/// Standard deviation of the noise on a feature, whose code is ±1.
const NOISE: f32 = 0.5;
/// Seeds of independent random sequences; they differ from those that generate the events.
const TYPE_STREAM: u64 = 0x7e9e;
const CODE_STREAM: u64 = 0x7c0de;
const NOISE_STREAM: u64 = 0x70f1e;
const CLASS_STREAM: u64 = 0xc1a55;

/// The rule: an event between types `(a, b)` of source and destination has consecutive classes from
/// `(a * TYPES + b) * classes / TYPES^2` on, modulo `classes`.
pub(super) struct Planted {
    pub seed: u64,
    /// Number of classes.
    pub classes: usize,
    /// Labels per event.
    pub labels: usize,
    /// Probability that a label follows the rule.
    pub signal: f64,
}

impl Planted {
    fn type_of(&self, node: u32) -> usize {
        type_of(self.seed, node)
    }

    /// Returns the `j`-th class that the rule gives to an event between `src` and `dst`.
    fn class(&self, src: u32, dst: u32, j: usize) -> usize {
        let pair = self.type_of(src) * TYPES + self.type_of(dst);
        (pair * self.classes / (TYPES * TYPES) + j) % self.classes
    }

    /// Appends the set of classes of an event to `sets`, as a row of `labels` ids.
    pub(super) fn push(&self, sets: &mut Vec<u32>, event: u64, src: u32, dst: u32) {
        let first = sets.len();
        let mut draws = Draws::new(hash(self.seed ^ CLASS_STREAM, event));
        for j in 0..self.labels {
            let planted = draws.chance(self.signal);
            let class = if planted { self.class(src, dst, j) } else { draws.below(self.classes) };
            sets.push(class as u32);
        }
        make_set(&mut sets[first..]);
    }
}

/// Returns the hidden type of a node.
pub(super) fn type_of(seed: u64, node: u32) -> usize {
    (hash(seed ^ TYPE_STREAM, node.into()) % TYPES as u64) as usize
}

/// Generates node features, `[nodes, width]`: the code of each node's type, plus noise of half the size.
pub(super) fn node_features(seed: u64, nodes: usize, width: usize) -> Result<Features> {
    let planted = Planted { seed, classes: 1, labels: 0, signal: 0.0 };
    let mut values = vec![0f32; nodes * width];
    values.par_chunks_mut(width).enumerate().for_each(|(node, row)| {
        let code = (planted.type_of(node as u32) * width) as u64;
        for (i, value) in (0..).zip(row) {
            let sign = if hash(seed ^ CODE_STREAM, code + i) & 1 == 0 { -1.0 } else { 1.0 };
            *value = sign + NOISE * noise(hash(seed ^ NOISE_STREAM, (node * width) as u64 + i));
        }
    });
    Features::from_vec(nodes, width, values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SynthOptions, synth};

    /// Returns the fraction of labels that follow the rule, and the fractions of events that have the least
    /// and the most frequent class.
    fn measure(signal: f64) -> (f64, f64, f64) {
        let options = SynthOptions {
            events: 20_000,
            sources: 400,
            destinations: 200,
            edge_features: 0,
            classes: 32,
            labels: 3,
            signal,
            ..SynthOptions::default()
        };
        let e = synth(&options).unwrap();
        let sets = e.classes.as_ref().unwrap();
        let planted = Planted { seed: options.seed, classes: 32, labels: 3, signal };
        let (mut hits, mut labels, mut frequency) = (0, 0, [0f64; 32]);
        for i in 0..e.len() {
            labels += sets.get(i).len();
            let rule: Vec<_> = (0..3).map(|j| planted.class(e.src[i], e.dst[i], j) as u32).collect();
            hits += sets.get(i).iter().filter(|c| rule.contains(c)).count();
            sets.get(i).iter().for_each(|&c| frequency[c as usize] += 1.0 / e.len() as f64);
        }
        let least = frequency.iter().copied().fold(1.0, f64::min);
        (hits as f64 / labels as f64, least, frequency.iter().copied().fold(0.0, f64::max))
    }

    #[test]
    fn the_types_predict_the_labels_up_to_the_noise_and_not_at_all_without_signal() {
        let (hits, least, most) = measure(0.9);
        assert!((hits - (0.9 + 0.1 * 3.0 / 32.0)).abs() < 0.01, "{hits}");
        assert!(least > 0.02 && most < 0.4, "{least} {most}");
        let (hits, least, most) = measure(0.0);
        assert!((hits - 3.0 / 32.0).abs() < 0.01, "{hits}");
        assert!(least > 0.08 && most < 0.1, "{least} {most}");
    }

    #[test]
    fn features_of_nodes_of_the_same_type_are_close_and_of_different_types_are_not() {
        let f = node_features(7, 60, 64).unwrap();
        let planted = Planted { seed: 7, classes: 1, labels: 0, signal: 0.0 };
        for (a, b) in
            [(0, 1), (2, 9), (5, 40), (13, 31), (20, 50)].into_iter().chain((0..30).map(|a| (a, a + 30)))
        {
            let dot: f32 = f.row(a).iter().zip(f.row(b)).map(|(x, y)| x * y).sum();
            assert_eq!(dot > 40.0, planted.type_of(a as u32) == planted.type_of(b as u32), "{a} {b}: {dot}");
        }
    }
}
