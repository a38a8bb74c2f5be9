//! The peak rates of a device, and how close the runs of ops come to them.
mod case;
mod device;
mod host;

pub use case::ReadyCase;
pub use host::product_rate;

use crate::Rivals;
use serde_json::{Value, json};
use tgnn::{
    autograd::OpTime,
    error::Result,
    runtime::{Device, cuda::Gpu},
};

/// An op below this fraction of both ceilings is limited by latency: it waits for its own loads, or is too
/// small.
const LATENCY_BOUND: f64 = 0.25;
/// A warm op of at most this many times the bytes of the cache finds some of them there.
const PARTLY_CACHED: f64 = 2.0;

/// How often an op is timed.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of runs per timing; of cold runs, the number of timings.
    pub runs: usize,
    /// Number of timings, whose median counts.
    pub timings: usize,
}

impl Effort {
    /// Returns the effort for a device; an emulated one is timed once.
    pub fn on(gpu: &Gpu) -> Self {
        if gpu.is_emulated() { Effort { runs: 1, timings: 1 } } else { Effort { runs: 20, timings: 7 } }
    }
}

/// Whether the caches hold the operands of an op when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caches {
    /// They hold what the run before has left.
    Warm,
    /// They were overwritten.
    Cold,
}

impl Caches {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Caches::Warm => "warm",
            Caches::Cold => "cold",
        }
    }
}

/// What a run of an op must do at least.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Compulsory bytes.
    pub bytes: f64,
    /// Floating-point operations.
    pub flops: f64,
}

impl Work {
    /// Returns the work of one of the runs of an op.
    pub fn of_run(time: &OpTime) -> Self {
        let runs = time.runs.max(1) as f64;
        Work { bytes: time.cost.bytes as f64 / runs, flops: time.cost.flops as f64 / runs }
    }
}

/// The rate of transfers within a device.
#[derive(Clone, Copy, Debug)]
pub struct TransferRate {
    /// What moves the bytes.
    pub by: &'static str,
    /// Bytes of the source.
    pub bytes: usize,
    /// Bytes per second, read plus written.
    pub rate: f64,
}

/// The peak rates of a device, measured in the same run.
#[derive(Debug)]
pub struct Ceilings {
    /// Bytes per second, read plus written, of a large copy: on a device the faster one of a kernel's and the
    /// driver's.
    pub copy: f64,
    /// The same of a copy that fits in the cache.
    pub cached_copy: f64,
    /// The rates of all transfers that were measured on a device; none on a CPU.
    pub transfers: Vec<TransferRate>,
    /// Bytes of the cache: L2 of a device, the last one of the CPU.
    pub cache: f64,
    /// Operations per second of a large product: the fastest of `products` that is as exact as the products
    /// of the table.
    pub product: f64,
    /// Names of the implementations of the large product, with their operations per second.
    pub products: Vec<(&'static str, f64)>,
}

/// How fast an op is, beside the ceilings.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Compulsory bytes a second, in 1e9.
    pub gb_per_s: f64,
    /// Fraction of the rate of a copy.
    pub of_copy: f64,
    /// Operations a second, in 1e9.
    pub gflops: f64,
    /// Fraction of the rate of a large product.
    pub of_product: f64,
    /// How many times as long it takes as its [floor](Ceilings::floor).
    pub floors: f64,
}

impl Speed {
    /// Returns what limits the speed.
    pub fn limit(&self) -> &'static str {
        limit(self.of_copy, self.of_product)
    }
}

/// Returns what limits the speed of an op that reaches these fractions of the rates of memory and arithmetic.
pub fn limit(of_memory: f64, of_arithmetic: f64) -> &'static str {
    match (of_memory, of_arithmetic) {
        (memory, arithmetic) if memory.max(arithmetic) < LATENCY_BOUND => "latency",
        (memory, arithmetic) if memory >= arithmetic => "memory",
        _ => "arithmetic",
    }
}

