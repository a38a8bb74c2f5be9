//! PyTorch's `.pt` files with a single tensor, such as TGL's `edge_features.pt` and `node_features.pt`.
//!
//! Since PyTorch 1.6 such a file is a zip archive: `NAME/data.pkl` describes the tensor, and `NAME/data/0`
//! holds its values in the layout that they have in memory. Older files hold five pickles, followed by the
//! values. Only contiguous tensors are read.
use super::{
    matrix::{MappedMatrix, matrix_shape},
    pickle::{Pickle, Value},
    scalar::{ScalarKind, ScalarType},
};
use memmap2::Mmap;
use std::{fs::File, io::Read, ops::Range, path::Path, sync::Arc};
use tgnn::error::{Error, Result};

const ZIP: &[u8] = b"PK\x03\x04";
/// The value of the first pickle of the old layout, `0x1950a86a20f9469cfc6c`, in little-endian order.
const MAGIC: &[u8] = &[0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];
const REMEDY: &str =
    "save one tensor with torch.save(tensor.contiguous(), file), or an array with numpy.save";

/// Whether a file begins like one that `torch.save` wrote, in the current or the old layout.
pub(super) fn is_tensor(path: &Path) -> Result<bool> {
    let mut head = Vec::new();
    let file = File::open(path).map_err(|e| Error::io(path, "cannot open", e))?;
    file.take(ZIP.len() as u64).read_to_end(&mut head).map_err(|e| Error::io(path, "cannot read", e))?;
    Ok(head == ZIP || head.starts_with(&[0x80, 0x02]))
}

/// Reads a file for which [`is_tensor`] holds; the values are not checked.
pub(super) fn read(path: &Path) -> Result<MappedMatrix> {
    let file = File::open(path).map_err(|e| Error::io(path, "cannot open", e))?;
    // SAFETY: the map is read-only. The contract of `Features::read` forbids that any process shortens or
    // rewrites the file meanwhile.
    let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::io(path, "cannot map", e))?;
    let (tensor, stored) = if map.starts_with(ZIP) { read_zip(path, &map)? } else { read_old(path, &map)? };
    let bad = |what: String| Error::data(path, what).remedy(REMEDY);
    let (rows, cols) = matrix_shape(path, &tensor.shape)?;
    let contiguous = [vec![1], vec![cols, 1]].contains(&tensor.strides) || rows < 2;
    if !contiguous {
        return Err(bad(format!("the tensor is not contiguous: its strides are {:?}", tensor.strides)));
    }
    let bytes = |n: usize| n.checked_mul(tensor.values.size);
    let start = bytes(tensor.offset).and_then(|n| stored.start.checked_add(n));
    let length = rows.checked_mul(cols).and_then(bytes);
    let end = start.and_then(|start| start.checked_add(length?));
    match (start, end) {
        (Some(start), Some(end)) if end <= stored.end => {
            Ok(MappedMatrix { map: Arc::new(map), start, values: tensor.values, rows, cols })
        }
        _ => Err(bad(format!(
            "the file is cut short: a tensor of shape {:?}, but {} bytes",
            tensor.shape,
            stored.len()
        ))),
    }
}

