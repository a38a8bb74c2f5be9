//! The system's memory: what a process held, what it may take, and how large buffers are mapped.
use crate::error::{Error, ErrorKind, Result};
use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    ops::{Deref, DerefMut},
    ptr::NonNull,
};

/// Most memory this process ever held resident, in bytes; 0 where the system does not tell.
pub fn peak_memory_bytes() -> u64 {
    kib_after("/proc/self/status", "VmHWM:").map_or(0, |kib| kib * 1024)
}

/// Memory that this process may still take, in bytes, by the system's and its control group's count; none where they do
/// not tell.
pub fn available_memory_bytes() -> Option<u64> {
    let number = |file: &str| std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let group = number("/sys/fs/cgroup/memory.max")
        .zip(number("/sys/fs/cgroup/memory.current"))
        .map(|(most, now)| most.saturating_sub(now));
    let system = kib_after("/proc/meminfo", "MemAvailable:").map(|kib| kib * 1024);
    system.into_iter().chain(group).min()
}

/// Refuses `bytes` for `what` where the machine does not have them: better here than killed half way.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`] with what is needed, what there is, and `remedy`.
pub fn check_room(what: &str, bytes: usize, remedy: &str) -> Result<()> {
    match available_memory_bytes() {
        Some(free) if bytes as u64 > free => {
            let gib = |bytes: u64| bytes as f64 / f64::from(1u32 << 30);
            let needed = format!("{what} need {:.1} GiB, {:.1} GiB are free", gib(bytes as u64), gib(free));
            Err(Error::new(ErrorKind::OutOfMemory, needed).remedy(remedy.to_owned()))
        }
        _ => Ok(()),
    }
}

/// The number that follows `key` in a file of the system.
fn kib_after(file: &str, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|l| l.starts_with(key))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Bytes of a huge page, of the smaller kind where there are two.
const HUGE: usize = 2 << 20;
/// Bytes of a cache line, and of the widest registers.
const LINE: usize = 64;

/// Memory that begins at a cache line, so that no aligned row of it lies in one more than it must; zeros at first. Large ones
/// have huge pages to themselves, and none is there before it is touched.
///
/// It is kept as a raw allocation, not as a `Vec`: programs hold addresses into it between runs, and making a `&mut` to the
/// whole of it would end their right to be used.
pub(crate) struct OwnBytes {
    start: NonNull<u8>,
    len: usize,
    /// What was allocated: longer, so that an aligned start lies in it. An aligned allocation of zeros would touch every page.
    block: (NonNull<u8>, Layout),
}

// SAFETY: it owns its bytes, as a `Vec<u8>` does; the address is handed out to `unsafe` code alone.
unsafe impl Send for OwnBytes {}
// SAFETY: as above.
unsafe impl Sync for OwnBytes {}

impl OwnBytes {
    /// `len` zeros.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] where the system does not give that much.
    pub(crate) fn zeros(len: usize) -> Result<Self> {
        let align = if len >= HUGE / 2 { HUGE } else { LINE };
        let refused = || Error::new(ErrorKind::OutOfMemory, format!("cannot allocate {len} bytes"));
        let room = len.checked_next_multiple_of(align).and_then(|room| room.checked_add(align));
        let layout = Layout::from_size_align(room.ok_or_else(refused)?, 1).map_err(|_| refused())?;
        // SAFETY: the layout has at least `align` bytes.
        let block = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refused)?;
        // SAFETY: the offset to the next multiple of `align` is less than `align`, and `len` bytes follow it.
        let start = unsafe { block.add(block.as_ptr().align_offset(align)) };
        // SAFETY: as above; whole pages, of which the last may be longer than what is asked for.
        prefer_huge_pages(unsafe { std::slice::from_raw_parts(start.as_ptr(), layout.size() - align) });
        Ok(OwnBytes { start, len, block: (block, layout) })
    }
    /// Where it begins, with the right to write: what is read or written through it must not be borrowed meanwhile.
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
        // SAFETY: `len` initialised bytes, which live as long as the borrow.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}
impl DerefMut for OwnBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Asks the system to map a large buffer with huge pages. Rows come from all over a table: with small pages most of
/// them miss the address cache first. A hint: where the system knows no huge pages, nothing changes.
pub(crate) fn prefer_huge_pages(bytes: &[u8]) {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        const MADV_COLLAPSE: libc::c_int = 25;
        let start = bytes.as_ptr().align_offset(HUGE);
        let len = bytes.len().saturating_sub(start) / HUGE * HUGE;
        if len > 0 {
            let inner = &bytes[start..start + len];
            // SAFETY: the range lies inside a live buffer, and neither call changes what is read from it. The first
            // is for pages that nobody has touched yet, the second (newer, so it may be refused) for the others.
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
    fn buffers_begin_at_a_line_and_large_ones_at_a_huge_page() {
        for (len, align) in [(0, LINE), (1, LINE), (1000, LINE), (HUGE / 2, HUGE), (3 * HUGE + 5, HUGE)] {
            let mut bytes = OwnBytes::zeros(len).unwrap();
            assert_eq!((bytes.len(), bytes.as_ptr().addr() % align), (len, 0));
            bytes.fill(1);
            assert!(bytes.iter().all(|&b| b == 1));
        }
    }

    #[test]
    fn what_no_machine_has_is_an_error_and_not_an_abort() {
        for len in [usize::MAX, usize::MAX - HUGE, isize::MAX as usize] {
            let e = OwnBytes::zeros(len).err().expect("no machine has that");
            assert_eq!(e.kind(), ErrorKind::OutOfMemory);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_it_needs() {
        assert!(check_room("two numbers", 8, "").is_ok());
        if available_memory_bytes().is_some() {
            let e =
                check_room("step buffers", 1 << 60, "take a smaller batch").expect_err("no machine has that");
            assert_eq!(e.kind(), ErrorKind::OutOfMemory);
            assert!(e.to_string().contains("step buffers need 1073741824.0 GiB"), "{e}");
        }
    }
}
