//! The system's memory: what a process held, what it may take, and how large buffers are mapped.
use crate::error::{Error, ErrorKind, Result};
use std::ops::{Deref, DerefMut};

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

/// Zeros that begin at a cache line, so that no aligned row of them lies in one more than it must. Large ones have huge
/// pages to themselves, and none is there before it is touched.
pub(crate) struct OwnBytes {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl OwnBytes {
    pub(crate) fn zeros(len: usize) -> Self {
        let align = if len >= HUGE / 2 { HUGE } else { LINE };
        let room = len.next_multiple_of(align);
        let memory = vec![0; room + align];
        let start = memory.as_ptr().align_offset(align);
        prefer_huge_pages(&memory[start..start + room]);
        OwnBytes { memory, start, len }
    }
}

impl Deref for OwnBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}
impl DerefMut for OwnBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// Asks the system to map a large buffer with huge pages. Rows come from all over a table: with small pages most of
/// them miss the address cache first. A hint: where the system knows no huge pages, nothing changes.
pub(crate) fn prefer_huge_pages(bytes: &[u8]) {
    #[cfg(target_os = "linux")]
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
    #[cfg(not(target_os = "linux"))]
    let _ = bytes;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_begin_at_a_line_and_large_ones_at_a_huge_page() {
        for (len, align) in [(0, LINE), (1, LINE), (1000, LINE), (HUGE / 2, HUGE), (3 * HUGE + 5, HUGE)] {
            let mut bytes = OwnBytes::zeros(len);
            assert_eq!((bytes.len(), bytes.as_ptr().addr() % align), (len, 0));
            bytes.fill(1);
            assert!(bytes.iter().all(|&b| b == 1));
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
