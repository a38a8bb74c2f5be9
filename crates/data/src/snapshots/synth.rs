//! Synthetic snapshots: each step has a subset of the edges of one graph.
//!
//! Source: the generation of snapshots from static graphs in BLAD (Fu et al. 2023, section 7.1), extended by
//! edges that persist from step to step.
use super::{SnapshotOptions, Snapshots, build::Edges, write::Ours};
use crate::{
    draw::{Draws, PowerLaw, Scatter},
    features::hash,
    format::graph::edge_list,
    planted::{node_features, type_of},
};
use serde::{Serialize, Serializer};
use std::{
    collections::HashSet,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};
use tgnn::{
    error::{Error, Result},
    runtime::check_room,
};

/// Independent random streams of the generator.
const GRAPH_STREAM: u64 = 0x96a9;
const KEY_STREAM: u64 = 0x6e15;
/// Number of pairs drawn for an edge before giving up because the graph is too dense.
const TRIES: usize = 1_000;
/// Fraction of its final edges that AS-733 began with.
const AS733: f64 = 10_687.0 / 26_467.0;

/// Numbers of edges of the steps; as text `constant`, `linear:0.4`, `as733`, or a list of counts.
#[derive(Clone, Debug, PartialEq)]
pub enum Trend {
    /// Half of the graph's edges in every step.
    Constant,
    /// Linear growth from this fraction of the graph's edges to all of them.
    Linear(f64),
    /// Exponential growth from 40 % of the graph's edges to all of them, as AS-733 grew from 10,687 to 26,467
    /// edges (Leskovec et al. 2005).
    As733,
    /// One count per step; the length of the list is the number of steps.
    Counts(Vec<usize>),
}

impl FromStr for Trend {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let linear = |s: &str| s.parse().ok().filter(|x| (0.0..=1.0).contains(x)).map(Trend::Linear);
        let counts = || s.split(',').map(|n| n.trim().parse().ok()).collect::<Option<Vec<usize>>>();
        match s {
            "constant" => Some(Trend::Constant),
            "as733" => Some(Trend::As733),
            _ => s.strip_prefix("linear:").and_then(linear).or_else(|| counts().map(Trend::Counts)),
        }
        .ok_or_else(|| {
            Error::usage(format!("there is no trend `{s}`"))
                .remedy("give constant, linear:FRACTION, as733, or a list of counts such as 100,120,90")
        })
    }
}

impl fmt::Display for Trend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trend::Constant => f.write_str("constant"),
            Trend::Linear(fraction) => write!(f, "linear:{fraction}"),
            Trend::As733 => f.write_str("as733"),
            Trend::Counts(counts) => {
                f.write_str(&counts.iter().map(usize::to_string).collect::<Vec<_>>().join(","))
            }
        }
    }
}

impl Serialize for Trend {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// Options of the generator; see [`SynthSnapshots::make`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SynthSnapshots {
    /// File of edges, one `src dst` per line, to use instead of a random graph. Its vertices and edges then
    /// replace [`vertices`](Self::vertices) and [`edges`](Self::edges).
    pub graph: Option<PathBuf>,
    /// Number of vertices.
    pub vertices: usize,
    /// Number of edges of the graph; each step has a subset of them.
    pub edges: usize,
    /// Exponent of the power law of vertex popularity, from 0 to 10.
    pub exponent: f64,
    /// Probability, from 0 to 1, that an edge is made to join vertices of the same hidden type; other edges
    /// do so only by chance.
    pub signal: f64,
    /// Number of steps.
    pub steps: usize,
    /// Numbers of edges of the steps.
    pub trend: Trend,
    /// Probability, from 0 to 1, that an edge keeps its random key from one step to the next.
    pub persist: f64,
    /// Width of the vertex features; 0 for none.
    pub features: usize,
    /// Random seed; different seeds give independent snapshots.
    pub seed: u64,
}

impl Default for SynthSnapshots {
    fn default() -> Self {
        SynthSnapshots {
            graph: None,
            vertices: 1_000,
            edges: 10_000,
            exponent: 0.8,
            signal: 0.9,
            steps: 100,
            trend: Trend::As733,
            persist: 0.9,
            features: 0,
            seed: 0,
        }
    }
}

