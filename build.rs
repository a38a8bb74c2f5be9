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
    process::{Child, Command},
};

/// Machine code for A100 (and other GPUs with 8.x), H100/H200 and B200, and PTX, which the driver compiles for the
/// rest. `90/100` is code for 100 from the PTX of 90, which is therefore made only once. RTX 50 (120) needs PTX of
/// its own, because its multiprocessors have 1,536 threads and kernels claim fewer blocks (`FULL`).
const ARCHITECTURES: &str = "80,90a,90/100,120,90+ptx";

/// A kernel, as declared in its file.
#[derive(Clone)]
struct Kernel {
    name: String,
    /// C type and name of each argument.
    arguments: Vec<(String, String)>,
    /// The declaration in C, without qualifiers.
    signature: String,
}

/// A kernel file.
#[derive(Clone)]
struct Source {
    path: PathBuf,
    kernels: Vec<Kernel>,
}

impl Source {
    fn stem(&self) -> &str {
        self.path.file_stem().and_then(|s| s.to_str()).expect("file names are plain")
    }
}

fn main() {
    println!("cargo:rustc-check-cfg=cfg(kernels_compiled)");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=kernels");
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
        let planted = sources_in(&root.join("kernels/emu"));
        emulator(&root.join("kernels"), &out.join("emu"), &kept, &[sources, planted].concat());
    }
}

// ---- signatures ----

/// Returns the kernel files of a folder, sorted by path.
fn sources_in(folder: &Path) -> Vec<Source> {
    let paths = files_in(folder).into_iter().filter(|p| p.extension().is_some_and(|e| e == "cu"));
    paths
        .map(|path| {
            let text = fs::read_to_string(&path).expect("kernels are readable");
            let kernels = kernels(&path, &text);
            assert!(!kernels.is_empty(), "{}: no `extern \"C\" __global__` kernel", path.display());
            Source { path, kernels }
        })
        .collect()
}

/// Parses the signatures of the kernels in a file.
///
/// # Panics
/// If a signature cannot be parsed.
fn kernels(path: &Path, text: &str) -> Vec<Kernel> {
    let without_comment = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    let code = text.lines().map(without_comment).collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    for declaration in code.split("extern \"C\" __global__").skip(1) {
        let invalid = || panic!("{}: cannot parse the signature `{:.80}`", path.display(), declaration);
        let mut rest = declaration.trim_start().strip_prefix("void").unwrap_or_else(invalid).trim_start();
        if let Some(bounds) = rest.strip_prefix("__launch_bounds__(") {
            let bounds = bounds.split_once(')');
            let (_, after) =
                bounds.unwrap_or_else(|| panic!("{}: `__launch_bounds__(` is not closed", path.display()));
            rest = after.trim_start();
        }
        let (name, rest) = rest
            .split_once('(')
            .unwrap_or_else(|| panic!("{}: a kernel has no list of arguments", path.display()));
        let (list, _) = rest
            .split_once(')')
            .unwrap_or_else(|| panic!("{}: a list of arguments is not closed", path.display()));
        let arguments: Vec<(String, String)> = list
            .split(',')
            .map(|argument| {
                let words = argument.split_whitespace().filter(|word| *word != "__restrict__");
                let argument = words.collect::<Vec<_>>().join(" ");
                let end_of_type = argument.rfind([' ', '*']);
                let end_of_type = end_of_type
                    .unwrap_or_else(|| panic!("{}: argument `{argument}` has no type", path.display()));
                (argument[..=end_of_type].trim().to_owned(), argument[end_of_type + 1..].to_owned())
            })
            .collect();
        let signature =
            format!("void {}({})", name.trim(), list.split_whitespace().collect::<Vec<_>>().join(" "));
        found.push(Kernel { name: name.trim().to_owned(), arguments, signature });
    }
    found
}

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

