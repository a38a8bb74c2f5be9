//! Features: one row of numbers per event or node.
use super::{
    matrix::{MappedMatrix, matrix_shape},
    npy, torch,
};
use bytemuck::Pod;
use half::{bf16, f16};
use memmap2::Mmap;
use rayon::prelude::*;
use std::{
    fmt,
    path::Path,
    sync::{Arc, OnceLock},
};
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::{Bytes, DType, StoredAs, check_room},
};

/// A `[rows, cols]` matrix of numbers stored as f32, f16 or bfloat16, row-major. The values are owned, shared
/// with the caller, or mapped from a file, so that rows are read from disk on first use.
///
/// Clones share the values. The constructors check that all values are finite, except
/// [`with_unknown`](Self::with_unknown), which allows NaN.
#[derive(Clone)]
pub struct Features {
    rows: usize,
    cols: usize,
    /// Index of the first value in the store, in values.
    start: usize,
    kept: StoredAs,
    store: Store,
    /// 16-bit values converted to f32, filled by the first call of [`values`](Features::values).
    wide: Arc<OnceLock<Vec<f32>>>,
}

#[derive(Clone)]
enum Store {
    Owned(Arc<Vec<f32>>),
    Half(Arc<Vec<u16>>),
    /// Values aligned for their type and in this machine's byte order.
    Mapped(Arc<Mmap>),
    /// Values of the caller, aligned for their type.
    Shared(Arc<dyn Bytes>),
}

// SAFETY: the values are behind an `Arc` and are never changed. As with every mapped file, no other process
// may write the file while it is mapped.
unsafe impl Bytes for Features {
    fn bytes(&self) -> &[u8] {
        Features::bytes(self)
    }
    fn dtype(&self) -> DType {
        self.kept.dtype()
    }
    fn is_mapped(&self) -> bool {
        match &self.store {
            Store::Mapped(_) => true,
            Store::Shared(values) => values.is_mapped(),
            Store::Owned(_) | Store::Half(_) => false,
        }
    }
}

/// Number of values that a thread converts or checks at a time.
const CHUNK: usize = 1 << 14;

impl Features {
    /// Builds features from row-major `values`.
    ///
    /// # Errors
    /// Shape if `values` does not hold `rows * cols` values or `cols` is 0; data if a value is not finite.
    pub fn from_vec(rows: usize, cols: usize, values: Vec<f32>) -> Result<Self> {
        if cols == 0 || rows.checked_mul(cols) != Some(values.len()) {
            return Err(Error::shape(
                "features",
                format_args!("{} values for [{rows}, {cols}]", values.len()),
            ));
        }
        let features = Self::owned(rows, cols, values);
        features.check_finite(Path::new("features"))?;
        Ok(features)
    }

    /// Builds features from row-major `values`, in which NaN marks unknown values.
    ///
    /// # Errors
    /// Those of [`from_vec`](Self::from_vec), except that NaN is allowed.
    pub fn with_unknown(rows: usize, cols: usize, values: Vec<f32>) -> Result<Self> {
        let known = values.iter().map(|v| if v.is_nan() { 0.0 } else { *v }).collect();
        Self::from_vec(rows, cols, known).map(|_| Self::owned(rows, cols, values))
    }

    /// Builds features from the bytes of their values in storage type `kept`, row-major.
    #[doc(hidden)]
    pub fn from_bytes((rows, cols): (usize, usize), kept: StoredAs, bytes: &[u8]) -> Result<Self> {
        let size = rows.checked_mul(cols).and_then(|n| n.checked_mul(kept.size()));
        if cols == 0 || size != Some(bytes.len()) {
            return Err(Error::shape("features", format_args!("{} bytes for [{rows}, {cols}]", bytes.len())));
        }
        let store = match kept {
            StoredAs::F32 => Store::Owned(Arc::new(bytemuck::pod_collect_to_vec(bytes))),
            StoredAs::Bf16 | StoredAs::F16 => Store::Half(Arc::new(bytemuck::pod_collect_to_vec(bytes))),
        };
        let features = Self::stored((rows, cols), 0, kept, store);
        features.check_finite(Path::new("features"))?;
        Ok(features)
    }

