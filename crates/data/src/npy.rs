//! NumPy's `.npy` files: one array, as a header in Python's notation followed by the values.
//!
//! The crate has its own reader because malformed headers must result in an error, and because values must be
//! usable in place from a mapped file. In written files the values start at a multiple of 64 bytes.
use super::{
    scalar::{Scalar, ScalarType},
    text::counted,
};
use bytemuck::Pod;
use half::{bf16, f16};
use memmap2::Mmap;
use std::{
    fs::File,
    io::{BufWriter, Write},
    marker::PhantomData,
    path::{Path, PathBuf},
    sync::Arc,
};
use tgnn::error::{Error, Result};

const MAGIC: &[u8] = b"\x93NUMPY";
/// Alignment in bytes of the first value in a written file, enough for any vector unit once the file is
/// mapped.
const ALIGN: usize = 64;

/// A mapped `.npy` file with numbers.
#[doc(hidden)]
#[derive(Debug)]
pub struct Array {
    path: PathBuf,
    map: Arc<Mmap>,
    start: usize,
    values: ScalarType,
    fortran: bool,
    shape: Vec<usize>,
    len: usize,
}

impl Array {
    /// Maps a file and checks its header against its length.
    #[doc(hidden)]
    pub fn open(path: &Path) -> Result<Self> {
        Self::in_map(path, mapped(path)?)
    }

    /// Checks the header of the bytes of a file, of which errors say that it is at `path`.
    pub(crate) fn in_map(path: &Path, map: Mmap) -> Result<Self> {
        let header = Header::parse(path, &map)?;
        let values = ScalarType::parse(&header.descr).ok_or_else(|| not_numbers(path, &header.descr))?;
        let len = header.check_count(path, &map, values.size)?;
        let Header { start, fortran, shape, .. } = header;
        Ok(Array { path: path.into(), map: Arc::new(map), start, values, fortran, shape, len })
    }

    /// Returns the path that errors name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the sizes of the axes.
    #[doc(hidden)]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns value `i` in the order of the file; `i` is below the product of the shape.
    pub(crate) fn scalar(&self, i: usize) -> Scalar {
        self.values.read(&self.map[self.start + i * self.values.size..][..self.values.size])
    }

    /// Returns the values of a vector, of shape `[n]` or `[n, 1]`.
    pub(crate) fn vector(&self) -> Result<impl ExactSizeIterator<Item = Scalar>> {
        check_vector(&self.path, &self.shape)?;
        Ok((0..self.len).map(|i| self.scalar(i)))
    }

    /// Whether timestamps of this type lose whole seconds.
    pub(crate) fn is_short_float(&self) -> bool {
        self.values.is_short_float()
    }

    /// Returns all values in C order.
    #[doc(hidden)]
    pub fn scalars(&self) -> impl ExactSizeIterator<Item = Scalar> {
        let (rows, cols) = match self.shape[..] {
            [rows, cols] if self.fortran => (rows, cols),
            _ => (1, self.len.max(1)),
        };
        (0..self.len).map(move |i| self.scalar(i % cols * rows + i / cols))
    }

    /// Returns all values as f32 in C order; values outside the range of f32 become infinite.
    pub(crate) fn to_f32(&self) -> Vec<f32> {
        self.scalars().map(Scalar::to_f32).collect()
    }

    /// Whether the last axis of the array is the one whose values are next to each other.
    pub(crate) fn is_c_order(&self) -> bool {
        !self.fortran || self.shape.len() < 2
    }

    /// Whether the values have the same layout in the file as a `[T]` in memory.
    fn is_plain<T: Element>(&self) -> bool {
        self.values.is_native(T::NAME) && self.is_c_order() && self.start.is_multiple_of(self.values.size)
    }

    /// Returns the values of a vector, if they can be used in place.
    pub(crate) fn as_slice<T: Element>(&self) -> Option<&[T]> {
        matches!(self.shape[..], [_] | [_, 1]).then(|| self.plain()).flatten()
    }

    /// Returns all values in C order, if they can be used in place.
    pub(crate) fn plain<T: Element>(&self) -> Option<&[T]> {
        self.is_plain::<T>()
            .then(|| bytemuck::cast_slice(&self.map[self.start..][..self.len * self.values.size]))
    }

    /// Returns the map, the byte of the first value in it and the type of the values, if features can use
    /// them in place.
    pub(crate) fn mapped_features(&self) -> Option<(Arc<Mmap>, usize, ScalarType)> {
        let in_place = self.values.stored().is_some() && self.is_c_order() && self.len > 0;
        (in_place && self.start.is_multiple_of(self.values.size))
            .then(|| (self.map.clone(), self.start, self.values))
    }
}

