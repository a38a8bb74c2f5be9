//! The threads that read and check data.
use std::error::Error as _;
use tgnn::error::{Error, ErrorKind, Result};

/// Starts the threads that read and check data, `threads` of them, or one for each core if that is 0. The
/// first call counts; [`load`](crate::load) makes one, so that whoever wants fewer threads calls it before.
///
/// # Errors
/// `Device` if the system refuses a thread.
pub fn start_threads(threads: usize) -> Result<()> {
    match rayon::ThreadPoolBuilder::new().num_threads(threads).build_global() {
        // Without a cause, the threads are there already.
        Err(e) if e.source().is_some() => {
            let what = "cannot start the threads that read data";
            Err(Error::new(ErrorKind::Device, what).caused_by(e).remedy(
                "allow more threads (ulimit -u, the limit \
                 of the container), or use fewer (--threads)",
            ))
        }
        _ => Ok(()),
    }
}
