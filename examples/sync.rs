#![allow(missing_docs)]
use rayon::prelude::*;
use std::time::Instant;
fn spin(us: f64) {
    let t = Instant::now();
    while t.elapsed().as_secs_f64() * 1e6 < us {
        std::hint::spin_loop()
    }
}
fn main() {
    let dev = tgnn::runtime::Device::cpu(2).unwrap();
    dev.keep_awake(|| {
        for work in [0.0, 5.0, 20.0, 50.0] {
            for n in [2usize, 16] {
                let mut ts = vec![];
                for _ in 0..2000 {
                    spin(3.0);
                    let t = Instant::now();
                    (0..n).into_par_iter().for_each(|_| spin(work * 2.0 / n as f64));
                    ts.push(t.elapsed().as_secs_f64() * 1e6);
                }
                ts.sort_by(f64::total_cmp);
                println!("ideal {work} us, {n} parts: median {:.2} p90 {:.2}", ts[1000], ts[1800]);
            }
        }
    });
}
