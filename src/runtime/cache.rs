//! The caches of the CPU, which timings fill or clear.
use super::team::{self, InParallel};
use std::{fs, hint::black_box};

/// Sizes of a core's own cache and of the last cache where the system does not tell them.
const UNKNOWN: [usize; 2] = [1 << 20, 32 << 20];

/// Returns the bytes of a cache of the first core that the system calls `name`, such as `index2`.
fn bytes_of(name: &str) -> Option<usize> {
    let text = fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/{name}/size")).ok()?;
    let text = text.trim();
    let digits = text.trim_end_matches(char::is_alphabetic);
    let unit = match &text[digits.len()..] {
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => 1,
    };
    Some(digits.parse::<usize>().ok()? * unit)
}

/// Returns the bytes of the largest cache that a core has to itself.
pub fn core_cache_bytes() -> usize {
    bytes_of("index2").unwrap_or(UNKNOWN[0])
}

/// Returns the bytes of the largest cache of the CPU.
pub fn last_cache_bytes() -> usize {
    let found = ["index0", "index1", "index2", "index3", "index4"].into_iter().filter_map(bytes_of).max();
    found.unwrap_or(UNKNOWN[1])
}

/// Memory that is larger than the caches of the CPU, so that writing it leaves nothing else in them.
#[derive(Debug)]
pub struct CacheFlush {
    memory: Vec<u8>,
    written: u8,
}

impl CacheFlush {
    /// Allocates the memory: twice the bytes of the last cache.
    #[allow(clippy::new_without_default)] // a default would not be expected to allocate this much
    pub fn new() -> Self {
        CacheFlush { memory: vec![0; 2 * last_cache_bytes()], written: 0 }
    }
    /// Writes the memory, each thread of the team a part of it.
    pub fn flush(&mut self) {
        self.written = self.written.wrapping_add(1);
        let (part, byte) = (team::share(self.memory.len()), self.written);
        self.memory.chunks_mut(part).in_parallel(1, |part| part.fill(byte));
        black_box(&self.memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_writes_more_than_the_last_cache_and_other_bytes_each_time() {
        let mut flush = CacheFlush::new();
        assert!(flush.memory.len() > last_cache_bytes() && last_cache_bytes() >= 1 << 15);
        flush.flush();
        flush.flush();
        assert!(flush.memory.iter().all(|&byte| byte == 2));
    }
}
