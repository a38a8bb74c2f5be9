//! Builds the kernels: `kernels/*.cu` to GPU code with nvcc where there is one, and, for feature `emu`, to a library
//! that stands in for the CUDA driver and runs them on the host. Generates a typed wrapper of every kernel from its
//! signature, so that a changed argument is a Rust type error.
//!
//! Without nvcc the crate builds, warns once, and CUDA devices say what is missing; `TGNN_REQUIRE_CUDA=1` makes that an
//! error. It never asks a driver or a GPU anything.
use std::{
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
};

/// Machine code for A100 and H100/H200, and PTX that later chips compile for themselves.
const ARCHITECTURES: &str = "80,90a,90+ptx";

#[derive(Clone)]
struct Kernel {
    name: String,
    /// Type and name, as written.
    arguments: Vec<(String, String)>,
    signature: String,
}

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
    println!("cargo:rustc-check-cfg=cfg(kernels_compiled, nvtx_headers)");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=kernels");
    for variable in ["NVCC", "CUDA_HOME", "TGNN_REQUIRE_CUDA", "TGNN_CUDA_ARCHS", "TGNN_NVCC_FLAGS"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    // A path that is not there would make every build start anew; `scripts/fetch-nvcc` touches this file instead.
    let fetched = root.join(".cuda/.stamp");
    if fetched.exists() {
        println!("cargo:rerun-if-changed={}", fetched.display());
    }
    // What is compiled is kept beside the OUT_DIRs of all sets of features, which have it in common.
    let kept = out.ancestors().nth(2).expect("OUT_DIR lies deep").join("tgnn-kernels");
    fs::create_dir_all(&kept).expect("the target folder is writable");
    let sources = [sources_in(&root.join("kernels")), sources_in(&root.join("kernels/lab"))].concat();
    let images = images(&root, &out, &kept, &sources);
    fs::write(out.join("kernels.rs"), wrappers(&sources, &images)).expect("OUT_DIR is writable");
    if env::var_os("CARGO_FEATURE_EMU").is_some() {
        let planted = sources_in(&root.join("kernels/emu"));
        emulator(&root.join("kernels"), &out.join("emu"), &kept, &[sources, planted].concat());
    }
}

// ---- signatures ----

/// Kernel files of a folder.
fn sources_in(folder: &Path) -> Vec<Source> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .expect("kernels/ is there")
        .map(|entry| entry.expect("kernels/ is readable").path())
        .filter(|p| p.extension().is_some_and(|e| e == "cu"))
        .collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).expect("kernels are readable");
            let kernels = kernels(&path, &text);
            assert!(!kernels.is_empty(), "{}: no `extern \"C\" __global__` kernel", path.display());
            Source { path, kernels }
        })
        .collect()
}

