//! Named ranges for profilers: Nsight Systems and Nsight Compute group their output by them.
//!
//! The application's side of NVTX 3 for push and pop, a port of NVIDIA's C headers: a tool puts the path of
//! its library into `NVTX_INJECTION64_PATH`; the first range loads that library and passes it tables of
//! function slots, one per NVTX function, which the tool fills with its own functions. Source:
//! `nvtx3/nvtxDetail/nvtx{Types,Impl,Init}.h`.
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

/// A function slot: a function of the tool, or null.
type Callback = AtomicPtr<c_void>;
/// Length of a module's table: the ids of the largest module and a terminating null.
const TABLE_LEN: usize = 17;
/// Number of function ids of each module, counting the unused id 0. Modules: none, core, CUDA, OpenCL, CUDA
/// runtime, core 2, sync.
const IDS: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];
const CORE: usize = 1;
const RANGE_PUSH_A: usize = 9;
const RANGE_POP: usize = 11;

static FUNCTIONS: [[Callback; TABLE_LEN]; IDS.len()] =
    [const { [const { AtomicPtr::new(null_mut()) }; TABLE_LEN] }; IDS.len()];

/// `NvtxFunctionTable` of each module: the address of each id's slot; null for id 0 and past the last id.
static TABLES: [[Option<&Callback>; TABLE_LEN]; IDS.len()] = {
    let mut tables = [[None; TABLE_LEN]; IDS.len()];
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

/// Receives the tool's version, which is not used.
extern "C" fn set_tool(_version: u32) {}

/// Returns in `table` the function table of `module` and in `ids` its length. The result is 1, or 0 if there
/// is no such module.
extern "C" fn get_table(
    module: c_int,
    table: *mut *const Option<&'static Callback>,
    ids: *mut c_uint,
) -> c_int {
    let Some(at) = usize::try_from(module).ok().filter(|m| (1..IDS.len()).contains(m)) else { return 0 };
    // SAFETY: each pointer is null, or points to the tool's variable for the result.
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

/// Returns the table with an `NvtxExportTableID`, of which 1 and 3 exist.
extern "C" fn export_table(id: u32) -> *const c_void {
    match id {
        1 => from_ref(&CALLBACKS).cast(),
        3 => from_ref(&VERSION).cast(),
        _ => null(),
    }
}

/// Loads the tool named by the environment and lets it fill the slots. Returns whether it did.
fn attach() -> bool {
    let Some(path) = std::env::var_os("NVTX_INJECTION64_PATH") else { return false };
    let Ok(path) = CString::new(path.into_vec()) else { return false };
    // SAFETY: the user asked for this library; its entry point has the type that NVTX defines, and stays
    // loaded.
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

/// A range, from the call of [`range`] until this value is dropped.
#[must_use = "the range ends when this is dropped"]
#[derive(Debug)]
pub struct Range {
    pushed: bool,
    /// Ranges nest within a thread: a range must end on the thread where it began, so this type is not
    /// `Send`.
    _thread: PhantomData<*const ()>,
}

/// Begins a range called `name`, nested in the ranges that this thread has open. Without a tool it costs one
/// load, and nothing is formatted or allocated.
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
        // SAFETY: the tool stored a function of this type in the slot; the function copies the text.
        unsafe { transmute::<*mut c_void, extern "C" fn(*const c_char) -> c_int>(push)(name.as_ptr()) };
    }
    !push.is_null()
}

impl Drop for Range {
    fn drop(&mut self) {
        let pop = FUNCTIONS[CORE][RANGE_POP].load(Relaxed);
        if self.pushed && !pop.is_null() {
            // SAFETY: the tool stored a function of this type in the slot.
            unsafe { transmute::<*mut c_void, extern "C" fn() -> c_int>(pop)() };
        }
    }
}
