//! Files of tensors (safetensors) with a checksum.
use super::folder::USE_A_COPY;
use safetensors::{Dtype, SafeTensors};
use std::{fs, path::Path};
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::{BufferId, DType, Precision, Store},
};

/// Returns an error about a file of a checkpoint.
pub(super) fn bad(path: &Path, what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Checkpoint, what).in_file(path)
}

/// Returns the type that the values of a buffer have in a file.
pub(super) fn dtype_of(store: &Store, id: BufferId) -> Dtype {
    match (store.spec(id).dtype, store.precision()) {
        (DType::F32, Precision::F32) => Dtype::F32,
        (DType::F32, Precision::F64) => Dtype::F64,
        (DType::U32, _) => Dtype::U32,
        (DType::I64, _) => Dtype::I64,
        (DType::Bf16, _) => Dtype::BF16,
        (DType::F16, _) => Dtype::F16,
    }
}

/// Returns the CRC-32 of `bytes`.
pub(super) fn crc(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// Reads the file `path`, which must have the checksum `sum`.
pub(super) fn checked(path: &Path, sum: u32) -> Result<Vec<u8>> {
    let bytes = fs::read(path).map_err(|e| bad(path, "cannot read").caused_by(e).remedy(USE_A_COPY))?;
    if crc(&bytes) == sum {
        return Ok(bytes);
    }
    Err(bad(path, "the file does not match its manifest: it is truncated or was changed").remedy(USE_A_COPY))
}

/// Returns the bytes of the tensors of a file, one after another, given their names and numbers of bytes.
pub(super) fn tensor_bytes<'a>(
    path: &Path,
    file: &[u8],
    tensors: impl Iterator<Item = (&'a str, &'a usize)>,
) -> Result<Vec<u8>> {
    let file = SafeTensors::deserialize(file).map_err(|e| bad(path, "the file is damaged").caused_by(e))?;
    let mut bytes = Vec::new();
    for (name, &length) in tensors {
        match file.tensor(name) {
            Ok(view) if view.data().len() == length => bytes.extend_from_slice(view.data()),
            _ => {
                return Err(bad(path, format!("`{name}` is missing, or of another size"))
                    .remedy("the checkpoint is of another model or other data"));
            }
        }
    }
    Ok(bytes)
}

/// Loads parameters from a safetensors file by name: f32, `[rows, columns]`, or `[columns]` for one row; see
/// docs/weights.md. Other tensors in the file are ignored. Changes nothing unless every parameter fits.
///
/// # Errors
/// `Io` if the file cannot be read; `Checkpoint`, with the name of the parameter, if the file is damaged or
/// of another model.
pub fn import_weights(path: &Path, store: &mut Store, parameters: &[(String, BufferId)]) -> Result<()> {
    let bytes = fs::read(path).map_err(|e| Error::io(path, "cannot read", e))?;
    let file =
        SafeTensors::deserialize(&bytes).map_err(|e| bad(path, "not a safetensors file").caused_by(e))?;
    let mut views = Vec::new();
    for &(ref name, id) in parameters {
        let (rows, cols) = (store.spec(id).rows.capacity, store.spec(id).cols);
        let view = file.tensor(name).map_err(|_| {
            bad(path, format!("`{name}` is missing")).remedy("name the weights as docs/weights.md does")
        })?;
        let fits = view.shape() == [rows, cols] || (rows == 1 && view.shape() == [cols]);
        if view.dtype() != Dtype::F32 || !fits {
            let found = format!("`{name}` is {:?} {:?}", view.dtype(), view.shape());
            return Err(bad(path, found).remedy(format!("give F32 [{rows}, {cols}], or configure that size")));
        }
        views.push((id, view));
    }
    for (id, view) in views {
        store.raw_mut(id)?.copy_from_slice(view.data());
    }
    Ok(())
}
