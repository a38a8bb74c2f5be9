//! The library of MPI, loaded at run time: one program runs with Open MPI, with MPICH, and without MPI.
//!
//! The binary interfaces differ in their handles, which are `usize` here. In Open MPI and in the standard ABI
//! of MPI 5 they are pointers; in MPICH they are C ints, in the low half of an argument or a result, because
//! the supported machines are little-endian and have 64 bits.
use crate::{
    error::{Error, ErrorKind, Result},
    runtime::comm::launch::{Launcher, launched},
};
use std::{
    ffi::{CStr, CString, OsString, c_char, c_int, c_void},
    mem::{MaybeUninit, transmute},
    os::unix::ffi::OsStringExt,
    ptr::{from_ref, null_mut},
};

/// A communicator, a data type, an error handler or a request.
type Handle = usize;
/// An `MPI_Status` of any interface: the largest has 32 bytes.
type RawStatus = [u64; 8];

/// Declares `Functions` with the signatures of MPI's functions.
macro_rules! functions {
    ($($name:ident = $symbol:literal($($arg:ty),*);)*) => {
        struct Functions {
            $($name: unsafe extern "C" fn($($arg),*) -> c_int,)*
        }

        impl Functions {
            /// Looks the functions up. The error is the name of the one that the library lacks.
            ///
            /// # Safety
            /// `library` is a handle of `dlopen`, and what it has under these names are MPI's functions.
            unsafe fn find(library: *mut c_void) -> Result<Self, &'static CStr> {
                Ok(Functions {
                    $($name: {
                        let found = symbol(library, $symbol).ok_or($symbol)?;
                        // SAFETY: the function has this signature in every interface.
                        unsafe { transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> c_int>(found) }
                    },)*
                })
            }
        }
    };
}