    /// Takes row-major values that are owned elsewhere, such as an array of another language, in place.
    ///
    /// # Errors
    /// Shape if `values` are not f32, f16 or bfloat16, are not aligned for their type, or are not
    /// `rows * cols` values, or `cols` is 0; data if a value is not finite.
    ///
    /// ```
    /// use tgnn_data::Features;
    /// let values = std::sync::Arc::new(vec![0.5f32, 1.0]);
    /// assert_eq!(Features::shared(2, 1, values)?.row(1), [1.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn shared(rows: usize, cols: usize, values: Arc<dyn Bytes>) -> Result<Self> {
        let (bytes, dtype) = (values.bytes(), values.dtype());
        let kept = StoredAs::ALL.into_iter().find(|kept| kept.dtype() == dtype);
        let size = |kept: StoredAs| rows.checked_mul(cols)?.checked_mul(kept.size());
        match kept.filter(|&kept| cols > 0 && size(kept) == Some(bytes.len())) {
            Some(kept) if bytes.as_ptr().addr().is_multiple_of(kept.size()) => {
                let features = Self::stored((rows, cols), 0, kept, Store::Shared(values));
                features.check_finite(Path::new("features"))?;
                Ok(features)
            }
            _ => {
                let what = format_args!("{} bytes of {dtype:?} for [{rows}, {cols}]", bytes.len());
                Err(Error::shape("features", what))
            }
        }
    }

    fn owned(rows: usize, cols: usize, values: Vec<f32>) -> Self {
        Self::stored((rows, cols), 0, StoredAs::F32, Store::Owned(Arc::new(values)))
    }

    fn stored((rows, cols): (usize, usize), start: usize, kept: StoredAs, store: Store) -> Self {
        Features { rows, cols, start, kept, store, wide: Arc::default() }
    }

    /// Reads a `.npy` file, or a `.pt` file with one contiguous tensor, of shape `[rows, cols]`, or `[rows]`
    /// for one column. Arrays may have any number type and be in C or Fortran order.
    ///
    /// Little-endian f32, f16 and bfloat16 (NumPy's `V2`) in C order are mapped and keep their type;
    /// everything else is converted to f32. The check for finite values reads every value once. While the
    /// features are alive, no process may shorten or rewrite a mapped file in place.
    ///
    /// # Errors
    /// Io if the file cannot be read; data if the file does not hold such an array, the array has no columns,
    /// or a value is not finite in f32.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let features = Self::read_unchecked(path.as_ref())?;
        features.check_finite(path.as_ref())?;
        Ok(features)
    }

    /// Reads a file as [`read`](Self::read) does, with 0 for NaN, which stands for a missing value. Also
    /// returns the row of every NaN, in ascending order.
    pub(super) fn read_filled(path: &Path) -> Result<(Self, Vec<usize>)> {
        let read = Self::read_unchecked(path)?;
        if read.first_not_finite().is_none() {
            return Ok((read, Vec::new()));
        }
        let mut values = read.values().to_vec();
        let missing: Vec<usize> = (0..values.len()).filter(|&i| values[i].is_nan()).collect();
        missing.iter().for_each(|&i| values[i] = 0.0);
        let filled = Self::owned(read.rows, read.cols, values);
        filled.check_finite(path)?;
        Ok((filled.stored_as(read.kept)?, missing.iter().map(|i| i / read.cols).collect()))
    }

    fn read_unchecked(path: &Path) -> Result<Self> {
        if torch::is_tensor(path)? { torch::read(path).map(Self::from_map) } else { Self::read_npy(path) }
    }

    fn read_npy(path: &Path) -> Result<Self> {
        let array = npy::Array::open(path)?;
        let (rows, cols) = matrix_shape(path, array.shape())?;
        Ok(match array.mapped_features() {
            Some((map, start, values)) => Self::from_map(MappedMatrix { map, start, values, rows, cols }),
            None => Self::owned(rows, cols, array.to_f32()),
        })
    }

    /// Takes the values of a mapped matrix: in place if their type and alignment allow, else converted to
    /// f32. The values are not checked.
    ///
    /// # Panics
    /// If a matrix that must be converted is not within its map.
    fn from_map(matrix: MappedMatrix) -> Self {
        let MappedMatrix { map, start, values, rows, cols } = matrix;
        if let Some(kept) = values.stored().filter(|_| start.is_multiple_of(values.size)) {
            return Self::stored((rows, cols), start / values.size, kept, Store::Mapped(map));
        }
        let bytes = &map[start..][..rows * cols * values.size];
        let owned = bytes.par_chunks_exact(values.size).map(|b| values.read(b).to_f32()).collect();
        Self::owned(rows, cols, owned)
    }

    /// Generates seeded noise of mean 0 and variance 1, close to normal: each value is a sum of four uniform
    /// numbers.
    ///
    /// Value `i` depends on `seed` and `i` alone. The values are therefore the same on every machine and for
    /// any number of threads, and a matrix with more rows begins with the rows of a smaller one.
    pub fn random(rows: usize, cols: usize, seed: u64) -> Self {
        let mut values = vec![0f32; rows * cols];
        values.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, out)| {
            let first = (chunk * CHUNK) as u64;
            for (i, value) in out.iter_mut().enumerate() {
                *value = noise(hash(seed, first + i as u64));
            }
        });
        Self::owned(rows, cols, values)
    }

    /// Returns the number of rows, one per event or node.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns: the width of a feature row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Returns the storage type of the values.
    pub fn kept(&self) -> StoredAs {
        self.kept
    }

    /// Returns the bytes of the values in their storage type, row-major.
    pub fn bytes(&self) -> &[u8] {
        let all: &[u8] = match &self.store {
            Store::Owned(values) => bytemuck::cast_slice(values),
            Store::Half(values) => bytemuck::cast_slice(values),
            Store::Mapped(map) => map,
            Store::Shared(values) => values.bytes(),
        };
        let size = self.kept.size();
        &all[self.start * size..(self.start + self.rows * self.cols) * size]
    }

    /// Returns all `rows * cols` values as f32, row-major. The first call converts 16-bit values into a copy,
    /// which takes twice their memory.
    pub fn values(&self) -> &[f32] {
        match self.kept {
            StoredAs::F32 => bytemuck::cast_slice(self.bytes()),
            _ => self.wide.get_or_init(|| self.widened()),
        }
    }

    /// Converts 16-bit values to f32.
    fn widened(&self) -> Vec<f32> {
        let bits: &[u16] = bytemuck::cast_slice(self.bytes());
        let mut values = vec![0f32; bits.len()];
        let chunks = values.par_chunks_mut(CHUNK).zip(bits.par_chunks(CHUNK));
        chunks.for_each(|(to, bits)| self.kept.widen(bits, to));
        values
    }

    /// Returns the same features with storage type `kept`, each value rounded to the nearest. Features that
    /// have this type already are shared, not copied.
    ///
    /// # Errors
    /// `Data` if a value is outside the range of `kept`; `OutOfMemory`.
    pub fn stored_as(&self, kept: StoredAs) -> Result<Self> {
        if kept == self.kept {
            return Ok(self.clone());
        }
        let bytes = kept.size() * self.rows * self.cols;
        check_room(&format!("features in {kept}"), bytes, "import them so: `data import --features-as`")?;
        if kept == StoredAs::F32 {
            return Ok(Self::owned(self.rows, self.cols, self.widened()));
        }
        let mut bits = vec![0u16; self.rows * self.cols];
        let size = CHUNK * self.kept.size();
        bits.par_chunks_mut(CHUNK).zip(self.bytes().par_chunks(size)).for_each(|(to, from)| {
            if self.kept == StoredAs::F32 {
                kept.round(bytemuck::cast_slice(from), to);
            } else {
                let mut values = [0f32; CHUNK];
                self.kept.widen(bytemuck::cast_slice(from), &mut values[..to.len()]);
                kept.round(&values[..to.len()], to);
            }
        });
        let rounded = Self::stored((self.rows, self.cols), 0, kept, Store::Half(Arc::new(bits)));
        match rounded.first_not_finite() {
            None => Ok(rounded),
            Some(i) => {
                let (row, col, value) = (i / self.cols, i % self.cols, self.value(i));
                let what = format!("the feature in row {row}, column {col} is {value}, too large for {kept}");
                Err(Error::new(ErrorKind::Data, what).remedy("store features as bf16 or f32"))
            }
        }
    }

    /// Returns value `i` in row-major order.
    fn value(&self, i: usize) -> f32 {
        let bytes = &self.bytes()[i * self.kept.size()..][..self.kept.size()];
        match self.kept {
            StoredAs::F32 => bytemuck::pod_read_unaligned(bytes),
            kept => {
                let mut value = [0f32];
                kept.widen(&[bytemuck::pod_read_unaligned(bytes)], &mut value);
                value[0]
            }
        }
    }

    /// Returns the `cols` values of row `i` as f32.
    ///
    /// # Panics
    /// If `i` is not below [`rows`](Self::rows).
    pub fn row(&self, i: usize) -> &[f32] {
        &self.values()[i * self.cols..][..self.cols]
    }

    /// Whether the values are in a mapped file rather than in owned memory.
    pub fn is_mapped(&self) -> bool {
        matches!(self.store, Store::Mapped(_))
    }

    /// Returns the same features without row 0.
    pub(super) fn skip_first(mut self) -> Self {
        if self.rows > 0 {
            self.rows -= 1;
            self.start += self.cols;
            self.wide = Arc::default();
        }
        self
    }

    /// Returns new features whose row `k` is row `order[k]` of `self`.
    #[doc(hidden)]
    pub fn gather(&self, order: impl ExactSizeIterator<Item = usize>) -> Self {
        fn gather_rows<T: Pod>(
            from: &[u8],
            cols: usize,
            order: impl ExactSizeIterator<Item = usize>,
        ) -> Arc<Vec<T>> {
            let from: &[T] = bytemuck::cast_slice(from);
            let mut values = Vec::with_capacity(order.len() * cols);
            order.for_each(|i| values.extend_from_slice(&from[i * cols..][..cols]));
            Arc::new(values)
        }
        let (shape, from) = ((order.len(), self.cols), self.bytes());
        let store = match self.kept {
            StoredAs::F32 => Store::Owned(gather_rows(from, self.cols, order)),
            StoredAs::Bf16 | StoredAs::F16 => Store::Half(gather_rows(from, self.cols, order)),
        };
        Self::stored(shape, 0, self.kept, store)
    }

    /// Returns the index of the first value that is infinite or NaN.
    fn first_not_finite(&self) -> Option<usize> {
        let bytes = self.bytes();
        match self.kept {
            StoredAs::F32 => first_with::<u32>(bytemuck::cast_slice(bytes), f32::INFINITY.to_bits()),
            StoredAs::Bf16 => first_with::<u16>(bytemuck::cast_slice(bytes), bf16::INFINITY.to_bits()),
            StoredAs::F16 => first_with::<u16>(bytemuck::cast_slice(bytes), f16::INFINITY.to_bits()),
        }
    }

    /// Returns the size of the largest value, and its column; 0 if there are no values.
    pub(super) fn largest(&self) -> (f32, usize) {
        let bytes = self.bytes();
        let (at, bits) = match self.kept {
            StoredAs::F32 => largest::<u32>(bytemuck::cast_slice(bytes), !(1 << 31)),
            StoredAs::Bf16 | StoredAs::F16 => largest::<u16>(bytemuck::cast_slice(bytes), !(1 << 15)),
        };
        if bits == 0 { (0.0, 0) } else { (self.value(at).abs(), at % self.cols) }
    }

    fn check_finite(&self, path: &Path) -> Result<()> {
        match self.first_not_finite() {
            None => Ok(()),
            Some(i) => {
                let (row, col, value) = (i / self.cols, i % self.cols, self.value(i));
                Err(Error::data(path, format!("the feature in row {row}, column {col} is {value}"))
                    .remedy("features must be finite; rows and columns count from 0"))
            }
        }
    }
}