impl Ceilings {
    /// Measures the ceilings of a device.
    ///
    /// # Errors
    /// `OutOfMemory`; `Device`.
    pub fn measure(device: &Device) -> Result<Self> {
        match device.gpu() {
            Some(gpu) => Self::of_gpu(gpu, &Rivals::new(gpu), Effort::on(gpu)),
            None => Ok(Self::of_host(device)),
        }
    }
    /// Returns the seconds that the bytes of `work` take at the rate of a copy, and its operations at that of
    /// a product. A warm op whose bytes may lie in the cache is compared with a copy that does, any other
    /// with a large copy.
    fn least_seconds(&self, work: Work, caches: Caches) -> (f64, f64) {
        let cached = caches == Caches::Warm && work.bytes <= PARTLY_CACHED * self.cache;
        let copy = if cached { self.cached_copy } else { self.copy };
        (work.bytes / copy, work.flops / self.product)
    }
    /// Returns the floor of an op, in seconds: it cannot be faster than its bytes and its operations.
    pub fn floor(&self, work: Work, caches: Caches) -> f64 {
        let (memory, arithmetic) = self.least_seconds(work, caches);
        memory.max(arithmetic)
    }
    /// Returns how fast an op is that does `work` in `seconds`.
    pub fn speed(&self, work: Work, seconds: f64, caches: Caches) -> Speed {
        let (memory, arithmetic) = self.least_seconds(work, caches);
        Speed {
            gb_per_s: work.bytes / seconds / 1e9,
            of_copy: memory / seconds,
            gflops: work.flops / seconds / 1e9,
            of_product: arithmetic / seconds,
            floors: seconds / self.floor(work, caches),
        }
    }
    /// Returns the ceilings as lines of text.
    pub fn lines(&self) -> Vec<String> {
        let [large, cached] = [self.copy, self.cached_copy].map(|rate| rate / 1e9);
        let mut lines =
            vec![format!("copy {large:.0} GB/s"), format!("copy within the cache {cached:.0} GB/s")];
        lines.extend(self.transfers.iter().map(|t| {
            let mib = t.bytes as f64 / f64::from(1 << 20);
            format!("{} of {mib:.0} MiB {:.0} GB/s", t.by, t.rate / 1e9)
        }));
        let product =
            |(name, rate): &(&str, f64)| format!("large product by {name} {:.0} GFLOP/s", rate / 1e9);
        lines.extend(self.products.iter().map(product));
        lines
    }
    /// Returns the ceilings as JSON: keys and values.
    pub fn json(&self) -> [(&'static str, Value); 5] {
        let transfers =
            self.transfers.iter().map(|t| json!({"by": t.by, "bytes": t.bytes, "gb_per_s": t.rate / 1e9}));
        let products = self.products.iter().map(|(name, rate)| json!({"by": name, "gflops": rate / 1e9}));
        [
            ("copy_gb_per_s", (self.copy / 1e9).into()),
            ("cached_copy_gb_per_s", (self.cached_copy / 1e9).into()),
            ("transfers", transfers.collect()),
            ("cache_bytes", self.cache.into()),
            ("large_products", products.collect()),
        ]
    }
}

/// Returns the median of a non-empty list; the upper one of an even number of values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_op_is_compared_with_a_copy_that_is_where_its_bytes_are() {
        let ceilings = Ceilings {
            copy: 1e9,
            cached_copy: 4e9,
            transfers: Vec::new(),
            cache: 1e6,
            product: 1e12,
            products: Vec::new(),
        };
        let speed = |bytes, caches| ceilings.speed(Work { bytes, flops: 1e6 }, 1e-3, caches);
        assert_eq!(speed(1e6, Caches::Cold).of_copy, 1.0);
        assert_eq!(speed(1e6, Caches::Warm).of_copy, 0.25);
        assert_eq!(speed(3e6, Caches::Warm).of_copy, 3.0, "more than the cache holds");
        let small = speed(1e6, Caches::Warm);
        assert_eq!((small.gb_per_s, small.gflops, small.floors), (1.0, 1.0, 4.0));
        assert_eq!(small.limit(), "memory");
        assert_eq!((limit(0.2, 0.24), limit(0.2, 0.3)), ("latency", "arithmetic"));
    }
}
