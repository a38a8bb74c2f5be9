//! Errors of the crate as Python exceptions.
use pyo3::prelude::*;
use tgnn::error::{Error, ErrorKind};

/// Why a call fails.
pub enum Failed {
    Crate(Error),
    Python(PyErr),
}

/// The result of a call.
pub type Result<T, E = Failed> = std::result::Result<T, E>;

impl From<Error> for Failed {
    fn from(e: Error) -> Self {
        Failed::Crate(e)
    }
}

impl From<PyErr> for Failed {
    fn from(e: PyErr) -> Self {
        Failed::Python(e)
    }
}

impl From<Failed> for PyErr {
    fn from(failed: Failed) -> PyErr {
        match failed {
            Failed::Python(e) => e,
            Failed::Crate(e) => Python::attach(|py| exception(py, &e).unwrap_or_else(|other| other)),
        }
    }
}

/// Returns the exception of an error: its class is by kind, and its text is that of the program, with flags
/// as arguments.
fn exception(py: Python<'_>, e: &Error) -> PyResult<PyErr> {
    let class = match e.kind() {
        ErrorKind::Usage => "UsageError",
        ErrorKind::Data => "DataError",
        ErrorKind::Plan => "PlanError",
        ErrorKind::Device => "DeviceError",
        ErrorKind::OutOfMemory => "OutOfMemoryError",
        ErrorKind::Diverged => "DivergedError",
        ErrorKind::Comm => "CommError",
        ErrorKind::Checkpoint => "CheckpointError",
        ErrorKind::Io => "IoError",
        ErrorKind::Shape => "ShapeError",
        ErrorKind::Interrupted => return Ok(pyo3::exceptions::PyKeyboardInterrupt::new_err(())),
        _ => "Error",
    };
    let of_program = py.import("tgnn._errors")?.getattr("of_program")?;
    Ok(PyErr::from_value(of_program.call1((class, e.to_string()))?))
}
