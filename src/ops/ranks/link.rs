//! The connections by which ops communicate with other ranks.
use super::Tape;
use crate::{
    error::{Error, Result},
    runtime::{
        comm::{Channel, Comm, Ranks},
        cuda::WindowSize,
        *,
    },
};

/// A channel between the ranks, for the programs over one store.
///
/// Its ops change a stored sequence number, so they run in the order of the program, whatever their lanes
/// are: all ranks then communicate in the same order.
///
/// # Examples
/// ```
/// use tgnn::{ops::Link, runtime::{*, comm::{Channel, Ranks}}};
/// let mut store = Store::new(Precision::F32);
/// let link = Link::new(&mut store, &Ranks::alone(), Channel::Rows)?;
/// assert_eq!(link.ranks().size(), 1);
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Link {
    ranks: Ranks,
    channel: Channel,
    sequence: BufferId,
}

impl Link {
    /// Adds the sequence number of `channel` to `store`.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn new(store: &mut Store, ranks: &Ranks, channel: Channel) -> Result<Self> {
        let sequence = store.zeros(format!("sequence of {channel:?}"), Spec::count())?;
        Ok(Link { ranks: ranks.clone(), channel, sequence })
    }
    /// Returns all ranks.
    pub fn ranks(&self) -> &Ranks {
        &self.ranks
    }
    /// Returns the channel.
    pub fn channel(&self) -> Channel {
        self.channel
    }
    /// Returns the connection.
    pub(in crate::ops) fn comm(&self) -> &dyn Comm {
        &**self.ranks.channel(self.channel)
    }
    /// Returns the sequence number as a value.
    pub(in crate::ops) fn sequence(&self, t: &mut Tape) -> Result<Var> {
        t.stored(self.sequence)
    }
    /// Whether there is only one rank.
    pub(in crate::ops) fn is_alone(&self) -> bool {
        self.ranks.size() == 1
    }
    /// Returns the window of an op that writes `bytes` to it; `None` if there is only one rank.
    pub(in crate::ops) fn window(&self, bytes: usize) -> Option<WindowSize<'_>> {
        (!self.is_alone()).then_some(WindowSize { ranks: &self.ranks, channel: self.channel, bytes })
    }
    /// Advances the sequence number of a running op, whose input 0 it is, and reports a failure.
    pub(in crate::ops) fn step(
        &self,
        io: &Io<'_>,
        op: &str,
        communicate: impl FnOnce(&dyn Comm) -> Result<()>,
    ) {
        let sequence = io.state::<u32>(0);
        sequence[0] = sequence[0].wrapping_add(1);
        if let Err(e) = communicate(self.comm()) {
            io.fail(Error::new(e.kind(), format!("{op}: {e}")));
        }
    }
}