fn kernels(path: &Path, text: &str) -> Vec<Kernel> {
    let code: String =
        text.lines().map(|l| l.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    for part in code.split("extern \"C\" __global__").skip(1) {
        let wrong = || panic!("{}: cannot read the signature `{:.80}`", path.display(), part);
        let mut rest = part.trim_start().strip_prefix("void").unwrap_or_else(wrong).trim_start();
        if let Some(bounds) = rest.strip_prefix("__launch_bounds__(") {
            rest =
                bounds.split_once(')').unwrap_or_else(|| panic!("{}: bounds", path.display())).1.trim_start();
        }
        let (name, rest) = rest.split_once('(').unwrap_or_else(|| panic!("{}: no arguments", path.display()));
        let (list, _) = rest.split_once(')').unwrap_or_else(|| panic!("{}: open arguments", path.display()));
        let arguments: Vec<(String, String)> = list
            .split(',')
            .map(|a| {
                let a = a.split_whitespace().filter(|w| *w != "__restrict__").collect::<Vec<_>>().join(" ");
                let at = a.rfind([' ', '*']).unwrap_or_else(|| panic!("{}: argument `{a}`", path.display()));
                (a[..=at].trim().to_owned(), a[at + 1..].to_owned())
            })
            .collect();
        let signature =
            format!("void {}({})", name.trim(), list.split_whitespace().collect::<Vec<_>>().join(" "));
        found.push(Kernel { name: name.trim().to_owned(), arguments, signature });
    }
    found
}

/// The closed set of argument types. A capitalised name is a struct of `runtime::cuda::abi`.
fn rust_type(c: &str) -> String {
    let plain = |t: &str| match t {
        "float" => "f32".into(),
        "double" => "f64".into(),
        "uint32_t" => "u32".into(),
        "uint64_t" => "u64".into(),
        "uint16_t" => "u16".into(),
        "int64_t" => "i64".into(),
        "int32_t" => "i32".into(),
        t if t.starts_with(char::is_uppercase) => format!("abi::{t}"),
        t => panic!("`{t}` is no type of a kernel argument"),
    };
    match c.strip_suffix('*').map(str::trim) {
        Some(to) => match to.strip_prefix("const ") {
            Some(to) => format!("*const {}", plain(to.trim())),
            None => format!("*mut {}", plain(to)),
        },
        None => plain(c),
    }
}

fn wrappers(sources: &[Source], images: &[PathBuf]) -> String {
    let mut text =
        String::from("/// Machine code of every kernel file.\npub static IMAGES: &[(&str, &[u8])] = &[\n");
    for (source, image) in sources.iter().zip(images) {
        let _ = writeln!(text, "    ({:?}, include_bytes!({:?})),", source.stem(), image);
    }
    text += "];\n/// Kernels, and the file that each is in.\npub static NAMES: &[(&str, usize)] = &[\n";
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
            "    /// `kernels/{}.cu`\n    ///\n    /// # Errors\n    /// Device, when the driver refuses the launch.\n    ///\n    \
             /// # Safety\n    /// Addresses are of device memory of the sizes that the kernel's file names, and stay its own until \
             the\n    /// stream has run; the grid is as the file says.\n    \
             #[allow(clippy::too_many_arguments)]\n    \
             pub unsafe fn {}(&self, on: &Launch<'_>, grid: Grid, {}) -> Result<()> {{\n        \
             // SAFETY: the caller's.\n        unsafe {{ self.launch({at}, on, grid, &mut [{}]) }}\n    }}",
            source.stem(),
            kernel.name,
            list.join(", "),
            addresses.join(", ")
        );
    }
    text + "}\n"
}

// ---- GPU code ----

/// nvcc: `NVCC`, what `scripts/fetch-nvcc` fetched, `CUDA_HOME`, `PATH`, the usual place.
fn nvcc(root: &Path) -> Option<PathBuf> {
    let mut places: Vec<PathBuf> = env::var_os("NVCC").map(PathBuf::from).into_iter().collect();
    places.push(root.join(".cuda/nvidia/cu13/bin/nvcc"));
    places.extend(env::var_os("CUDA_HOME").map(|h| Path::new(&h).join("bin/nvcc")));
    places.extend(env::var_os("PATH").iter().flat_map(env::split_paths).map(|p| p.join("nvcc")));
    places.push("/usr/local/cuda/bin/nvcc".into());
    places.into_iter().find(|p| p.is_file())
}

