//! PyTorch's `.pt` files that hold one tensor: TGL's `edge_features.pt` and `node_features.pt`.
//!
//! Since PyTorch 1.6 such a file is a zip archive: `NAME/data.pkl` says what the tensor is, `NAME/data/0` is its values,
//! as they lie in memory. Before, it was five pickles in a row and then the values. Only contiguous tensors are read.
use super::{
    features::{Features, shape},
    pickle::{Pickle, Value},
    scalar::{ScalarKind, ScalarType},
};
use crate::error::{Error, Result};
use memmap2::Mmap;
use std::{
    fs::File,
    io::{Cursor, Read},
    ops::Range,
    path::Path,
    sync::Arc,
};
use zip::{CompressionMethod, ZipArchive};

const ZIP: &[u8] = b"PK\x03\x04";
/// The first pickle of the old layout is `0x1950a86a20f9469cfc6c`.
const MAGIC: &[u8] = &[0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];
const REMEDY: &str =
    "save one tensor with torch.save(tensor.contiguous(), file), or an array with numpy.save";

/// Whether a file starts as `torch.save` starts it, in its layout of today or of old.
pub(super) fn is_tensor(path: &Path) -> Result<bool> {
    let mut head = Vec::new();
    let file = File::open(path).map_err(|e| Error::io(path, "cannot open", e))?;
    file.take(ZIP.len() as u64).read_to_end(&mut head).map_err(|e| Error::io(path, "cannot read", e))?;
    Ok(head == ZIP || head.starts_with(&[0x80, 0x02]))
}

/// Reads a file for which [`is_tensor`] holds; the values are not looked at.
pub(super) fn read(path: &Path) -> Result<Features> {
    let file = File::open(path).map_err(|e| Error::io(path, "cannot open", e))?;
    // SAFETY: the map is read-only. That nobody shortens or rewrites the file meanwhile is part of the contract of
    // `Features::read`.
    let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::io(path, "cannot map", e))?;
    let (tensor, stored) = if map.starts_with(ZIP) { zipped(path, &map)? } else { old(path, &map)? };
    let bad = |what: String| Error::data(path, what).remedy(REMEDY);
    let (rows, cols) = shape(path, &tensor.shape)?;
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
            Ok(Features::of_map(Arc::new(map), start, tensor.values, (rows, cols)))
        }
        _ => Err(bad(format!(
            "the file is cut short: a tensor of shape {:?}, but {} bytes",
            tensor.shape,
            stored.len()
        ))),
    }
}

/// What a pickle says of a tensor.
struct Tensor {
    values: ScalarType,
    /// The name of the storage that holds the values.
    storage: String,
    /// Where in it they start, counted in values.
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

/// The tensor of an archive, and where its values lie.
fn zipped(path: &Path, map: &Mmap) -> Result<(Tensor, Range<usize>)> {
    let bad = |what: &str| Error::data(path, what).remedy(REMEDY);
    let damaged = |e: zip::result::ZipError| bad("the zip archive is damaged or cut short").caused_by(e);
    let mut archive = ZipArchive::new(Cursor::new(&map[..])).map_err(damaged)?;
    let names = archive.file_names().filter_map(|name| name.ok());
    let root = names.into_iter().find_map(|name| name.strip_suffix("data.pkl").map(str::to_owned));
    let root = root.ok_or_else(|| bad("the zip archive holds no data.pkl"))?;
    let mut place = |name: &str| -> Result<Range<usize>> {
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
    let pickle = place("data.pkl")?;
    let tensor = tensor(path, &Pickle::read(path, &map[pickle], 0)?)?;
    let stored = place(&format!("data/{}", tensor.storage))?;
    Ok((tensor, stored))
}

/// The tensor of a file in the layout of old, and where its values lie.
fn old(path: &Path, map: &Mmap) -> Result<(Tensor, Range<usize>)> {
    let bad = |what: &str| Error::data(path, what).remedy(REMEDY);
    let magic = Pickle::read(path, map, 0)?;
    if magic.root != Value::Long(MAGIC) {
        return Err(bad("this is not a file of torch.save"));
    }
    let version = Pickle::read(path, map, magic.end)?;
    let machine = Pickle::read(path, map, version.end)?;
    let pickle = Pickle::read(path, map, machine.end)?;
    let tensor = tensor(path, &pickle)?;
    let storages = Pickle::read(path, map, pickle.end)?;
    if storages.members(storages.root).map(<[_]>::len) != Some(1) {
        return Err(bad("the file holds something else than one tensor"));
    }
    // The number of values goes before them.
    Ok((tensor, storages.end.saturating_add(8)..map.len()))
}

fn tensor(path: &Path, pickle: &Pickle<'_>) -> Result<Tensor> {
    let bad = |what: &str| Error::data(path, what).remedy(REMEDY);
    let Some((call, &[stored, Value::Int(offset), shape, strides, ..])) =
        pickle.call(pickle.root).filter(|(c, _)| c.function == ("torch._utils", "_rebuild_tensor_v2"))
    else {
        return Err(bad("the file holds something else than one tensor"));
    };
    let sizes = |value| -> Option<Vec<usize>> {
        pickle.members(value)?.iter().map(|&n| usize::try_from(pickle.whole(n)?).ok()).collect()
    };
    let (Some(shape), Some(strides), Ok(offset)) = (sizes(shape), sizes(strides), usize::try_from(offset))
    else {
        return Err(pickle.error(pickle.root, &format!("{} with sizes that are none", call.function.1)));
    };
    let Some(&[Value::Text("storage"), kind, Value::Text(storage), ..]) = pickle.members(stored) else {
        return Err(pickle.error(pickle.root, "a tensor without a storage"));
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
        other => return Err(bad(&format!("values of a `{other}` are not numbers that are read"))),
    };
    Ok(Tensor { values, storage: storage.to_owned(), offset, shape, strides })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    const VALUES: [f32; 6] = [0., 0.5, 1., 1.5, 2., 2.5];

    fn path(name: &str) -> String {
        format!("tests/golden/foreign/{name}.pt")
    }

    fn damaged(bytes: &[u8]) -> Result<Features> {
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
    fn what_is_no_contiguous_tensor_is_refused() {
        for (name, said) in [
            ("transposed", "the tensor is not contiguous: its strides are [1, 2]; save one tensor"),
            ("dictionary", "the file holds something else than one tensor; save"),
        ] {
            let e = Features::read(path(name)).unwrap_err().to_string();
            assert!(e.starts_with(&format!("{}: {said}", path(name))), "{e}");
        }
    }

    #[test]
    fn a_file_cut_short_anywhere_is_an_error() {
        for name in ["f32", "old"] {
            let bytes = fs::read(path(name)).unwrap();
            for n in 4..bytes.len() {
                let e = damaged(&bytes[..n]).unwrap_err();
                assert!(!e.to_string().contains('\n'), "{e}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_damage_panics(
            name in prop::sample::select(vec!["f32", "f64", "old"]),
            spots in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut bytes = fs::read(path(name)).unwrap();
            for (at, with) in spots {
                let at = at.index(bytes.len());
                bytes[at] = with;
            }
            let _ = damaged(&bytes);
        }
    }
}