functions! {
    abort = c"MPI_Abort"(Handle, c_int);
    error_string = c"MPI_Error_string"(c_int, *mut c_char, *mut c_int);
    finalize = c"MPI_Finalize"();
    get_count = c"MPI_Get_count"(*const RawStatus, Handle, *mut c_int);
    init_thread = c"MPI_Init_thread"(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    initialized = c"MPI_Initialized"(*mut c_int);
    irecv = c"MPI_Irecv"(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    isend = c"MPI_Isend"(*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    version_text = c"MPI_Get_library_version"(*mut c_char, *mut c_int);
    rank = c"MPI_Comm_rank"(Handle, *mut c_int);
    set_errhandler = c"MPI_Comm_set_errhandler"(Handle, Handle);
    size = c"MPI_Comm_size"(Handle, *mut c_int);
    test = c"MPI_Test"(*mut Handle, *mut c_int, *mut RawStatus);
}

/// Returns the address of a symbol of `library`, a handle of `dlopen`.
fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the library stays loaded; a look-up has no side effects.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// What differs between the binary interfaces.
struct Interface {
    world: Handle,
    byte: Handle,
    errors_return: Handle,
    /// `MPI_THREAD_SERIALIZED`.
    serialized: c_int,
}

const MPICH: Interface =
    Interface { world: 0x4400_0000, byte: 0x4c00_010d, errors_return: 0x5400_0001, serialized: 2 };
const STANDARD: Interface = Interface { world: 0x101, byte: 0x247, errors_return: 0x143, serialized: 2048 };

/// Returns the interface of Open MPI, whose handles are the addresses of its variables.
fn open_mpi(library: *mut c_void) -> Option<Interface> {
    let address = |name| symbol(library, name).map(|found| found as usize);
    Some(Interface {
        world: address(c"ompi_mpi_comm_world")?,
        byte: address(c"ompi_mpi_byte")?,
        errors_return: address(c"ompi_mpi_errors_return")?,
        serialized: 2,
    })
}

/// File names of Open MPI's library.
const OPEN_MPI_FILES: [&str; 1] = ["libmpi.so.40"];
/// File names of the libraries of MPICH and its relatives, and of the standard ABI.
const MPICH_FILES: [&str; 3] = ["libmpich.so.12", "libmpi.so.12", "libmpi_abi.so.1"];
/// The environment variable with the path of the library.
pub(super) const PATH_VARIABLE: &str = "TGNN_MPI_LIB";
/// The most bytes that the library writes where it is asked for a text.
const MOST_TEXT: usize = 8192;

/// A loaded library of MPI.
pub(super) struct Library {
    functions: Functions,
    interface: Interface,
    /// Name and version, such as `Open MPI 5.0.11`.
    pub(super) version: String,
    /// The file.
    pub(super) path: String,
    /// Whether it is MPICH or a relative of it, by any interface.
    pub(super) is_mpich: bool,
}

/// An unfinished transfer.
pub(super) struct Request(Handle);

/// What is known of a finished transfer.
pub(super) struct Status(RawStatus);

impl Library {
    /// Loads the library that the environment names, or the first one that is found. That of the launcher
    /// that has started this process is tried first.
    pub(super) fn load() -> Result<Self> {
        if let Some(path) = std::env::var_os(PATH_VARIABLE).filter(|path| !path.is_empty()) {
            let text = path.to_string_lossy().into_owned();
            return Self::open(path).map_err(|why| {
                let text = format!("{PATH_VARIABLE} is {text}: {why}");
                Error::new(ErrorKind::Comm, text).remedy("give the path of a library of MPI (libmpi.so)")
            });
        }
        let (first, second): (&[_], &[_]) = match launched()?.map(|l| l.launcher) {
            Some(Launcher::Mpich) => (&MPICH_FILES, &OPEN_MPI_FILES),
            _ => (&OPEN_MPI_FILES, &MPICH_FILES),
        };
        let files = [first, second].concat();
        let mut reasons = String::new();
        for file in &files {
            match Self::open((*file).into()) {
                Ok(library) => return Ok(library),
                // The file is there, but something else is wrong.
                Err(why) if !why.starts_with(file) => reasons += &format!("; {file}: {why}"),
                Err(_) => {}
            }
        }
        let text = format!("there is no library of MPI (tried: {}){reasons}", files.join(", "));
        let remedy = format!("install Open MPI or MPICH, or put the library's path into {PATH_VARIABLE}");
        Err(Error::new(ErrorKind::Comm, text).remedy(remedy))
    }
    /// Loads a library; it stays loaded. The error says why not.
    fn open(file: OsString) -> Result<Self, String> {
        let file = CString::new(file.into_vec()).map_err(|e| e.to_string())?;
        // SAFETY: the user asked for MPI; its library stays loaded. It must be global, because it loads parts
        // of itself that refer to it.
        let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if library.is_null() {
            // SAFETY: `dlerror` returns a text after a failed `dlopen`.
            let why = unsafe { CStr::from_ptr(libc::dlerror()) };
            return Err(why.to_string_lossy().into_owned());
        }
        // SAFETY: the handle is valid, and the names are MPI's.
        let functions = unsafe { Functions::find(library) }
            .map_err(|name| format!("this is no library of MPI: it lacks {}", name.to_string_lossy()))?;
        let path = path_of(functions.isend as *const c_void);
        let version = text(|text, length| {
            // SAFETY: there is room for the longest text; this may be called before MPI is started.
            unsafe { (functions.version_text)(text, length) }
        });
        let is_mpich = ["MPICH", "MVAPICH", "Intel"].iter().any(|name| version.contains(name));
        let interface = match open_mpi(library) {
            _ if path.contains("mpi_abi") => STANDARD,
            Some(interface) => interface,
            None if is_mpich => MPICH,
            None => return Err(format!("this is neither Open MPI nor MPICH, but {}", brief(&version))),
        };
        Ok(Library { functions, interface, version: brief(&version), path, is_mpich })
    }
    /// Starts MPI for calls from any thread, one at a time. Returns rank and size.
    pub(super) fn start(&self) -> Result<(usize, usize)> {
        let Functions { initialized, init_thread, set_errhandler, rank, size, .. } = &self.functions;
        let Interface { world, errors_return, serialized, .. } = self.interface;
        let (mut is_started, mut granted, mut own, mut all) = (0, 0, 0, 0);
        // SAFETY: may be called at any time.
        self.check("MPI_Initialized", unsafe { initialized(&mut is_started) })?;
        if is_started != 0 {
            return Err(Error::new(ErrorKind::Comm, "MPI is started already in this process")
                .remedy("call `mpi` once, and not beside other users of MPI"));
        }
        // SAFETY: MPI has not been started; it may be started without a command line.
        let code = unsafe { init_thread(null_mut(), null_mut(), serialized, &mut granted) };
        self.check("MPI_Init_thread", code)?;
        if granted < serialized {
            let text = format!("{} cannot be called from several threads", self.version);
            return Err(Error::new(ErrorKind::Comm, text)
                .remedy("install a library that grants MPI_THREAD_SERIALIZED"));
        }
        // SAFETY: MPI has been started, and the handles are those of its interface.
        self.check("MPI_Comm_set_errhandler", unsafe { set_errhandler(world, errors_return) })?;
        // SAFETY: as above.
        self.check("MPI_Comm_rank", unsafe { rank(world, &mut own) })?;
        // SAFETY: as above.
        self.check("MPI_Comm_size", unsafe { size(world, &mut all) })?;
        Ok((own as usize, all as usize))
    }
    /// Begins to send `length` bytes to rank `to`.
    ///
    /// # Safety
    /// MPI runs, and no other thread calls it. The bytes stay readable and unchanged until the request is
    /// finished.
    pub(super) unsafe fn send(
        &self,
        from: *const u8,
        length: c_int,
        to: c_int,
        tag: c_int,
    ) -> Result<Request> {
        let Interface { world, byte, .. } = self.interface;
        let mut request = 0;
        // SAFETY: the caller vouches for the bytes; the handles are those of the interface.
        let code = unsafe { (self.functions.isend)(from.cast(), length, byte, to, tag, world, &mut request) };
        self.check("MPI_Isend", code)?;
        Ok(Request(request))
    }
    /// Begins to receive at most `length` bytes from rank `from`.
    ///
    /// # Safety
    /// MPI runs, and no other thread calls it. The bytes stay writable, and nobody else uses them, until the
    /// request is finished.
    pub(super) unsafe fn recv(&self, to: *mut u8, length: c_int, from: c_int, tag: c_int) -> Result<Request> {
        let Interface { world, byte, .. } = self.interface;
        let mut request = 0;
        // SAFETY: the caller vouches for the bytes; the handles are those of the interface.
        let code = unsafe { (self.functions.irecv)(to.cast(), length, byte, from, tag, world, &mut request) };
        self.check("MPI_Irecv", code)?;
        Ok(Request(request))
    }
    /// Makes progress, and returns the status of a request that is finished.
    ///
    /// # Safety
    /// MPI runs, and no other thread calls it.
    pub(super) unsafe fn test(&self, request: &mut Request) -> Result<Option<Status>> {
        let (mut is_finished, mut status) = (0, Status(RawStatus::default()));
        // SAFETY: the request comes from this library; once it is finished, MPI has made it the null request.
        let code = unsafe { (self.functions.test)(&mut request.0, &mut is_finished, &mut status.0) };
        self.check("MPI_Test", code)?;
        Ok((is_finished != 0).then_some(status))
    }
    /// Returns the number of bytes that a finished transfer has received.
    ///
    /// # Safety
    /// MPI runs, and no other thread calls it.
    pub(super) unsafe fn received(&self, status: &Status) -> Result<usize> {
        let mut count = 0;
        // SAFETY: the status comes from this library.
        let code =
            unsafe { (self.functions.get_count)(from_ref(&status.0), self.interface.byte, &mut count) };
        self.check("MPI_Get_count", code)?;
        Ok(usize::try_from(count).unwrap_or_default())
    }
    /// Ends MPI.
    ///
    /// # Safety
    /// MPI runs, no other thread calls it, and nobody calls it again.
    pub(super) unsafe fn finish(&self) -> Result<()> {
        // SAFETY: as the caller vouches.
        self.check("MPI_Finalize", unsafe { (self.functions.finalize)() })
    }
    /// Ends the processes of all ranks with an exit code.
    ///
    /// # Safety
    /// MPI runs, and no other thread calls it.
    pub(super) unsafe fn abort(&self, code: c_int) {
        // SAFETY: as the caller vouches. If it returns, it has failed, and nothing is left to try.
        unsafe { (self.functions.abort)(self.interface.world, code) };
    }
    /// Returns the error of a call that has returned `code`, unless that is success.
    fn check(&self, call: &str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let why = text(|text, length| {
            // SAFETY: there is room for the longest text, and `code` comes from this library.
            unsafe { (self.functions.error_string)(code, text, length) }
        });
        let why = why.lines().next().unwrap_or_default();
        Err(Error::new(ErrorKind::Comm, format!("{call} of {} has failed: {why}", self.version)))
    }
}

/// Returns the text that `write` writes.
fn text(write: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> String {
    let (mut bytes, mut length) = ([0u8; MOST_TEXT], 0);
    write(bytes.as_mut_ptr().cast(), &mut length);
    let bytes = bytes.get(..usize::try_from(length).unwrap_or_default()).unwrap_or_default();
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}

/// Returns name and number of a version: `MPICH 5.0.2` of `MPICH Version:   5.0.2`.
fn brief(version: &str) -> String {
    let line = version.split(['\n', ',']).next().unwrap_or_default();
    let words = line.split_whitespace().filter(|word| *word != "Version:");
    let is_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    let words = words.map(|word| word.strip_prefix('v').filter(|rest| is_number(rest)).unwrap_or(word));
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the path of the library that a function belongs to.
fn path_of(function: *const c_void) -> String {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the result has room, and zeros are valid in it.
    let (found, info) = unsafe { (libc::dladdr(function, info.as_mut_ptr()), info.assume_init()) };
    if found == 0 || info.dli_fname.is_null() {
        return String::new();
    }
    // SAFETY: the name lives as long as the library, which is never unloaded.
    unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_its_name_and_number() {
        assert_eq!(brief("Open MPI v5.0.11, package: Open MPI v@x, ident: 5"), "Open MPI 5.0.11");
        assert_eq!(brief("MPICH Version:      5.0.2\nMPICH Release date: x"), "MPICH 5.0.2");
        assert_eq!(
            brief("Intel(R) MPI Library 2021.10 for Linux* OS\n"),
            "Intel(R) MPI Library 2021.10 for Linux* OS"
        );
        assert_eq!(brief(""), "");
    }

    #[test]
    fn a_library_that_is_not_mpi_is_refused() {
        let why = |file: &str| Library::open(file.into()).err().unwrap();
        assert_eq!(why("libc.so.6"), "this is no library of MPI: it lacks MPI_Abort");
        assert!(why("no/such.so").starts_with("no/such.so: cannot open"));
        assert!(why("a\0b").contains("nul byte"));
    }
}
