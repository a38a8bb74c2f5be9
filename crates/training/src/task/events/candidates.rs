//! The candidates of link prediction: the negatives that events of the validation and test parts are ranked
//! against.
use crate::{
    model::Negatives,
    task::{
        config::{Config, NegativeKind, Protocol},
        evaluation::{
            EdgeBank, Pair, Scores,
            heuristics::{Metrics, ScoredPart, batch_starts},
            negatives,
        },
        training::{BaselineScores, evaluation_clock},
    },
};
use std::ops::Range;
use tgnn::{
    error::{Error, ErrorKind, Result},
    ops::draw_negatives::negative,
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
    /// Returns the negatives of an event of a part, which begins at event `first`.
    fn draw(&self, events: &Events, part: Part, first: usize, event: usize) -> Vec<Pair> {
        let (src, at) = (events.src[event], event - first);
        match &self.kind {
            Source::Drawn { pool, per_event, .. } => {
                let clock = [evaluation_clock(part), (at / self.batch) as u32];
                let key = Key::new(self.seed, EVALUATION_NEGATIVES, clock);
                let row = at % self.batch;
                (0..*per_event).map(|j| [src, negative(pool, key, *per_event, (row, j))]).collect()
            }
            Source::Pairs(pairs) => vec![pairs[part as usize][at]],
            Source::Given(lists) => lists[part as usize].get(event).iter().map(|&v| [src, v]).collect(),
        }
    }
    /// Returns EdgeBank's scores of the same candidates, `[events, columns]`, for the events of `range`,
    /// which are the first ones of `part`.
    pub fn edgebank(
        &self,
        bank: EdgeBank,
        events: &Events,
        part: Part,
        range: Range<usize>,
        columns: usize,
    ) -> Vec<f32> {
        let negatives = |event| self.draw(events, part, range.start, event);
        bank.scores(events, range.clone(), self.batch, columns, negatives)
    }
    /// Returns the scores of rules that learn nothing, with their names, for the first events of the test
    /// part, `test`, and for those of them that `mask` has. `train` and `val` are the parts before.
    pub fn heuristics(
        &self,
        events: &Events,
        [train, val]: [Range<usize>; 2],
        test: Range<usize>,
        mask: &[bool],
    ) -> Vec<BaselineScores> {
        let metrics = match &self.kind {
            Source::Drawn { per_event, .. } if *per_event > 1 => Metrics::Ranks,
            Source::Drawn { .. } | Source::Pairs(_) => Metrics::Curves,
            Source::Given(_) => Metrics::Ranks,
        };
        let starts = batch_starts(&[train, val.clone(), test.clone()], self.batch);
        let scored = |range: Range<usize>, part| {
            let first = range.start;
            let negatives = move |event| self.draw(events, part, first, event);
            ScoredPart { events, part: range, starts: &starts, ordered: true, metrics, negatives }
        };
        let decay = scored(val, Part::Val).best_decay();
        let scores = scored(test, Part::Test).scores(&decay, mask);
        scores.into_iter().map(|(name, test)| BaselineScores { name, test }).collect()
    }
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
