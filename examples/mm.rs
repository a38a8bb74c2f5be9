#![allow(missing_docs)]
use std::time::Instant;
use tgnn::runtime::matmul::*;
fn main() {
    let threads: usize = std::env::args().nth(1).unwrap().parse().unwrap();
    if let Some(t) = std::env::args().nth(2) {
        gemm::set_lhs_packing_threshold_single_thread(t.parse().unwrap());
    }
    if let Some(t) = std::env::args().nth(3) {
        gemm::set_rhs_packing_threshold(t.parse().unwrap());
    }
    let dev = tgnn::runtime::Device::cpu(threads).unwrap();
    // name, m, n, k, ta, tb, lda, ldb, ldc, times
    let shapes: Vec<(&str, usize, usize, usize, bool, bool, usize, usize, usize)> = vec![
        ("gru fwd", 1535, 300, 472, false, true, 472, 472, 400),
        ("gru fwd nh", 1535, 100, 100, false, true, 472, 100, 400),
        ("gru dW", 300, 472, 1535, true, false, 400, 472, 472),
        ("gru dWh", 100, 100, 1535, true, false, 400, 472, 100),
        ("gru dphi", 1535, 100, 300, false, false, 400, 472, 100),
        ("head up", 800, 372, 50, false, false, 100, 372, 744),
        ("head up1800", 1800, 372, 50, false, false, 100, 372, 744),
        ("head down", 800, 50, 372, false, true, 744, 372, 100),
        ("head down1800", 1800, 50, 372, false, true, 744, 372, 100),
        ("head dw", 50, 372, 800, true, false, 100, 744, 372),
        ("head dw1800", 50, 372, 1800, true, false, 100, 744, 372),
        ("linear", 1800, 100, 100, false, true, 100, 100, 100),
        ("linear dx", 1800, 100, 100, false, false, 100, 100, 100),
        ("linear dw", 100, 100, 1800, true, false, 100, 100, 100),
        ("200 gru fwd", 780, 300, 472, false, true, 472, 472, 400),
        ("200 gru dW", 300, 472, 780, true, false, 400, 472, 472),
        ("200 head down", 600, 50, 372, false, true, 744, 372, 100),
        ("200 head dw", 50, 372, 600, true, false, 100, 744, 372),
        ("200 linear", 600, 100, 100, false, true, 100, 100, 100),
        ("200 linear dw", 100, 100, 600, true, false, 100, 100, 100),
    ];
    dev.keep_awake(|| {
        for (name, m, n, k, ta, tb, lda, ldb, ldc) in &shapes {
            let (m, n, k) = (*m, *n, *k);
            let (ar, br) = (if *ta { k } else { m }, if *tb { n } else { k });
            let sets: Vec<(Vec<f32>, Vec<f32>, Vec<f32>)> = (0..4)
                .map(|_| {
                    (
                        (0..ar * lda).map(|i| (i % 97) as f32 * 0.01).collect(),
                        (0..br * ldb).map(|i| (i % 89) as f32 * 0.01).collect(),
                        vec![0.0; m * ldc],
                    )
                })
                .collect();
            let mut sets = sets;
            let mut times = vec![];
            for rep in 0..40 {
                let (a, b, c) = &mut sets[rep % 4];
                let am = if *ta { Mat::strided(a, k, m, *lda).t() } else { Mat::strided(a, m, k, *lda) };
                let bm = if *tb { Mat::strided(b, n, k, *ldb).t() } else { Mat::strided(b, k, n, *ldb) };
                let t = Instant::now();
                matmul(MatMut::strided(c, m, n, *ldc), am, bm, false);
                times.push(t.elapsed().as_secs_f64());
            }
            times.sort_by(f64::total_cmp);
            let t = times[times.len() / 3];
            println!("{name:16} {:8.1} us {:7.1} GFLOP/s", t * 1e6, 2.0 * (m * n * k) as f64 / t / 1e9);
        }
    });
}
