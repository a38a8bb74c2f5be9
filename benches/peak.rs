//! The most that this machine does: what benches hold their figures against.
use std::{hint::black_box, time::Instant};
use tgnn::runtime::team::{self, InParallel};

/// The best of several runs, in seconds: other work on the machine only ever adds time.
pub fn fastest(mut work: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..7).map(time).fold(f64::INFINITY, f64::min)
}

/// `0`, `0.001`, ... and around again: numbers that are no zeros.
pub fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i % 1021) as f32 * 1e-3).collect()
}

/// Bytes a second, read and written, of a copy that is far larger than a core's own cache; each thread copies one piece, as an
/// op's rows are dealt out.
pub fn copy_rate() -> f64 {
    let from = numbers(1 << 26);
    let mut to = vec![0.0f32; from.len()];
    let share = team::share(from.len());
    let seconds = fastest(|| {
        to.chunks_mut(share).zip(from.chunks(share)).in_parallel(1, |(to, from)| to.copy_from_slice(from));
        black_box(&to);
    });
    2.0 * size_of_val(&from[..]) as f64 / seconds
}