/// Maps a file.
pub(crate) fn mapped(path: &Path) -> Result<Mmap> {
    let file = File::open(path).map_err(|e| Error::io(path, "cannot open", e))?;
    // SAFETY: the map is read-only. The contract of `Features::read` forbids that any process shortens or
    // rewrites the file meanwhile; the other arrays are copied and dropped before the caller returns.
    unsafe { Mmap::map(&file) }.map_err(|e| Error::io(path, "cannot map", e))
}

/// Checks that an array of `shape` is a vector: `[n]` or `[n, 1]`.
pub(crate) fn check_vector(path: &Path, shape: &[usize]) -> Result<()> {
    match shape {
        [_] | [_, 1] => Ok(()),
        _ => Err(Error::data(path, format!("an array of shape {shape:?} instead of a vector"))
            .remedy("save one value per event")),
    }
}

/// Returns the error for values of a type that is not read.
#[cold]
pub(crate) fn not_numbers(path: &Path, descr: &str) -> Error {
    let kind = descr.trim_start_matches(['<', '>', '=', '|']);
    let (what, remedy) = match kind.as_bytes().first() {
        Some(b'O') => ("are Python objects", "convert them, as in array.astype(float), and save them again"),
        Some(b'[') => ("are records", "save each field as an array of its own"),
        Some(b'M' | b'm') => ("are times, and this array holds numbers", "save numbers"),
        Some(b'U' | b'S') => ("are text, and this array holds numbers", "save numbers"),
        Some(b'c') => ("are complex numbers", "save the real numbers that you need"),
        _ => ("are not read", "save them as float64 or int64"),
    };
    Error::data(path, format!("values of type `{descr}` {what}")).remedy(remedy)
}

/// The header of a file.
pub(crate) struct Header {
    /// Type of the values, such as `<f4`.
    pub descr: String,
    pub fortran: bool,
    pub shape: Vec<usize>,
    /// Position of the first value in the file.
    pub start: usize,
}

impl Header {
    /// Parses the header at the beginning of `bytes`.
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        let bad = |what: &str| Error::data(path, what).remedy("write the array with numpy.save");
        let header_at = match bytes.get(..8) {
            Some([magic @ .., major, _]) if magic == MAGIC => 8 + if *major == 1 { 2 } else { 4 },
            _ => return Err(bad("this is not a .npy file")),
        };
        let len = bytes.get(8..header_at).map(|b| b.iter().rev().fold(0, |n, &b| n << 8 | usize::from(b)));
        let text = len.and_then(|n| bytes.get(header_at..header_at.checked_add(n)?));
        let text = text.and_then(|t| std::str::from_utf8(t).ok());
        let text = text.ok_or_else(|| bad("the header is cut short"))?;
        let value = |key| value(text, key).ok_or_else(|| bad(&format!("the header has no {key}")));
        let dims = value("shape")?.trim_matches(['(', ')']).split(',').map(str::trim);
        let dims = dims.filter(|d| !d.is_empty()).map(|d| d.trim_end_matches('L').parse().ok());
        let shape: Option<Vec<usize>> = dims.collect();
        Ok(Header {
            descr: value("descr")?.trim_matches(['\'', '"']).to_owned(),
            fortran: value("fortran_order")? == "True",
            shape: shape.ok_or_else(|| bad("the shape in the header is not a tuple of sizes"))?,
            start: header_at + text.len(),
        })
    }

    /// Returns the number of values, after a check that `bytes` has so many values of `size` bytes.
    pub(crate) fn check_count(&self, path: &Path, bytes: &[u8], size: usize) -> Result<usize> {
        let len = self.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let available = bytes.len().saturating_sub(self.start) / size.max(1);
        len.filter(|&len| len <= available).ok_or_else(|| {
            let has = counted(available as u64, "value");
            let what = format!("the file is cut short: shape {:?}, but {has} in the file", self.shape);
            Error::data(path, what).remedy("write the array with numpy.save")
        })
    }
}

/// Returns the value of `key` in a header: the text after `'key':`, up to the comma or bracket that ends it.
fn value<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let at = header.find(&format!("'{key}'"))? + key.len() + 2;
    let rest = header[at..].trim_start().strip_prefix(':')?.trim_start();
    let end = match rest.as_bytes().first()? {
        b'(' => rest.find(')')? + 1,
        b'[' => rest.find(']')? + 1,
        _ => rest.find([',', '}'])?,
    };
    Some(rest[..end].trim())
}

