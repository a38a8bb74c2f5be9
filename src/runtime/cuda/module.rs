//! Kernels of ops outside of this crate, loaded at run time.
use super::{Gpu, Grid, Launch, error::checked, launch::HEADERS};
use crate::error::{Error, ErrorKind, Result};
use cudarc::driver::{result, sys};
use std::{
    ffi::{CString, c_void},
    fmt, fs, io,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Kernels of one's own, loaded on one device as long as the process lives.
#[derive(Clone, Debug)]
pub struct CudaModule {
    gpu: Gpu,
    raw: sys::CUmodule,
}

/// A kernel of a [`CudaModule`].
#[derive(Clone)]
pub struct CudaKernel {
    gpu: Gpu,
    name: String,
    raw: sys::CUfunction,
}

// SAFETY: modules and functions are read-only handles of a context that lives as long as the process.
unsafe impl Send for CudaModule {}
// SAFETY: as above.
unsafe impl Sync for CudaModule {}
// SAFETY: as above.
unsafe impl Send for CudaKernel {}
// SAFETY: as above.
unsafe impl Sync for CudaKernel {}

impl fmt::Debug for CudaKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {:?}", self.name, self.gpu)
    }
}

impl CudaModule {
    /// Loads an image of compiled kernels: PTX (a text), a cubin or a fatbin. On the emulated device it is
    /// PTX, a fatbin with PTX that is not compressed, or the text `emu:` and the path of a library, as
    /// [`compile`](Self::compile) makes it.
    ///
    /// # Errors
    /// `Device` if the driver refuses the image.
    ///
    /// # Safety
    /// The image must be one of these.
    pub unsafe fn load(gpu: &Gpu, image: &[u8]) -> Result<Self> {
        gpu.enter()?;
        let text = [image, &[0]].concat(); // a text ends with a zero byte
        // SAFETY: the image is valid, as the caller guarantees.
        let module = unsafe { result::module::load_data(text.as_ptr().cast()) };
        Ok(CudaModule { gpu: gpu.clone(), raw: checked(module, "cannot load a module")? })
    }
    /// Compiles the kernels called `names` of the file `source` for `gpu`, and loads them. The compiler is
    /// nvcc (`NVCC`, or as found in `PATH`); for the emulated device `CXX`, or `c++`.
    ///
    /// `common.cuh` of this crate's kernels is included before the file, and the file may include the other
    /// headers of `kernels/`. `common.cuh` has the number types, `Rows` (`rows.live()` is the number of live
    /// rows), `thread_item()` and `thread_items()` (the first item of a thread, and the stride to its next
    /// one), `warp_sum` and `warp_max`. This file squares every element of `x`:
    ///
    /// ```cuda
    /// extern "C" __global__ void square(const float* x, float* y, Rows rows, uint32_t d) {
    ///   uint64_t n = uint64_t(rows.live()) * d;
    ///   for (uint64_t i = thread_item(); i < n; i += thread_items()) y[i] = x[i] * x[i];
    /// }
    /// ```
    ///
    /// # Errors
    /// `Device` with the compiler's message, such as for a kernel that is not `extern "C"`, or if there is no
    /// compiler; also for `__shared__` memory on the
    /// emulated device, which has none for kernels of other crates.
    ///
    /// # Safety
    /// The file's code becomes part of this process.
    pub unsafe fn compile(gpu: &Gpu, source: &Path, names: &[&str]) -> Result<Self> {
        let workshop = Workshop::new()?;
        let source = std::path::absolute(source).map_err(|e| Error::io(source, "no such path", e))?;
        let compiler = |variable: &str, default: &str| {
            let mut command = Command::new(std::env::var_os(variable).unwrap_or_else(|| default.into()));
            command.args(["-std=c++17", "-I"]).arg(&workshop.0);
            command
        };
        if !gpu.is_emulated() {
            let made = workshop.0.join("made.fatbin");
            let mut nvcc = compiler("NVCC", "nvcc");
            nvcc.args(["-fatbin", "-O3", "-arch=native", "-include", "common.cuh", "-o"])
                .arg(&made)
                .arg(&source);
            run(nvcc, &source)?;
            let image = fs::read(&made).map_err(|e| Error::io(&made, "cannot read", e))?;
            // SAFETY: compiled for this machine's devices.
            let module = unsafe { Self::load(gpu, &image) }?;
            // The driver looks for a kernel when it is first asked for it; who compiles a file wants to know
            // now.
            names
                .iter()
                .try_for_each(|name| module.kernel(name).map(drop).map_err(|e| e.in_file(&source)))?;
            return Ok(module);
        }
        let text = fs::read_to_string(&source).map_err(|e| Error::io(&source, "cannot read", e))?;
        if text.contains("__shared__") {
            let what = "the emulated device has no shared memory for kernels of other crates";
            return Err(Error::new(ErrorKind::Device, what).in_file(&source));
        }
        let entries: String = names.iter().map(|n| format!("emu::Entry<&{n}>::as(\"{n}\"), ")).collect();
        // A kernel that is not `extern "C"` contradicts its second declaration; a GPU would not find it.
        let declared: String = names.iter().map(|n| format!("extern decltype({n}) {n};\n")).collect();
        let table = format!(
            "#include \"common.cuh\"\n#include \"{}\"\nextern \"C\" {{\n{declared}\
             extern const emu::Kernel tgnn_kernels[];\n\
             const emu::Kernel tgnn_kernels[] = {{{entries}{{nullptr, nullptr, 0, nullptr}}}};\n}}\n",
            source.display()
        );
        let (wrapper, library) = (workshop.0.join("wrapper.cpp"), workshop.0.join("made.so"));
        fs::write(&wrapper, table).map_err(|e| Error::io(&wrapper, "cannot write", e))?;
        let mut cxx = compiler("CXX", "c++");
        cxx.args([
            "-O2",
            "-fPIC",
            "-w",
            "-fno-strict-aliasing",
            "-ffp-contract=off",
            "-DTGNN_HOST",
            "-shared",
        ]);
        cxx.arg(&wrapper).arg("-o").arg(&library);
        run(cxx, &source)?;
        // A library that is loaded does not need its file.
        // SAFETY: a text of this form, with the library just made.
        unsafe { Self::load(gpu, format!("emu:{}", library.display()).as_bytes()) }
    }
    /// Returns the kernel called `name`.
    ///
    /// # Errors
    /// `Device` if there is none.
    pub fn kernel(&self, name: &str) -> Result<CudaKernel> {
        self.gpu.enter()?;
        let missing = || Error::new(ErrorKind::Device, format!("there is no kernel `{name}`"));
        let text = CString::new(name).map_err(|_| missing())?;
        // SAFETY: the module is loaded, and never unloaded.
        let raw = unsafe { result::module::get_function(self.raw, text) };
        let raw = checked(raw, &format!("there is no kernel `{name}`"))?;
        // The driver loads a kernel's code at its first use, which must not be in a captured launch.
        let any = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
        // SAFETY: the function was just found.
        let loaded = unsafe { result::function::get_function_attribute(raw, any) };
        checked(loaded, &format!("cannot load kernel `{name}`"))?;
        Ok(CudaKernel { gpu: self.gpu.clone(), name: name.to_owned(), raw })
    }
}

