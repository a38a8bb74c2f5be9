//! Times what the links between ranks carry.
use super::Comm;
use crate::error::Result;
use std::time::Instant;

/// Bytes of a message without much to carry, and of a long one.
const SHORT: usize = 8;
const LONG: usize = 1 << 20;
/// Timings of each, whose median counts.
const TIMINGS: usize = 41;

/// What the link of a rank carries, as [`time_links`] measures it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkTimes {
    /// Seconds of a short message.
    pub seconds_per_message: f64,
    /// Bytes per second that a rank sends while it receives as many.
    pub bytes_per_second: f64,
}

/// Times messages from every rank to every other one. Collective; there must be two ranks or more. Every rank
/// returns what it has measured itself.
///
/// # Errors
/// As the calls of [`Comm`].
pub fn time_links(comm: &dyn Comm) -> Result<LinkTimes> {
    let others = comm.size().saturating_sub(1).max(1) as f64;
    let (short, long) = (median(comm, SHORT)?, median(comm, LONG)?);
    let bytes_per_second = others * LONG as f64 / (long - short).max(1e-9);
    Ok(LinkTimes { seconds_per_message: short / others, bytes_per_second })
}

/// Returns the median seconds of an exchange of `bytes` between any two ranks.
fn median(comm: &dyn Comm, bytes: usize) -> Result<f64> {
    let counts = vec![bytes; comm.size()];
    let sent = vec![0u8; bytes * comm.size()];
    let (mut received, mut times) = (sent.clone(), Vec::with_capacity(TIMINGS));
    for _ in 0..TIMINGS {
        comm.barrier()?;
        let started = Instant::now();
        comm.all_to_all(&sent, &counts, &mut received, &counts)?;
        times.push(started.elapsed().as_secs_f64());
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok(times[TIMINGS / 2])
}