impl SynthSnapshots {
    /// Generates snapshots in memory. A model can predict their links from vertex types and from the previous
    /// step.
    ///
    /// **The graph.** Each vertex has one of eight hidden types. Both ends of an edge are drawn from a power
    /// law of popularity: rank `r` has weight `r^-exponent`. They are drawn again until the pair is not a
    /// loop and is new, and, with probability `signal`, until both ends have the same type. A model that
    /// knows the types can therefore rule out most pairs; an eighth of all pairs match in type by chance.
    /// Features, if any, encode the vertex's type plus noise; without features, types can only be inferred
    /// from the edges.
    ///
    /// **The steps.** Every edge has a random key. From step to step it keeps the key with probability
    /// `persist`, and draws a new one otherwise. A step has the edges with the smallest keys; the trend gives
    /// their number. Edges of one step are therefore likely to appear in the next. With `persist` 0, each
    /// step deletes edges at random, as in BLAD; with `persist` 1, a growing graph loses no edges.
    ///
    /// The same options give the same snapshots, except that the power law uses the platform's `pow`, whose
    /// last bit may differ between platforms.
    ///
    /// # Errors
    /// Usage if an option is out of range or the graph is too dense; out of memory if the edges do not fit;
    /// errors of reading the graph.
    pub fn make(&self) -> Result<Snapshots> {
        self.validate()?;
        let (graph, vertices) = match &self.graph {
            Some(path) => read_graph(path)?,
            None => (self.draw_graph()?, self.vertices),
        };
        let counts = self.counts(graph.len())?;
        let total: usize = counts.iter().sum();
        check_room("the edges of all steps", 32 * total, "make fewer steps, or a smaller graph")?;
        let digits = (counts.len() - 1).to_string().len();
        let labels = (0..counts.len()).map(|s| format!("{s:0digits$}")).collect();
        let random_key = |edge: usize, step: u64| hash(self.seed ^ KEY_STREAM, hash(step, edge as u64));
        let mut keys: Vec<(u64, u32)> = (0..graph.len()).map(|e| (random_key(e, 0), e as u32)).collect();
        let mut steps: Vec<Edges> = Vec::with_capacity(counts.len());
        for (count, step) in counts.iter().zip(1..) {
            if *count > 0 && *count < keys.len() {
                keys.select_nth_unstable(count - 1);
            }
            steps
                .push(keys[..*count].iter().map(|k| graph[k.1 as usize]).map(|(a, b)| (a, b, 1.0)).collect());
            for (key, edge) in &mut keys {
                let mut draws = Draws::new(random_key(*edge as usize, step));
                if !draws.chance(self.persist) {
                    *key = random_key(*edge as usize, step + (1 << 32));
                }
            }
        }
        let mut s = Snapshots::of_edges("synth".into(), vertices, steps, labels, false)?;
        if self.features > 0 {
            s.features = Some(node_features(self.seed, vertices, self.features)?);
        }
        s.mark_present(SnapshotOptions::default().presence)?;
        s.validate("synth")?;
        Ok(s)
    }

    /// Generates snapshots and writes them to the folder `dir`: one file of edges per step, `features.npy` if
    /// there are features, and `snapshots.json` with the options.
    ///
    /// # Errors
    /// Those of [`make`](Self::make); usage if `dir` exists and is not empty, unless `force` is set and `dir`
    /// is such a folder of snapshots; io if the folder cannot be written.
    pub fn make_in(&self, dir: impl AsRef<Path>, force: bool) -> Result<Snapshots> {
        let folder = Ours::create(dir.as_ref(), force)?;
        let s = self.make()?;
        folder.write(&s, self)?;
        Ok(s)
    }

    /// Checks the ranges of all options.
    fn validate(&self) -> Result<()> {
        let is_probability = |v: f64| (0.0..=1.0).contains(&v);
        let fault = match () {
            _ if self.vertices < 2 || self.vertices > 1 << 31 => {
                Some("vertices must be from 2 to 2^31".to_owned())
            }
            _ if self.edges == 0 || self.edges > 1 << 31 => Some("edges must be from 1 to 2^31".into()),
            _ if !(1..=1 << 20).contains(&self.steps) => Some("steps must be from 1 to 2^20".into()),
            _ if !(0.0..=10.0).contains(&self.exponent) => Some("exponent must be from 0 to 10".into()),
            _ if !is_probability(self.signal) => {
                Some(format!("signal must be from 0 to 1, but is {}", self.signal))
            }
            _ if !is_probability(self.persist) => {
                Some(format!("persist must be from 0 to 1, but is {}", self.persist))
            }
            _ if self.trend == Trend::Counts(vec![]) => Some("the list of counts is empty".into()),
            _ if self.features > 1 << 16 => Some("the width of features must be at most 65536".into()),
            _ => None,
        };
        fault.map_or(Ok(()), |fault| Err(Error::usage(format!("synth-snapshots: {fault}"))))
    }