/// One image a source. Without nvcc each is a text that says so, which no driver takes for code.
fn images(root: &Path, out: &Path, kept: &Path, sources: &[Source]) -> Vec<PathBuf> {
    let paths = |folder: &Path| -> Vec<PathBuf> {
        sources.iter().map(|s| folder.join(s.stem()).with_extension("fatbin")).collect()
    };
    let Some(nvcc) = nvcc(root) else {
        let missing =
            "no nvcc: built without GPU kernels; run scripts/fetch-nvcc, or set NVCC, and build again";
        assert!(env::var_os("TGNN_REQUIRE_CUDA").is_none(), "{missing}");
        println!("cargo:warning={missing}");
        let paths = paths(out);
        paths.iter().for_each(|p| fs::write(p, "built without nvcc\0").expect("OUT_DIR is writable"));
        return paths;
    };
    let paths = paths(kept);
    let architectures = env::var("TGNN_CUDA_ARCHS").unwrap_or_else(|_| ARCHITECTURES.into());
    let targets = architectures.split(',').map(|a| match a.strip_suffix("+ptx") {
        Some(a) => format!("-gencode=arch=compute_{a},code=compute_{a}"),
        None => format!("-gencode=arch=compute_{a},code=sm_{a}"),
    });
    let targets: Vec<String> = targets.collect();
    let flags = env::var("TGNN_NVCC_FLAGS").unwrap_or_default();
    let jobs = sources.iter().zip(&paths).map(|(source, image)| {
        let mut command = Command::new(&nvcc);
        command
            .args(["-fatbin", "-O3", "-std=c++17", "-lineinfo", "-Xptxas", "-v", "-Werror=all-warnings"])
            .args(&targets)
            .args(flags.split_whitespace())
            .arg(&source.path)
            .arg("-o")
            .arg(image);
        Job { command, sources: vec![source.path.clone(), nvcc.clone()], made: image.clone() }
    });
    run_all(jobs.collect(), &headers(&root.join("kernels")));
    // Registers, shared memory and spills of every kernel, for the tests.
    let mut report = String::new();
    for path in &paths {
        report += &fs::read_to_string(beside(path, "log")).unwrap_or_default();
    }
    fs::write(kept.join("ptxas.txt"), report).expect("the target folder is writable");
    println!("cargo:rustc-cfg=kernels_compiled");
    // Beside nvcc's bin/, where the toolkit has them: a test plays the profiler's part with them.
    let headers = nvcc.ancestors().nth(2).map(|toolkit| toolkit.join("include"));
    if let Some(headers) = headers.filter(|h| h.join("nvtx3/nvToolsExt.h").is_file()) {
        println!("cargo:rustc-cfg=nvtx_headers");
        println!("cargo:rustc-env=TGNN_NVTX_HEADERS={}", headers.display());
    }
    println!("cargo:rustc-env=TGNN_PTXAS={}", kept.join("ptxas.txt").display());
    paths
}

/// A command that makes a file. What it prints goes to a file `.log` beside that.
struct Job {
    command: Command,
    sources: Vec<PathBuf>,
    made: PathBuf,
}

fn beside(made: &Path, what: &str) -> PathBuf {
    let name = made.file_name().expect("a file").to_string_lossy();
    made.with_file_name(format!("{name}.{what}"))
}

/// Headers, any of which may be in any kernel.
fn headers(kernels: &Path) -> Vec<PathBuf> {
    let files = |folder: PathBuf| fs::read_dir(folder).expect("kernels/ is there");
    files(kernels.into())
        .chain(files(kernels.join("emu")))
        .map(|entry| entry.expect("kernels/ is readable").path())
        .filter(|p| p.extension().is_some_and(|e| e == "cuh" || e == "hpp"))
        .collect()
}

