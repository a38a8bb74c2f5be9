//! The scores of a test, one by one: of each event and its negatives, or of each event and the classes.
use super::{EventTask, objective::Objective};
use crate::task::evaluation::metrics::ranks;
use std::sync::Arc;
use tgnn::error::Result;
use tgnn_data::{ClassTable, Events, Part};

/// The score of a candidate of a test event.
#[derive(Clone, Debug, PartialEq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// A destination.
    Node(u32),
    /// A class: its value, as the data write it.
    Class(Arc<str>),
}

/// Receives the scores of a test one by one. Its error ends the test.
pub type OnScore<'a> = &'a mut dyn FnMut(ScoredCandidate) -> Result<()>;

impl EventTask {
    /// Hands over the scores of the test part, which was evaluated last. Events without a label have none.
    ///
    /// # Errors
    /// `Device` if the scores cannot be read; the errors of `on_score`.
    pub(super) fn each_score(&self, events: &Events, on_score: OnScore<'_>) -> Result<()> {
        let test = self.tested();
        let table = self.scored(test.len())?;
        let names = self.objective().class_table().map(ClassTable::names).unwrap_or_default();
        // Of a decision, the score is that of the second value.
        let names: Vec<Arc<str>> = names
            .iter()
            .skip(names.len() - self.columns().min(names.len()))
            .map(|name| (**name).into())
            .collect();
        for (event, row) in test.clone().zip(table.chunks_exact(self.columns().max(1))) {
            let (src, dst) = (events.src[event], events.dst[event]);
            let candidates: Vec<(u32, Candidate, bool)> = match self.objective() {
                Objective::Links(candidates) => {
                    let negatives = candidates.negatives_of(events, (Part::Test, test.start), event);
                    let negatives = negatives.into_iter().map(|[u, v]| (u, Candidate::Node(v), false));
                    std::iter::once((src, Candidate::Node(dst), true)).chain(negatives).collect()
                }
                Objective::Classes(classes, _) if !classes.is_labelled(event) => continue,
                Objective::Classes(classes, _) => {
                    let has = classes.get(event);
                    let class =
                        |(c, name): (u32, &Arc<str>)| (src, Candidate::Class(name.clone()), has.contains(&c));
                    (0..).zip(&names).map(class).collect()
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