    /// Returns the number of edges of each step, for a graph of `edges`.
    fn counts(&self, edges: usize) -> Result<Vec<usize>> {
        let count = |fraction: f64| ((edges as f64 * fraction).round() as usize).clamp(1, edges);
        // From 0 at the first step to 1 at the last.
        let progress = |s: usize| if self.steps > 1 { s as f64 / (self.steps - 1) as f64 } else { 1.0 };
        let per_step =
            |fraction: &dyn Fn(f64) -> f64| (0..self.steps).map(|s| count(fraction(progress(s)))).collect();
        match &self.trend {
            Trend::Constant => Ok(per_step(&|_| 0.5)),
            Trend::Linear(from) => Ok(per_step(&|progress| from + (1.0 - from) * progress)),
            Trend::As733 => Ok(per_step(&|progress| AS733.powf(1.0 - progress))),
            Trend::Counts(counts) => match counts.iter().find(|n| **n > edges) {
                None => Ok(counts.clone()),
                Some(n) => Err(Error::usage(format!(
                    "synth-snapshots: a step of {n} edges, but the graph has only {edges}"
                ))
                .remedy("give smaller counts, or more edges")),
            },
        }
    }

    /// Draws the edges of a random graph, without loops or repetitions.
    fn draw_graph(&self) -> Result<Vec<(u32, u32)>> {
        let mut draws = Draws::new(self.seed ^ GRAPH_STREAM);
        let (law, ids) = (PowerLaw::new(self.vertices, self.exponent), Scatter::new(self.vertices));
        let pair = |draws: &mut Draws| {
            let mut vertex = || ids.id(law.rank(draws.unit())) as u32;
            (vertex(), vertex())
        };
        let (mut graph, mut known) = (Vec::with_capacity(self.edges), HashSet::with_capacity(self.edges));
        while graph.len() < self.edges {
            // Drawn once per edge, not once per try: otherwise the actual fraction of edges within a type
            // would deviate from `signal`, because popular pairs are soon taken.
            let planted = draws.chance(self.signal);
            let fits = |(src, dst): (u32, u32)| {
                src != dst && (!planted || type_of(self.seed, src) == type_of(self.seed, dst))
            };
            let found = (0..TRIES).map(|_| pair(&mut draws)).find(|p| fits(*p) && !known.contains(p));
            let Some(edge) = found else { break };
            known.insert(edge);
            graph.push(edge);
        }
        if graph.len() == self.edges {
            return Ok(graph);
        }
        let what = format!("synth-snapshots: only {} of {} edges were found", graph.len(), self.edges);
        Err(Error::usage(what).remedy("make fewer edges, more vertices, or a smaller exponent"))
    }
}

