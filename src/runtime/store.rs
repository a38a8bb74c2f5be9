//! Buffers that outlive a step.
//!
//! A buffer may have a copy on a device. A change of one side makes the other stale: the host's changes are
//! uploaded when a program runs, the device's changes are downloaded by [`Store::fetch`].
use super::{
    brief_debug,
    cuda::{CudaStream, DeviceBuffer, Gpu, PinnedBuffer},
    memory::{self, prefer_huge_pages},
    spec::{DType, Element, Precision, Real, Spec},
};
use crate::error::{Error, ErrorKind, Result, ensure};
use half::{bf16, f16};
use std::{
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// A buffer of a [`Store`]. Other stores refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId {
    store: StoreId,
    at: usize,
}

/// Identifies a store, uniquely in the process: an id is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StoreId(u64);

impl StoreId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        StoreId(NEXT.fetch_add(1, Relaxed))
    }
}

/// Memory owned elsewhere: a memory-mapped file, a table shared between stores.
///
/// # Safety
/// While the value lives, every call of `bytes` must return the same bytes at the same address, and they must
/// not change: programs read them from any thread, also between calls. Size, type and alignment are checked
/// by [`Store::table`].
///
/// ```compile_fail,E0200
/// struct Mine(std::cell::RefCell<Vec<u8>>); // an implementation makes a promise that cannot be checked
/// unsafe impl Sync for Mine {}
/// impl tgnn::runtime::Bytes for Mine {
///     fn bytes(&self) -> &[u8] { &[] }
///     fn dtype(&self) -> tgnn::runtime::DType { tgnn::runtime::DType::F32 }
/// }
/// ```
pub unsafe trait Bytes: Send + Sync {
    /// Returns the bytes.
    fn bytes(&self) -> &[u8];
    /// Returns the element type of the bytes.
    fn dtype(&self) -> DType;
    /// Returns whether the bytes are those of a file, which the system reads when they are used and drops
    /// when memory is short.
    fn is_mapped(&self) -> bool {
        false
    }
}
// SAFETY: the elements of a `Vec` change or move only through `&mut self`, and a store holds it behind an
// `Arc`.
unsafe impl<T: Element> Bytes for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }
    fn dtype(&self) -> DType {
        T::DTYPE
    }
}

/// Returns every `step`-th row of a table of `cols` columns, from row `first` on: `len` elements.
fn picked<T: Element>(
    table: &[u8],
    (first, step): (usize, usize),
    (cols, len): (usize, usize),
) -> Arc<dyn Bytes> {
    let all: &[T] = bytemuck::cast_slice(table);
    let mut rows = Vec::with_capacity(len);
    all.chunks_exact(cols.max(1)).skip(first).step_by(step).for_each(|row| rows.extend_from_slice(row));
    Arc::new(rows)
}

enum Data {
    Own(memory::OwnBytes),
    Shared(Arc<dyn Bytes>),
}

impl Data {
    fn bytes(&self) -> &[u8] {
        match self {
            Data::Own(b) => b,
            Data::Shared(b) => b.bytes(),
        }
    }
    /// Returns the address that programs read from, and write to if the buffer is `Own`.
    fn address(&self) -> *mut u8 {
        match self {
            Data::Own(b) => b.address(),
            Data::Shared(b) => b.bytes().as_ptr().cast_mut(),
        }
    }
}

struct Buffer {
    name: String,
    spec: Spec,
    data: Data,
    copy: DeviceCopy,
    newer: Newer,
    /// The value of all bytes on the host, if known. A device then fills its copy by itself.
    every_byte: Option<u8>,
}

/// The device's copy of a buffer.
enum DeviceCopy {
    /// No copy yet.
    None,
    Device(DeviceBuffer),
    /// No copy yet; the device is to use host memory.
    OnHost,
    Pinned(PinnedBuffer),
}

/// The side of a buffer with changes that the other side does not have yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Newer {
    Neither,
    Host,
    Device,
}

