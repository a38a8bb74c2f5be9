//! How many trials may run at the same time.

/// Of the memory that is free, the part that trials may take: their peaks are estimates.
const SHARE_OF_MEMORY: f64 = 0.8;

/// Returns how many trials may run at the same time: as many as `cores` allow if each uses `threads` of them
/// (0: all), and as many as `free` bytes of memory hold if one needs `peak` bytes. Before the first trial has
/// ended, its peak is unknown, and one trial runs alone. Trials on a GPU, which they would share, run one by
/// one.
pub fn jobs(cores: usize, threads: usize, free: Option<u64>, peak: Option<u64>, on_gpu: bool) -> usize {
    let (Some(peak), false) = (peak, on_gpu) else { return 1 };
    let by_cores = cores.checked_div(threads).unwrap_or(1);
    let by_memory = |free: u64| (free as f64 * SHARE_OF_MEMORY / peak.max(1) as f64) as usize;
    by_cores.min(free.map_or(usize::MAX, by_memory)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_and_memory_bound_the_number_of_trials() {
        assert_eq!(jobs(16, 2, Some(100), Some(1), false), 8, "by cores");
        assert_eq!(jobs(16, 0, Some(100), Some(1), false), 1, "each takes all cores");
        assert_eq!(jobs(16, 1, Some(100), Some(10), false), 8, "80 of 100 bytes by 10");
        assert_eq!(
            jobs(16, 1, Some(100), Some(200), false),
            1,
            "too little for one: it is tried all the same"
        );
        assert_eq!(jobs(16, 1, None, Some(200), false), 16, "a system that does not tell its memory");
        assert_eq!(jobs(16, 1, Some(100), None, false), 1, "before the first has ended");
        assert_eq!(jobs(16, 1, Some(100), Some(1), true), 1, "on a GPU");
    }
}