/// Reads the edges of a file, without loops and repetitions, and numbers their vertices densely. Also returns
/// the number of vertices.
fn read_graph(path: &Path) -> Result<(Vec<(u32, u32)>, usize)> {
    let mut edges = edge_list(path, false)?.edges;
    edges.retain(|e| e.0 != e.1);
    let mut ids: Vec<u64> = edges.iter().flat_map(|e| [e.0, e.1]).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        return Err(Error::data(path, "there are no edges, or only loops")
            .remedy("write one edge `src dst` per line"));
    }
    let vertex = |id: u64| ids.partition_point(|&i| i < id) as u32;
    let mut graph: Vec<(u32, u32)> = edges.iter().map(|e| (vertex(e.0), vertex(e.1))).collect();
    graph.sort_unstable();
    graph.dedup();
    Ok((graph, ids.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ReadOptions, SnapshotStats};

    fn small() -> SynthSnapshots {
        SynthSnapshots { vertices: 200, edges: 2_000, steps: 11, seed: 3, ..SynthSnapshots::default() }
    }

    #[test]
    fn the_trend_determines_the_number_of_edges_of_each_step() {
        let counts = |trend: &str| {
            let s = SynthSnapshots { trend: trend.parse().unwrap(), ..small() }.make().unwrap();
            (0..s.len()).map(|i| s.edges(i).len()).collect::<Vec<_>>()
        };
        assert_eq!(counts("constant"), [1000; 11]);
        assert_eq!(counts("linear:0.5"), (0..=10).map(|i| 1000 + 100 * i).collect::<Vec<_>>());
        assert_eq!(counts("7,2000,0"), [7, 2000, 0]);
        let grown = counts("as733");
        assert_eq!((grown[0], grown[10]), (808, 2000));
        assert!(grown.windows(2).all(|w| w[0] < w[1]));
        for text in ["", "linear:2", "linear", "1,x", "as-733"] {
            assert!(
                text.parse::<Trend>().unwrap_err().to_string().contains("give constant, linear:FRACTION")
            );
        }
        assert_eq!("1,2".parse::<Trend>().unwrap().to_string(), "1,2");
    }

    #[test]
    fn edges_persist_with_the_given_probability() {
        let kept = |persist: f64| {
            let options = SynthSnapshots { persist, trend: Trend::Constant, ..small() };
            SnapshotStats::new(&options.make().unwrap()).mean(|s| s.kept_share).unwrap()
        };
        // At 0, half of the edges stay by chance. At 0.9, a tenth of them draw new keys, and half of those
        // stay.
        assert!((kept(0.0) - 0.5).abs() < 0.03, "{}", kept(0.0));
        assert!((kept(0.9) - 0.95).abs() < 0.02, "{}", kept(0.9));
        assert_eq!(kept(1.0), 1.0);
    }

    #[test]
    fn the_signal_is_the_probability_that_an_edge_joins_one_type_and_features_encode_types() {
        let within = |signal: f64| {
            let s = SynthSnapshots { signal, features: 64, ..small() }.make().unwrap();
            let f = s.features.as_ref().unwrap();
            let dot = |a: u32, b: u32| {
                f.row(a as usize).iter().zip(f.row(b as usize)).map(|(x, y)| x * y).sum::<f32>()
            };
            let alike = s.src.iter().zip(&s.dst).filter(|(a, b)| dot(**a, **b) > 40.0).count();
            alike as f64 / s.src.len() as f64
        };
        assert!((within(0.9) - 0.91).abs() < 0.03, "{}", within(0.9));
        assert!(within(0.0) < 0.25);
    }

    #[test]
    fn the_same_seed_gives_the_same_snapshots_and_another_does_not() {
        assert_eq!(small().make().unwrap(), small().make().unwrap());
        assert_ne!(small().make().unwrap(), SynthSnapshots { seed: 4, ..small() }.make().unwrap());
    }

    #[test]
    fn a_written_folder_reads_back_equal_and_is_replaced_only_by_force() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("made");
        let options = SynthSnapshots { features: 5, ..small() };
        let mut made = options.make_in(&path, false).unwrap();
        let read = |path: &Path| {
            let path = path.to_str().unwrap();
            Snapshots::load(path, &ReadOptions::default(), &SnapshotOptions::default(), 0).unwrap()
        };
        made.name = "made".into();
        assert_eq!(read(&path), made);
        let e = small().make_in(&path, false).unwrap_err().to_string();
        assert!(e.contains("exists and is not empty"), "{e}");
        let again = small().make_in(&path, true).unwrap();
        assert_eq!((read(&path).src, read(&path).width()), (again.src, 0));
        assert!(small().make_in(dir.path(), true).unwrap_err().to_string().contains("is not a data set"));
    }

    #[test]
    fn a_graph_can_be_read_from_a_file_and_impossible_options_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("graph.txt");
        std::fs::write(&path, "# a triangle, twice\n5 9\n9 7\n7 5\n5 9\n7 7\n").unwrap();
        let s =
            SynthSnapshots { graph: Some(path), trend: "3,1".parse().unwrap(), ..small() }.make().unwrap();
        assert_eq!((s.nodes, &s.src[..3], &s.dst[..3], s.src.len()), (3, &[0, 1, 2][..], &[2, 0, 1][..], 4));
        let said = |o: SynthSnapshots| o.make().unwrap_err().to_string();
        assert!(
            said(SynthSnapshots { edges: 1_000, vertices: 20, ..small() })
                .contains(" of 1000 edges were found; ")
        );
        assert!(
            said(SynthSnapshots { persist: 1.5, ..small() })
                .contains("persist must be from 0 to 1, but is 1.5")
        );
        assert!(
            said(SynthSnapshots { trend: Trend::Counts(vec![3_000]), ..small() })
                .contains("the graph has only 2000; ")
        );
    }
}
