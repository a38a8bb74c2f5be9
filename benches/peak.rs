//! The peak rates of this machine, with which benches compare their measurements.
use std::{hint::black_box, time::Instant};
use tgnn::runtime::team::{self, InParallel};

/// Returns the shortest of seven runs, in seconds: other work on the machine can only add time.
pub fn fastest(mut work: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..7).map(time).fold(f64::INFINITY, f64::min)
}

/// Returns `n` numbers `0`, `0.001`, ..., repeated after 1021: data that is not all zeros.
pub fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i % 1021) as f32 * 1e-3).collect()
}

/// Returns the bytes per second, read and written, of a copy that is far larger than a core's own cache. Each
/// thread copies one range, as the rows of an op are divided.
pub fn copy_rate() -> f64 {
    let from = numbers(1 << 26);
    let mut to = vec![0.0f32; from.len()];
    let range = team::share(from.len());
    let seconds = fastest(|| {
        to.chunks_mut(range).zip(from.chunks(range)).in_parallel(1, |(to, from)| to.copy_from_slice(from));
        black_box(&to);
    });
    2.0 * size_of_val(&from[..]) as f64 / seconds
}