impl Buffer {
    /// Refuses a buffer whose host side is stale.
    fn fresh(&self) -> Result<&Self> {
        if self.newer == Newer::Device {
            let what = format!("{} was changed on the device", self.name);
            return Err(Error::new(ErrorKind::Shape, what).remedy("call `Store::fetch` before reading it"));
        }
        Ok(self)
    }
    /// Returns the bytes of a writable buffer, and marks the host side as changed.
    fn changed(&mut self) -> Result<&mut [u8]> {
        let Data::Own(bytes) = &mut self.data else {
            return Err(Error::shape(&self.name, "is a table, which is read-only"));
        };
        (self.newer, self.every_byte) = (Newer::Host, None);
        Ok(bytes)
    }
    /// Sets every byte of a writable buffer.
    fn fill(&mut self, value: u8) -> Result<()> {
        let before = self.every_byte;
        let bytes = self.changed()?;
        if before != Some(value) {
            bytes.fill(value);
        }
        self.every_byte = Some(value);
        Ok(())
    }
    /// Refuses elements of a type other than the buffer's.
    fn holds<T: Element>(&self, precision: Precision) -> Result<()> {
        let (dtype, name) = (self.spec.dtype, std::any::type_name::<T>());
        ensure!(&self.name, dtype.holds::<T>(precision), "holds {dtype:?} of {precision:?}, not {name}");
        Ok(())
    }
}

/// What a tape needs to know of a buffer.
#[derive(Clone, Copy)]
pub(crate) struct BufferInfo {
    pub spec: Spec,
    /// Whether programs may write it.
    pub writable: bool,
    /// Whether devices use it in host memory.
    pub on_host: bool,
}

/// The buffers of a store, as its tapes see them.
#[derive(Clone)]
pub(crate) struct Listing {
    store: StoreId,
    buffers: Arc<Mutex<Vec<BufferInfo>>>,
}