/// A type whose values are written with their layout in memory.
#[doc(hidden)]
pub trait Element: Pod {
    /// NumPy's name without the byte order.
    const NAME: &'static str;
}
impl Element for u32 {
    const NAME: &'static str = "u4";
}
impl Element for u64 {
    const NAME: &'static str = "u8";
}
impl Element for i32 {
    const NAME: &'static str = "i4";
}
impl Element for i64 {
    const NAME: &'static str = "i8";
}
impl Element for f32 {
    const NAME: &'static str = "f4";
}
impl Element for bf16 {
    const NAME: &'static str = "V2";
}
impl Element for f16 {
    const NAME: &'static str = "f2";
}

/// Writes an array in chunks; its shape is known in advance.
pub(crate) struct Writer<T> {
    path: PathBuf,
    file: BufWriter<File>,
    missing: usize,
    element: PhantomData<T>,
}

impl<T: Element> Writer<T> {
    /// Creates the file and writes the header.
    pub(crate) fn create(path: PathBuf, shape: &[usize]) -> Result<Self> {
        let file = File::create_new(&path).map_err(|e| Error::io(&path, "cannot create", e))?;
        let order = if cfg!(target_endian = "little") { '<' } else { '>' };
        let dims: String = shape.iter().map(|d| format!("{d}, ")).collect();
        let mut header = format!(
            "{{'descr': '{order}{}', 'fortran_order': False, 'shape': ({}), }}",
            T::NAME,
            if shape.len() == 1 { dims.trim_end() } else { dims.trim_end_matches(", ") }
        );
        let total = (10 + header.len() + 1).next_multiple_of(ALIGN);
        header.push_str(&" ".repeat(total - 10 - header.len() - 1));
        header.push('\n');
        let mut writer = Writer {
            file: BufWriter::with_capacity(256 << 10, file),
            missing: shape.iter().product(),
            path,
            element: PhantomData,
        };
        writer.write_bytes(
            &[MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat(),
        )?;
        Ok(writer)
    }

    /// Appends values.
    pub(crate) fn extend(&mut self, values: &[T]) -> Result<()> {
        self.missing = self.missing.checked_sub(values.len()).ok_or_else(|| self.miscounted("too many"))?;
        self.write_bytes(bytemuck::cast_slice(values))
    }

    /// Flushes everything to the disk.
    pub(crate) fn finish(mut self) -> Result<()> {
        if self.missing > 0 {
            return Err(self.miscounted("too few"));
        }
        self.file
            .flush()
            .and_then(|()| self.file.get_ref().sync_all())
            .map_err(|e| Error::io(&self.path, "cannot write", e))
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|e| Error::io(&self.path, "cannot write", e))
    }

    fn miscounted(&self, what: &str) -> Error {
        Error::shape("npy", format_args!("{what} values for {}", self.path.display()))
    }
}

