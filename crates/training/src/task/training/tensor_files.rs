//! Files of tensors (safetensors) with a checksum.
use super::folder::{USE_A_COPY, place, unread, unwritten};
use safetensors::{
    Dtype, SafeTensorError, SafeTensors, serialize_to_file,
    tensor::{Metadata, TensorInfo, TensorView},
};
use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::{BufferId, DType, Precision, Store},
};

/// Longest description of the tensors of a file, in bytes, as the format allows.
const LONGEST_HEADER: u64 = 100_000_000;

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

/// A tensor of a file: name, type, shape and bytes.
pub(in crate::task) type Tensor<'a> = (&'a str, Dtype, Vec<usize>, &'a [u8]);

/// Writes a file of tensors into `folder`, atomically, under the name that `path` gives it by its checksum.
/// Returns path and checksum. Once this returns, a power cut loses nothing of it. Takes no memory for a copy
/// of the tensors.
pub(super) fn write_tensors<'a>(
    folder: &Path,
    tensors: impl IntoIterator<Item = Tensor<'a>>,
    path: impl FnOnce(u32) -> PathBuf,
) -> Result<(PathBuf, u32)> {
    let unwritable = |e| bad(folder, "cannot write the tensors of a checkpoint").caused_by(e);
    let views = tensors
        .into_iter()
        .map(|(name, dtype, shape, bytes)| TensorView::new(dtype, shape, bytes).map(|view| (name, view)));
    let views = views.collect::<Result<Vec<_>, _>>().map_err(unwritable)?;
    let beside = folder.join("state.partial");
    serialize_to_file(views, None, &beside).map_err(|e| match e {
        SafeTensorError::IoError(e) => unwritten(e, &beside, &beside),
        other => unwritable(other),
    })?;
    let (file, sum) = read_back(&beside).map_err(|e| unwritten(e, &beside, &beside))?;
    let path = path(sum);
    place(&file, &beside, &path).map_err(|e| unwritten(e, &beside, &path))?;
    Ok((path, sum))
}

/// Opens a file and returns the CRC-32 of what is in it.
fn read_back(path: &Path) -> io::Result<(File, u32)> {
    let (mut file, mut sum, mut part) = (File::open(path)?, crc32fast::Hasher::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut part) {
            Ok(0) => break,
            Ok(n) => sum.update(&part[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    file.rewind()?;
    Ok((file, sum.finalize()))
}

/// Returns the error of a file with another checksum than its manifest says.
fn other_sum(path: &Path) -> Error {
    bad(path, "the file does not match its manifest: it is truncated or was changed").remedy(USE_A_COPY)
}

/// Reads the file `path`, which must have the checksum `sum`.
pub(super) fn checked(path: &Path, sum: u32) -> Result<Vec<u8>> {
    let bytes = fs::read(path).map_err(|e| unread(path, e))?;
    if crc(&bytes) == sum { Ok(bytes) } else { Err(other_sum(path)) }
}

/// A file of tensors that has the checksum of its manifest. Its tensors are read one by one, straight to
/// where they are wanted.
pub(super) struct TensorFile {
    path: PathBuf,
    file: File,
    tensors: Metadata,
    /// Where the bytes of the tensors begin.
    start: u64,
}

impl TensorFile {
    /// Opens the file `path`, which must have the checksum `sum`.
    pub(super) fn open(path: &Path, sum: u32) -> Result<Self> {
        let (mut file, found) = read_back(path).map_err(|e| unread(path, e))?;
        if found != sum {
            return Err(other_sum(path));
        }
        let mut read = |to: &mut [u8]| file.read_exact(to).map_err(|e| unread(path, e));
        let mut length = [0; 8];
        read(&mut length)?;
        let length = u64::from_le_bytes(length).min(LONGEST_HEADER);
        let mut header = vec![0; length as usize];
        read(&mut header)?;
        let tensors =
            serde_json::from_slice(&header).map_err(|e| bad(path, "the file is damaged").caused_by(e))?;
        Ok(TensorFile { path: path.to_owned(), file, tensors, start: 8 + length })
    }
    /// Returns type, shape and place of a tensor.
    pub(super) fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.info(name)
    }
    /// Reads the bytes of a tensor of that size.
    pub(super) fn read(&mut self, name: &str, to: &mut [u8]) -> Result<()> {
        let of_size = |info: &&TensorInfo| info.data_offsets.1 - info.data_offsets.0 == to.len();
        let Some(info) = self.tensors.info(name).filter(of_size) else {
            return Err(bad(&self.path, format!("`{name}` is missing, or of another size"))
                .remedy("the checkpoint is of another model or other data"));
        };
        let at = SeekFrom::Start(self.start + info.data_offsets.0 as u64);
        let read = self.file.seek(at).and_then(|_| self.file.read_exact(to));
        read.map_err(|e| unread(&self.path, e))
    }
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