/// Returns the index of the first of `values` that has all bits of `exponent`, as the infinities and NaN do.
/// A whole chunk is tested without a branch, which the compiler turns into vector instructions.
fn first_with<T>(values: &[T], exponent: T) -> Option<usize>
where
    T: Copy + Eq + Sync + Send + std::ops::BitAnd<Output = T>,
{
    let has_all = |value: &T| *value & exponent == exponent;
    let any = |chunk: &[T]| chunk.iter().fold(false, |any, value| any | has_all(value));
    let start = CHUNK * values.par_chunks(CHUNK).position_first(any)?;
    values[start..].iter().position(has_all).map(|i| start + i)
}

/// Returns the place of the largest of `values` without their sign, and its bits. Floats are in the order of
/// their bits.
fn largest<T>(values: &[T], unsigned: T) -> (usize, u32)
where
    T: Copy + Ord + Default + Sync + Send + std::ops::BitAnd<Output = T> + Into<u32>,
{
    let of = |chunk: &[T]| chunk.iter().fold(T::default(), |most, value| most.max(*value & unsigned));
    let most = values.par_chunks(CHUNK).map(of).max().unwrap_or_default();
    let start = CHUNK * values.par_chunks(CHUNK).position_first(|chunk| of(chunk) == most).unwrap_or(0);
    let at = values[start..].iter().position(|value| *value & unsigned == most).unwrap_or(0);
    (start + at, most.into())
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let storage = if self.is_mapped() { "mapped" } else { "owned" };
        write!(f, "Features[{}, {}] {} {storage}", self.rows, self.cols, self.kept)
    }
}

