//! The scores of a test, one by one: of each event and its negatives, or of each event and the classes.
use super::{EventTask, objective::Objective};
use crate::task::evaluation::metrics::ranks;
use tgnn::error::Result;
use tgnn_data::{Events, Part};

/// The score of a candidate of a test event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoredCandidate {
    /// Number of the event in the stream, from 0.
    pub event: usize,
    /// Source of the candidate: of the event itself, or of a negative, which may have another one.
    pub source: u32,
    /// What is scored with it.
    pub candidate: Candidate,
    /// Whether the candidate is the event itself, or a class that the event has.
    pub positive: bool,
    /// The score: a logit, of which a model makes a probability by the logistic function.
    pub score: f32,
    /// The rank among the candidates of the event, from 1: the mean of the best and the worst one if some
    /// tie.
    pub rank: f64,
}

/// What is scored with a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// A destination.
    Node(u32),
    /// A class.
    Class(u32),
}

/// Receives the scores of a test one by one. Its error ends the test.
pub type OnScore<'a> = &'a mut dyn FnMut(ScoredCandidate) -> Result<()>;

impl EventTask {
    /// Hands over the scores of the test part, which was evaluated last.
    ///
    /// # Errors
    /// `Device` if the scores cannot be read; the errors of `on_score`.
    pub(super) fn each_score(&self, events: &Events, on_score: OnScore<'_>) -> Result<()> {
        let test = self.tested();
        let table = self.scored(test.len())?;
        for (event, row) in test.clone().zip(table.chunks_exact(self.columns().max(1))) {
            let (src, dst) = (events.src[event], events.dst[event]);
            let candidates: Vec<(u32, Candidate, bool)> = match self.objective() {
                Objective::Links(candidates) => {
                    let negatives = candidates.negatives_of(events, (Part::Test, test.start), event);
                    let negatives = negatives.into_iter().map(|[u, v]| (u, Candidate::Node(v), false));
                    std::iter::once((src, Candidate::Node(dst), true)).chain(negatives).collect()
                }
                Objective::Classes(classes) => {
                    let has = classes.get(event);
                    let class = |c: u32| (src, Candidate::Class(c), has.contains(&c));
                    (0..classes.count() as u32).map(class).collect()
                }
            };
            let row = &row[..candidates.len()];
            for (((source, candidate, positive), &score), rank) in
                candidates.into_iter().zip(row).zip(ranks(row))
            {
                on_score(ScoredCandidate { event, source, candidate, positive, score, rank })?;
            }
        }
        Ok(())
    }
}