impl CudaKernel {
    /// Launches the kernel for an op, on the op's stream. `arguments` are the addresses of the values of the
    /// kernel's arguments, of which the driver takes copies. A kernel is of the device on which its module is
    /// loaded: a program on several devices loads the module on each of them.
    ///
    /// # Errors
    /// `Device` if the launch is on another device than the kernel's, or if the driver refuses it.
    ///
    /// # Safety
    /// There must be one address for each argument of the kernel, of a value of the argument's type. Device
    /// memory that they name must be as the kernel needs it until the stream has run the kernel.
    pub unsafe fn launch(&self, on: &Launch<'_>, grid: Grid, arguments: &mut [*mut c_void]) -> Result<()> {
        let (own, other) = (&self.gpu, on.stream.gpu());
        if (own.ordinal(), own.is_emulated()) != (other.ordinal(), other.is_emulated()) {
            let (name, own, other) = (&self.name, own.ordinal(), other.ordinal());
            let what = format!("kernel {name} is loaded on device {own}, and launched on device {other}");
            return Err(Error::new(ErrorKind::Device, what).remedy("load its module on every device"));
        }
        // SAFETY: guaranteed by the caller.
        let launched = unsafe { on.stream.launch(self.raw, grid, arguments, false) };
        checked(launched, &format!("cannot launch {}", self.name))
    }
}

/// A folder of its own for a compilation, with the headers of `kernels/`. It is removed when this is dropped.
struct Workshop(PathBuf);

impl Workshop {
    fn new() -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let workshop = loop {
            let name = format!("tgnn-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
            let folder = std::env::temp_dir().join(name);
            match fs::create_dir(&folder) {
                Ok(()) => break Workshop(folder),
                // Left by a process that had the same number.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Error::io(&folder, "cannot create", e)),
            }
        };
        for (name, text) in HEADERS {
            let path = workshop.0.join(name);
            let written =
                fs::create_dir_all(path.parent().unwrap_or(&path)).and_then(|()| fs::write(&path, text));
            written.map_err(|e| Error::io(&path, "cannot write", e))?;
        }
        Ok(workshop)
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a compiler for `source`.
fn run(mut command: Command, source: &Path) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |what: String| Error::new(ErrorKind::Device, format!("{program}: {what}")).in_file(source);
    match command.output() {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => {
            let text = String::from_utf8_lossy(&done.stderr).into_owned();
            let line =
                text.lines().find(|l| l.contains("error")).or(text.lines().next()).unwrap_or("it failed");
            let e = failed(line.to_owned());
            Err(if line.contains("linkage") { e.remedy("declare the kernel as extern \"C\"") } else { e })
        }
        Err(e) => Err(failed(e.to_string()).remedy("install the compiler, or name it by NVCC or CXX")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn every_header_that_a_header_includes_is_carried() {
        let carried: BTreeMap<&Path, &str> =
            HEADERS.iter().map(|(name, text)| (Path::new(name), *text)).collect();
        assert!(carried.contains_key(Path::new("common.cuh")));
        for (name, text) in &carried {
            let included =
                text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
            for header in included {
                let there = name.parent().unwrap().join(header);
                assert!(
                    carried.contains_key(there.as_path()),
                    "{} wants {}",
                    name.display(),
                    there.display()
                );
            }
        }
    }

    #[test]
    fn a_compilation_has_a_folder_of_its_own_which_is_removed() {
        let (one, other) = (Workshop::new().unwrap(), Workshop::new().unwrap());
        assert!(one.0 != other.0 && other.0.join("emu/cuda.hpp").is_file());
        let folder = one.0.clone();
        drop(one);
        assert!(!folder.exists() && other.0.exists());
    }
}
