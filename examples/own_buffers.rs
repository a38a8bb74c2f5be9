//! Kernels on device memory and a CUDA stream of one's own; here on the emulated device.
use tgnn::{
    error::Result,
    ops::{DeviceCall, pointwise::Add},
    runtime::{
        DType, Device,
        cuda::{CudaStream, DeviceBuffer, DeviceTensor},
    },
};

fn main() -> Result<()> {
    let device = Device::open("emu", 1)?; // `cuda` for a GPU
    let gpu = device.gpu().expect("the device is not the CPU");
    // Memory and stream may come from anywhere, such as PyTorch: addresses and a `cudaStream_t` are all that
    // is needed; `runtime::cuda::dlpack` borrows tensors.
    let theirs = CudaStream::new(gpu)?;
    // SAFETY: `theirs` lives longer.
    let stream = unsafe { CudaStream::borrowed(gpu, theirs.handle()) };
    let [a, b, sum] = [(); 3].map(|()| DeviceBuffer::new(gpu, 6 * 4));
    let (a, b, sum) = (a?, b?, sum?);
    a.upload(&[1.0f32; 6], &stream)?;
    b.upload(&[2.0f32; 6], &stream)?;
    let tensor = |buffer| DeviceTensor::from_buffer(buffer, DType::F32, [2, 3]);
    let call = DeviceCall::new(&Add).input(tensor(&a)?)?.input(tensor(&b)?)?.output(tensor(&sum)?)?;

    // What the kernel needs besides its operands: one block of zeros, which later launches reuse.
    let workspace = DeviceBuffer::new(gpu, call.workspace_bytes()?)?;
    workspace.fill(0, &stream)?;
    // SAFETY: all buffers are alive until the download below, which waits for the stream.
    unsafe { call.launch(gpu, &stream, workspace.address(), workspace.bytes())? };
    let (mut found, mut status) = ([0.0f32; 6], [0u64]);
    sum.download(&mut found, &stream)?;
    workspace.download(&mut status, &stream)?;
    call.check(status[0])?; // an index outside of a table would be reported here
    println!("{found:?}, with {} bytes of workspace", workspace.bytes());
    assert_eq!(found, [3.0; 6]);
    Ok(())
}
