//! The system's memory: what a process held, and how large buffers are mapped.

/// Most memory this process ever held resident, in bytes; 0 where the system does not tell.
pub fn peak_memory_bytes() -> u64 {
    kib_after("/proc/self/status", "VmHWM:").map_or(0, |kib| kib * 1024)
}

/// The number that follows `key` in a file of the system.
fn kib_after(file: &str, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|l| l.starts_with(key))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Asks the system to map a large buffer with huge pages. Rows come from all over a table: with small pages most of
/// them miss the address cache first. A hint: where the system knows no huge pages, nothing changes.
pub(crate) fn prefer_huge_pages(bytes: &[u8]) {
    #[cfg(target_os = "linux")]
    {
        const HUGE: usize = 2 << 20;
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
    #[cfg(not(target_os = "linux"))]
    let _ = bytes;
}