/// Returns the Rust code of the headers' texts, each with its path in `kernels/`: kernels of other crates are
/// compiled with them, on any machine.
fn carried_headers(kernels: &Path) -> String {
    let mut text =
        String::from("/// The headers that kernels include: their paths in `kernels/`, and their texts.\n");
    text += "pub static HEADERS: &[(&str, &str)] = &[\n";
    for path in headers(kernels) {
        let name = path.strip_prefix(kernels).expect("a header lies in kernels/");
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
    let architectures = env::var("TGNN_CUDA_ARCHS").unwrap_or_else(|_| ARCHITECTURES.into());
    let targets = architectures.split(',').map(|a| match a.strip_suffix("+ptx") {
        Some(a) => format!("-gencode=arch=compute_{a},code=compute_{a}"),
        None => {
            let (ptx, code) = a.split_once('/').unwrap_or((a, a));
            format!("-gencode=arch=compute_{ptx},code=sm_{code}")
        }
    });
    let targets: Vec<String> = targets.collect();
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

/// A command that makes a file from sources. Its output goes to a file beside that one, with `.log` appended
/// to the name.
struct Job {
    command: Command,
    sources: Vec<PathBuf>,
    made: PathBuf,
}

/// Returns the path of `made` with `.extension` appended to its name.
fn beside(made: &Path, extension: &str) -> PathBuf {
    let name = made.file_name().expect("a file").to_string_lossy();
    made.with_file_name(format!("{name}.{extension}"))
}

/// Returns the files of a folder, sorted by path.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("kernels/ is there");
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("kernels/ is readable").path()).filter(|p| p.is_file()).collect();
    paths.sort();
    paths
}

/// Returns the headers. Every kernel counts as depending on all of them.
fn headers(kernels: &Path) -> Vec<PathBuf> {
    [files_in(kernels), files_in(&kernels.join("emu"))]
        .concat()
        .into_iter()
        .filter(|p| p.extension().is_some_and(|e| e == "cuh" || e == "hpp"))
        .collect()
}

/// Runs the commands whose files are missing, were made by another command, or are older than their sources
/// or a header. Runs as many at a time as cargo allows.
///
/// # Panics
/// If a command fails.
fn run_all(jobs: Vec<Job>, headers: &[PathBuf]) {
    let changed = |p: &PathBuf| fs::metadata(p).and_then(|m| m.modified()).ok();
    let newest_header = headers.iter().map(changed).max().flatten();
    let max_running = env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(1usize).max(1);
    let mut running: Vec<(Child, String, PathBuf)> = Vec::new();
    let finish = |(mut child, command_line, made): (Child, String, PathBuf)| {
        let status = child.wait().expect("a started command can be waited for");
        let log = fs::read_to_string(beside(&made, "log")).unwrap_or_default();
        assert!(status.success(), "{command_line}\n{log}");
        fs::write(beside(&made, "made-by"), command_line).expect("the target folder is writable");
    };
    for Job { mut command, sources, made } in jobs {
        let (command_line, marker) = (format!("{command:?}"), beside(&made, "made-by"));
        let newest = sources.iter().map(changed).max().flatten().max(newest_header);
        if changed(&made).min(changed(&marker)) > newest
            && fs::read_to_string(&marker).is_ok_and(|made_by| made_by == command_line)
        {
            continue;
        }
        if running.len() == max_running {
            finish(running.remove(0));
        }
        let _ = fs::remove_file(&marker);
        let file = fs::File::create(beside(&made, "log")).expect("the target folder is writable");
        let child = command
            .stdout(file.try_clone().expect("a file can be shared"))
            .stderr(file)
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {command_line}: {e}"));
        running.push((child, command_line, made));
    }
    running.into_iter().for_each(finish);
}

// ---- the emulated driver ----

