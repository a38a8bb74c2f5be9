//! Checks whether an input has something to read.
use std::fs::File;

/// Returns whether a read of `file` would return at once: bytes have arrived, the file has ended, or it has
/// failed. Always `true` on systems other than Unix, which do not tell.
#[doc(hidden)]
pub fn is_waiting(file: &File) -> bool {
    #[cfg(unix)]
    {
        use std::os::fd::AsRawFd;
        let mut one = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one `pollfd`, which outlives the call; with a time-out of 0 the call returns at once.
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
    fn a_pipe_has_something_to_read_once_it_is_written_or_closed() {
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
