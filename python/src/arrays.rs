//! Arrays of Python: those that a call reads or fills, borrowed without copying, and those that it returns.
use crate::error::Result;
use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyCapsule, PyDict},
};
use std::{any::Any, ffi::CStr, ptr::null_mut, sync::Arc};
use tgnn::{
    ensure,
    error::{Error, ErrorKind},
    runtime::{
        Bytes, DType, Element,
        cuda::{
            DeviceTensor, Gpu,
            dlpack::{DLDataType, DLDevice, DLManagedTensor, DLTensor, DLView, OwnedTensor},
        },
    },
};
use tgnn_data::NodeId;

/// What keeps the memory of an array alive.
enum Owner {
    /// An array of NumPy's, with its shape and strides.
    Object(#[allow(dead_code)] Py<PyAny>, #[allow(dead_code)] Box<[[i64; 2]; 2]>, DLTensor),
    /// A tensor that another library has handed out.
    Tensor(OwnedTensor),
}

/// An array of NumPy's, or a tensor of any library that speaks DLPack, of at most two dimensions.
pub struct Array {
    owner: Owner,
    writable: bool,
}
// SAFETY: the memory belongs to a Python object that lives as long as this one; it has no tie to a thread.
unsafe impl Send for Array {}
// SAFETY: as above; it is only read, but by `values_mut`, which takes the array exclusively.
unsafe impl Sync for Array {}

const DLTENSOR: &CStr = c"dltensor";
const USED_DLTENSOR: &CStr = c"used_dltensor";

impl Array {
    /// Borrows an array.
    pub fn from_object(object: &Bound<'_, PyAny>) -> Result<Self> {
        match object.getattr("__array_interface__") {
            Ok(interface) => Self::of_numpy(object, interface.cast::<PyDict>().map_err(PyErr::from)?),
            Err(_) if object.hasattr("__dlpack__")? => Self::of_capsule(object),
            Err(_) => {
                let class = object.get_type().name()?;
                Err(PyTypeError::new_err(format!("a {class} is not an array; give one of NumPy or torch"))
                    .into())
            }
        }
    }
    fn of_numpy(object: &Bound<'_, PyAny>, interface: &Bound<'_, PyDict>) -> Result<Self> {
        let item = |key: &str| interface.as_any().get_item(key);
        let typestr: String = item("typestr")?.extract()?;
        let (code, bits) = match typestr.trim_start_matches(['<', '|', '=']) {
            "f4" => (DLDataType::FLOAT, 32),
            "f2" => (DLDataType::FLOAT, 16),
            "i4" => (DLDataType::INT, 32),
            "u4" => (DLDataType::UINT, 32),
            "i8" => (DLDataType::INT, 64),
            _ => {
                return Err(
                    Error::shape("array", format!("type is {typestr}, want f4, f2, i4, u4 or i8")).into()
                );
            }
        };
        let shape: Vec<i64> = item("shape")?.extract()?;
        ensure!("array", shape.len() <= 2, "{} dimensions, want at most 2", shape.len());
        let strides: Option<Vec<i64>> = interface.get_item("strides")?.map_or(Ok(None), |s| s.extract())?;
        let (address, read_only): (usize, bool) = item("data")?.extract()?;
        let mut layout = Box::new([[0; 2]; 2]);
        layout[0][..shape.len()].copy_from_slice(&shape);
        for (to, bytes) in layout[1].iter_mut().zip(strides.iter().flatten()) {
            *to = bytes / (i64::from(bits) / 8);
        }
        let tensor = DLTensor {
            data: address as *mut _,
            device: DLDevice { device_type: DLDevice::CPU, device_id: 0 },
            ndim: shape.len() as i32,
            dtype: DLDataType { code, bits, lanes: 1 },
            shape: layout[0].as_mut_ptr(),
            strides: if strides.is_some() { layout[1].as_mut_ptr() } else { null_mut() },
            byte_offset: 0,
        };
        Ok(Array { owner: Owner::Object(object.clone().unbind(), layout, tensor), writable: !read_only })
    }
    fn of_capsule(object: &Bound<'_, PyAny>) -> Result<Self> {
        // The kernels of a device run on the stream on which its tensors are computed: -1 is not to wait.
        let (kind, _): (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
        let capsule = match kind {
            DLDevice::CUDA => {
                let stream = PyDict::new(object.py());
                stream.set_item("stream", -1)?;
                object.call_method("__dlpack__", (), Some(&stream))?
            }
            _ => object.call_method0("__dlpack__")?,
        };
        let capsule = capsule.cast::<PyCapsule>().map_err(PyErr::from)?;
        let pointer = capsule.pointer_checked(Some(DLTENSOR))?;
        // SAFETY: a capsule of this name holds such a tensor, and renaming it takes it over.
        let tensor = unsafe {
            pyo3::ffi::PyCapsule_SetName(capsule.as_ptr(), USED_DLTENSOR.as_ptr());
            OwnedTensor::take(pointer.as_ptr().cast::<DLManagedTensor>())?
        };
        Ok(Array { owner: Owner::Tensor(tensor), writable: true })
    }
    /// Describes the array, wherever it is.
    fn described(&self) -> Result<DLView<'_>, Error> {
        let tensor = match &self.owner {
            Owner::Object(_, _, tensor) => tensor,
            Owner::Tensor(tensor) => tensor.tensor(),
        };
        // SAFETY: NumPy, or the library that handed the tensor out, describes its memory, which the owner
        // keeps alive. The package's documentation says that no array may be changed during a call.
        unsafe { DLView::new(tensor) }
    }
    /// Describes an array in the host's memory.
    fn view(&self) -> Result<DLView<'_>, Error> {
        let view = self.described()?;
        if view.device().device_type == DLDevice::CUDA {
            let what = format!("a tensor is on cuda:{}, and this runs on the CPU", view.device().device_id);
            return Err(Error::new(ErrorKind::Device, what).remedy("give tensor.cpu()"));
        }
        Ok(view)
    }
    /// Returns the array as an operand on `gpu`; the memory of an emulated device is the host's.
    pub fn on(&self, gpu: &Gpu) -> Result<DeviceTensor, Error> {
        if !gpu.is_emulated() {
            return self.described()?.on_cuda(gpu.ordinal());
        }
        let view = self.view()?;
        Ok(DeviceTensor::new(view.address(), view.dtype(), view.shape()))
    }
    /// Returns rows and columns.
    pub fn shape(&self) -> Result<[usize; 2], Error> {
        Ok(self.view()?.shape())
    }
    /// Returns the elements.
    pub fn values<T: Element>(&self) -> Result<&[T], Error> {
        self.view()?.values()
    }
    /// Returns the elements, to be written.
    pub fn values_mut<T: Element>(&mut self) -> Result<&mut [T], Error> {
        ensure!("array", self.writable, "the array is read-only");
        let values = self.view()?.values::<T>()?;
        // SAFETY: the package allocates what a call fills, and gives it to nobody else meanwhile.
        Ok(unsafe { std::slice::from_raw_parts_mut(values.as_ptr().cast_mut(), values.len()) })
    }
}

