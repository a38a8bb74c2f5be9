//! Measures the ceilings of the CPU.
use super::Ceilings;
use std::{hint::black_box, time::Instant};
use tgnn::runtime::{
    Device,
    cache::{core_cache_bytes, last_cache_bytes},
    matmul::{Mat, MatMut, matmul},
    team::{self, InParallel},
};

/// Number of timings, of which the shortest counts: other work on the machine can only add time.
const TIMINGS: usize = 5;
/// Rows and columns of the large product.
const SIDE: usize = 1024;

impl Ceilings {
    /// Measures the ceilings.
    pub fn of_host(device: &Device) -> Self {
        let (copy, cached_copy) = device.install(|| {
            // Both sides together are several times, or half, as large as the cache.
            let (large, small) = (2 * last_cache_bytes(), core_cache_bytes() * team::threads() / 4);
            let copy = copy_rate(large, 1);
            (copy, copy_rate(small, large / small.max(1)).max(copy))
        });
        let product = product_rate(device);
        let cache = last_cache_bytes() as f64;
        let products = vec![("tgnn", product)];
        Ceilings { copy, cached_copy, cache, transfers: Vec::new(), product, products }
    }
}

/// Returns the seconds of the fastest timing.
fn fastest(mut work: impl FnMut()) -> f64 {
    let time = |_| {
        let started = Instant::now();
        work();
        started.elapsed().as_secs_f64()
    };
    (0..TIMINGS).map(time).fold(f64::INFINITY, f64::min)
}

/// Returns the bytes per second, read plus written, of a copy of `bytes`, `times` in a row. Each thread
/// copies one range, as the rows of an op are divided.
fn copy_rate(bytes: usize, times: usize) -> f64 {
    let (from, mut to) = (vec![1u8; bytes], vec![0u8; bytes]);
    let range = team::share(bytes);
    let seconds = fastest(|| {
        for _ in 0..times {
            to.chunks_mut(range)
                .zip(from.chunks(range))
                .in_parallel(1, |(to, from)| to.copy_from_slice(from));
            black_box(&mut to);
        }
    });
    (2 * bytes * times) as f64 / seconds
}

/// Measures the operations per second of a large f32 product.
pub fn product_rate(device: &Device) -> f64 {
    let a: Vec<f32> = (0..SIDE * SIDE).map(|i| (i % 997) as f32 / 997.0).collect();
    let mut out = vec![0.0; SIDE * SIDE];
    let mat = || Mat::new(&a, SIDE, SIDE);
    let seconds =
        fastest(|| device.install(|| matmul(MatMut::new(&mut out, SIDE, SIDE), mat(), mat(), false)));
    2.0 * (SIDE * SIDE * SIDE) as f64 / seconds
}