/// The description of a tensor in a pickle.
struct Tensor {
    values: ScalarType,
    /// Name of the storage that holds the values.
    #[cfg_attr(not(feature = "formats"), expect(dead_code, reason = "only archives name their storages"))]
    storage: String,
    /// Index of the first value in the storage, in values.
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

/// Returns the tensor of a zip archive and the bytes of its storage.
#[cfg(feature = "formats")]
fn read_zip(path: &Path, map: &Mmap) -> Result<(Tensor, Range<usize>)> {
    use zip::{CompressionMethod, ZipArchive};
    let bad = |what: &str| Error::data(path, what).remedy(REMEDY);
    let damaged = |e: zip::result::ZipError| bad("the zip archive is damaged or cut short").caused_by(e);
    let mut archive = ZipArchive::new(std::io::Cursor::new(&map[..])).map_err(damaged)?;
    let names = archive.file_names().filter_map(|name| name.ok());
    let root = names.into_iter().find_map(|name| name.strip_suffix("data.pkl").map(str::to_owned));
    let root = root.ok_or_else(|| bad("the zip archive has no data.pkl"))?;
    let mut entry_range = |name: &str| -> Result<Range<usize>> {
        let entry = archive.by_name(&format!("{root}{name}")).map_err(damaged)?;
        let start = entry.data_start().and_then(|at| usize::try_from(at).ok());
        let range =
            start.and_then(|start| Some(start..start.checked_add(usize::try_from(entry.size()).ok()?)?));
        match range {
            Some(range) if entry.compression() == CompressionMethod::Stored && range.end <= map.len() => {
                Ok(range)
            }
            _ => Err(bad(&format!("{name} in the zip archive is compressed or cut short"))),
        }
    };
    let pickle = entry_range("data.pkl")?;
    let tensor = tensor(path, &Pickle::read(path, &map[pickle], 0)?)?;
    let stored = entry_range(&format!("data/{}", tensor.storage))?;
    Ok((tensor, stored))
}

#[cfg(not(feature = "formats"))]
fn read_zip(path: &Path, _: &Mmap) -> Result<(Tensor, Range<usize>)> {
    Err(super::text::needs_formats("a zip archive of torch.save").in_file(path))
}

/// Returns the tensor of a file in the old layout and the bytes of its storage.
fn read_old(path: &Path, map: &Mmap) -> Result<(Tensor, Range<usize>)> {
    let bad = |what: &str| Error::data(path, what).remedy(REMEDY);
    let magic = Pickle::read(path, map, 0)?;
    if magic.root != Value::Long(MAGIC) {
        return Err(bad("this file was not written by torch.save"));
    }
    let version = Pickle::read(path, map, magic.end)?;
    let machine = Pickle::read(path, map, version.end)?;
    let pickle = Pickle::read(path, map, machine.end)?;
    let tensor = tensor(path, &pickle)?;
    let storages = Pickle::read(path, map, pickle.end)?;
    if storages.members(storages.root).map(<[_]>::len) != Some(1) {
        return Err(bad("the file holds something other than one tensor"));
    }
    // The values follow their number, eight bytes.
    Ok((tensor, storages.end.saturating_add(8)..map.len()))
}

/// Returns the tensor that is the root of `pickle`.
fn tensor(path: &Path, pickle: &Pickle<'_>) -> Result<Tensor> {
    let bad = |what: &str| Error::data(path, what).remedy(REMEDY);
    let Some((call, &[stored, Value::Int(offset), shape, strides, ..])) =
        pickle.call(pickle.root).filter(|(c, _)| c.function == ("torch._utils", "_rebuild_tensor_v2"))
    else {
        return Err(bad("the file holds something other than one tensor"));
    };
    let sizes = |value| -> Option<Vec<usize>> {
        pickle.members(value)?.iter().map(|&n| usize::try_from(pickle.whole(n)?).ok()).collect()
    };
    let (Some(shape), Some(strides), Ok(offset)) = (sizes(shape), sizes(strides), usize::try_from(offset))
    else {
        return Err(pickle.error(pickle.root, &format!("{} has invalid sizes", call.function.1)));
    };
    let Some(&[Value::Text("storage"), kind, Value::Text(storage), ..]) = pickle.members(stored) else {
        return Err(pickle.error(pickle.root, "the tensor has no storage"));
    };
    let (_, kind) = pickle.global(kind).unwrap_or_default();
    let values = match kind {
        "FloatStorage" => ScalarType::new(ScalarKind::Float, 4),
        "DoubleStorage" => ScalarType::new(ScalarKind::Float, 8),
        "HalfStorage" => ScalarType::new(ScalarKind::Float, 2),
        "BFloat16Storage" => ScalarType::new(ScalarKind::Brain, 2),
        "LongStorage" => ScalarType::new(ScalarKind::Int, 8),
        "IntStorage" => ScalarType::new(ScalarKind::Int, 4),
        "ShortStorage" => ScalarType::new(ScalarKind::Int, 2),
        "CharStorage" => ScalarType::new(ScalarKind::Int, 1),
        "ByteStorage" => ScalarType::new(ScalarKind::Uint, 1),
        "BoolStorage" => ScalarType::new(ScalarKind::Bool, 1),
        other => return Err(bad(&format!("values of a `{other}` are not supported"))),
    };
    Ok(Tensor { values, storage: storage.to_owned(), offset, shape, strides })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Features;
    use proptest::prelude::*;
    use std::fs;

    const VALUES: [f32; 6] = [0., 0.5, 1., 1.5, 2., 2.5];

    fn path(name: &str) -> String {
        format!("../../tests/golden/foreign/{name}.pt")
    }

    fn read_bytes(bytes: &[u8]) -> Result<Features> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.pt");
        fs::write(&file, bytes).unwrap();
        Features::read(file)
    }

    #[test]
    fn tensors_of_every_type_and_layout_are_read() {
        for name in ["f32", "f64", "f16", "bf16", "part", "old"] {
            let features = Features::read(path(name)).unwrap();
            assert_eq!((features.rows(), features.cols(), features.values()), (2, 3, &VALUES[..]), "{name}");
            assert_eq!(features.is_mapped(), ["f32", "f16", "bf16", "part"].contains(&name), "{name}");
        }
        assert_eq!(Features::read(path("bool")).unwrap().values(), [0., 0., 0., 1., 1., 1.]);
    }

    #[test]
    fn files_without_one_contiguous_tensor_are_refused() {
        for (name, expected) in [
            ("transposed", "the tensor is not contiguous: its strides are [1, 2]; save one tensor"),
            ("dictionary", "the file holds something other than one tensor; save"),
        ] {
            let e = Features::read(path(name)).unwrap_err().to_string();
            assert!(e.starts_with(&format!("{}: {expected}", path(name))), "{e}");
        }
    }

    #[test]
    fn a_file_cut_short_anywhere_is_an_error() {
        for name in ["f32", "old"] {
            let bytes = fs::read(path(name)).unwrap();
            for n in 4..bytes.len() {
                let e = read_bytes(&bytes[..n]).unwrap_err();
                assert!(!e.to_string().contains('\n'), "{e}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_damage_panics(
            name in prop::sample::select(vec!["f32", "f64", "old"]),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut bytes = fs::read(path(name)).unwrap();
            for (at, with) in changes {
                let at = at.index(bytes.len());
                bytes[at] = with;
            }
            let _ = read_bytes(&bytes);
        }
    }
}
