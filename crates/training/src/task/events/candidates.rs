//! The candidates of link prediction: the negatives that events of the validation and test parts are ranked
//! against.
use crate::{
    model::Negatives,
    task::{
        config::{Config, NegativeKind, Protocol},
        evaluation::{
            EdgeBank, Pair, Scores, TestScores,
            heuristics::{self, Batches, Metrics, Rules, ScoredPart, Walked, batch_starts},
            negatives,
            pairs::kept,
        },
        training::{BaselineScores, EdgeBankScores, RuleScores, evaluation_clock},
    },
};
use std::ops::Range;
use tgnn::{
    error::{Error, ErrorKind, Result},
    ops::{draw_negatives::negative, sample_neighbors::History},
    runtime::{philox::Key, *},
};
use tgnn_data::{Events, GivenNegatives, Part, Split};

/// Salt of the draws of evaluation negatives.
const EVALUATION_NEGATIVES: u32 = 0x6576;

/// The candidates of the validation and test events. The event itself is its first candidate.
pub(super) struct Candidates {
    kind: Source,
    seed: u64,
    batch: usize,
    /// `[events of a part, m]` u32: the negatives, unless they are drawn while a part is scored.
    table: Option<BufferId>,
}

/// Where negatives come from.
enum Source {
    /// Destinations drawn for each batch from a pool, which the buffer `id` holds, too.
    Drawn { pool: Vec<u32>, id: BufferId, per_event: usize },
    /// One pair per event, for validation and test.
    Pairs([Vec<Pair>; 2]),
    /// Lists that come with the data, for validation and test.
    Given([GivenNegatives; 2]),
}

