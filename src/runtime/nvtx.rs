//! Named ranges for profilers: Nsight Systems and Nsight Compute show what the program does by them.
//!
//! The application's side of NVTX 3, as NVIDIA's headers have it in C, for push and pop: a tool puts the path of its library
//! into `NVTX_INJECTION64_PATH`; the first range loads that library and hands it tables of slots, one for each function of
//! NVTX, which the tool fills with its own. Source: `nvtx3/nvtxDetail/nvtx{Types,Impl,Init}.h`.
use std::{
    ffi::{CString, c_char, c_int, c_uint, c_void},
    fmt::Display,
    marker::PhantomData,
    mem::transmute,
    os::unix::ffi::OsStringExt,
    ptr::{from_ref, null, null_mut},
    sync::{
        OnceLock,
        atomic::{AtomicPtr, Ordering::Relaxed},
    },
};

/// A function of the tool, or null.
type Callback = AtomicPtr<c_void>;
/// Function ids and the zero behind them, of the largest module.
const ROOM: usize = 17;
/// Function ids of each module, from id 0, which is none: no module, core, CUDA, OpenCL, CUDA runtime, core 2, sync.
const IDS: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];
const CORE: usize = 1;
const RANGE_PUSH_A: usize = 9;
const RANGE_POP: usize = 11;

static FUNCTIONS: [[Callback; ROOM]; IDS.len()] =
    [const { [const { AtomicPtr::new(null_mut()) }; ROOM] }; IDS.len()];

/// `NvtxFunctionTable` of each module: where the slot of each id is; null for id 0 and behind the last.
static TABLES: [[Option<&Callback>; ROOM]; IDS.len()] = {
    let mut tables = [[None; ROOM]; IDS.len()];
    let mut module = 1;
    while module < IDS.len() {
        let mut id = 1;
        while id < IDS[module] {
            tables[module][id] = Some(&FUNCTIONS[module][id]);
            id += 1;
        }
        module += 1;
    }
    tables
};

/// `NvtxExportTableCallbacks`
#[repr(C)]
struct Callbacks {
    size: usize,
    get_table: extern "C" fn(c_int, *mut *const Option<&'static Callback>, *mut c_uint) -> c_int,
}
static CALLBACKS: Callbacks = Callbacks { size: size_of::<Callbacks>(), get_table };

/// `NvtxExportTableVersionInfo`
#[repr(C)]
struct Version {
    size: usize,
    version: u32,
    reserved: u32,
    set_tool: extern "C" fn(u32),
}
static VERSION: Version = Version { size: size_of::<Version>(), version: 3, reserved: 0, set_tool };

/// The tool's version, which nothing depends on.
extern "C" fn set_tool(_version: u32) {}

/// The table of `module` and its number of ids; 0 where there is no such module.
extern "C" fn get_table(
    module: c_int,
    table: *mut *const Option<&'static Callback>,
    ids: *mut c_uint,
) -> c_int {
    let Some(at) = usize::try_from(module).ok().filter(|m| (1..IDS.len()).contains(m)) else { return 0 };
    // SAFETY: each is null, or where the tool has room for the answer.
    unsafe {
        if let Some(table) = table.as_mut() {
            *table = TABLES[at].as_ptr();
        }
        if let Some(ids) = ids.as_mut() {
            *ids = IDS[at] as c_uint;
        }
    }
    1
}

/// `NvtxExportTableID`: 1 and 3 are there.
extern "C" fn export_table(id: u32) -> *const c_void {
    match id {
        1 => from_ref(&CALLBACKS).cast(),
        3 => from_ref(&VERSION).cast(),
        _ => null(),
    }
}

/// Lets the tool that the environment names fill the slots. Whether there is one that did.
fn attach() -> bool {
    let Some(path) = std::env::var_os("NVTX_INJECTION64_PATH") else { return false };
    let Ok(path) = CString::new(path.into_vec()) else { return false };
    // SAFETY: the user asked for this library; its entry has the type that NVTX gives it, and stays loaded.
    unsafe {
        let tool = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY);
        if tool.is_null() {
            return false;
        }
        let entry = libc::dlsym(tool, c"InitializeInjectionNvtx2".as_ptr());
        type Entry = extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int;
        !entry.is_null() && transmute::<*mut c_void, Entry>(entry)(export_table) != 0
    }
}

/// The range from the call of [`range`] to the drop of this.
#[must_use = "the range ends when this is dropped"]
pub struct Range {
    pushed: bool,
    /// Ranges nest within a thread: a range ends on the one that it began on.
    _thread: PhantomData<*const ()>,
}

/// Begins the range called `name`, inside of those that this thread began before. Without a tool it costs one load, and
/// nothing is formatted or allocated.
///
/// ```
/// let epoch = 1;
/// let _range = tgnn::runtime::nvtx::range(format_args!("train epoch {epoch}"));
/// ```
pub fn range(name: impl Display) -> Range {
    static ATTACHED: OnceLock<bool> = OnceLock::new();
    Range { pushed: *ATTACHED.get_or_init(attach) && push(&name), _thread: PhantomData }
}

#[cold]
fn push(name: &dyn Display) -> bool {
    let (push, Ok(name)) = (FUNCTIONS[CORE][RANGE_PUSH_A].load(Relaxed), CString::new(name.to_string()))
    else {
        return false;
    };
    if !push.is_null() {
        // SAFETY: the tool put a function of this type there; it copies the text.
        unsafe { transmute::<*mut c_void, extern "C" fn(*const c_char) -> c_int>(push)(name.as_ptr()) };
    }
    !push.is_null()
}

impl Drop for Range {
    fn drop(&mut self) {
        let pop = FUNCTIONS[CORE][RANGE_POP].load(Relaxed);
        if self.pushed && !pop.is_null() {
            // SAFETY: the tool put a function of this type there.
            unsafe { transmute::<*mut c_void, extern "C" fn() -> c_int>(pop)() };
        }
    }
}