impl Listing {
    /// Returns the store.
    pub fn store(&self) -> StoreId {
        self.store
    }
    /// Returns what is known of a buffer; `None` if it is another store's.
    pub fn find(&self, id: BufferId) -> Option<BufferInfo> {
        (id.store == self.store).then(|| self.lock()[id.at])
    }
    fn lock(&self) -> MutexGuard<'_, Vec<BufferInfo>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Named buffers: parameters, optimiser moments, node memory, mailbox, tables.
///
/// Several programs (training, validation) run over one store and so share its state; a program runs only
/// over the store of its tape. Addresses are stable from the first run on, as captured graphs require.
///
/// ```
/// use tgnn::runtime::*;
/// let mut store = Store::new(Precision::F32);
/// let id = store.values("x", Spec::real(Rows::fixed(2), 1), &[1.0f32, 2.0])?;
/// assert_eq!(store.read::<f32>(id)?, [1.0, 2.0]);
/// assert!(store.read::<u32>(id).is_err());
/// # Ok::<(), tgnn::error::Error>(())
/// ```
///
/// Methods that take a [`BufferId`] and do not return a `Result` panic if it belongs to another store.
pub struct Store {
    id: StoreId,
    precision: Precision,
    buffers: Vec<Buffer>,
    listing: Listing,
    /// The CUDA stream of copies from the device.
    copies: Option<CudaStream>,
}

brief_debug!(Store, s => { buffers: s.buffers.len(), precision: s.precision });

impl Store {
    /// Creates an empty store whose real numbers have the given precision.
    pub fn new(precision: Precision) -> Self {
        let id = StoreId::next();
        let listing = Listing { store: id, buffers: Arc::default() };
        Store { id, precision, buffers: Vec::new(), listing, copies: None }
    }
    /// Returns the identity of this store.
    pub(crate) fn id(&self) -> StoreId {
        self.id
    }
    /// Returns the list of the buffers, which stays up to date.
    pub(crate) fn listing(&self) -> &Listing {
        &self.listing
    }
    /// Returns the precision of real buffers.
    pub fn precision(&self) -> Precision {
        self.precision
    }
    fn find(&self, id: BufferId) -> Result<&Buffer> {
        if id.store != self.id {
            return Err(Error::shape("store", "the buffer is another store's"));
        }
        Ok(&self.buffers[id.at])
    }
    fn find_mut(&mut self, id: BufferId) -> Result<&mut Buffer> {
        self.find(id)?;
        Ok(&mut self.buffers[id.at])
    }
    fn buffer(&self, id: BufferId) -> &Buffer {
        assert_eq!(id.store, self.id, "the buffer is another store's");
        &self.buffers[id.at]
    }
    /// Adds a writable buffer of zeros.
    ///
    /// # Errors
    /// `Shape` if the size overflows; `OutOfMemory` if the system refuses the allocation.
    pub fn zeros(&mut self, name: impl Into<String>, spec: Spec) -> Result<BufferId> {
        let name = name.into();
        spec.check_size(&name)?;
        let bytes = memory::OwnBytes::zeros(spec.bytes(self.precision))?;
        let id = self.push(name, spec, Data::Own(bytes));
        self.buffers[id.at].every_byte = Some(0);
        Ok(id)
    }
    /// Adds a writable buffer with the contents `values`; real values are converted to the store's precision.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros) and [`write`](Self::write).
    pub fn values<T: Element>(
        &mut self,
        name: impl Into<String>,
        spec: Spec,
        values: &[T],
    ) -> Result<BufferId> {
        let name = name.into();
        spec.check_size(&name)?;
        fills(&name, spec, values)?;
        let id = self.zeros(name, spec)?;
        self.write(id, values)?;
        Ok(id)
    }
    /// Adds a read-only table without copying it (an f64 store converts f32, and so copies it).
    ///
    /// # Errors
    /// `Shape` if the table does not hold `spec.len()` elements of the spec's type, or is not aligned for
    /// them.
    pub fn table(&mut self, name: impl Into<String>, spec: Spec, table: Arc<dyn Bytes>) -> Result<BufferId> {
        let (name, bytes) = (name.into(), table.bytes());
        spec.check_size(&name)?;
        ensure!(&name, table.dtype() == spec.dtype, "a table of {:?} for {spec}", table.dtype());
        let (has, wants) = (bytes.len(), spec.bytes(Precision::F32));
        ensure!(&name, has == wants, "a table of {has} bytes for {spec}, which has {wants}");
        let size = spec.dtype.size(Precision::F32);
        let aligned = bytes.as_ptr().addr().is_multiple_of(size);
        ensure!(&name, aligned, "the table for {spec} is not aligned to {size} bytes");
        if (spec.dtype, self.precision) == (DType::F32, Precision::F64) {
            return self.values(name, spec, bytemuck::cast_slice::<u8, f32>(bytes));
        }
        prefer_huge_pages(bytes);
        Ok(self.push(name, spec, Data::Shared(table)))
    }
    fn push(&mut self, name: String, spec: Spec, data: Data) -> BufferId {
        let writable = !matches!(data, Data::Shared(_));
        self.listing.lock().push(BufferInfo { spec, writable, on_host: false });
        let (copy, newer, every_byte) = (DeviceCopy::None, Newer::Host, None);
        self.buffers.push(Buffer { name, spec, data, copy, newer, every_byte });
        BufferId { store: self.id, at: self.buffers.len() - 1 }
    }
    /// Gives a buffer the contents of one of `from`: their memory itself if both have one size, else a copy
    /// of the bytes that fit. The other buffer's contents are then of no meaning.
    ///
    /// # Errors
    /// `Shape` if a buffer is read-only, or the host side of the other one is stale.
    #[doc(hidden)]
    pub fn take(&mut self, to: BufferId, from: &mut Store, taken: BufferId) -> Result<()> {
        from.raw(taken)?;
        let (theirs, ours) = (from.raw_mut(taken)?, self.raw_mut(to)?);
        if theirs.len() != ours.len() {
            let n = theirs.len().min(ours.len());
            ours[..n].copy_from_slice(&theirs[..n]);
            return Ok(());
        }
        mem::swap(&mut self.buffers[to.at].data, &mut from.buffers[taken.at].data);
        Ok(())
    }
    /// Returns the bytes on the host that buffers can be written to, that are only read, and that are only
    /// read and stay in files.
    #[doc(hidden)]
    pub fn host_bytes(&self) -> [usize; 3] {
        let mut bytes = [0; 3];
        for buffer in &self.buffers {
            let at = match &buffer.data {
                Data::Own(_) => 0,
                Data::Shared(table) => 1 + usize::from(table.is_mapped()),
            };
            bytes[at] += buffer.data.bytes().len();
        }
        bytes
    }
    /// Returns the buffer's name.
    pub fn name(&self, id: BufferId) -> &str {
        &self.buffer(id).name
    }
    /// Returns the buffer's shape and type.
    pub fn spec(&self, id: BufferId) -> Spec {
        self.buffer(id).spec
    }
    /// Whether programs may write the buffer.
    #[doc(hidden)]
    pub fn is_writable(&self, id: BufferId) -> bool {
        !matches!(self.buffer(id).data, Data::Shared(_))
    }
    /// Keeps the buffer `id` out of device memory: devices read it over the bus, and write it if it is not a
    /// table, in a page-locked copy in host memory.
    ///
    /// # Errors
    /// `Shape` if the buffer already has a copy on a device.
    pub fn keep_on_host(&mut self, id: BufferId) -> Result<()> {
        let b = self.find_mut(id)?;
        let may = matches!(b.copy, DeviceCopy::None | DeviceCopy::OnHost);
        ensure!(&b.name, may, "cannot be kept on the host: a device already has a copy");
        b.copy = DeviceCopy::OnHost;
        self.listing.lock()[id.at].on_host = true;
        Ok(())
    }
    /// Replaces the table `id` by every `step`-th of its rows, from row `first` on.
    #[doc(hidden)]
    pub fn keep_rows(&mut self, id: BufferId, first: usize, step: usize) -> Result<()> {
        let b = self.find_mut(id)?;
        let may = matches!((&b.data, &b.copy), (Data::Shared(_), DeviceCopy::None | DeviceCopy::OnHost));
        ensure!(&b.name, may, "cannot lose rows: it is not a table, or a device already has a copy");
        if step <= 1 {
            return Ok(());
        }
        let (spec, bytes) = (b.spec, b.data.bytes());
        let left = Spec {
            rows: super::Rows::fixed(spec.rows.capacity.saturating_sub(first).div_ceil(step)),
            ..spec
        };
        let table = match spec.dtype {
            DType::F32 => picked::<f32>(bytes, (first, step), (spec.cols, left.len())),
            DType::Bf16 => picked::<bf16>(bytes, (first, step), (spec.cols, left.len())),
            DType::F16 => picked::<f16>(bytes, (first, step), (spec.cols, left.len())),
            _ => return Err(Error::shape(&b.name, format_args!("{spec} is no table of real numbers"))),
        };
        prefer_huge_pages(table.bytes());
        (b.spec, b.data) = (left, Data::Shared(table));
        self.listing.lock()[id.at].spec = left;
        Ok(())
    }
    /// Returns the elements of `id`.
    ///
    /// # Errors
    /// `Shape` if `T` is not the buffer's element type, the buffer belongs to another store, or it has
    /// changes on a device that have not been [fetched](Self::fetch).
    pub fn read<T: Element>(&self, id: BufferId) -> Result<&[T]> {
        let b = self.find(id)?;
        b.holds::<T>(self.precision)?;
        Ok(bytemuck::cast_slice(b.fresh()?.data.bytes()))
    }
    /// Returns the elements of a real buffer as f64, whatever the store's precision and the storage type.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_f64(&self, id: BufferId) -> Result<Vec<f64>> {
        Ok(match (self.find(id)?.spec.dtype, self.precision) {
            (DType::Bf16, _) => self.read::<bf16>(id)?.iter().map(|&x| x.into()).collect(),
            (DType::F16, _) => self.read::<f16>(id)?.iter().map(|&x| x.into()).collect(),
            (_, Precision::F32) => self.read::<f32>(id)?.iter().map(|&x| f64::from(x)).collect(),
            (_, Precision::F64) => self.read::<f64>(id)?.to_vec(),
        })
    }
    /// Returns the elements of `id` for writing.
    ///
    /// # Errors
    /// As [`read`](Self::read), and `Shape` if the buffer is a table.
    pub fn get_mut<T: Element>(&mut self, id: BufferId) -> Result<&mut [T]> {
        let precision = self.precision;
        let b = self.find_mut(id)?;
        b.holds::<T>(precision)?;
        b.fresh()?;
        Ok(bytemuck::cast_slice_mut(b.changed()?))
    }
    /// Overwrites `id`; real values are converted to the store's precision.
    ///
    /// # Errors
    /// `Shape` if type or number of the values differs from the buffer's, or the buffer is a table or belongs
    /// to another store.
    pub fn write<T: Element>(&mut self, id: BufferId, values: &[T]) -> Result<()> {
        let precision = self.precision;
        let b = self.find_mut(id)?;
        fills(&b.name, b.spec, values)?;
        let same = b.spec.dtype.holds::<T>(precision);
        let bytes = b.changed()?;
        if same {
            bytes.copy_from_slice(bytemuck::cast_slice(values));
        } else if size_of::<T>() == 4 {
            let (to, from): (&mut [f64], &[f32]) =
                (bytemuck::cast_slice_mut(bytes), bytemuck::cast_slice(values));
            to.iter_mut().zip(from).for_each(|(d, &s)| *d = f64::from(s));
        } else {
            let (to, from): (&mut [f32], &[f64]) =
                (bytemuck::cast_slice_mut(bytes), bytemuck::cast_slice(values));
            to.iter_mut().zip(from).for_each(|(d, &s)| *d = f32::from_f64(s));
        }
        Ok(())
    }
    /// Sets every element to `value`.
    ///
    /// # Errors
    /// `Shape` if `T` is not the buffer's element type, or the buffer is a table or belongs to another store.
    pub fn fill<T: Element>(&mut self, id: BufferId, value: T) -> Result<()> {
        let precision = self.precision;
        let b = self.find_mut(id)?;
        b.holds::<T>(precision)?;
        match bytemuck::bytes_of(&value) {
            [first, others @ ..] if others.iter().all(|byte| byte == first) => b.fill(*first),
            _ => {
                bytemuck::cast_slice_mut(b.changed()?).fill(value);
                Ok(())
            }
        }
    }
    /// Sets every byte to zero.
    ///
    /// # Errors
    /// `Shape` if the buffer is a table or belongs to another store.
    pub fn clear(&mut self, id: BufferId) -> Result<()> {
        self.find_mut(id)?.fill(0)
    }
    /// Returns the raw bytes of a buffer, for checkpoints.
    ///
    /// # Errors
    /// `Shape` if the buffer belongs to another store, or has changes on a device that have not been
    /// [fetched](Self::fetch).
    pub fn raw(&self, id: BufferId) -> Result<&[u8]> {
        Ok(self.find(id)?.fresh()?.data.bytes())
    }
    /// Returns the raw bytes of a writable buffer, all to be overwritten, for checkpoints.
    ///
    /// # Errors
    /// `Shape` if the buffer is a table or belongs to another store.
    pub fn raw_mut(&mut self, id: BufferId) -> Result<&mut [u8]> {
        self.find_mut(id)?.changed()
    }
    /// Copies the device's changes of `ids` back to the host.
    ///
    /// # Errors
    /// `Device` if a copy fails; `Shape` if a buffer belongs to another store.
    pub fn fetch(&mut self, ids: &[BufferId]) -> Result<()> {
        ids.iter().try_for_each(|&id| self.fetch_one(id))
    }
    fn fetch_one(&mut self, id: BufferId) -> Result<()> {
        self.find(id)?;
        let b = &mut self.buffers[id.at];
        let (Newer::Device, Data::Own(bytes)) = (b.newer, &mut b.data) else { return Ok(()) };
        b.every_byte = None;
        let gpu = match &b.copy {
            DeviceCopy::Device(copy) => copy.gpu(),
            DeviceCopy::Pinned(copy) => copy.gpu(),
            DeviceCopy::None | DeviceCopy::OnHost => return Ok(()),
        };
        let stream = match &mut self.copies {
            Some(s) => s,
            none => none.insert(CudaStream::new(gpu)?),
        };
        match &b.copy {
            DeviceCopy::Device(copy) => copy.download(bytes, stream)?,
            DeviceCopy::Pinned(copy) => copy.download(bytes, stream)?,
            DeviceCopy::None | DeviceCopy::OnHost => {}
        }
        b.newer = Newer::Neither;
        Ok(())
    }
    /// Returns the address of `id` for kernels, after uploading the host's changes in the order of `stream`,
    /// or filling the device's copy.
    /// The first call creates the device's copy.
    pub(crate) fn on_device(&mut self, id: BufferId, gpu: &Gpu, stream: &CudaStream) -> Result<u64> {
        let b = self.find_mut(id)?;
        match &b.copy {
            DeviceCopy::None => b.copy = DeviceCopy::Device(DeviceBuffer::new(gpu, b.data.bytes().len())?),
            DeviceCopy::OnHost => {
                b.copy = DeviceCopy::Pinned(PinnedBuffer::new(gpu, b.data.bytes())?);
                b.newer = Newer::Neither;
            }
            DeviceCopy::Device(_) | DeviceCopy::Pinned(_) => {}
        }
        match &mut b.copy {
            DeviceCopy::Device(copy) => {
                if copy.gpu().ordinal() != gpu.ordinal() {
                    let what = format!("{} is on {:?}, the program on {gpu:?}", b.name, copy.gpu());
                    return Err(Error::new(ErrorKind::Device, what).remedy("give each device its own store"));
                }
                if b.newer == Newer::Host {
                    match b.every_byte {
                        Some(value) => copy.fill(value, stream)?,
                        None => gpu.phases().time("upload", || copy.upload(b.data.bytes(), stream))?,
                    }
                    b.newer = Newer::Neither;
                }
                Ok(copy.address())
            }
            DeviceCopy::Pinned(copy) => {
                if b.newer == Newer::Host {
                    gpu.phases().time("upload", || copy.upload(b.data.bytes(), stream))?;
                    b.newer = Newer::Neither;
                }
                Ok(copy.address())
            }
            DeviceCopy::None | DeviceCopy::OnHost => unreachable!("the copy was just created"),
        }
    }
    /// Records that a program changed `id` on the device.
    pub(crate) fn changed_on_device(&mut self, id: BufferId) {
        self.buffers[id.at].newer = Newer::Device;
    }
    /// Returns the address at which a host program reads `id`, and writes it if it may.
    pub(crate) fn address(&mut self, id: BufferId) -> Result<*mut u8> {
        let b = self.find_mut(id)?;
        b.fresh()?;
        // Even if the program only reads the buffer: the store does not know whether it writes.
        (b.newer, b.every_byte) = (Newer::Host, None);
        Ok(b.data.address())
    }
}

/// Refuses values whose type or number differs from `spec`.
fn fills<T: Element>(name: &str, spec: Spec, values: &[T]) -> Result<()> {
    let (want, has, len) = (spec.dtype, T::DTYPE, values.len());
    ensure!(name, (has, len) == (want, spec.len()), "{len} values of {has:?} for {spec}");
    Ok(())
}
