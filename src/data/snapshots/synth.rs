//! Snapshots made up: a graph of which each step has some edges.
//!
//! Source: how BLAD (Fu et al. 2023, section 7.1) makes snapshots of static graphs, with edges that persist as an addition.
use super::{SnapshotOptions, Snapshots, build::Edges, write::Ours};
use crate::{
    data::{
        draw::{Draws, PowerLaw, Scatter},
        features::hash,
        format::graph::edge_list,
        planted::{node_features, type_of},
    },
    error::{Error, Result},
    runtime::check_room,
};
use serde::{Serialize, Serializer};
use std::{
    collections::HashSet,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

/// Streams of the generator apart from each other.
const GRAPH_STREAM: u64 = 0x96a9;
const KEY_STREAM: u64 = 0x6e15;
/// Pairs drawn for an edge before the graph counts as too dense.
const TRIES: usize = 1_000;
/// Share of its last edges that AS-733 began with.
const AS733: f64 = 10_687.0 / 26_467.0;

/// How many edges steps have; as text `constant`, `linear:0.4`, `as733`, or a list of counts.
#[derive(Clone, Debug, PartialEq)]
pub enum Trend {
    /// Half of the graph's edges, always.
    Constant,
    /// From this share of the graph's edges to all of them, by as many each step.
    Linear(f64),
    /// As AS-733 grew, from 10,687 to 26,467 edges (Leskovec et al. 2005): from 40 % of the edges to all, by the same factor each
    /// step.
    As733,
    /// So many; the number of steps is that of counts.
    Counts(Vec<usize>),
}

impl FromStr for Trend {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let share = |s: &str| s.parse().ok().filter(|x| (0.0..=1.0).contains(x)).map(Trend::Linear);
        let counts = || s.split(',').map(|n| n.trim().parse().ok()).collect::<Option<Vec<usize>>>();
        match s {
            "constant" => Some(Trend::Constant),
            "as733" => Some(Trend::As733),
            _ => s.strip_prefix("linear:").and_then(share).or_else(|| counts().map(Trend::Counts)),
        }
        .ok_or_else(|| {
            Error::usage(format!("there is no trend `{s}`"))
                .remedy("give constant, linear:SHARE, as733, or a list of counts such as 100,120,90")
        })
    }
}

impl fmt::Display for Trend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trend::Constant => f.write_str("constant"),
            Trend::Linear(share) => write!(f, "linear:{share}"),
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

