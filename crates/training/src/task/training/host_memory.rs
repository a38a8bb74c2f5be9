//! The memory of the host that a run takes, checked before the run starts.
use super::DataTask;
use std::fmt;
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::{
        BufferId, available_memory_bytes,
        comm::{Channel, Ranks},
        taken_memory_bytes,
    },
};

/// An estimate of the most memory of the host that a run takes, in bytes. Features that stay in their files
/// are apart: the system drops their pages when memory is short. Of ranks that are threads, it is the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostMemory {
    /// Events, their lists by node, and features that are not in files.
    pub tables: usize,
    /// Parameters, optimiser, node memory, mails, scores.
    pub state: usize,
    /// Values of the programs, unless a device has them.
    pub step: usize,
    /// The state again, while the best epoch is kept, and what its validation takes; or what the test and the
    /// rules take afterwards, if that is more.
    pub best: usize,
    /// Whether `best` is what the test and the rules take.
    pub best_is_test: bool,
    /// What else the process has taken before the run: the program, and what the data need beside the tables.
    pub rest: usize,
    /// Features that stay in files; not in the sum.
    pub mapped: usize,
    /// Bytes that the run has not taken yet.
    to_come: usize,
    /// Bytes that the process can still take; `None` if nothing tells.
    pub free: Option<usize>,
}

/// More bytes than any machine has: where nothing tells what is free. None free is another case.
const UNKNOWN: u64 = 1 << 60;

/// What a run does with a task.
#[derive(Clone, Copy)]
pub(in crate::task) struct Uses {
    pub trains: bool,
    pub evaluates: bool,
    /// Whether memory settles and is replayed.
    pub settles: bool,
    /// Whether the best epoch is kept in memory.
    pub keeps_best: bool,
}

impl HostMemory {
    /// Calculates the memory of a run of a task that was just built, and whose state is not touched yet.
    /// Collective.
    pub(super) fn of<T: DataTask>(task: &mut T, data: &T::Data, uses: Uses) -> Result<Self> {
        // Before anything of the run is touched.
        let (taken, free) = (taken_memory_bytes().unwrap_or(0), available_memory_bytes().unwrap_or(UNKNOWN));
        let step = if task.core().device.gpu().is_some() { 0 } else { task.step_bytes(uses)? };
        let core = task.core();
        let [state, tables, mapped] = core.store.host_bytes();
        let [validated, tested] = if uses.evaluates { task.evaluation_bytes(data) } else { [0; 2] };
        let of_buffer = |id: BufferId| core.store.spec(id).bytes(core.store.precision());
        let kept = if uses.keeps_best { core.checkpoint_buffers() } else { Vec::new() };
        let copy: usize = kept.into_iter().map(of_buffer).sum();
        let of_threads = |ranks: &&Ranks| ranks.channel(Channel::Control).local().is_some();
        let ranks = core.device.ranks().filter(of_threads);
        // Tables are the same for all ranks of a process.
        let [state, step, validated, tested] = summed(ranks, [state, step, copy + validated, tested])?;
        // All ranks of a process have built their tasks. What the first one sees holds for all.
        let is_first = ranks.is_none_or(Ranks::is_first);
        let now = |bytes: u64| if is_first { bytes as usize } else { 0 };
        let [taken, free] = summed(ranks, [now(taken), now(free)])?;
        let best = validated.max(tested);
        Ok(HostMemory {
            tables,
            state,
            step,
            best,
            best_is_test: tested > validated,
            rest: taken.saturating_sub(tables),
            mapped,
            to_come: state + step + best,
            free: ((free as u64) < UNKNOWN / 2).then_some(free),
        })
    }
    /// Returns the sum.
    pub fn needed(&self) -> usize {
        self.tables + self.state + self.step + self.best + self.rest
    }
    /// Checks that what the run has not taken yet is free.
    ///
    /// # Errors
    /// `OutOfMemory`, with the sum and a remedy for its largest part.
    pub fn check(&self) -> Result<()> {
        let Some(free) = self.free.filter(|&free| free < self.to_come) else { return Ok(()) };
        let of_best = match self.best_is_test {
            true => "leave out the rules that learn nothing: --no-rules",
            false => "give --out, so that the best epoch is in a file",
        };
        let remedies = [
            (self.tables + self.rest, "take fewer events, or number the nodes densely: `data import`"),
            (self.state, "take a narrower memory, or keep it in 16 bits: memory_as=bf16"),
            (self.step, "take a smaller batch, fewer neighbours or narrower layers"),
            (self.best, of_best),
        ];
        let remedy = remedies.iter().max_by_key(|(bytes, _)| *bytes).map_or("", |(_, remedy)| *remedy);
        let (needed, free) = (mib(self.to_come), mib(free));
        let what = format!("the run needs {needed:.0} MiB more, and {free:.0} are free (in all {self})");
        Err(Error::new(ErrorKind::OutOfMemory, what)
            .remedy(format!("{remedy}; check_memory=false tries it nevertheless")))
    }
}

/// Adds up numbers of bytes over the ranks of a process, to KiB.
fn summed<const N: usize>(ranks: Option<&Ranks>, bytes: [usize; N]) -> Result<[usize; N]> {
    let Some(ranks) = ranks else { return Ok(bytes) };
    let mut kib = bytes.map(|bytes| (bytes / 1024) as f32);
    ranks.sum(&mut kib)?;
    Ok(kib.map(|kib| kib as usize * 1024))
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1u32 << 20)
}

impl fmt::Display for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let best = if self.best_is_test { "test and rules" } else { "best epoch" };
        write!(f, "{:.0} MiB: {:.0} tables, ", mib(self.needed()), mib(self.tables))?;
        write!(f, "{:.0} state, ", mib(self.state))?;
        if self.best > 0 {
            write!(f, "{:.0} {best}, ", mib(self.best))?;
        }
        if self.step > 0 {
            write!(f, "{:.0} values of a step, ", mib(self.step))?;
        }
        write!(f, "{:.0} else", mib(self.rest))?;
        match self.mapped {
            0 => Ok(()),
            mapped => write!(f, "; {:.0} MiB of features stay in files", mib(mapped)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_refused_if_nothing_is_free_and_not_if_nobody_knows() {
        let of = |free| HostMemory { best: 5 << 20, to_come: 5 << 20, free, ..HostMemory::default() };
        assert!(of(None).check().is_ok() && of(Some(5 << 20)).check().is_ok());
        for free in [0, (5 << 20) - 1] {
            let e = of(Some(free)).check().unwrap_err();
            assert_eq!(e.kind(), ErrorKind::OutOfMemory);
            assert!(
                e.to_string().contains("needs 5 MiB more") && e.to_string().contains("give --out"),
                "{e}"
            );
        }
    }
}
