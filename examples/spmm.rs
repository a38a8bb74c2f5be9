//! A sparse matrix of one's own (CSR) times a dense one, with the gradient, without tape or store.
use tgnn::{
    error::Result,
    ops::functions::{Csr, on_threads, spmm, spmm_grad},
};

fn main() -> Result<()> {
    // A ring of n vertices with self-loops: every vertex has itself and its two neighbours.
    let (n, d) = (10_000u32, 64);
    let indptr: Vec<u32> = (0..=n).map(|i| 3 * i).collect();
    let indices: Vec<u32> = (0..n).flat_map(|i| [(i + n - 1) % n, i, (i + 1) % n]).collect();
    // Normalised as by a graph convolution: each weight is 1 / sqrt(3 * 3).
    let a = Csr::from_csr(&indptr, &indices, None)?.normalized();

    let x: Vec<f32> = (0..n as usize * d).map(|i| (i / d) as f32).collect();
    let (mut y, mut dx) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    // On all cores; without `on_threads` on this thread alone.
    on_threads(0, || -> Result<()> {
        spmm(&a, &x, d, &mut y)?;
        spmm_grad(&a, &vec![1.0; x.len()], d, &mut dx) // the gradient of the sum of y
    })??;

    println!("{} x {} vertices times {d} columns", a.len(), a.len());
    println!("y[5] = {}: the mean of vertices 4, 5 and 6", y[5 * d]);
    assert!((y[5 * d] - 5.0).abs() < 1e-5);
    assert!(dx.iter().all(|g| (g - 1.0).abs() < 1e-5), "every vertex is in three means");
    Ok(())
}
