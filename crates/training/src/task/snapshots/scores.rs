//! Metrics of predicted steps, and of baselines that learn nothing.
use super::objective::{Goal, Objective};
use crate::task::{
    evaluation::{
        Pair, Scores, TestScores,
        heuristics::{self, Batches, Metrics, Rules, ScoredPart},
    },
    training::BaselineScores,
};
use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};
use tgnn::{
    error::Result,
    ops::sample_neighbors::History,
    runtime::{Store, philox::Key},
};
use tgnn_data::{Events, Snapshots};

/// Salt of the draws among which validation chooses the decay of PopTrack.
const DECAY: u32 = 0x6463;

impl Objective {
    /// Computes the metrics of the last evaluation on the items of the steps `targets`.
    ///
    /// # Errors
    /// `Device` if the scores cannot be read.
    pub fn measure(&self, store: &Store, targets: Range<usize>) -> Result<TestScores> {
        Ok(self.scores_of(store.read::<f32>(self.scores)?, targets))
    }
    /// Computes the metrics of a table of scores, one row per item of `targets`.
    fn scores_of(&self, table: &[f32], targets: Range<usize>) -> TestScores {
        let items = self.offsets[targets.start]..self.offsets[targets.end];
        let table = &table[..items.len() * self.columns];
        let rows = || table.chunks_exact(self.columns.max(1));
        match &self.goal {
            Goal::Links { unseen, .. } => {
                let measure = |mask| Scores::of_candidates(table, self.columns, mask);
                TestScores { transductive: measure(None), inductive: measure(Some(&unseen[items])) }
            }
            Goal::Classes { known, .. } => {
                let classes = known[items].chunks_exact(1);
                TestScores {
                    transductive: Scores::of_classes(rows().zip(classes)),
                    inductive: Scores::default(),
                }
            }
            Goal::Values { known, unit, .. } => {
                let known = &known[items.start * self.columns..items.end * self.columns];
                let pairs = table.iter().zip(known).map(|(&predicted, &truth)| (predicted, truth));
                TestScores { transductive: Scores::of_values(pairs, *unit), inductive: Scores::default() }
            }
        }
    }
    /// Whether edges are predicted.
    pub fn of_links(&self) -> bool {
        matches!(self.goal, Goal::Links { .. })
    }
    /// Returns the most bytes that the metrics of the validation steps take, and those of the test steps or,
    /// if
    /// `rules`, the rules that learn nothing.
    pub fn evaluation_bytes(&self, data: &Snapshots, parts: [Range<usize>; 2], rules: bool) -> [usize; 2] {
        let items = parts.map(|steps| self.offsets[steps.end] - self.offsets[steps.start]);
        let [val, test] = items.map(|items| items * self.columns * (size_of::<f32>() + size_of::<u64>()));
        let edges = data.src.len();
        let stream = [data.nodes, edges, edges.min(items[1] * self.columns)];
        // The edges as events, with their times.
        let events = edges * (2 * size_of::<u32>() + size_of::<i64>());
        match &self.goal {
            Goal::Links { .. } if rules => {
                [val, test.max(events + heuristics::bytes(stream, items, Metrics::Both))]
            }
            _ => [val, test],
        }
    }
    /// Computes the metrics of the baselines on the items of the test part, with the baselines' names. For
    /// edges, the baselines predict the edges of the previous step, or of all earlier steps, or score them by
    /// the rules of [`heuristics`], for which each step is a batch; for classes and values, they predict the
    /// vertex's last one.
    ///
    /// # Errors
    /// `Device` if a table cannot be read.
    pub fn baselines(
        &self,
        store: &Store,
        data: &Snapshots,
        [val, targets]: [Range<usize>; 2],
    ) -> Result<Vec<BaselineScores>> {
        let mut rules = Vec::new();
        let tables: Vec<(&'static str, Vec<f32>)> = match &self.goal {
            Goal::Links { candidates, unseen, .. } => {
                let candidates = store.read::<u32>(*candidates)?;
                rules = self.rules(data, candidates, [val, targets.clone()], unseen)?;
                let last = self.remembered_edges(data, candidates, targets.clone(), true);
                vec![
                    ("last snapshot", last),
                    ("EdgeBank", self.remembered_edges(data, candidates, targets.clone(), false)),
                ]
            }
            Goal::Classes { known, .. } => vec![(
                "last class",
                self.repeat_last_item(store, targets.clone(), |row, item| {
                    row[known[item] as usize] = 1.0;
                })?,
            )],
            Goal::Values { known, .. } => vec![(
                "last value",
                self.repeat_last_item(store, targets.clone(), |row, item| {
                    // The first column is the value of the step itself; later ones were unknown at the time.
                    row.fill(known[item * row.len()]);
                })?,
            )],
        };
        let scores = |(name, table): (&str, Vec<f32>)| BaselineScores {
            name: name.into(),
            test: self.scores_of(&table, targets.clone()),
        };
        Ok(tables.into_iter().map(scores).chain(rules).collect())
    }
    /// Scores the edges of the test part by the rules that learn nothing, among the `candidates` of the last
    /// evaluation. The decay of PopTrack is the best one on the validation part, among other draws.
    fn rules(
        &self,
        data: &Snapshots,
        candidates: &[u32],
        [val, test]: [Range<usize>; 2],
        unseen: &[bool],
    ) -> Result<Vec<BaselineScores>> {
        if data.src.is_empty() {
            return Ok(Vec::new());
        }
        let step_of_edge = (0..data.len()).flat_map(|s| data.edges(s).map(move |_| s as i64));
        let mut events = Events::new(&data.name, data.src.clone(), data.dst.clone(), step_of_edge.collect())?;
        events.nodes = data.nodes;
        let items = |steps: &Range<usize>| self.offsets[steps.start]..self.offsets[steps.end];
        let (seed, columns, tested) = (self.seed, self.columns, items(&test));
        let drawn = |edge: usize, list: &mut Vec<Pair>| {
            let key = Key::new(seed, DECAY, [0, edge as u32]);
            let other = |j| key.below(j as u64, data.nodes as u32);
            list.extend((0..columns - 1).map(|j| [data.src[edge], other(j)]));
        };
        let listed = |edge: usize, list: &mut Vec<Pair>| {
            let row = &candidates[(edge - tested.start) * columns..][..columns];
            list.extend(row[1..].iter().map(|&other| [data.src[edge], other]));
        };
        let rules = Rules {
            batches: Batches { events: &events, starts: &self.offsets[..data.len()], ordered: false },
            metrics: Metrics::Both,
            val: ScoredPart { events: items(&val), negatives: &drawn },
            test: ScoredPart { events: tested.clone(), negatives: &listed },
        };
        // A step is a batch and a time, so that the events of earlier batches are all that are strictly
        // earlier.
        let scores = rules.scores(History::Batch, &unseen[tested.clone()], &|_| Ok(()))?;
        Ok(scores.into_iter().map(|(name, test)| BaselineScores { name, test }).collect())
    }
    /// Scores candidates by memory: 1 for pairs that are an edge of the previous step if `last`, else of any
    /// earlier step; 0 for other pairs.
    fn remembered_edges(
        &self,
        data: &Snapshots,
        candidates: &[u32],
        targets: Range<usize>,
        last: bool,
    ) -> Vec<f32> {
        let pairs = |s: usize| data.edges(s).map(|i| (data.src[i], data.dst[i]));
        let mut memory: HashSet<(u32, u32)> = HashSet::new();
        let (mut scores, mut rows) = (Vec::new(), candidates.chunks_exact(self.columns));
        if !last {
            memory.extend((0..targets.start.saturating_sub(1)).flat_map(pairs));
        }
        for s in targets {
            if last {
                memory.clear();
            }
            memory.extend(pairs(s - 1));
            for (i, row) in data.edges(s).zip(&mut rows) {
                scores.extend(row.iter().map(|&v| f32::from(u8::from(memory.contains(&(data.src[i], v))))));
            }
        }
        scores
    }
    /// Predicts each item from the last item of the same vertex in an earlier step: `fill` sets a row of
    /// zeros, given that earlier item. The row stays zero if there is none.
    fn repeat_last_item(
        &self,
        store: &Store,
        targets: Range<usize>,
        fill: impl Fn(&mut [f32], usize),
    ) -> Result<Vec<f32>> {
        let (Goal::Classes { vertex, .. } | Goal::Values { vertex, .. }) = &self.goal else {
            return Ok(Vec::new());
        };
        let vertices = store.read::<u32>(*vertex)?;
        let mut latest: HashMap<u32, usize> = HashMap::new();
        let mut scores = Vec::new();
        for s in 0..targets.end {
            let items = self.offsets[s]..self.offsets[s + 1];
            if targets.contains(&s) {
                for item in items.clone() {
                    let mut row = vec![0.0; self.columns];
                    if let Some(&before) = latest.get(&vertices[item]) {
                        fill(&mut row, before);
                    }
                    scores.extend(row);
                }
            }
            latest.extend(items.map(|item| (vertices[item], item)));
        }
        Ok(scores)
    }
}