// SAFETY: the owner keeps the memory alive, at its place. The package's documentation says that features must
// not be changed while their events are in use.
unsafe impl Bytes for Array {
    fn bytes(&self) -> &[u8] {
        let Ok(view) = self.view() else { return &[] };
        let [rows, cols] = view.shape();
        let bytes = rows * cols * view.dtype().size(tgnn::runtime::Precision::F32);
        if bytes == 0 {
            return &[];
        }
        // SAFETY: the view has checked that this memory is the tensor's, contiguous, on the host.
        unsafe { std::slice::from_raw_parts(view.address() as *const u8, bytes) }
    }
    fn dtype(&self) -> DType {
        self.view().map_or(DType::U32, |view| view.dtype())
    }
}

impl<'py> FromPyObject<'_, 'py> for Array {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self::from_object(&object)?)
    }
}

/// Memory of the crate as an array of NumPy's, which may only be read: `numpy.asarray(buffer)`.
#[pyclass(frozen, module = "tgnn._tgnn")]
pub struct Buffer {
    #[allow(dead_code)] // keeps the memory alive
    owner: Arc<dyn Any + Send + Sync>,
    address: usize,
    typestr: &'static str,
    shape: Vec<usize>,
}

impl Buffer {
    /// Hands out `values`, which `owner` keeps alive.
    pub fn borrowed<T: Typestr>(owner: Arc<dyn Any + Send + Sync>, values: &[T], shape: Vec<usize>) -> Self {
        Buffer { owner, address: values.as_ptr().addr(), typestr: T::TYPESTR, shape }
    }
    /// Hands out a vector.
    pub fn owned<T: Typestr + Send + Sync + 'static>(values: Vec<T>, shape: Vec<usize>) -> Self {
        let values = Arc::new(values);
        Self::borrowed(values.clone(), &values, shape)
    }
}

#[pymethods]
impl Buffer {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", self.typestr)?;
        interface.set_item("shape", pyo3::types::PyTuple::new(py, &self.shape)?)?;
        interface.set_item("data", (self.address, true))?;
        Ok(interface)
    }
}

/// An element type with NumPy's name.
pub trait Typestr {
    const TYPESTR: &'static str;
}
impl Typestr for f32 {
    const TYPESTR: &'static str = "<f4";
}
impl Typestr for u32 {
    const TYPESTR: &'static str = "<u4";
}
impl Typestr for i64 {
    const TYPESTR: &'static str = "<i8";
}
impl Typestr for u64 {
    const TYPESTR: &'static str = "<u8";
}

/// Ids: the bits of u64, or text.
#[derive(FromPyObject)]
pub enum IdColumn {
    Numbers(Array),
    Texts(Vec<String>),
}

impl IdColumn {
    pub fn ids(&self) -> Result<Vec<NodeId>, Error> {
        Ok(match self {
            IdColumn::Numbers(ids) => {
                ids.values::<i64>()?.iter().map(|id| NodeId::Number(id.cast_unsigned())).collect()
            }
            IdColumn::Texts(ids) => ids.iter().map(|id| NodeId::parse(id)).collect(),
        })
    }
}
