//! Buffers that outlive a step.
//!
//! A buffer may have a copy on a device. Whoever changes one side makes the other old: the host's changes travel when a
//! program runs, the device's when somebody [fetches](Store::fetch) them.
use super::{
    cuda::{CudaStream, DeviceBuffer, Gpu, PinnedTable},
    memory::{self, prefer_huge_pages},
    spec::{DType, Element, Precision, Real, Spec},
};
use crate::error::Result;
use half::{bf16, f16};
use std::sync::Arc;

/// A buffer of a [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub(crate) usize);

/// Memory that somebody else keeps: a memory-mapped file, a table shared between stores.
///
/// The bytes must stay where they are, unchanged, while the value lives.
pub trait Bytes: Send + Sync {
    /// The bytes; aligned for their element type.
    fn bytes(&self) -> &[u8];
}
impl<T: Element> Bytes for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
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
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Data::Own(b) => b,
            Data::Shared(_) => unreachable!("a table is read only: the tape refuses to write it"),
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
    fn fresh(&self) -> &Self {
        assert!(self.newer != Newer::Device, "{} was changed on the device: fetch it first", self.name);
        self
    }
    fn changed_on_host(&mut self) -> &mut Self {
        self.newer = Newer::Host;
        self
    }
}

/// Named buffers: parameters, optimiser moments, node memory, mailbox, tables.
///
/// Several programs (training, validation) run over one store and so share its state. Addresses are stable from the
/// first run on, as a captured graph needs.
pub struct Store {
    precision: Precision,
    buffers: Vec<Buffer>,
    /// What copies back are ordered by.
    copies: Option<CudaStream>,
}