/// Writes a whole array, or leaves no file.
#[doc(hidden)]
pub fn write<T: Element>(path: PathBuf, shape: &[usize], values: &[T]) -> Result<()> {
    let mut writer = Writer::create(path.clone(), shape)?;
    writer.extend(values).and_then(|()| writer.finish()).inspect_err(|_| {
        let _ = std::fs::remove_file(path);
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Features;
    use proptest::prelude::*;
    use tempfile::tempdir;
    use tgnn::runtime::StoredAs;

    /// Returns the content of a `.npy` file as `numpy.save` writes it.
    pub(crate) fn bytes(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
        let order = if fortran { "True" } else { "False" };
        let mut text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
        while (10 + text.len() + 1) % 64 != 0 {
            text.push(' ');
        }
        text.push('\n');
        [MAGIC, &[1, 0], &(text.len() as u16).to_le_bytes(), text.as_bytes(), data].concat()
    }

    fn read(content: &[u8]) -> Result<Features> {
        let dir = tempdir().unwrap();
        let path = dir.path().join("x.npy");
        std::fs::write(&path, content).unwrap();
        Features::read(&path)
    }

    #[test]
    fn a_written_array_reads_back_mapped_and_aligned() {
        let dir = tempdir().unwrap();
        let path = dir.path().join("x.npy");
        write(path.clone(), &[2, 3], &[1f32, 2., 3., 4., 5., 6.]).unwrap();
        let features = Features::read(&path).unwrap();
        assert_eq!((features.rows(), features.row(1)), (2, &[4., 5., 6.][..]));
        assert!(features.is_mapped());
        assert_eq!(features.values().as_ptr() as usize % ALIGN, 0);
        assert_eq!(features.skip_first().values(), [4., 5., 6.]);
    }

    #[test]
    fn every_number_type_is_converted() {
        let cases: [(&str, Vec<u8>); 9] = [
            ("|b1", vec![1, 0]),
            ("|i1", vec![1, 0]),
            ("<u2", vec![1, 0, 0, 0]),
            (">i4", vec![0, 0, 0, 1, 0, 0, 0, 0]),
            ("<i8", [1i64, 0].iter().flat_map(|v| v.to_le_bytes()).collect()),
            (">f2", [f16::ONE, f16::ZERO].iter().flat_map(|v| v.to_be_bytes()).collect()),
            (">f4", [1f32, 0.].iter().flat_map(|v| v.to_be_bytes()).collect()),
            ("<f8", [1f64, 0.].iter().flat_map(|v| v.to_le_bytes()).collect()),
            (">f8", [1f64, 0.].iter().flat_map(|v| v.to_be_bytes()).collect()),
        ];
        for (descr, data) in cases {
            let features = read(&bytes(descr, false, "(2, 1)", &data)).unwrap();
            assert_eq!(features.values(), [1., 0.], "{descr}");
            assert!(!features.is_mapped(), "{descr}");
        }
        assert_eq!(read(&bytes("<i2", false, "(1,)", &(-7i16).to_le_bytes())).unwrap().values(), [-7.]);
    }

    #[test]
    fn numbers_of_16_bits_are_mapped_unchanged() {
        let f16s = [f16::ONE, f16::from_f32(-0.5)].map(f16::to_le_bytes).concat();
        let bf16s = [bf16::ONE, bf16::from_f32(-0.5)].map(bf16::to_le_bytes).concat();
        for (descr, data, kept) in [
            ("<f2", f16s, StoredAs::F16),
            ("<V2", bf16s.clone(), StoredAs::Bf16),
            ("|V2", bf16s, StoredAs::Bf16),
        ] {
            let features = read(&bytes(descr, false, "(2, 1)", &data)).unwrap();
            assert_eq!((features.kept(), features.bytes(), features.is_mapped()), (kept, &data[..], true));
            assert_eq!(features.values(), [1., -0.5], "{descr}");
            assert_eq!(features.stored_as(StoredAs::F32).unwrap().values(), [1., -0.5], "{descr}");
            assert_eq!(features.skip_first().values(), [-0.5], "{descr}");
        }
        let e =
            read(&bytes("<f2", false, "(2, 1)", &[f16::ONE, f16::INFINITY].map(f16::to_le_bytes).concat()));
        assert!(e.unwrap_err().to_string().contains("row 1, column 0 is inf"));
    }

    #[test]
    fn fortran_order_is_transposed() {
        let data: Vec<u8> = [1f32, 4., 2., 5., 3., 6.].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(read(&bytes("<f4", true, "(2, 3)", &data)).unwrap().values(), [1., 2., 3., 4., 5., 6.]);
    }

    #[test]
    fn damaged_arrays_are_errors_that_name_the_damage() {
        let whole = bytes("<f4", false, "(2, 2)", &[0; 16]);
        for (content, expected) in [
            (&b"hello"[..], "not a .npy file"),
            (&whole[..40], "cut short"),
            (&whole[..whole.len() - 1], "shape [2, 2], but 3 values"),
            (&bytes("<U4", false, "(2, 2)", &[0; 64]), "`<U4`".trim_matches('`')),
            (&bytes("<f4", false, "(4294967296, 4294967296, 2)", &[0; 64]), "cut short"),
            (&bytes("<f4", false, "(-1, 2)", &[0; 64]), "not a tuple of sizes"),
            (&bytes("<f4", false, "(2, 2, 1)", &[0; 16]), "features of shape [2, 2, 1]"),
            (
                &bytes("<f8", false, "(1, 2)", &[[0; 8], f64::MAX.to_le_bytes()].concat()),
                "row 0, column 1 is inf",
            ),
            (
                &bytes("<f4", false, "(2,)", &[[0; 4], f32::NAN.to_le_bytes()].concat()),
                "row 1, column 0 is NaN",
            ),
        ] {
            let e = read(content).unwrap_err().to_string();
            assert!(e.contains(expected), "{e}");
        }
    }

    proptest! {
        #[test]
        fn no_header_panics(text in "[ -~]{0,80}", tail in proptest::collection::vec(any::<u8>(), 0..40)) {
            let len = (text.len() as u16).to_le_bytes();
            let _ = read(&[MAGIC, &[1, 0], &len, text.as_bytes(), &tail].concat());
        }
    }
}
