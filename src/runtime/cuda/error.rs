//! Errors of the CUDA driver.
use crate::error::{Error, ErrorKind, Result};
use cudarc::driver::{DriverError, sys::CUresult};
use std::ffi::CStr;

/// Converts a driver error; `what` says what failed.
pub(super) fn checked<T>(result: Result<T, DriverError>, what: &str) -> Result<T> {
    result.map_err(|e| {
        let text = |s: Result<&CStr, DriverError>| s.map_or("unknown".into(), |s| s.to_string_lossy().into_owned());
        let (name, message) = (text(e.error_name()), text(e.error_string()));
        let (kind, remedy) = match e.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                (ErrorKind::OutOfMemory, "take a smaller batch, fewer neighbours or narrower layers")
            }
            CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU | CUresult::CUDA_ERROR_INVALID_IMAGE => (
                ErrorKind::Device,
                "this binary has no kernels for this GPU: build it with nvcc (scripts/fetch-nvcc installs one), for \
                 compute capability 8.0 or later",
            ),
            CUresult::CUDA_ERROR_NO_DEVICE => (ErrorKind::Device, "use --device cpu"),
            CUresult::CUDA_ERROR_STUB_LIBRARY => (
                ErrorKind::Device,
                "libcuda.so is a stub of the CUDA toolkit, for linking only: take its folder `stubs` out of \
                 LD_LIBRARY_PATH, so that the driver's library is found",
            ),
            _ => (ErrorKind::Device, "see `tgnn-bench doctor`"),
        };
        let message = if message == name { name } else { format!("{name}: {message}") };
        Error::new(kind, format!("{what}: {message}")).remedy(remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_of_the_driver_is_named_in_one_line() {
        if crate::runtime::cuda::Gpu::driver_version().is_err() {
            println!("skipped: no CUDA driver, which has the names of its errors");
            return;
        }
        let stub = checked::<()>(Err(DriverError(CUresult::CUDA_ERROR_STUB_LIBRARY)), "cannot start");
        let e = stub.unwrap_err().to_string();
        assert!(e.contains("LD_LIBRARY_PATH") && e.contains("stubs") && !e.contains('\n'), "{e}");
    }
}
