//! Runs of several ranks in one process.
use crate::{
    error::{Error, ErrorKind, Result},
    runtime::{
        Device,
        comm::{Comm, Local, Ranks},
    },
};
use std::{panic, sync::Arc, thread, time::Duration};

/// Runs `work` as every rank of `ranks`, each on a thread of its own with a device that `open` opens, given
/// the rank. Returns the result of the first rank. If a rank fails, the others end as well.
///
/// # Errors
/// The error of the rank that failed first. `Usage` if there are no ranks.
///
/// # Examples
/// ```
/// use tgnn::{runtime::Device, task::on_local_ranks};
/// let sum = on_local_ranks(3, tgnn::runtime::comm::DEADLINE, |_| Device::cpu(1), |device| {
///     let ranks = device.ranks().expect("the device is one of three ranks");
///     let mut numbers = [ranks.rank() as f32];
///     ranks.sum(&mut numbers)?;
///     Ok(numbers[0])
/// })?;
/// assert_eq!(sum, 3.0); // 0 + 1 + 2
/// # Ok::<(), tgnn::error::Error>(())
/// ```
pub fn on_local_ranks<T: Send>(
    ranks: usize,
    deadline: Duration,
    open: impl Fn(usize) -> Result<Device> + Sync,
    work: impl Fn(Device) -> Result<T> + Sync,
) -> Result<T> {
    if ranks == 0 {
        return Err(Error::usage("there are no ranks").remedy("give 1 or more"));
    }
    let run = |comm: Local| -> Result<T> {
        let (rank, comm) = (comm.rank(), Arc::new(comm));
        let failing = FailOnPanic(&*comm);
        let ran = open(rank).and_then(|device| {
            let connection: Arc<dyn Comm> = comm.clone();
            work(device.over(Ranks::new(connection)?))
        });
        drop(failing);
        ran.inspect_err(|e| comm.fail(&e.to_string()))
    };
    let mut connections = Local::with_deadline(ranks, deadline).into_iter();
    let first = connections.next();
    thread::scope(|scope| {
        let others: Vec<_> = connections.map(|comm| scope.spawn(|| run(comm))).collect();
        let first = first.map(&run);
        let others = others.into_iter().map(|rank| rank.join().unwrap_or_else(|e| panic::resume_unwind(e)));
        // A rank that ends because another one has failed only says so.
        let mut all: Vec<Result<T>> = first.into_iter().chain(others).collect();
        let failed = |r: &Result<T>| r.as_ref().err().map(|e| e.kind() == ErrorKind::Comm);
        let cause = all.iter().position(|r| failed(r) == Some(false)).or(all.iter().position(Result::is_err));
        all.swap_remove(cause.unwrap_or(0))
    })
}

/// Tells the other ranks if the thread panics.
struct FailOnPanic<'a>(&'a dyn Comm);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail("a panic");
        }
    }
}
