//! Memory statistics of the system and the process, and large buffers on huge pages.
use super::{
    full_memory::tried,
    memory_limits::{available, sized_after},
};
use crate::error::{Error, ErrorKind, Result};
use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    ops::{Deref, DerefMut},
    path::Path,
    ptr::NonNull,
};

/// Returns the peak resident memory of this process, in bytes; 0 if the system does not report it.
pub fn peak_memory_bytes() -> u64 {
    sized_after(Path::new("/proc/self/status"), "VmHWM:").unwrap_or(0)
}

/// Returns the resident memory of this process without pages of files, in bytes; `None` if the system does
/// not report it.
#[doc(hidden)]
pub fn taken_memory_bytes() -> Option<u64> {
    sized_after(Path::new("/proc/self/status"), "RssAnon:")
}

/// Returns the memory that this process can still allocate, in bytes: the least that the system, the control
/// groups of the process (`cgroup`, both versions, with those that contain them) and its own limits (`ulimit
/// -v`, `-d`) leave. Pages of files that the kernel can drop count as free. `None` if nothing is reported.
pub fn available_memory_bytes() -> Option<u64> {
    available(Path::new("/"))
}

/// Checks that `bytes` of memory are available for `what`, so that the process fails early instead of being
/// killed later.
#[doc(hidden)]
pub fn check_room(what: &str, bytes: usize, remedy: &str) -> Result<()> {
    match available_memory_bytes() {
        Some(free) if bytes as u64 > free => {
            let needed = format!("{what} need {}, {} are free", size_text(bytes as u64), size_text(free));
            Err(Error::new(ErrorKind::OutOfMemory, needed).remedy(remedy.to_owned()))
        }
        _ => Ok(()),
    }
}

/// Writes a number of bytes in GiB, or in MiB if it is small.
#[doc(hidden)]
pub fn size_text(bytes: u64) -> String {
    const GIB: f64 = (1 << 30) as f64;
    match bytes as f64 / GIB {
        gib if gib >= 0.05 => format!("{gib:.1} GiB"),
        gib => format!("{:.1} MiB", gib * 1024.0),
    }
}

/// Size of a huge page, in bytes; the smaller size if the system has two.
const HUGE: usize = 2 << 20;
/// Size of a cache line in bytes, which is also the size of the widest registers.
const LINE: usize = 64;

/// Zeroed memory aligned to a cache line, so that aligned rows do not straddle more cache lines than
/// necessary. A large buffer starts at a huge page of its own. Pages are not resident before they are
/// touched.
///
/// A raw allocation instead of a `Vec`: programs hold addresses into the buffer between runs, and creating a
/// `&mut` to the whole buffer would invalidate them.
pub(crate) struct OwnBytes {
    start: NonNull<u8>,
    len: usize,
    /// The allocation, longer than `len` so that it contains an aligned start. (An aligned zeroed allocation
    /// would touch every page.)
    block: (NonNull<u8>, Layout),
}

// SAFETY: the value owns its bytes, as a `Vec<u8>` does; only `unsafe` code can use the address.
unsafe impl Send for OwnBytes {}
// SAFETY: as above.
unsafe impl Sync for OwnBytes {}

impl OwnBytes {
    /// Allocates `len` zero bytes.
    pub(crate) fn zeros(len: usize) -> Result<Self> {
        let align = if len >= HUGE / 2 { HUGE } else { LINE };
        let refused = || Error::new(ErrorKind::OutOfMemory, format!("cannot allocate {len} bytes"));
        let size = len.checked_next_multiple_of(align).and_then(|size| size.checked_add(align));
        let layout = Layout::from_size_align(size.ok_or_else(refused)?, 1).map_err(|_| refused())?;
        // SAFETY: the layout's size is at least `align`, so it is not zero.
        let block = NonNull::new(tried(|| unsafe { alloc_zeroed(layout) })).ok_or_else(refused)?;
        // SAFETY: the offset to the next multiple of `align` is less than `align`, and at least `len` bytes
        // follow it.
        let start = unsafe { block.add(block.as_ptr().align_offset(align)) };
        // SAFETY: as above; these are whole multiples of `align`, and the last one may extend past `len`.
        prefer_huge_pages(unsafe { std::slice::from_raw_parts(start.as_ptr(), layout.size() - align) });
        Ok(OwnBytes { start, len, block: (block, layout) })
    }
    /// Returns the start address, valid for writes. The bytes accessed through it must not be borrowed
    /// meanwhile.
    pub(crate) fn address(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for OwnBytes {
    fn drop(&mut self) {
        let (block, layout) = self.block;
        // SAFETY: allocated by `zeros` with this layout, freed once.
        unsafe { dealloc(block.as_ptr(), layout) }
    }
}

impl Deref for OwnBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes that live as long as the borrow.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}
impl DerefMut for OwnBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Returns the size of the pages that a buffer of `len` bytes may get.
pub(crate) fn pages_of(len: usize) -> usize {
    if len >= HUGE / 2 { HUGE } else { 4096 }
}

/// Asks the system to map a large buffer with huge pages. Accesses to rows all over a table would mostly miss
/// the TLB with small pages. This is a hint: without huge pages in the system nothing changes.
pub(crate) fn prefer_huge_pages(bytes: &[u8]) {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        const MADV_COLLAPSE: libc::c_int = 25;
        let start = bytes.as_ptr().align_offset(HUGE);
        let len = bytes.len().saturating_sub(start) / HUGE * HUGE;
        if len > 0 {
            let inner = &bytes[start..start + len];
            // SAFETY: the range lies inside a live buffer, and neither call changes its contents. The first
            // call affects untouched pages, the second (newer, so it may be refused) the other pages.
            unsafe {
                libc::madvise(inner.as_ptr().cast_mut().cast(), len, libc::MADV_HUGEPAGE);
                libc::madvise(inner.as_ptr().cast_mut().cast(), len, MADV_COLLAPSE);
            }
        }
    }
    #[cfg(any(not(target_os = "linux"), miri))]
    let _ = bytes;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_begin_at_a_cache_line_and_large_ones_at_a_huge_page() {
        for (len, align) in [(0, LINE), (1, LINE), (1000, LINE), (HUGE / 2, HUGE), (3 * HUGE + 5, HUGE)] {
            let mut bytes = OwnBytes::zeros(len).unwrap();
            assert_eq!((bytes.len(), bytes.as_ptr().addr() % align), (len, 0));
            bytes.fill(1);
            assert!(bytes.iter().all(|&b| b == 1));
        }
    }

    #[test]
    fn an_impossible_allocation_is_an_error_and_not_an_abort() {
        for len in [usize::MAX, usize::MAX - HUGE, isize::MAX as usize] {
            let e = OwnBytes::zeros(len).err().expect("no machine has that");
            assert_eq!(e.kind(), ErrorKind::OutOfMemory);
        }
    }

    #[test]
    fn a_request_beyond_the_free_memory_is_refused_with_its_size() {
        assert!(check_room("two numbers", 8, "").is_ok());
        if available_memory_bytes().is_some() {
            let e =
                check_room("step buffers", 1 << 60, "take a smaller batch").expect_err("no machine has that");
            assert_eq!(e.kind(), ErrorKind::OutOfMemory);
            assert!(e.to_string().contains("step buffers need 1073741824.0 GiB"), "{e}");
        }
        assert_eq!(
            [0, 30 << 20, 51 << 20, 52 << 20].map(size_text),
            ["0.0 MiB", "30.0 MiB", "51.0 MiB", "0.1 GiB"]
        );
    }
}
