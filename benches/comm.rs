//! Times the communication of a training step: the sum of 400 KB of gradients over all ranks, and the
//! exchange of 51 KB of rows, of which each rank sends as much to every rank.
//!
//! ```sh
//! cargo bench --bench comm                                    # ranks are threads of this process
//! mpirun -n 4 $(ls -t target/release/deps/comm-* | grep -v '\.d$' | head -1)   # ranks are processes
//! ```
use std::{thread, time::Instant};
use tgnn::{
    error::Result,
    runtime::comm::{Comm, DEADLINE, all_reduce, launched, local, mpi},
};

const SUMMED_BYTES: usize = 400_000;
const EXCHANGED_BYTES: usize = 51_000;
const ROUNDS: usize = 1000;

/// Returns the median of the milliseconds of `call`, after some rounds that are not counted.
fn median(comm: &dyn Comm, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut times = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS + ROUNDS / 10 {
        comm.barrier()?;
        let started = Instant::now();
        call()?;
        if round >= ROUNDS / 10 {
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Times both calls; the first rank prints the medians.
fn measure(comm: &dyn Comm) -> Result<()> {
    let (mut values, mut scratch) = (vec![0.0; SUMMED_BYTES / size_of::<f32>()], Vec::new());
    let sum = median(comm, || all_reduce(comm, &mut values, &mut scratch))?;
    let counts = vec![EXCHANGED_BYTES / comm.size(); comm.size()];
    let sent = vec![0; counts.iter().sum()];
    let mut received = sent.clone();
    let exchange = median(comm, || comm.all_to_all(&sent, &counts, &mut received, &counts))?;
    if comm.rank() == 0 {
        println!("{:>6}{sum:>16.3}{exchange:>16.3}  {}", comm.size(), comm.describe());
    }
    Ok(())
}

fn main() -> Result<()> {
    let launched = launched()?;
    if launched.is_none_or(|launched| launched.rank == 0) {
        println!("milliseconds, median of {ROUNDS} calls on the first rank\n");
        println!("{:>6}{:>16}{:>16}", "ranks", "sum 400 KB", "exchange 51 KB");
    }
    if launched.is_some() {
        let comm = mpi(DEADLINE)?;
        measure(&*comm).inspect_err(|e| comm.fail(&e.to_string()))?;
        return comm.finish();
    }
    for size in [2, 4] {
        thread::scope(|scope| {
            let ranks: Vec<_> =
                local(size).into_iter().map(|comm| scope.spawn(move || measure(&comm))).collect();
            ranks.into_iter().try_for_each(|rank| rank.join().expect("a rank does not panic"))
        })?;
    }
    Ok(())
}
