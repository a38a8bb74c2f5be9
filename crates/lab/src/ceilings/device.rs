//! Measures the ceilings of a CUDA device.
use super::{Ceilings, Effort, ReadyCase, TransferRate, median};
use crate::{Rival, Rivals};
use tgnn::{
    autograd::Alone,
    error::Result,
    ops::{Backend, Case, bench_cases},
    runtime::{
        MatmulPrecision,
        cuda::{Gpu, Transfer, transfer_rates},
    },
};

/// Largest size of the large transfers.
const LARGE: usize = 1 << 30;
/// The same on an emulated device.
const EMULATED: usize = 1 << 22;

impl Ceilings {
    /// Measures the ceilings.
    ///
    /// # Errors
    /// `OutOfMemory`; `Device`.
    pub fn of_gpu(gpu: &Gpu, rivals: &Rivals, effort: Effort) -> Result<Self> {
        let products = products(gpu, rivals, effort)?;
        let exact = |name: &str| gpu.precision() != MatmulPrecision::F32 || !name.ends_with("tf32");
        let product = products.iter().filter(|p| exact(p.0)).map(|p| p.1).fold(0.0, f64::max);
        let (l2, most) = (gpu.l2_bytes()?, if gpu.is_emulated() { EMULATED } else { LARGE });
        // Of the small size, both sides take half of the cache.
        let sizes = [(gpu.memory()?.0 / 8).min(most), l2 / 4];
        let mut transfers = Vec::new();
        for bytes in sizes {
            for by in [Transfer::Copy, Transfer::DriverCopy, Transfer::Read] {
                let rate = median(transfer_rates(gpu, by, bytes, effort.timings)?);
                transfers.push(TransferRate { by: by.name(), bytes, rate });
            }
        }
        let copy_of = |bytes| {
            let copies = transfers.iter().filter(|t| t.bytes == bytes && t.by != Transfer::Read.name());
            copies.map(|t| t.rate).fold(0.0, f64::max)
        };
        let (copy, cached) = (copy_of(sizes[0]), copy_of(sizes[1]));
        Ok(Ceilings { copy, cached_copy: cached.max(copy), cache: l2 as f64, transfers, product, products })
    }
}

/// Returns the sizes of the large product as `linear` takes them: rows, depth, columns, and none of its
/// options. An emulated device is too slow for the large sizes.
fn sizes(gpu: &Gpu) -> &'static [usize] {
    if gpu.is_emulated() { &[64, 64, 64, 0, 0, 0] } else { &[4096, 4096, 4096, 0, 0, 0] }
}

/// Measures the large product by our kernel and by its rivals: names, and operations per second. A rival that
/// fails is left out; it is reported as missing when it is compared with an op.
fn products(gpu: &Gpu, rivals: &Rivals, effort: Effort) -> Result<Vec<(&'static str, f64)>> {
    let (dims, bench) = (sizes(gpu), bench_cases());
    let Some(linear) = bench.iter().find(|c| c.op == "linear") else { return Ok(Vec::new()) };
    let case = Case { dims, ..*linear };
    let flops = 2.0 * dims[..3].iter().map(|&n| n as f64).product::<f64>();
    let rate = |rival: Option<&Rival>| -> Result<f64> {
        let (op, Effort { runs, timings }) = (|op: &str| op == case.op, effort);
        let alone = Alone { op: &op, runs, timings, cold: false, by_launch: false };
        let times = ReadyCase::with_rival(&case, Backend::Cuda(gpu.clone()), rival)?.time(&alone)?;
        Ok(flops / times.first().map_or(f64::INFINITY, |time| time.median))
    };
    let mut products = vec![("tgnn", rate(None)?)];
    let forward = rivals.on(&case).flatten().filter(|r| r.op() == case.op);
    products.extend(forward.filter_map(|r| Some((r.name(), rate(Some(&r)).ok()?))));
    Ok(products)
}
