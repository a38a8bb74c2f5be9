//! What is tried when a device is opened.
use super::{CudaEvent, CudaStream, DeviceBuffer, Gpu, Grid, Launch, Windows, abi};
use crate::{
    error::{Error, ErrorKind, Result},
    runtime::MatmulPrecision,
};

/// Numbers of each vector: enough for several blocks.
const NUMBERS: usize = 4096;

/// Captures and runs a graph that combines what the graphs of training combine: kernels that are launched
/// before the previous one has ended, a branch on another stream, and priorities. The driver's documentation
/// describes each of them, but not what they do together.
pub(super) fn try_graph(gpu: &Gpu) -> Result<()> {
    let (first, other) = (CudaStream::urgent(gpu)?, CudaStream::new(gpu)?);
    let vector = |value: f32| -> Result<DeviceBuffer> {
        let vector = DeviceBuffer::new(gpu, NUMBERS * size_of::<f32>())?;
        vector.upload(&vec![value; NUMBERS], &first)?;
        Ok(vector)
    };
    let one = vector(1.0)?;
    let [two, four, six, eight, twelve, end] = [const { 0.0 }; 6].map(vector);
    let [two, four, six, eight, twelve, end] = [two?, four?, six?, eight?, twelve?, end?];
    let (fork, join) = (CudaEvent::new(gpu)?, CudaEvent::new(gpu)?);
    let graph = first.capture(|| {
        add(gpu, &first, [&one, &one, &two])?;
        add(gpu, &first, [&two, &two, &four])?;
        fork.record(&first)?;
        other.wait(&fork)?;
        add(gpu, &other, [&two, &four, &six])?;
        add(gpu, &other, [&six, &six, &twelve])?;
        join.record(&other)?;
        add(gpu, &first, [&four, &four, &eight])?;
        add(gpu, &first, [&eight, &four, &end])?;
        first.wait(&join)?;
        add(gpu, &first, [&end, &twelve, &end])
    })?;
    for _ in 0..2 {
        // SAFETY: the vectors live until the stream is done.
        unsafe { graph.launch(&first)? };
    }
    let mut sums = vec![0f32; NUMBERS];
    end.download(&mut sums, &first)?;
    match sums.iter().find(|&&sum| sum != 24.0) {
        None => Ok(()),
        Some(sum) => {
            let text = format!("a graph of sums on {} gives {sum} instead of 24", gpu.name());
            Err(Error::new(ErrorKind::Device, text).remedy("see `tgnn-bench doctor`"))
        }
    }
}

/// Launches `out = a + b`.
fn add(gpu: &Gpu, stream: &CudaStream, [a, b, out]: [&DeviceBuffer; 3]) -> Result<()> {
    let on = Launch {
        ins: &[],
        outs: &[],
        writes: &[],
        scratch: 0,
        tickets: 0,
        status: 0,
        precision: MatmulPrecision::F32,
        changes: gpu.changes(),
        stream,
        windows: &Windows::default(),
    };
    let rows = abi::Rows { count: std::ptr::null(), times: 1, capacity: NUMBERS as u32 };
    let [a, b, out] = [a, b, out].map(|vector| vector.address() as *mut f32);
    // SAFETY: the vectors have `NUMBERS` numbers each.
    unsafe { gpu.kernels().add(&on, Grid::items(NUMBERS), a, b, out, rows, 1) }
}