/// Builds the emulated driver for the host: `libcuda.so` has the driver's functions, the scheduler of blocks, and
/// the interpreter of PTX; beside it, `libkernels.so` has the kernels, and `libnccl.so` NCCL's functions. The
/// thread-local storage of `libkernels.so` is the shared memory of blocks and nothing else.
fn emulator(kernels: &Path, out: &Path, kept: &Path, sources: &[Source]) {
    fs::create_dir_all(out).expect("OUT_DIR is writable");
    let mut table = String::from("#include \"common.cuh\"\n");
    let all_kernels = || sources.iter().flat_map(|s| &s.kernels);
    all_kernels().for_each(|k| table += &format!("extern \"C\" {};\n", k.signature));
    table += "namespace emu {\nconst Kernel kernels[] = {\n";
    all_kernels().for_each(|k| table += &format!("  Entry<&{0}>::as(\"{0}\"),\n", k.name));
    table += "  {nullptr, nullptr, 0, nullptr},\n};\n}\n";
    let table_path = out.join("table.cpp");
    fs::write(&table_path, table).expect("OUT_DIR is writable");

    let compiler = cc::Build::new().cpp(true).cargo_metadata(false).get_compiler();
    let flags = env::var("TGNN_HOST_FLAGS").unwrap_or_default();
    // The headers of the interpreter, which only the driver includes.
    let (interpreter, interpreter_headers): (Vec<PathBuf>, Vec<PathBuf>) = files_in(&kernels.join("emu/ptx"))
        .into_iter()
        .partition(|p| p.extension().is_some_and(|e| e == "cpp"));
    let mut jobs = Vec::new();
    let mut compile = |path: &Path, headers: &[PathBuf]| {
        let folder = if path.starts_with(kernels) { kept } else { out };
        let object = folder.join(path.file_stem().expect("a file")).with_extension("o");
        let mut command = Command::new(compiler.path());
        // As on a device, no assumptions about aliases. A product is fused with an addition only where the
        // source requests it, so that any compiler gives the same bits; ptxas fuses wherever it can, as with
        // `TGNN_HOST_FLAGS="-ffp-contract=fast -mfma"`.
        command
            .args(["-std=c++17", "-O2", "-g1", "-fPIC", "-w", "-fno-strict-aliasing", "-ffp-contract=off"])
            .args(["-fno-semantic-interposition", "-DTGNN_HOST", "-x", "c++"])
            .args(flags.split_whitespace())
            .arg("-I")
            .arg(kernels)
            .arg("-c")
            .arg(path)
            .arg("-o")
            .arg(&object);
        jobs.push(Job { command, sources: [&[path.into()], headers].concat(), made: object.clone() });
        object
    };
    let kernel_objects: Vec<PathBuf> =
        sources.iter().map(|s| &s.path).chain([&table_path]).map(|p| compile(p, &[])).collect();
    let driver = ["block", "cluster", "grid", "device", "driver"]
        .map(|f| kernels.join("emu").join(f).with_extension("cpp"));
    let driver_objects: Vec<PathBuf> =
        driver.iter().chain(&interpreter).map(|p| compile(p, &interpreter_headers)).collect();
    let nccl_object = compile(&kernels.join("emu/nccl.cpp"), &[]);
    run_all(jobs, &headers(kernels));
    let link = |name: &str, objects: &[PathBuf], arguments: &[&str]| {
        let mut link = Command::new(compiler.path());
        link.args(["-shared", &format!("-Wl,-soname,{name}"), "-o"])
            .arg(out.join(name))
            .args(objects)
            .args(arguments);
        run_all(vec![Job { command: link, sources: objects.to_vec(), made: out.join(name) }], &[]);
    };
    link("libkernels.so", &kernel_objects, &[]);
    // A program loads the driver by the name `libcuda.so`.
    let kernels_folder = format!("-L{}", out.display());
    link(
        "libcuda.so",
        &driver_objects,
        &["-Wl,-z,now", "-Wl,-rpath,$ORIGIN", &kernels_folder, "-lkernels", "-pthread"],
    );
    link(
        "libnccl.so",
        &[nccl_object],
        &["-Wl,-z,now", "-Wl,-rpath,$ORIGIN", &kernels_folder, "-lcuda", "-lkernels", "-pthread"],
    );
    println!("cargo:rustc-env=TGNN_EMULATOR={}", out.join("libcuda.so").display());
}
