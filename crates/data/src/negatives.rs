//! Negatives that come with a data set, so that all models are evaluated against the same ones.
use std::ops::Range;

/// A part of a stream that has negatives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The validation events, used to choose a model.
    Val,
    /// The test events, used to report a score.
    Test,
}

impl Part {
    /// Returns the name of the part as used in file names.
    pub const fn name(self) -> &'static str {
        match self {
            Part::Val => "val",
            Part::Test => "test",
        }
    }

    /// Returns the name of the part's file of negatives in a folder of `.npy` files.
    pub(super) fn file(self) -> String {
        format!("{}_negatives.npy", self.name())
    }
}

/// The negatives of consecutive events; their number may differ from event to event.
///
/// ```no_run
/// use tgnn_data::{GivenNegatives, Part, ReadOptions, Split, load};
///
/// let path = "datasets/tgbl_wiki";
/// let events = load(path, &ReadOptions::default())?;
/// let split = Split::by_time(&events, 0.70, 0.15)?;
/// if let Some(given) = GivenNegatives::beside(path, Part::Val, &events, split.val.clone())? {
///     println!("event {} against {:?}", split.val.start, given.get(split.val.start));
/// }
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenNegatives {
    /// The first event that has negatives.
    pub first: usize,
    /// `[events + 1]`: the negatives of event `first + i` are `nodes[offsets[i]..offsets[i + 1]]`.
    pub offsets: Vec<usize>,
    /// The negatives, as node numbers of the stream.
    pub nodes: Vec<u32>,
}

impl GivenNegatives {
    /// Returns the number of events that have negatives.
    pub fn events(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Returns the negatives of `event`.
    ///
    /// # Panics
    /// If `event` is outside the events that have negatives.
    pub fn get(&self, event: usize) -> &[u32] {
        let i = event - self.first;
        &self.nodes[self.offsets[i]..self.offsets[i + 1]]
    }

    /// Returns the maximum number of negatives of an event.
    pub fn most(&self) -> usize {
        self.offsets.windows(2).map(|o| o[1] - o[0]).max().unwrap_or(0)
    }

    /// Starts an empty set for the events `range`.
    pub(super) fn new(range: &Range<usize>) -> Self {
        GivenNegatives { first: range.start, offsets: vec![0], nodes: Vec::new() }
    }
}
