//! How ranks divide training: mini-batch, epoch and memory parallelism (DistTGL, section 3.2).
use serde::{Deserialize, Serialize};
use std::fmt;
use tgnn::{
    error::{Error, ErrorKind, Result},
    ops::next_turn::Turns,
};

/// How ranks divide training: i x j x k ranks, in this order: rank `(copy * epoch + group) * mini_batch +
/// nth`.
///
/// ```
/// use tgnn_training::plan::Parallel;
/// let parallel: Parallel = "2x1x4".parse()?;
/// assert_eq!(parallel.for_ranks(8)?, parallel);
/// assert!(parallel.for_ranks(6).is_err());
/// assert_eq!(Parallel { memory: 4, ..Parallel::default() }.for_ranks(8)?, parallel); // two ranks are left
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Parallel {
    /// Number of ranks that share each batch, i. With 0 these are all ranks that the other two leave.
    pub mini_batch: usize,
    /// Number of groups of such ranks that share a copy of the node memory, j. They take turns: each trains
    /// on the same batch for j steps, with other negatives in each, and writes memory in the first one.
    pub epoch: usize,
    /// Number of copies of the node memory, k, each of which is elsewhere in the stream: in an epoch, each
    /// trains one of k segments.
    pub memory: usize,
}

/// Maximum of each kind.
const MOST: usize = 64;

impl Default for Parallel {
    fn default() -> Self {
        Parallel { mini_batch: 0, epoch: 1, memory: 1 }
    }
}

impl fmt::Display for Parallel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.mini_batch, self.epoch, self.memory)
    }
}

impl std::str::FromStr for Parallel {
    type Err = Error;
    /// Parses `IxJxK`.
    fn from_str(text: &str) -> Result<Self> {
        let numbers: Vec<usize> = text.split('x').filter_map(|n| n.parse().ok()).collect();
        match numbers[..] {
            [mini_batch, epoch, memory] if numbers.iter().all(|n| (1..=MOST).contains(n)) => {
                Ok(Parallel { mini_batch, epoch, memory })
            }
            _ => Err(Error::usage(format!("`{text}` is not IxJxK")).remedy(format!(
                "give ranks a batch, groups a memory copy, and copies, each 1 to {MOST}, such as 2x1x4"
            ))),
        }
    }
}

impl Parallel {
    /// Whether several batches are trained on at the same time.
    pub fn takes_turns(self) -> bool {
        self.epoch > 1 || self.memory > 1
    }
    /// Checks the numbers; `mini_batch` may be left open.
    pub(super) fn check(self) -> std::result::Result<(), String> {
        let numbers =
            [("mini_batch", self.mini_batch.max(1)), ("epoch", self.epoch), ("memory", self.memory)];
        match numbers.iter().find(|(_, n)| !(1..=MOST).contains(n)) {
            Some((key, n)) => Err(format!("ranks.parallel.{key} is {n}")),
            None => Ok(()),
        }
    }
    /// Returns the numbers for `ranks` ranks, with `mini_batch` filled in.
    ///
    /// # Errors
    /// `Plan` if their product is not `ranks`.
    pub fn for_ranks(self, ranks: usize) -> Result<Self> {
        let groups = self.epoch.saturating_mul(self.memory).max(1);
        let mini_batch = if self.mini_batch == 0 { ranks / groups } else { self.mini_batch };
        let found = Parallel { mini_batch, ..self };
        if mini_batch.saturating_mul(groups) == ranks {
            return Ok(found);
        }
        let what = match self.mini_batch {
            0 => format!(
                "epoch and memory parallelism {} x {} do not divide {ranks} ranks",
                self.epoch, self.memory
            ),
            _ => format!("{found} is {} ranks, and there are {ranks}", mini_batch.saturating_mul(groups)),
        };
        Err(Error::new(ErrorKind::Plan, what).remedy(format!("give I x J x K = {ranks}: {}", legal(ranks))))
    }
    /// Returns the same kinds of parallelism for another number of ranks, with `mini_batch` filled in: first
    /// as many ranks a batch as divide the ranks, then as many memory copies, then as many groups; ranks that
    /// are left share batches, too.
    ///
    /// ```
    /// use tgnn_training::plan::Parallel; let parallel: Parallel = "2x1x4".parse()?; assert_eq!([16, 8, 4,
    /// 1].map(|ranks| parallel.like(ranks).to_string()), ["4x1x4", "2x1x4", "2x1x2", "1x1x1"]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    #[must_use]
    pub fn like(self, ranks: usize) -> Self {
        let most = |of: usize, wanted: usize| (1..=wanted).rev().find(|&n| of.is_multiple_of(n)).unwrap_or(1);
        let groups = ranks / most(ranks, self.mini_batch.max(1));
        let memory = most(groups, self.memory);
        let epoch = most(groups / memory, self.epoch);
        Parallel { mini_batch: ranks / memory / epoch, epoch, memory }
    }
    /// Returns the turns of a rank.
    pub fn turns(self, rank: usize) -> Turns {
        let group = rank / self.mini_batch.max(1);
        let (groups, copies) = (self.epoch, self.memory);
        Turns { group: group % groups, groups, copy: group / groups, copies }
    }
    /// Says for people what each number means.
    pub fn describe(self) -> String {
        let [shared, turns, copies] = [
            (self.mini_batch, "rank for each batch", "ranks share each batch"),
            (self.epoch, "group trains with each memory copy", "groups take turns with each memory copy"),
            (self.memory, "memory copy", "memory copies"),
        ]
        .map(|(n, one, more)| format!("{n} {}", if n == 1 { one } else { more }));
        format!("{shared}; {turns}; {copies}")
    }
}

/// Returns some legal choices for a number of ranks.
fn legal(ranks: usize) -> String {
    let mut choices = vec![format!("{ranks}x1x1"), format!("1x1x{ranks}")];
    if ranks.is_multiple_of(2) && ranks > 2 {
        choices.push(format!("2x1x{}", ranks / 2));
    }
    choices.dedup();
    choices.join(", ")
}
