//! Whether an input has something to read.
use std::fs::File;

/// Whether a read of `file` would return at once: bytes have come, it has ended, or it has failed. Where the system does not
/// tell, it would.
pub fn is_waiting(file: &File) -> bool {
    #[cfg(unix)]
    {
        use std::os::fd::AsRawFd;
        let mut one = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one `pollfd`, which lives through the call; no time-out, so it returns at once.
        unsafe { libc::poll(&mut one, 1, 0) != 0 }
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        true
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::{io::Write, os::fd::OwnedFd};

    #[test]
    fn a_pipe_has_something_to_read_once_somebody_wrote_or_closed_it() {
        let (read, mut write) = std::io::pipe().unwrap();
        let read = File::from(OwnedFd::from(read));
        assert!(!is_waiting(&read));
        write.write_all(b"x").unwrap();
        assert!(is_waiting(&read));
        let (closed, end) = std::io::pipe().unwrap();
        drop(end);
        assert!(is_waiting(&File::from(OwnedFd::from(closed))));
    }
}
