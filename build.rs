//! Builds the kernels `kernels/*.cu`: with nvcc, if installed, to GPU code; for the feature `emu`, to a
//! library that replaces the CUDA driver and runs the kernels on the host. Generates a typed wrapper for
//! every kernel from its signature, so that a changed argument is a type error in Rust.
//!
//! Without nvcc the crate still builds, with one warning; opening a CUDA device then fails with a message
//! that says what is missing. `TGNN_REQUIRE_CUDA=1` makes a missing nvcc a build error. The build never uses
//! a driver or a GPU.
use std::{
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use tgnn_emulator::{Job, Source, beside, files_in, run_all, sources_in};

/// Machine code for A100 (and other GPUs with 8.x), H100/H200 and B200, and PTX, which the driver compiles for the
/// rest. `90/100` is code for 100 from the PTX of 90, which is therefore made only once. RTX 50 (120) needs PTX of
/// its own, because its multiprocessors have 1,536 threads and kernels claim fewer blocks (`FULL`).
const ARCHITECTURES: &str = "80,90a,90/100,120,90+ptx";

fn main() {
    println!("cargo:rustc-check-cfg=cfg(kernels_compiled)");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=kernels");
    println!("cargo:rerun-if-changed={}", tgnn_emulator::folder().display());
    let of_gpu_code = ["NVCC", "CUDA_HOME", "TGNN_REQUIRE_CUDA", "TGNN_CUDA_ARCHS", "TGNN_NVCC_FLAGS"];
    for variable in of_gpu_code.iter().chain(&["TGNN_HOST_FLAGS"]) {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    // Cargo would run this script in every build if a watched path were missing. `scripts/fetch-nvcc`
    // therefore touches `build.rs` when it creates the stamp.
    let fetched = root.join(".cuda/.stamp");
    if fetched.exists() {
        println!("cargo:rerun-if-changed={}", fetched.display());
    }
    // Compiled kernels are stored beside the OUT_DIRs, so that builds with other features use the same ones.
    let kept = out.ancestors().nth(2).expect("OUT_DIR lies deep").join("tgnn-kernels");
    fs::create_dir_all(&kept).expect("the target folder is writable");
    let sources = sources_in(&root.join("kernels"));
    let images = images(&root, &out, &kept, &sources);
    let text = wrappers(&sources, &images) + &carried_headers(&root.join("kernels"));
    fs::write(out.join("kernels.rs"), text).expect("OUT_DIR is writable");
    if env::var_os("CARGO_FEATURE_EMU").is_some() {
        let kernels = root.join("kernels");
        let all = [sources, tgnn_emulator::planted()].concat();
        let driver = tgnn_emulator::build(&kernels, &all, &headers(&kernels), &kept, &out.join("emu"));
        println!("cargo:rustc-env=TGNN_EMULATOR={}", driver.display());
    }
}

// ---- wrappers ----

/// Returns the Rust type of a kernel argument of C type `c`. A capitalised name is a struct of
/// `runtime::cuda::abi`.
///
/// # Panics
/// If `c` is not one of the supported types.
fn rust_type(c: &str) -> String {
    let scalar = |t: &str| match t {
        "float" => "f32".into(),
        "double" => "f64".into(),
        "uint32_t" => "u32".into(),
        "uint64_t" => "u64".into(),
        "uint16_t" => "u16".into(),
        "int64_t" => "i64".into(),
        "int32_t" => "i32".into(),
        t if t.starts_with(char::is_uppercase) => format!("abi::{t}"),
        t => panic!("`{t}` is not supported as the type of a kernel argument"),
    };
    match c.strip_suffix('*').map(str::trim) {
        Some(to) => match to.strip_prefix("const ") {
            Some(to) => format!("*const {}", scalar(to.trim())),
            None => format!("*mut {}", scalar(to)),
        },
        None => scalar(c),
    }
}

/// Returns the Rust code of `kernels.rs`: the images, the names of the kernels, and a typed wrapper for each
/// kernel.
fn wrappers(sources: &[Source], images: &[PathBuf]) -> String {
    let mut text =
        String::from("/// Machine code of each kernel file.\npub static IMAGES: &[(&str, &[u8])] = &[\n");
    for (source, image) in sources.iter().zip(images) {
        let _ = writeln!(text, "    ({:?}, include_bytes!({:?})),", source.stem(), image);
    }
    text += "];\n/// Names of the kernels, each with the index of its file in `IMAGES`.\npub static NAMES: &[(&str, usize)] = &[\n";
    for (at, source) in sources.iter().enumerate() {
        for kernel in &source.kernels {
            let _ = writeln!(text, "    ({:?}, {at}),", kernel.name);
        }
    }
    text += "];\nimpl Kernels {\n";
    for (at, (source, kernel)) in
        sources.iter().flat_map(|s| s.kernels.iter().map(move |k| (s, k))).enumerate()
    {
        let list: Vec<String> =
            kernel.arguments.iter().map(|(t, name)| format!("mut {name}: {}", rust_type(t))).collect();
        let addresses: Vec<String> =
            kernel.arguments.iter().map(|(_, name)| format!("(&raw mut {name}).cast()")).collect();
        let _ = writeln!(
            text,
            "    /// Launches a kernel of `kernels/{}.cu`.\n    ///\n    /// # Errors\n    \
             /// `Device` if the driver refuses the launch.\n    ///\n    \
             /// # Safety\n    /// The addresses must be of device memory of the sizes that the kernel's file states, and no \
             other code may use\n    /// the memory until the stream has run the kernel. The grid must be as the file states.\n    \
             #[allow(clippy::too_many_arguments)]\n    \
             pub(crate) unsafe fn {}(&self, on: &Launch<'_>, grid: Grid, {}) -> Result<()> {{\n        \
             // SAFETY: guaranteed by the caller.\n        unsafe {{ self.launch({at}, on, grid, &mut [{}]) }}\n    }}",
            source.stem(),
            kernel.name,
            list.join(", "),
            addresses.join(", ")
        );
    }
    text + "}\n"
}

/// Returns the Rust code of the headers' texts, each with the path by which it is included: kernels of other crates
/// are compiled with them, on any machine.
fn carried_headers(kernels: &Path) -> String {
    let mut text = String::from(
        "/// The headers that kernels include: the paths by which they include them, and their texts.\n",
    );
    text += "pub static HEADERS: &[(&str, &str)] = &[\n";
    let emulator = tgnn_emulator::folder();
    let root = emulator.parent().expect("it lies in its crate");
    for path in headers(kernels) {
        let name =
            path.strip_prefix(kernels).or_else(|_| path.strip_prefix(root)).expect("it lies in one of both");
        let _ = writeln!(text, "    ({name:?}, include_str!({path:?})),");
    }
    text + "];\n"
}

// ---- GPU code ----

/// Returns the path of nvcc. If `NVCC` is set, that is the program it names, by its path or as found in `PATH`;
/// if that is no program (`NVCC=none`), there is none. Else it is the first of: the download of
/// `scripts/fetch-nvcc`, that in `CUDA_HOME`, in `PATH`, and in the default place of installation.
fn nvcc(root: &Path) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // Joined with an absolute path, a folder is left out.
    let in_path = |name: &Path| env::split_paths(&path).map(|p| p.join(name)).find(|p| p.is_file());
    if let Some(given) = env::var_os("NVCC") {
        return in_path(Path::new(&given));
    }
    let of_toolkit = |folder: PathBuf| Some(folder.join("bin/nvcc")).filter(|p| p.is_file());
    of_toolkit(root.join(".cuda/nvidia/cu13"))
        .or_else(|| of_toolkit(env::var_os("CUDA_HOME")?.into()))
        .or_else(|| in_path(Path::new("nvcc")))
        .or_else(|| of_toolkit("/usr/local/cuda".into()))
}

/// Returns nvcc's flags for the wanted architectures.
fn targets() -> Vec<String> {
    let architectures = env::var("TGNN_CUDA_ARCHS").unwrap_or_else(|_| ARCHITECTURES.into());
    let has = |wanted: &str| architectures.split(',').any(|a| a == wanted);
    if has("90") && !has("90a") {
        println!("cargo:warning=TGNN_CUDA_ARCHS: code for 90 multiplies without wgmma on an H100; give 90a");
    }
    let flag = |a: &str| match a.strip_suffix("+ptx") {
        Some(a) => format!("-gencode=arch=compute_{a},code=compute_{a}"),
        None => {
            let (ptx, code) = a.split_once('/').unwrap_or((a, a));
            format!("-gencode=arch=compute_{ptx},code=sm_{code}")
        }
    };
    architectures.split(',').map(flag).collect()
}

/// Compiles each source to an image of GPU code, and returns the images' paths. Without nvcc, or without the
/// feature `cuda`, each image is a text that no driver accepts as code.
fn images(root: &Path, out: &Path, kept: &Path, sources: &[Source]) -> Vec<PathBuf> {
    let paths = |folder: &Path| -> Vec<PathBuf> {
        sources.iter().map(|s| folder.join(s.stem()).with_extension("fatbin")).collect()
    };
    let wanted = env::var_os("CARGO_FEATURE_CUDA").is_some();
    let Some(nvcc) = nvcc(root).filter(|_| wanted) else {
        let missing =
            "no nvcc: built without GPU kernels; run scripts/fetch-nvcc, or set NVCC, and build again";
        if wanted {
            assert!(env::var_os("TGNN_REQUIRE_CUDA").is_none(), "{missing}");
            println!("cargo:warning={missing}");
        }
        let paths = paths(out);
        paths.iter().for_each(|p| fs::write(p, "built without nvcc\0").expect("OUT_DIR is writable"));
        return paths;
    };
    // The emulated driver reads the PTX in an image, so it must not be compressed. Such images have a folder of
    // their own, so that builds with and without the feature `emu` do not replace each other's. Others are
    // compressed as much as possible, to a fifth; drivers from 580 on, which are needed anyway, read them.
    let (kept, compression) = match env::var_os("CARGO_FEATURE_EMU") {
        Some(_) => (kept.join("plain"), "--no-compress"),
        None => (kept.to_owned(), "-compress-mode=size"),
    };
    fs::create_dir_all(&kept).expect("the target folder is writable");
    let paths = paths(&kept);
    let targets = targets();
    let flags = env::var("TGNN_NVCC_FLAGS").unwrap_or_default();
    let jobs = sources.iter().zip(&paths).map(|(source, image)| {
        let mut command = Command::new(&nvcc);
        command
            .args(["-fatbin", "-O3", "-std=c++17", "-lineinfo", "-Xptxas", "-v", "-Werror=all-warnings"])
            .arg(compression)
            .args(&targets)
            .args(flags.split_whitespace())
            .arg(&source.path)
            .arg("-o")
            .arg(image);
        Job { command, sources: vec![source.path.clone(), nvcc.clone()], made: image.clone() }
    });
    run_all(jobs.collect(), &headers(&root.join("kernels")));
    // The tests read registers, shared memory and spills of every kernel from this report.
    let mut report = String::new();
    for path in &paths {
        report += &fs::read_to_string(beside(path, "log")).unwrap_or_default();
    }
    fs::write(kept.join("ptxas.txt"), report).expect("the target folder is writable");
    println!("cargo:rustc-cfg=kernels_compiled");
    println!("cargo:compiled=1");
    // The toolkit may have the NVTX headers, in a folder beside nvcc's bin/. A test that imitates a profiler
    // needs them.
    let headers = nvcc.ancestors().nth(2).map(|toolkit| toolkit.join("include"));
    if let Some(headers) = headers.filter(|h| h.join("nvtx3/nvToolsExt.h").is_file()) {
        println!("cargo:nvtx_headers={}", headers.display());
    }
    println!("cargo:rustc-env=TGNN_PTXAS={}", kept.join("ptxas.txt").display());
    paths
}

/// Returns the headers. Every kernel counts as depending on all of them.
fn headers(kernels: &Path) -> Vec<PathBuf> {
    let own = files_in(kernels).into_iter().filter(|p| p.extension().is_some_and(|e| e == "cuh"));
    own.chain(tgnn_emulator::headers()).collect()
}