/// Runs the commands that have not made what they make of these sources, as many at a time as cargo allows.
fn run_all(jobs: Vec<Job>, headers: &[PathBuf]) {
    let changed = |p: &PathBuf| fs::metadata(p).and_then(|m| m.modified()).ok();
    let newest_header = headers.iter().map(changed).max().flatten();
    let most = env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(1usize).max(1);
    let mut running: Vec<(Child, String, PathBuf)> = Vec::new();
    let finish = |(mut child, what, made): (Child, String, PathBuf)| {
        let status = child.wait().expect("a started command can be waited for");
        let log = fs::read_to_string(beside(&made, "log")).unwrap_or_default();
        assert!(status.success(), "{what}\n{log}");
        fs::write(beside(&made, "made-by"), what).expect("the target folder is writable");
    };
    for Job { mut command, sources, made } in jobs {
        let (what, marker) = (format!("{command:?}"), beside(&made, "made-by"));
        let newest = sources.iter().map(changed).max().flatten().max(newest_header);
        if changed(&made).min(changed(&marker)) > newest
            && fs::read_to_string(&marker).is_ok_and(|by| by == what)
        {
            continue;
        }
        if running.len() == most {
            finish(running.remove(0));
        }
        let _ = fs::remove_file(&marker);
        let file = fs::File::create(beside(&made, "log")).expect("the target folder is writable");
        let child = command
            .stdout(file.try_clone().expect("a file can be shared"))
            .stderr(file)
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {what}: {e}"));
        running.push((child, what, made));
    }
    running.into_iter().for_each(finish);
}

// ---- the emulated driver ----

/// `libcuda.so`: the driver's names and the scheduler of blocks, for the host; beside it `libkernels.so`, whose thread-local
/// storage is the shared memory of blocks and nothing else.
fn emulator(kernels: &Path, out: &Path, kept: &Path, sources: &[Source]) {
    fs::create_dir_all(out).expect("OUT_DIR is writable");
    let mut table = String::from("#include \"common.cuh\"\n");
    let all = || sources.iter().flat_map(|s| &s.kernels);
    all().for_each(|k| table += &format!("extern \"C\" {};\n", k.signature));
    table += "namespace emu {\nconst Kernel kernels[] = {\n";
    all().for_each(|k| table += &format!("  Entry<&{0}>::as(\"{0}\"),\n", k.name));
    table += "  {nullptr, nullptr, 0, nullptr},\n};\n}\n";
    let table_path = out.join("table.cpp");
    fs::write(&table_path, table).expect("OUT_DIR is writable");

    let compiler = cc::Build::new().cpp(true).cargo_metadata(false).get_compiler();
    let mut jobs = Vec::new();
    let mut compile = |path: &Path| {
        let folder = if path.starts_with(kernels) { kept } else { out };
        let object = folder.join(path.file_stem().expect("a file")).with_extension("o");
        let mut command = Command::new(compiler.path());
        // As on a device: no contraction that the source does not ask for, and no assumption about aliases.
        command
            .args(["-std=c++17", "-O2", "-g1", "-fPIC", "-w", "-fno-strict-aliasing", "-ffp-contract=off"])
            .args(["-fno-semantic-interposition", "-DTGNN_HOST", "-x", "c++", "-I"])
            .arg(kernels)
            .arg("-c")
            .arg(path)
            .arg("-o")
            .arg(&object);
        jobs.push(Job { command, sources: vec![path.into()], made: object.clone() });
        object
    };
    let of_kernels: Vec<PathBuf> =
        sources.iter().map(|s| &s.path).chain([&table_path]).map(|p| compile(p)).collect();
    let own = ["block", "grid", "device", "driver"]
        .map(|f| compile(&kernels.join("emu").join(f).with_extension("cpp")));
    run_all(jobs, &headers(kernels));
    let link = |name: &str, objects: &[PathBuf], arguments: &[&str]| {
        let mut link = Command::new(compiler.path());
        link.args(["-shared", &format!("-Wl,-soname,{name}"), "-o"])
            .arg(out.join(name))
            .args(objects)
            .args(arguments);
        run_all(vec![Job { command: link, sources: objects.to_vec(), made: out.join(name) }], &[]);
    };
    link("libkernels.so", &of_kernels, &[]);
    // The name under which a program asks for the driver.
    let beside = format!("-L{}", out.display());
    link("libcuda.so", &own, &["-Wl,-z,now", "-Wl,-rpath,$ORIGIN", &beside, "-lkernels", "-pthread"]);
    println!("cargo:rustc-env=TGNN_EMULATOR={}", out.join("libcuda.so").display());
}