impl Candidates {
    /// Creates the candidates of a configuration. `pool` holds the nodes that may be drawn, and the buffer
    /// with them.
    ///
    /// # Errors
    /// `Data` if the data lack given negatives, or no negative can be drawn; `OutOfMemory`.
    pub fn new(
        config: &Config,
        events: &Events,
        split: &Split,
        batch: usize,
        store: &mut Store,
        (pool, id): (Vec<u32>, BufferId),
    ) -> Result<Self> {
        let parts = [split.val.clone(), split.test.clone()];
        let kind = match (config.protocol, config.negatives) {
            (Protocol::Tgb, _) => Source::Given(given(config, events, parts)?),
            (protocol, NegativeKind::Random) => Source::Drawn { pool, id, per_event: protocol.negatives() },
            (_, NegativeKind::Historical) => {
                let [val, test] = parts.map(|p| negatives::historical(events, p, batch, config.seed));
                Source::Pairs([val?, test?])
            }
            (_, NegativeKind::Inductive) => {
                let [val, test] = parts.map(|p| negatives::inductive(events, p, batch, config.seed));
                Source::Pairs([val?, test?])
            }
        };
        let columns = match &kind {
            Source::Drawn { .. } => 0,
            Source::Pairs(_) => 2,
            Source::Given(lists) => lists.iter().map(GivenNegatives::most).max().unwrap_or(0).max(1),
        };
        let rows = split.val.len().max(split.test.len());
        check_room("given negatives", 4 * rows * columns, "take fewer events")?;
        let table = (columns > 0)
            .then(|| store.zeros("candidates", Spec::ids(Rows::fixed(rows), columns)))
            .transpose()?;
        Ok(Candidates { kind, seed: config.seed, batch, table })
    }
    /// Returns the number of candidates of an event, including the event itself.
    pub fn columns(&self, store: &Store) -> usize {
        match (&self.kind, self.table) {
            (Source::Given(_), Some(id)) => 1 + store.spec(id).cols,
            (Source::Drawn { per_event, .. }, _) => 1 + per_event,
            _ => 2,
        }
    }
    /// Returns the source of the negatives for recorded programs.
    pub fn negatives(&self) -> Negatives {
        match (&self.kind, self.table) {
            (Source::Pairs(_), Some(id)) => Negatives::Pairs(id),
            (Source::Given(_), Some(id)) => Negatives::Given(id),
            (Source::Drawn { id, per_event, .. }, _) => {
                Negatives::Drawn { pool: *id, per_event: *per_event, salt: EVALUATION_NEGATIVES }
            }
            _ => Negatives::None,
        }
    }
    /// Writes the negatives of a part to their table, unless they are drawn.
    ///
    /// # Errors
    /// `Device` if the table cannot be accessed.
    pub fn bring(&self, store: &mut Store, part: Part) -> Result<()> {
        let Some(id) = self.table else { return Ok(()) };
        match &self.kind {
            Source::Drawn { .. } => Ok(()),
            Source::Pairs(pairs) => {
                let values = pairs[part as usize].as_flattened();
                let mut table = store.read::<u32>(id)?.to_vec();
                table[..values.len()].copy_from_slice(values);
                store.write(id, &table)
            }
            Source::Given(lists) => {
                let (list, spec) = (&lists[part as usize], store.spec(id));
                let mut table = vec![NONE; spec.len()];
                for (i, row) in table.chunks_exact_mut(spec.cols).take(list.events()).enumerate() {
                    let nodes = list.get(list.first + i);
                    row[..nodes.len()].copy_from_slice(nodes);
                }
                store.write(id, &table)
            }
        }
    }
    /// Computes the metrics of a part from a table of scores with `columns` columns. If there is a `mask`,
    /// only events for which it is true count.
    pub fn measure(&self, table: &[f32], columns: usize, part: Part, mask: Option<&[bool]>) -> Scores {
        match &self.kind {
            Source::Given(lists) => {
                let list = &lists[part as usize];
                let count = |i| 1 + list.get(list.first + i).len() as u32;
                let counts: Vec<u32> = (0..list.events()).map(count).collect();
                Scores::of_lists(table, columns, &counts, mask)
            }
            _ => Scores::from_table(table, columns, mask),
        }
    }
    /// Appends the negatives of an event of a part, which begins at event `first`, to a list.
    fn draw(&self, events: &Events, (part, first): (Part, usize), event: usize, list: &mut Vec<Pair>) {
        let (src, at) = (events.src[event], event - first);
        match &self.kind {
            Source::Drawn { pool, per_event, .. } => {
                let clock = [evaluation_clock(part), (at / self.batch) as u32];
                let key = Key::new(self.seed, EVALUATION_NEGATIVES, clock);
                let row = at % self.batch;
                list.extend((0..*per_event).map(|j| [src, negative(pool, key, *per_event, (row, j))]));
            }
            Source::Pairs(pairs) => list.push(pairs[part as usize][at]),
            Source::Given(lists) => list.extend(lists[part as usize].get(event).iter().map(|&v| [src, v])),
        }
    }
    /// Returns the negatives of an event of a part, which begins at event `first`.
    pub fn negatives_of(&self, events: &Events, part: (Part, usize), event: usize) -> Vec<Pair> {
        let mut list = Vec::new();
        self.draw(events, part, event, &mut list);
        list
    }
    /// Returns the metrics of the protocol.
    fn metrics(&self) -> Metrics {
        match &self.kind {
            Source::Drawn { per_event, .. } if *per_event > 1 => Metrics::Ranks,
            Source::Drawn { .. } | Source::Pairs(_) => Metrics::Curves,
            Source::Given(_) => Metrics::Ranks,
        }
    }
    /// Returns the most bytes that [`rules`](Self::rules) take, for so many events of validation and test.
    pub fn rules_bytes(&self, events: &Events, parts: [usize; 2], columns: usize) -> usize {
        let scores = parts[1] * columns;
        let stream = [events.nodes, events.len(), kept(events, scores)];
        (scores * size_of::<f32>()).max(heuristics::bytes(stream, parts, self.metrics()))
    }
    /// Returns what EdgeBank and the rules score on the same candidates, given what they know: on all events
    /// of `tested`, and on those that it masks.
    ///
    /// # Errors
    /// The error with which `walked` ends the walk.
    pub fn rules(&self, history: History, tested: &Tested<'_>, walked: Walked<'_>) -> Result<RuleScores> {
        let &Tested { events, split, ref val, ref test, columns, mask } = tested;
        let negatives_of = |part: Part, first: usize| {
            move |event: usize, list: &mut Vec<Pair>| self.draw(events, (part, first), event, list)
        };
        let (of_val, of_test) = (negatives_of(Part::Val, val.start), negatives_of(Part::Test, test.start));
        let bank = |bank: EdgeBank| {
            let negatives = |event| self.negatives_of(events, (Part::Test, test.start), event);
            let table = bank.scores(events, (test.clone(), self.batch), history, columns, negatives);
            let scores = |mask| self.measure(&table, columns, Part::Test, mask);
            TestScores { transductive: scores(None), inductive: scores(Some(mask)) }
        };
        let fraction = split.test.len() as f64 / events.len() as f64;
        let edgebank = EdgeBankScores {
            unlimited: bank(EdgeBank::Unlimited),
            window: bank(EdgeBank::Window { fraction }),
        };
        let parts = [split.train.clone(), split.val.clone(), test.clone()];
        let rules = Rules {
            batches: Batches { events, starts: &batch_starts(&parts, self.batch), ordered: true },
            metrics: self.metrics(),
            val: ScoredPart { events: val.clone(), negatives: &of_val },
            test: ScoredPart { events: test.clone(), negatives: &of_test },
        };
        let baselines = rules.scores(history, mask, walked)?;
        let baselines = baselines.into_iter().map(|(name, test)| BaselineScores { name, test }).collect();
        Ok(RuleScores { edgebank, baselines })
    }
}

/// What a test scores.
pub(super) struct Tested<'a> {
    pub events: &'a Events,
    pub split: &'a Split,
    /// The first events of the validation part, on which rules choose what they leave open.
    pub val: Range<usize>,
    /// The first events of the test part, which are scored.
    pub test: Range<usize>,
    /// Number of candidates of an event.
    pub columns: usize,
    /// For each event of `test`, whether a node of it has no training event.
    pub mask: &'a [bool],
}

/// Reads the given negatives of both parts, which lie beside the data.
fn given(config: &Config, events: &Events, parts: [Range<usize>; 2]) -> Result<[GivenNegatives; 2]> {
    let [val, test] = parts;
    let read = |part: Part, range| {
        GivenNegatives::beside(&config.data.path, part, events, range)?.ok_or_else(|| {
            let what = format!("{} has no negatives for its {} part", config.data.path, part.name());
            Error::new(ErrorKind::Data, what).remedy(
                "give a folder of TGB, or a folder of .npy with val_negatives.npy and test_negatives.npy",
            )
        })
    };
    Ok([read(Part::Val, val)?, read(Part::Test, test)?])
}
