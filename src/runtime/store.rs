//! Buffers that outlive a step.
//!
//! A buffer may have a copy on a device. Whoever changes one side makes the other old: the host's changes travel when a
//! program runs, the device's when somebody [fetches](Store::fetch) them.
use super::{
    cuda::{CudaStream, DeviceBuffer, Gpu, PinnedTable},
    memory::{self, prefer_huge_pages},
    spec::{DType, Element, Precision, Real, Spec},
};
use crate::error::{Error, ErrorKind, Result, ensure};
use half::{bf16, f16};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// A buffer of a [`Store`]. Other stores refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId {
    store: StoreId,
    at: usize,
}

impl BufferId {
    /// The store that it is of.
    pub(crate) fn store(self) -> StoreId {
        self.store
    }
}

/// Tells stores apart: no two have the same, even if one is gone before the other is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StoreId(u64);

impl StoreId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        StoreId(NEXT.fetch_add(1, Relaxed))
    }
}

/// Memory that somebody else keeps: a memory-mapped file, a table shared between stores.
///
/// # Safety
/// While the value lives, every call of `bytes` must return the same bytes at the same address, and nobody may change
/// them: programs read them from any thread, between calls too. Size, type and alignment are checked by [`Store::table`].
///
/// ```compile_fail,E0200
/// struct Mine(std::cell::RefCell<Vec<u8>>); // an implementation must promise what nobody can check
/// unsafe impl Sync for Mine {}
/// impl tgnn::runtime::Bytes for Mine {
///     fn bytes(&self) -> &[u8] { &[] }
///     fn dtype(&self) -> tgnn::runtime::DType { tgnn::runtime::DType::F32 }
/// }
/// ```
pub unsafe trait Bytes: Send + Sync {
    /// The bytes.
    fn bytes(&self) -> &[u8];
    /// What they are.
    fn dtype(&self) -> DType;
}
// SAFETY: only `&mut self` moves or changes the elements of a `Vec`, and a store has it behind an `Arc`.
unsafe impl<T: Element> Bytes for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }
    fn dtype(&self) -> DType {
        T::DTYPE
    }
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
    /// Where programs read it, and where they write what is its own.
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
}

/// What a device has of a buffer.
enum DeviceCopy {
    /// Nothing yet.
    None,
    Device(DeviceBuffer),
    /// Nothing yet, and it shall read the host's.
    OnHost,
    Pinned(PinnedTable),
}

/// Which side of a buffer the other one has not seen yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Newer {
    Neither,
    Host,
    Device,
}

impl Buffer {
    /// Refuses to show the host what is old.
    fn fresh(&self) -> Result<&Self> {
        if self.newer == Newer::Device {
            let what = format!("{} was changed on the device", self.name);
            return Err(Error::new(ErrorKind::Shape, what).remedy("fetch it before it is read"));
        }
        Ok(self)
    }
    /// The bytes of a writable buffer, to be changed.
    fn changed(&mut self) -> Result<&mut [u8]> {
        let Data::Own(bytes) = &mut self.data else {
            return Err(Error::shape(&self.name, "is a table, which nobody writes"));
        };
        self.newer = Newer::Host;
        Ok(bytes)
    }
    /// Refuses elements of another type than its own.
    fn holds<T: Element>(&self, precision: Precision) -> Result<()> {
        let (dtype, name) = (self.spec.dtype, std::any::type_name::<T>());
        ensure!(&self.name, dtype.holds::<T>(precision), "holds {dtype:?} of {precision:?}, not {name}");
        Ok(())
    }
}

/// Named buffers: parameters, optimiser moments, node memory, mailbox, tables.
///
/// Several programs (training, validation) run over one store and so share its state; a program runs over no other store than
/// its tape's. Addresses are stable from the first run on, as a captured graph needs.
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
/// Methods that take a [`BufferId`] and return no `Result` panic when it is another store's.
pub struct Store {
    id: StoreId,
    precision: Precision,
    buffers: Vec<Buffer>,
    /// What copies back are ordered by.
    copies: Option<CudaStream>,
}

