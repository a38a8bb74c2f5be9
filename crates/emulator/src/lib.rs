//! An emulated CUDA driver, built by the build script of the crate whose kernels it runs.
//!
//! `emu/` is C++: a `libcuda.so` with the driver's functions, whose devices are the host. It has the same
//! kernels as the GPU code, compiled for the host, and an interpreter for their PTX (`emu/ptx/`). Blocks and
//! threads run in order or in random orders, streams as late as events allow, and memory is filled with NaN
//! and fenced; a kernel that breaks a rule is named with block, thread and line. Which settings there are is
//! said in `docs/gpu.md`.
//!
//! A build script lists the kernel files ([`sources_in`]) and calls [`build`]. Kernel files include
//! `emu/cuda.hpp` if `TGNN_HOST` is defined, and have kernels `extern "C" __global__ void`. [`Job`] and
//! [`run_all`] compile many files at once, and only those that have changed: also for nvcc.
mod jobs;
mod signatures;

pub use jobs::{Job, beside, files_in, run_all};
pub use signatures::{Kernel, Source, sources_in};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The files of the driver and of its scheduler of blocks.
const DRIVER: [&str; 5] = ["block", "cluster", "grid", "device", "driver"];

/// Returns the folder of the C++ sources. A build script that watches it is run again when one of them
/// changes.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("emu")
}

/// Returns the headers that kernels include as `emu/NAME`, sorted by path.
pub fn headers() -> Vec<PathBuf> {
    files_in(&folder()).into_iter().filter(|p| p.extension().is_some_and(|e| e == "hpp")).collect()
}

/// Returns the files of kernels with planted mistakes, which show that the emulated device finds them.
pub fn planted() -> Vec<Source> {
    sources_in(&folder())
}

/// Builds the driver in the folder `out`: `libcuda.so` has the driver's functions, the scheduler of blocks,
/// and the interpreter of PTX; beside it, `libkernels.so` has the kernels, and `libnccl.so` NCCL's functions.
/// The thread-local storage of `libkernels.so` is the shared memory of blocks and nothing else. Returns the
/// path of `libcuda.so`.
///
/// `kernels` is the folder of the headers that `sources` include, which are named in `headers`. Compiled
/// files are kept in the folder `objects`, and made again if they are older than what they include.
///
/// # Panics
/// If a command fails or a file cannot be written: a build script has nothing else to do.
pub fn build(kernels: &Path, sources: &[Source], headers: &[PathBuf], objects: &Path, out: &Path) -> PathBuf {
    fs::create_dir_all(out).expect("OUT_DIR is writable");
    let table = out.join("table.cpp");
    fs::write(&table, table_of(sources)).expect("OUT_DIR is writable");
    let compiler = Compiler::new(kernels);
    // The headers of the interpreter, which only the driver includes.
    let (interpreter, of_interpreter): (Vec<PathBuf>, Vec<PathBuf>) =
        files_in(&folder().join("ptx")).into_iter().partition(|p| p.extension().is_some_and(|e| e == "cpp"));
    let mut jobs = vec![compiler.compile(&table, out, &[])];
    jobs.extend(sources.iter().map(|s| compiler.compile(&s.path, objects, &[])));
    let of_kernels = jobs.len();
    let driver = DRIVER.map(|name| folder().join(name).with_extension("cpp"));
    jobs.extend(driver.iter().chain(&interpreter).map(|p| compiler.compile(p, objects, &of_interpreter)));
    let of_driver = jobs.len();
    jobs.push(compiler.compile(&folder().join("nccl.cpp"), objects, &[]));
    let made: Vec<PathBuf> = jobs.iter().map(|job| job.made.clone()).collect();
    run_all(jobs, headers);
    let libraries = format!("-L{}", out.display());
    let of_both = ["-Wl,-z,now", "-Wl,-rpath,$ORIGIN", &libraries];
    compiler.link(&out.join("libkernels.so"), &made[..of_kernels], &[]);
    // A program loads the driver by the name `libcuda.so`.
    let arguments = [&of_both[..], &["-lkernels", "-pthread"]].concat();
    compiler.link(&out.join("libcuda.so"), &made[of_kernels..of_driver], &arguments);
    let arguments = [&of_both[..], &["-lcuda", "-lkernels", "-pthread"]].concat();
    compiler.link(&out.join("libnccl.so"), &made[of_driver..], &arguments);
    out.join("libcuda.so")
}

/// Returns the C++ code of the table of all kernels, by which the driver finds them.
fn table_of(sources: &[Source]) -> String {
    let kernels = || sources.iter().flat_map(|source| &source.kernels);
    let mut table = String::from("#include \"common.cuh\"\n");
    kernels().for_each(|k| table += &format!("extern \"C\" {};\n", k.signature));
    table += "namespace emu {\nconst Kernel kernels[] = {\n";
    kernels().for_each(|k| table += &format!("  Entry<&{0}>::as(\"{0}\"),\n", k.name));
    table + "  {nullptr, nullptr, 0, nullptr},\n};\n}\n"
}

/// The host's C++ compiler, and the folders of headers.
struct Compiler {
    path: PathBuf,
    kernels: PathBuf,
    flags: String,
}

impl Compiler {
    fn new(kernels: &Path) -> Self {
        let path = cc::Build::new().cpp(true).cargo_metadata(false).get_compiler().path().to_owned();
        let flags = env::var("TGNN_HOST_FLAGS").unwrap_or_default();
        Compiler { path, kernels: kernels.to_owned(), flags }
    }
    /// Returns a job that compiles a file to an object in `folder`.
    fn compile(&self, path: &Path, folder: &Path, headers: &[PathBuf]) -> Job {
        let made = folder.join(path.file_stem().expect("a file")).with_extension("o");
        let mut command = Command::new(&self.path);
        // As on a device, no assumptions about aliases. A product is fused with an addition only where the
        // source requests it, so that any compiler gives the same bits; ptxas fuses wherever it can, as with
        // `TGNN_HOST_FLAGS="-ffp-contract=fast -mfma"`.
        command
            .args(["-std=c++17", "-O2", "-g1", "-fPIC", "-w", "-fno-strict-aliasing", "-ffp-contract=off"])
            .args(["-fno-semantic-interposition", "-DTGNN_HOST", "-x", "c++"])
            .args(self.flags.split_whitespace())
            .arg("-I")
            .arg(&self.kernels)
            .arg("-I")
            .arg(env!("CARGO_MANIFEST_DIR"))
            .arg("-c")
            .arg(path)
            .arg("-o")
            .arg(&made);
        Job { command, sources: [&[path.into()], headers].concat(), made }
    }
    /// Links objects to a library.
    fn link(&self, made: &Path, objects: &[PathBuf], arguments: &[&str]) {
        let name = made.file_name().expect("a file").to_string_lossy();
        let mut command = Command::new(&self.path);
        command
            .args(["-shared", &format!("-Wl,-soname,{name}"), "-o"])
            .arg(made)
            .args(objects)
            .args(arguments);
        run_all(vec![Job { command, sources: objects.to_vec(), made: made.to_owned() }], &[]);
    }
}
