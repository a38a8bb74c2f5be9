//! `tgnn-bench doctor`: reports what this machine has and lacks.
use super::output::say;
use tgnn::{
    error::Result,
    runtime::{
        Device,
        comm::{launched, mpi_library},
        cuda::{Gpu, nccl_version},
        vector,
    },
};
use tgnn_lab::ceilings::product_rate;

/// Prints the report.
pub fn run() -> Result<()> {
    let device = Device::cpu(0)?;
    say(format_args!("tgnn      {}", env!("CARGO_PKG_VERSION")));
    say(format_args!("cpu       {}, {} threads", device.name(), device.threads()));
    say(format_args!(
        "vectors   {:?}{}",
        vector::level(),
        match vector::level() {
            vector::Level::Baseline => ": no AVX2, expect a fraction of the speed",
            _ => "",
        }
    ));
    say(format_args!("products  {:.0} GFLOP/s in f32 (1024 cubed, best of 5)", product_rate(&device) / 1e9));
    if let Some((total, free)) = memory() {
        say(format_args!("memory    {free:.1} GiB free of {total:.1}"));
    }
    let gib = |bytes: usize| bytes as f64 / f64::from(1u32 << 30);
    match Gpu::open(0).and_then(|gpu| Ok((Gpu::driver_version()?, gpu.memory()?, gpu))) {
        Ok(((major, minor), (free, total), gpu)) => {
            say(format_args!(
                "cuda      {}, {:.1} GiB free of {:.1}, driver of CUDA {major}.{minor}",
                gpu.name(),
                gib(free),
                gib(total)
            ));
            say(format_args!("launches  {}", gpu.launching()));
        }
        Err(e) => say(format_args!("cuda      {e}")),
    }
    match nccl_version() {
        Ok(version) => say(format_args!("nccl      {version}")),
        Err(e) => say(format_args!("nccl      {e}")),
    }
    match mpi_library() {
        Ok(library) => say(format_args!("mpi       {library}")),
        Err(e) => say(format_args!("mpi       {e}")),
    }
    match launched() {
        Ok(None) => say(format_args!("launcher  none, this is the only rank")),
        Ok(Some(l)) => say(format_args!("launcher  {}, this is rank {} of {}", l.launcher, l.rank, l.size)),
        Err(e) => say(format_args!("launcher  {e}")),
    }
    Ok(())
}

/// Returns the total and the free host memory in GiB; `None` if the system does not tell.
fn memory() -> Option<(f64, f64)> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let gib = |key: &str| {
        let line = text.lines().find(|l| l.starts_with(key))?;
        Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / (1 << 20) as f64)
    };
    Some((gib("MemTotal:")?, gib("MemAvailable:")?))
}