impl Store {
    /// An empty store whose real numbers have the given precision.
    pub fn new(precision: Precision) -> Self {
        Store { id: StoreId::next(), precision, buffers: Vec::new(), copies: None }
    }
    /// What tells it from other stores.
    pub(crate) fn id(&self) -> StoreId {
        self.id
    }
    /// The precision of real buffers.
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
    fn of(&self, id: BufferId) -> &Buffer {
        assert_eq!(id.store, self.id, "the buffer is another store's");
        &self.buffers[id.at]
    }
    /// Adds a writable buffer of zeros.
    ///
    /// # Errors
    /// `Shape` where no memory has that size, `OutOfMemory` where this one does not.
    pub fn zeros(&mut self, name: impl Into<String>, spec: Spec) -> Result<BufferId> {
        let name = name.into();
        spec.check_size(&name)?;
        let bytes = memory::OwnBytes::zeros(spec.bytes(self.precision))?;
        Ok(self.push(name, spec, Data::Own(bytes)))
    }
    /// Adds a writable buffer that starts from `values`; reals are converted to the store's precision.
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
    /// Adds a read-only table without copying it (f32 is converted, and so copied, in an f64 store).
    ///
    /// # Errors
    /// `Shape` when the table does not hold `spec.len()` elements of the spec's type, or does not begin where such may.
    pub fn table(&mut self, name: impl Into<String>, spec: Spec, table: Arc<dyn Bytes>) -> Result<BufferId> {
        let (name, bytes) = (name.into(), table.bytes());
        spec.check_size(&name)?;
        ensure!(&name, table.dtype() == spec.dtype, "a table of {:?} for {spec}", table.dtype());
        let (has, wants) = (bytes.len(), spec.bytes(Precision::F32));
        ensure!(&name, has == wants, "a table of {has} bytes for {spec}, which has {wants}");
        let size = spec.dtype.size(Precision::F32);
        let aligned = bytes.as_ptr().addr().is_multiple_of(size);
        ensure!(&name, aligned, "the table of {spec} begins between two multiples of {size} bytes");
        if (spec.dtype, self.precision) == (DType::F32, Precision::F64) {
            return self.values(name, spec, bytemuck::cast_slice::<u8, f32>(bytes));
        }
        prefer_huge_pages(bytes);
        Ok(self.push(name, spec, Data::Shared(table)))
    }
    fn push(&mut self, name: String, spec: Spec, data: Data) -> BufferId {
        self.buffers.push(Buffer { name, spec, data, copy: DeviceCopy::None, newer: Newer::Host });
        BufferId { store: self.id, at: self.buffers.len() - 1 }
    }
    /// The buffer's name.
    pub fn name(&self, id: BufferId) -> &str {
        &self.of(id).name
    }
    /// The buffer's shape and type.
    pub fn spec(&self, id: BufferId) -> Spec {
        self.of(id).spec
    }
    /// Whether programs may write it.
    pub fn is_writable(&self, id: BufferId) -> bool {
        !matches!(self.of(id).data, Data::Shared(_))
    }
    /// Keeps the table `id` out of device memory: devices read it where it lies on the host, in a locked copy, over the bus.
    ///
    /// # Errors
    /// `Shape` when it is no table, or a device has it already.
    pub fn keep_on_host(&mut self, id: BufferId) -> Result<()> {
        let b = self.find_mut(id)?;
        let may = matches!((&b.data, &b.copy), (Data::Shared(_), DeviceCopy::None | DeviceCopy::OnHost));
        ensure!(&b.name, may, "cannot stay on the host: it is no table, or a device has it");
        b.copy = DeviceCopy::OnHost;
        Ok(())
    }
    /// Whether devices read it where it lies on the host.
    pub fn is_on_host(&self, id: BufferId) -> bool {
        matches!(self.of(id).copy, DeviceCopy::OnHost | DeviceCopy::Pinned(_))
    }
    /// The elements of `id`.
    ///
    /// # Errors
    /// `Shape` when `T` is not the buffer's element type, the buffer is another store's, or a device changed it and nobody has
    /// [fetched](Self::fetch) it.
    pub fn read<T: Element>(&self, id: BufferId) -> Result<&[T]> {
        let b = self.find(id)?;
        b.holds::<T>(self.precision)?;
        Ok(bytemuck::cast_slice(b.fresh()?.data.bytes()))
    }
    /// The elements of a real buffer as f64, whatever the store's precision and whatever they are kept in.
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
    /// The elements of `id`, to be changed.
    ///
    /// # Errors
    /// As [`read`](Self::read), and where the buffer is a table.
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
    /// `Shape` when type or number of the values is not the buffer's, or the buffer is a table or another store's.
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
            to.iter_mut().zip(from).for_each(|(d, &s)| *d = f32::of(s));
        }
        Ok(())
    }
    /// Sets every element to `value`.
    ///
    /// # Errors
    /// `Shape` when `T` is not the buffer's element type, or the buffer is a table or another store's.
    pub fn fill<T: Element>(&mut self, id: BufferId, value: T) -> Result<()> {
        let precision = self.precision;
        let b = self.find_mut(id)?;
        b.holds::<T>(precision)?;
        bytemuck::cast_slice_mut(b.changed()?).fill(value);
        Ok(())
    }
    /// Sets every element to zero bytes.
    ///
    /// # Errors
    /// `Shape` when the buffer is a table or another store's.
    pub fn clear(&mut self, id: BufferId) -> Result<()> {
        self.find_mut(id)?.changed()?.fill(0);
        Ok(())
    }
    /// Raw bytes of a buffer, for checkpoints.
    ///
    /// # Errors
    /// `Shape` when the buffer is another store's, or a device changed it and nobody has [fetched](Self::fetch) it.
    pub fn raw(&self, id: BufferId) -> Result<&[u8]> {
        Ok(self.find(id)?.fresh()?.data.bytes())
    }
    /// Raw bytes of a writable buffer, all to be overwritten, for checkpoints.
    ///
    /// # Errors
    /// `Shape` when the buffer is a table or another store's.
    pub fn raw_mut(&mut self, id: BufferId) -> Result<&mut [u8]> {
        self.find_mut(id)?.changed()
    }
    /// Whether the host has the last values of `id`.
    pub fn is_fresh(&self, id: BufferId) -> bool {
        self.of(id).newer != Newer::Device
    }
    /// Brings what a device changed in `ids` back to the host.
    ///
    /// # Errors
    /// Device, when a copy fails; `Shape` where a buffer is another store's.
    pub fn fetch(&mut self, ids: &[BufferId]) -> Result<()> {
        ids.iter().try_for_each(|&id| self.fetch_one(id))
    }
    fn fetch_one(&mut self, id: BufferId) -> Result<()> {
        self.find(id)?;
        let b = &mut self.buffers[id.at];
        if let (Newer::Device, DeviceCopy::Device(copy), Data::Own(bytes)) = (b.newer, &b.copy, &mut b.data) {
            let stream = match &mut self.copies {
                Some(s) => s,
                none => none.insert(CudaStream::new(copy.gpu())?),
            };
            copy.download(bytes, stream)?;
            b.newer = Newer::Neither;
        }
        Ok(())
    }
    /// Where `id` lies on the device; what the host changed goes there first, in the order of `stream`.
    pub(crate) fn on_device(&mut self, id: BufferId, gpu: &Gpu, stream: &CudaStream) -> Result<u64> {
        let b = self.find_mut(id)?;
        match &b.copy {
            DeviceCopy::None => b.copy = DeviceCopy::Device(DeviceBuffer::new(gpu, b.data.bytes().len())?),
            DeviceCopy::OnHost => b.copy = DeviceCopy::Pinned(PinnedTable::new(gpu, b.data.bytes())?),
            DeviceCopy::Device(_) | DeviceCopy::Pinned(_) => {}
        }
        match &b.copy {
            DeviceCopy::Device(copy) => {
                if copy.gpu().ordinal() != gpu.ordinal() {
                    let what = format!("{} is on {:?}, the program on {gpu:?}", b.name, copy.gpu());
                    return Err(
                        Error::new(ErrorKind::Device, what).remedy("give each device a store of its own")
                    );
                }
                if b.newer == Newer::Host {
                    copy.upload(b.data.bytes(), stream)?;
                    b.newer = Newer::Neither;
                }
                Ok(copy.address())
            }
            DeviceCopy::Pinned(table) => Ok(table.address()),
            DeviceCopy::None | DeviceCopy::OnHost => unreachable!("it was just made"),
        }
    }
    /// A program changed `id` on the device.
    pub(crate) fn changed_on_device(&mut self, id: BufferId) {
        self.buffers[id.at].newer = Newer::Device;
    }
    /// The address a program on the host reads `id` at, and writes it where `writes` says so.
    ///
    /// # Errors
    /// As [`raw`](Self::raw).
    pub(crate) fn address(&mut self, id: BufferId) -> Result<*mut u8> {
        let b = self.find_mut(id)?;
        b.fresh()?;
        // Also where it is only read: whether it is written is the program's knowledge.
        b.newer = Newer::Host;
        Ok(b.data.address())
    }
}

/// Refuses values that are of another type than `spec`, or of another number.
fn fills<T: Element>(name: &str, spec: Spec, values: &[T]) -> Result<()> {
    let (want, has, len) = (spec.dtype, T::DTYPE, values.len());
    ensure!(name, (has, len) == (want, spec.len()), "{len} values of {has:?} for {spec}");
    Ok(())
}