impl PartialEq for Features {
    fn eq(&self, other: &Self) -> bool {
        (self.rows, self.cols, self.kept) == (other.rows, other.cols, other.kept)
            && self.bytes() == other.bytes()
    }
}

/// Returns 64 random bits for `counter` in the sequence of `seed`, by splitmix64, which is a bijection of the
/// counter and passes BigCrush.
pub(super) fn hash(seed: u64, counter: u64) -> u64 {
    let mut z = seed
        .wrapping_mul(0xd134_2543_de82_ef95)
        .wrapping_add(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(counter.wrapping_add(1)));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Maps 64 random bits to a number of mean 0 and variance 1: the scaled sum of four uniform 16-bit numbers.
pub(super) fn noise(bits: u64) -> f32 {
    let sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    // Mean 4 * 65535 / 2; variance 4 * (65536^2 - 1) / 12.
    (sum as f32 - 131_070.0) * (1.0 / 37_837.227)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_must_fill_the_shape_and_be_finite() {
        let f = Features::from_vec(2, 3, (0..6).map(|v| v as f32).collect()).unwrap();
        assert_eq!((f.rows(), f.cols(), f.row(1), f.is_mapped()), (2, 3, &[3., 4., 5.][..], false));
        assert!(Features::from_vec(2, 3, vec![0.; 5]).is_err());
        assert!(Features::from_vec(2, 0, vec![]).is_err());
        assert!(Features::from_vec(usize::MAX, 2, vec![0.; 5]).is_err());
        let e = Features::from_vec(2, 2, vec![0., 1., 2., f32::NAN]).unwrap_err().to_string();
        assert!(e.contains("row 1, column 1 is NaN"), "{e}");
    }

    #[test]
    fn the_first_value_that_is_not_finite_is_named_in_every_type_and_place() {
        let (rows, cols) = (3 * CHUNK / 7, 7);
        for kept in StoredAs::ALL {
            let fine = Features::random(rows, cols, 1).stored_as(kept).unwrap();
            for at in [0, CHUNK - 1, CHUNK, 2 * CHUNK + 5, rows * cols - 1] {
                for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut bytes = fine.bytes().to_vec();
                    // The last value is wrong, too, and is not the one that is named.
                    for i in [at, rows * cols - 1] {
                        let half = match kept {
                            StoredAs::F32 => None,
                            StoredAs::Bf16 => Some(bf16::from_f32(value).to_bits()),
                            StoredAs::F16 => Some(f16::from_f32(value).to_bits()),
                        };
                        match half {
                            Some(bits) => bytes[2 * i..][..2].copy_from_slice(&bits.to_ne_bytes()),
                            None => bytes[4 * i..][..4].copy_from_slice(&value.to_ne_bytes()),
                        }
                    }
                    let e = Features::from_bytes((rows, cols), kept, &bytes).unwrap_err().to_string();
                    let said = format!("row {}, column {} is {value}", at / cols, at % cols);
                    assert!(e.contains(&said), "{kept} {at}: {e}");
                }
            }
        }
        let largest = [f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-45, -0.0];
        assert!(Features::from_vec(5, 1, largest.to_vec()).is_ok());
    }

    #[test]
    fn a_clone_shares_the_values() {
        let f = Features::random(4, 4, 1);
        assert_eq!(f.values().as_ptr(), f.clone().values().as_ptr());
    }

    #[test]
    fn random_features_are_seeded_standardised_and_grow_by_rows() {
        let f = Features::random(5000, 20, 7);
        assert_eq!(f, Features::random(5000, 20, 7));
        assert_ne!(f, Features::random(5000, 20, 8));
        assert_eq!(f.row(3), Features::random(10, 20, 7).row(3));
        let n = f.values().len() as f64;
        let mean = f.values().iter().map(|&v| f64::from(v)).sum::<f64>() / n;
        let variance = f.values().iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / n;
        // Five standard errors at 100,000 values.
        assert!(mean.abs() < 0.016 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }

    #[test]
    fn rows_are_skipped_and_gathered() {
        let f = Features::from_vec(3, 1, vec![0., 1., 2.]).unwrap();
        assert_eq!(f.clone().skip_first().values(), [1., 2.]);
        assert_eq!(f.gather([2, 0, 2].into_iter()).values(), [2., 0., 2.]);
    }
}