/// What to make up; see [`SynthSnapshots::make`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SynthSnapshots {
    /// A file of edges in the place of a graph that is made up, `src dst` a line; vertices and edges are then its own.
    pub graph: Option<PathBuf>,
    /// Vertices.
    pub vertices: usize,
    /// Edges of the graph, of which steps have some.
    pub edges: usize,
    /// Exponent of the power law of popularity, from 0 to 10.
    pub exponent: f64,
    /// Probability, from 0 to 1, that an edge joins vertices of the same hidden type.
    pub signal: f64,
    /// Steps.
    pub steps: usize,
    /// How many edges they have.
    pub trend: Trend,
    /// Probability, from 0 to 1, that an edge's fate is that of the step before.
    pub persist: f64,
    /// Columns of the features of vertices; 0 for none.
    pub features: usize,
    /// Different seeds give independent snapshots.
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
    /// Makes snapshots in memory, whose links can be learned in two ways.
    ///
    /// **The graph.** Each vertex has one of eight hidden types. Both ends of an edge are drawn by a power law of popularity, rank
    /// `r` with weight `r^-exponent`, until they are a pair that is no loop and not there yet, and with probability `signal` of one
    /// type. So who knows the types knows which edges there may be, but for the eighth by chance; features,
    /// where there are any, are the code of a vertex's type and noise, else types show in who links to whom.
    ///
    /// **The steps.** Every edge has a random key, which it keeps from step to step with probability `persist`, else draws anew; a
    /// step has the edges of the smallest keys, as many as the trend says. So what was there is likely to be there again; at
    /// `persist` 0 each step deletes edges at random, as BLAD does, and at 1 a growing graph loses none.
    ///
    /// The same options give the same snapshots. The power law uses the platform's `pow`, whose last bit may differ.
    ///
    /// # Errors
    /// Usage if an option is out of range; those of reading the graph.
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
        let key = |edge: usize, step: u64| hash(self.seed ^ KEY_STREAM, hash(step, edge as u64));
        let mut keys: Vec<(u64, u32)> = (0..graph.len()).map(|e| (key(e, 0), e as u32)).collect();
        let mut steps: Vec<Edges> = Vec::with_capacity(counts.len());
        for (count, step) in counts.iter().zip(1..) {
            if *count > 0 && *count < keys.len() {
                keys.select_nth_unstable(count - 1);
            }
            steps
                .push(keys[..*count].iter().map(|k| graph[k.1 as usize]).map(|(a, b)| (a, b, 1.0)).collect());
            for (old, edge) in &mut keys {
                let mut draws = Draws::new(key(*edge as usize, step));
                if !draws.chance(self.persist) {
                    *old = key(*edge as usize, step + (1 << 32));
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

    /// Makes snapshots in the folder `dir`: a file of edges a step, `features.npy` where there are features, and `snapshots.json`,
    /// which says how they were made.
    ///
    /// # Errors
    /// Those of [`make`](Self::make); usage if `dir` is taken, and with `force` by anything but such a folder; io if the disk
    /// refuses.
    pub fn make_in(&self, dir: impl AsRef<Path>, force: bool) -> Result<Snapshots> {
        let folder = Ours::create(dir.as_ref(), force)?;
        let s = self.make()?;
        folder.write(&s, self)?;
        Ok(s)
    }

    fn validate(&self) -> Result<()> {
        let share = |v: f64| (0.0..=1.0).contains(&v);
        let fault = match () {
            _ if self.vertices < 2 || self.vertices > 1 << 31 => {
                Some("vertices must be from 2 to 2^31".to_owned())
            }
            _ if self.edges == 0 || self.edges > 1 << 31 => Some("edges must be from 1 to 2^31".into()),
            _ if !(1..=1 << 20).contains(&self.steps) => Some("steps must be from 1 to 2^20".into()),
            _ if !(0.0..=10.0).contains(&self.exponent) => Some("exponent must be from 0 to 10".into()),
            _ if !share(self.signal) => Some(format!("signal is a probability, {} is not", self.signal)),
            _ if !share(self.persist) => Some(format!("persist is a probability, {} is not", self.persist)),
            _ if self.trend == Trend::Counts(vec![]) => Some("there are no counts".into()),
            _ if self.features > 1 << 16 => Some("features can have 65536 columns".into()),
            _ => None,
        };
        fault.map_or(Ok(()), |fault| Err(Error::usage(format!("synth-snapshots: {fault}"))))
    }

    /// Edges of each step, of a graph of `edges`.
    fn counts(&self, edges: usize) -> Result<Vec<usize>> {
        let of = |share: f64| ((edges as f64 * share).round() as usize).clamp(1, edges);
        // From 0 at the first step to 1 at the last.
        let along = |s: usize| if self.steps > 1 { s as f64 / (self.steps - 1) as f64 } else { 1.0 };
        let each = |share: &dyn Fn(f64) -> f64| (0..self.steps).map(|s| of(share(along(s)))).collect();
        match &self.trend {
            Trend::Constant => Ok(each(&|_| 0.5)),
            Trend::Linear(from) => Ok(each(&|x| from + (1.0 - from) * x)),
            Trend::As733 => Ok(each(&|x| AS733.powf(1.0 - x))),
            Trend::Counts(counts) => match counts.iter().find(|n| **n > edges) {
                None => Ok(counts.clone()),
                Some(n) => {
                    Err(Error::usage(format!("synth-snapshots: a step of {n} edges, of a graph of {edges}"))
                        .remedy("give smaller counts, or more edges"))
                }
            },
        }
    }

    fn draw_graph(&self) -> Result<Vec<(u32, u32)>> {
        let mut draws = Draws::new(self.seed ^ GRAPH_STREAM);
        let (law, ids) = (PowerLaw::new(self.vertices, self.exponent), Scatter::new(self.vertices));
        let pair = |draws: &mut Draws| {
            let mut vertex = || ids.id(law.rank(draws.unit())) as u32;
            (vertex(), vertex())
        };
        let (mut graph, mut known) = (Vec::with_capacity(self.edges), HashSet::with_capacity(self.edges));
        while graph.len() < self.edges {
            // Drawn once an edge, not once a try: popular pairs are soon taken, and the share is to be as it is said.
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
        let what =
            format!("synth-snapshots: {} of {} edges are all that were found", graph.len(), self.edges);
        Err(Error::usage(what).remedy("make fewer edges, more vertices, or a smaller exponent"))
    }
}

/// The edges of a file, without loops, each once, and how many vertices they join.
fn read_graph(path: &Path) -> Result<(Vec<(u32, u32)>, usize)> {
    let mut edges = edge_list(path, false)?.edges;
    edges.retain(|e| e.0 != e.1);
    let mut ids: Vec<u64> = edges.iter().flat_map(|e| [e.0, e.1]).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        return Err(Error::data(path, "there is no edge but loops").remedy("write `src dst`, a line an edge"));
    }
    let number = |id: u64| ids.partition_point(|&i| i < id) as u32;
    let mut graph: Vec<(u32, u32)> = edges.iter().map(|e| (number(e.0), number(e.1))).collect();
    graph.sort_unstable();
    graph.dedup();
    Ok((graph, ids.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{ReadOptions, SnapshotStats};

    fn small() -> SynthSnapshots {
        SynthSnapshots { vertices: 200, edges: 2_000, steps: 11, seed: 3, ..SynthSnapshots::default() }
    }

    #[test]
    fn steps_have_as_many_edges_as_the_trend_says() {
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
            assert!(text.parse::<Trend>().unwrap_err().to_string().contains("give constant, linear:SHARE"));
        }
        assert_eq!("1,2".parse::<Trend>().unwrap().to_string(), "1,2");
    }

    #[test]
    fn edges_persist_as_much_as_they_are_told_to() {
        let kept = |persist: f64| {
            let options = SynthSnapshots { persist, trend: Trend::Constant, ..small() };
            SnapshotStats::of(&options.make().unwrap()).mean(|s| s.kept_share).unwrap()
        };
        // At 0 half of the edges are there by chance; at 0.9 a tenth of them draws, and half of that stays.
        assert!((kept(0.0) - 0.5).abs() < 0.03, "{}", kept(0.0));
        assert!((kept(0.9) - 0.95).abs() < 0.02, "{}", kept(0.9));
        assert_eq!(kept(1.0), 1.0);
    }

    #[test]
    fn edges_join_vertices_of_a_type_as_often_as_the_signal_says_and_features_tell_the_type() {
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
    fn a_folder_reads_back_as_what_was_made_and_is_replaced_only_by_force() {
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
    fn any_graph_can_be_taken_and_what_cannot_be_made_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("graph.txt");
        std::fs::write(&path, "# a triangle, twice\n5 9\n9 7\n7 5\n5 9\n7 7\n").unwrap();
        let s =
            SynthSnapshots { graph: Some(path), trend: "3,1".parse().unwrap(), ..small() }.make().unwrap();
        assert_eq!((s.nodes, &s.src[..3], &s.dst[..3], s.src.len()), (3, &[0, 1, 2][..], &[2, 0, 1][..], 4));
        let said = |o: SynthSnapshots| o.make().unwrap_err().to_string();
        assert!(
            said(SynthSnapshots { edges: 1_000, vertices: 20, ..small() })
                .contains("are all that were found; ")
        );
        assert!(
            said(SynthSnapshots { persist: 1.5, ..small() }).contains("persist is a probability, 1.5 is not")
        );
        assert!(
            said(SynthSnapshots { trend: Trend::Counts(vec![3_000]), ..small() })
                .contains("a graph of 2000; ")
        );
    }
}