impl Store {
    /// An empty store whose real numbers have the given precision.
    pub fn new(precision: Precision) -> Self {
        Store { precision, buffers: Vec::new(), copies: None }
    }
    /// The precision of real buffers.
    pub fn precision(&self) -> Precision {
        self.precision
    }
    /// Adds a writable buffer of zeros.
    pub fn zeros(&mut self, name: impl Into<String>, spec: Spec) -> BufferId {
        let bytes = memory::OwnBytes::zeros(spec.bytes(self.precision));
        self.push(name, spec, Data::Own(bytes))
    }
    /// Adds a writable buffer that starts from `values`; reals are converted to the store's precision.
    ///
    /// # Panics
    /// When the number of values is not `spec.len()`.
    pub fn values<T: Element>(&mut self, name: impl Into<String>, spec: Spec, values: &[T]) -> BufferId {
        let id = self.zeros(name, spec);
        self.write(id, values);
        id
    }
    /// Adds a read-only table without copying it (f32 is converted, and so copied, in an f64 store).
    ///
    /// # Panics
    /// When the table does not hold `spec.len()` elements.
    pub fn table(&mut self, name: impl Into<String>, spec: Spec, table: Arc<dyn Bytes>) -> BufferId {
        assert_eq!(table.bytes().len(), spec.bytes(Precision::F32), "a table fills its spec");
        if (spec.dtype, self.precision) == (DType::F32, Precision::F64) {
            return self.values(name, spec, bytemuck::cast_slice::<u8, f32>(table.bytes()));
        }
        prefer_huge_pages(table.bytes());
        self.push(name, spec, Data::Shared(table))
    }
    fn push(&mut self, name: impl Into<String>, spec: Spec, data: Data) -> BufferId {
        self.buffers.push(Buffer {
            name: name.into(),
            spec,
            data,
            copy: DeviceCopy::None,
            newer: Newer::Host,
        });
        BufferId(self.buffers.len() - 1)
    }
    /// The buffer's name.
    pub fn name(&self, id: BufferId) -> &str {
        &self.buffers[id.0].name
    }
    /// The buffer's shape and type.
    pub fn spec(&self, id: BufferId) -> Spec {
        self.buffers[id.0].spec
    }
    /// Whether programs may write it.
    pub fn is_writable(&self, id: BufferId) -> bool {
        !matches!(self.buffers[id.0].data, Data::Shared(_))
    }
    /// Keeps the table `id` out of device memory: devices read it where it lies on the host, in a locked copy, over the bus.
    ///
    /// # Panics
    /// When it is no table, or a device has it already.
    pub fn keep_on_host(&mut self, id: BufferId) {
        let b = &mut self.buffers[id.0];
        let may = matches!((&b.data, &b.copy), (Data::Shared(_), DeviceCopy::None | DeviceCopy::OnHost));
        assert!(may, "{} cannot stay on the host", b.name);
        b.copy = DeviceCopy::OnHost;
    }
    /// Whether devices read it where it lies on the host.
    pub fn is_on_host(&self, id: BufferId) -> bool {
        matches!(self.buffers[id.0].copy, DeviceCopy::OnHost | DeviceCopy::Pinned(_))
    }
    /// The elements of `id`.
    ///
    /// # Panics
    /// When `T` is not the buffer's element type.
    pub fn read<T: Element>(&self, id: BufferId) -> &[T] {
        let b = &self.buffers[id.0];
        assert!(size_matches::<T>(b.spec.dtype, self.precision), "{} is {:?}", b.name, b.spec.dtype);
        bytemuck::cast_slice(b.fresh().data.bytes())
    }
    /// The elements of a real buffer as f64, whatever the store's precision and whatever they are kept in.
    pub fn read_f64(&self, id: BufferId) -> Vec<f64> {
        match (self.spec(id).dtype, self.precision) {
            (DType::Bf16, _) => self.read::<bf16>(id).iter().map(|&x| x.into()).collect(),
            (DType::F16, _) => self.read::<f16>(id).iter().map(|&x| x.into()).collect(),
            (_, Precision::F32) => self.read::<f32>(id).iter().map(|&x| f64::from(x)).collect(),
            (_, Precision::F64) => self.read::<f64>(id).to_vec(),
        }
    }
    /// The elements of `id`, to be changed.
    ///
    /// # Panics
    /// When `T` is not the buffer's element type, or the buffer is a table.
    pub fn get_mut<T: Element>(&mut self, id: BufferId) -> &mut [T] {
        let b = &mut self.buffers[id.0];
        assert!(size_matches::<T>(b.spec.dtype, self.precision), "{} is {:?}", b.name, b.spec.dtype);
        b.fresh();
        bytemuck::cast_slice_mut(b.changed_on_host().data.bytes_mut())
    }
    /// Overwrites `id`; real values are converted to the store's precision.
    ///
    /// # Panics
    /// When type or number of the values is not the buffer's.
    pub fn write<T: Element>(&mut self, id: BufferId, values: &[T]) {
        let spec = self.spec(id);
        assert_eq!((T::DTYPE, values.len()), (spec.dtype, spec.len()), "{} is {spec}", self.name(id));
        self.buffers[id.0].changed_on_host();
        if size_matches::<T>(spec.dtype, self.precision) {
            self.get_mut::<T>(id).copy_from_slice(values);
        } else if size_of::<T>() == 4 {
            let values = bytemuck::cast_slice::<T, f32>(values);
            self.get_mut::<f64>(id).iter_mut().zip(values).for_each(|(d, &s)| *d = f64::from(s));
        } else {
            let values = bytemuck::cast_slice::<T, f64>(values);
            self.get_mut::<f32>(id).iter_mut().zip(values).for_each(|(d, &s)| *d = f32::of(s));
        }
    }
    /// Sets every element to `value`.
    ///
    /// # Panics
    /// When `T` is not the buffer's element type.
    pub fn fill<T: Element>(&mut self, id: BufferId, value: T) {
        let b = self.buffers[id.0].changed_on_host();
        assert!(size_matches::<T>(b.spec.dtype, self.precision), "{} is {:?}", b.name, b.spec.dtype);
        bytemuck::cast_slice_mut(b.data.bytes_mut()).fill(value);
    }
    /// Sets every element to zero bytes.
    pub fn clear(&mut self, id: BufferId) {
        self.buffers[id.0].changed_on_host().data.bytes_mut().fill(0);
    }
    /// Raw bytes of a buffer, for checkpoints.
    pub fn raw(&self, id: BufferId) -> &[u8] {
        self.buffers[id.0].fresh().data.bytes()
    }
    /// Raw bytes of a writable buffer, all to be overwritten, for checkpoints.
    pub fn raw_mut(&mut self, id: BufferId) -> &mut [u8] {
        self.buffers[id.0].changed_on_host().data.bytes_mut()
    }
    /// Whether the host has the last values of `id`.
    pub fn is_fresh(&self, id: BufferId) -> bool {
        self.buffers[id.0].newer != Newer::Device
    }
    /// Brings what a device changed in `ids` back to the host.
    ///
    /// # Errors
    /// Device, when a copy fails.
    pub fn fetch(&mut self, ids: &[BufferId]) -> Result<()> {
        ids.iter().try_for_each(|&id| self.fetch_one(id))
    }
    fn fetch_one(&mut self, id: BufferId) -> Result<()> {
        let b = &mut self.buffers[id.0];
        if let (Newer::Device, DeviceCopy::Device(copy)) = (b.newer, &b.copy) {
            let stream = match &mut self.copies {
                Some(s) => s,
                none => none.insert(CudaStream::new(copy.gpu())?),
            };
            copy.download(b.data.bytes_mut(), stream)?;
            b.newer = Newer::Neither;
        }
        Ok(())
    }
    /// Where `id` lies on the device; what the host changed goes there first, in the order of `stream`.
    pub(crate) fn on_device(&mut self, id: BufferId, gpu: &Gpu, stream: &CudaStream) -> Result<u64> {
        let b = &mut self.buffers[id.0];
        match &b.copy {
            DeviceCopy::None => b.copy = DeviceCopy::Device(DeviceBuffer::new(gpu, b.data.bytes().len())?),
            DeviceCopy::OnHost => b.copy = DeviceCopy::Pinned(PinnedTable::new(gpu, b.data.bytes())?),
            DeviceCopy::Device(_) | DeviceCopy::Pinned(_) => {}
        }
        match &b.copy {
            DeviceCopy::Device(copy) => {
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
        self.buffers[id.0].newer = Newer::Device;
    }
    /// The address a program reads `id` at.
    pub(crate) fn address(&mut self, id: BufferId) -> *mut u8 {
        let b = &mut self.buffers[id.0];
        b.fresh();
        match &mut b.changed_on_host().data {
            Data::Shared(b) => b.bytes().as_ptr().cast_mut(),
            d => d.bytes_mut().as_mut_ptr(),
        }
    }
}

fn size_matches<T: Element>(dtype: DType, precision: Precision) -> bool {
    T::DTYPE == dtype && size_of::<T>() == dtype.size(precision)
}
