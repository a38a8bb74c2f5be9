//! Calls on device memory and CUDA streams of the caller, and tensors of other frameworks.
use crate::support::{
    devices::{TestDevice, device, devices},
    refused,
};
use tgnn::{
    error::{Error, ErrorKind, Result},
    ops::{
        Call, DeviceCall, Op, OpKind, Out,
        epilogue::Activation,
        group_slots::GroupSlots,
        spmm::{LongRows, Spmm},
    },
    runtime::{
        cuda::{
            CudaKernel, CudaModule, CudaStream, DeviceBuffer, DeviceTensor, Gpu, Grid, Kernels, Launch,
            dlpack::*,
        },
        *,
    },
};

/// Values in device memory.
fn upload<T: Element>(on: &TestDevice, stream: &CudaStream, values: &[T]) -> DeviceBuffer {
    let buffer = DeviceBuffer::new(&on.gpu, size_of_val(values)).unwrap();
    buffer.upload(values, stream).unwrap();
    buffer
}

fn download<T: Element>(buffer: &DeviceBuffer, stream: &CudaStream, n: usize) -> Vec<T> {
    let mut values = vec![T::zeroed(); n];
    buffer.download(&mut values, stream).unwrap();
    values
}

#[test]
fn a_call_on_device_memory_and_a_borrowed_stream_agrees_with_the_host_and_reports_faults() {
    let Some(on) = device(0) else { return };
    let theirs = CudaStream::new(&on.gpu).unwrap();
    // SAFETY: `theirs` lives longer.
    let stream = unsafe { CudaStream::borrowed(&on.gpu, theirs.handle()) };
    let (rows, k, table) = (9usize, 3usize, 7usize);
    let ids: Vec<u32> = (0..rows * k).map(|i| (i * 5 % table) as u32).collect();
    let op = GroupSlots::new(Rows::fixed(table), false);
    let (mut starts, mut slots, mut listed) = (vec![0u32; table + 1], vec![0u32; rows * k], [0u32]);
    Call::new(&op)
        .input(&ids, [rows, k])
        .unwrap()
        .output(&mut starts)
        .unwrap()
        .output(&mut slots)
        .unwrap()
        .output(&mut listed)
        .unwrap()
        .run()
        .unwrap();

    let [of_ids, of_starts, of_slots] = [&ids, &starts, &slots].map(|x| upload(&on, &stream, x));
    of_starts.fill(7, &stream).unwrap();
    let tensor = |b: &DeviceBuffer, shape| DeviceTensor::from_buffer(b, DType::U32, shape).unwrap();
    let input = tensor(&of_ids, [rows, k]);
    let call = DeviceCall::new(&op).input(input).unwrap();
    assert_eq!(call.outputs().unwrap()[0], Spec::ids(Rows::fixed(table + 1), 1));
    refused(call.workspace_bytes(), "group_slots: 0 outputs, want 3");
    let call = call.output(tensor(&of_starts, [table + 1, 1])).unwrap();
    let call = call.output(tensor(&of_slots, [rows * k, 1])).unwrap().ignore().unwrap();
    let bytes = call.workspace_bytes().unwrap();
    let workspace = DeviceBuffer::new(&on.gpu, bytes).unwrap();
    workspace.fill(0, &stream).unwrap();
    let launch = |call: &DeviceCall<'_>, address: u64, bytes: usize| {
        // SAFETY: all buffers live until the downloads, which wait for the stream.
        unsafe { call.launch(&on.gpu, &stream, address, bytes) }
    };
    refused(launch(&call, workspace.address(), bytes - 1), "bytes of workspace, want");
    refused(launch(&call, workspace.address() + 4, bytes), "the workspace is not aligned");
    for _ in 0..2 {
        launch(&call, workspace.address(), bytes).unwrap();
        assert_eq!(download::<u32>(&of_starts, &stream, table + 1), starts);
        assert_eq!(download::<u32>(&of_slots, &stream, rows * k), slots);
    }
    call.check(bytemuck::cast::<[u32; 2], u64>([download(&workspace, &stream, 2)[0], 0])).unwrap();

    // Only the first four rows are live, by a count on the device; then one of them is out of the table.
    let count = upload(&on, &stream, &[4u32]);
    let live = DeviceCall::new(&op).input(input.counted_by(count.address(), 1)).unwrap();
    let live = live.output(tensor(&of_starts, [table + 1, 1])).unwrap();
    let live = live.output(tensor(&of_slots, [rows * k, 1])).unwrap().ignore().unwrap();
    launch(&live, workspace.address(), bytes).unwrap();
    assert_eq!(download::<u32>(&of_starts, &stream, table + 1)[table], 4 * k as u32);
    let bad = upload(&on, &stream, &[1u32, 20_000_001, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4]);
    let faulty = DeviceCall::new(&op).input(tensor(&bad, [4, k])).unwrap();
    let faulty = faulty.ignore().unwrap().ignore().unwrap().ignore().unwrap();
    let room = DeviceBuffer::new(&on.gpu, faulty.workspace_bytes().unwrap()).unwrap();
    room.fill(0, &stream).unwrap();
    launch(&faulty, room.address(), room.bytes()).unwrap();
    let word = download::<u32>(&room, &stream, 2);
    refused(faulty.check(bytemuck::cast([word[0], word[1]])), "group_slots: row 0 names row 20000001 of");

    let wrong = DeviceTensor::new(of_starts.address(), DType::F32, [table + 1, 1]);
    refused(
        DeviceCall::new(&op).input(input).unwrap().output(wrong),
        "output starts is F32 [8, 1], want U32 [8, 1]",
    );
    let odd = DeviceTensor::new(of_ids.address() + 4, DType::U32, [2, 1]);
    refused(DeviceCall::new(&op).input(odd), "want a multiple of 16");
    refused(
        DeviceCall::new(&op).input(DeviceTensor::new(0, DType::U32, [2, 1])),
        "the address of row is 0x0",
    );
    refused(DeviceTensor::from_buffer(&count, DType::U32, [2, 1]), "needs 8 bytes, the buffer has 4");
}

#[test]
fn a_borrowed_tensor_must_be_contiguous_and_of_a_type_that_ops_have() {
    let mut data = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    let (mut shape, mut strides, mut wide) = ([2i64, 3], [3i64, 1], [4i64, 1]);
    let tensor = DLTensor {
        data: data.as_mut_ptr().cast(),
        device: DLDevice { device_type: DLDevice::CPU, device_id: 0 },
        ndim: 2,
        dtype: DLDataType { code: DLDataType::FLOAT, bits: 32, lanes: 1 },
        shape: shape.as_mut_ptr(),
        strides: strides.as_mut_ptr(),
        byte_offset: 0,
    };
    // SAFETY: all tensors describe `data` or parts of it, or are refused before it is read.
    let view = |t: &DLTensor| unsafe { DLView::new(&*std::ptr::from_ref(t)) };
    let whole = view(&tensor).unwrap();
    assert_eq!(
        (whole.shape(), whole.dtype(), whole.values::<f32>().unwrap()),
        ([2, 3], DType::F32, &data[..])
    );
    refused(whole.values::<u32>(), "elements are F32, not u32");
    refused(whole.on_cuda(0), "want cuda:0");
    let (mut three, on_gpu) = ([3i64], DLDevice { device_type: DLDevice::CUDA, device_id: 1 });
    let vector = DLTensor {
        ndim: 1,
        shape: three.as_mut_ptr(),
        strides: std::ptr::null_mut(),
        byte_offset: 12,
        ..tensor
    };
    assert_eq!(view(&vector).unwrap().values::<f32>().unwrap(), [4.0, 5.0, 6.0]);
    assert_eq!(view(&vector).unwrap().shape(), [3, 1]);
    refused(view(&DLTensor { byte_offset: 2, ..vector }).unwrap().values::<f32>(), "not aligned");
    let there = DLTensor { device: on_gpu, ..tensor };
    let there = view(&there).unwrap();
    assert_eq!(there.on_cuda(1).unwrap(), DeviceTensor::new(there.address(), DType::F32, [2, 3]));
    refused(there.on_cuda(0), "want cuda:0");
    refused(there.values::<f32>(), "want CPU");
    refused(view(&DLTensor { strides: wide.as_mut_ptr(), ..tensor }), "strides are [4, 1] for [2, 3]");
    refused(view(&DLTensor { ndim: 3, ..tensor }), "3 dimensions");
    refused(
        view(&DLTensor { dtype: DLDataType { bits: 64, ..tensor.dtype }, ..tensor }),
        "the type is f64, want f32, f16, bf16, i32, u32 or i64",
    );
    refused(
        view(&DLTensor { device: DLDevice { device_type: 10, device_id: 0 }, ..tensor }),
        "want CPU or CUDA",
    );
    refused(view(&DLTensor { data: std::ptr::null_mut(), ..tensor }), "is null");
    let mut negative = [-1i64, 3];
    refused(view(&DLTensor { shape: negative.as_mut_ptr(), ..tensor }), "shape is [-1, 3]");
    assert_eq!(view(&DLTensor { ndim: 0, ..tensor }).unwrap().shape(), [1, 1]);
    // SAFETY: null is refused.
    refused(unsafe { OwnedTensor::take(std::ptr::null_mut()) }, "null");

    /// Counts that the tensor was given back.
    unsafe extern "C" fn give_back(tensor: *mut DLManagedTensor) {
        // SAFETY: `manager_ctx` is the counter below, which is alive.
        unsafe { *(*tensor).manager_ctx.cast::<u32>() += 1 };
    }
    let mut given_back = 0u32;
    let context = (&raw mut given_back).cast();
    let mut managed = DLManagedTensor { dl_tensor: tensor, manager_ctx: context, deleter: Some(give_back) };
    // SAFETY: `managed` and its data live longer.
    let owned = unsafe { OwnedTensor::take(&mut managed) }.unwrap();
    assert_eq!(view(owned.tensor()).unwrap().shape(), [2, 3]);
    drop(owned);
    assert_eq!(given_back, 1);
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn a_kernel_file_that_does_not_compile_or_wants_shared_memory_is_refused_with_its_name() {
    let Some(on) = device(0) else { return };
    let folder = tempfile::tempdir().unwrap();
    let compiled = |text: &str| {
        let file = folder.path().join("k.cu");
        std::fs::write(&file, text).unwrap();
        // SAFETY: a file that compiles has the kernel.
        unsafe { CudaModule::compile(&on.gpu, &file, &["k"]) }.map(|_| ())
    };
    let head = "extern \"C\" __global__ void k(float* x, Rows rows)";
    let wrong = compiled(&format!("{head} {{ x[0] = y; }}")).unwrap_err().to_string();
    assert!(wrong.contains("k.cu") && wrong.contains("y"), "{wrong}");
    if on.gpu.is_emulated() {
        let shared = compiled(&format!("{head} {{ __shared__ float s[2]; }}")).unwrap_err().to_string();
        assert!(shared.contains("no shared memory for kernels of other crates"), "{shared}");
    }
    let body = "{ if (thread_item() < rows.live()) x[thread_item()] = 1.f; }";
    compiled(&format!("{head} {body}")).unwrap();
    // nvcc compiles a kernel of C++, whose name the driver does not know then.
    let unknown =
        compiled(&format!("__global__ void k(float* x, Rows rows) {body}")).unwrap_err().to_string();
    assert!(unknown.contains("extern \"C\"") || unknown.contains("there is no kernel `k`"), "{unknown}");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_kernel_is_launched_on_the_device_of_its_module_alone() {
    static KERNEL: std::sync::OnceLock<CudaKernel> = std::sync::OnceLock::new();
    #[derive(Debug)]
    struct Ones;
    impl Op for Ones {
        const NAME: &'static str = "ones";
        const KIND: OpKind = OpKind::Nn;
        fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
            Ok(vec![ins[0].into()])
        }
        fn define<R: Real>(&self, io: &Io<'_>) {
            io.out::<R>(0).fill(R::ONE);
        }
        unsafe fn launch(&self, _: &Kernels, on: &Launch<'_>) -> Result<()> {
            let (mut x, mut rows) = (on.out::<f32>(0), on.rows(0));
            let arguments = &mut [(&raw mut x).cast(), (&raw mut rows).cast()];
            // SAFETY: the arguments are those of the kernel.
            unsafe { KERNEL.get().unwrap().launch(on, Grid::items(2), arguments) }
        }
    }
    let Some(on) = devices(2, 0) else { return };
    if !on[0].emulated {
        println!("skipped: wants two emulated devices");
        return;
    }
    let file = tempfile::Builder::new().suffix(".cu").tempfile().unwrap();
    let body = "{ if (thread_item() < rows.live()) x[thread_item()] = 1.f; }";
    std::fs::write(file.path(), format!("extern \"C\" __global__ void k(float* x, Rows rows) {body}"))
        .unwrap();
    // SAFETY: the file has the kernel.
    let module = unsafe { CudaModule::compile(&on[0].gpu, file.path(), &["k"]) }.unwrap();
    KERNEL.set(module.kernel("k").unwrap()).unwrap();
    let run = |gpu: &Gpu| {
        let stream = CudaStream::new(gpu).unwrap();
        let buffer = DeviceBuffer::new(gpu, 8).unwrap();
        let (x, y) = (
            DeviceBuffer::new(gpu, 8).unwrap(),
            DeviceTensor::from_buffer(&buffer, DType::F32, [2, 1]).unwrap(),
        );
        let call =
            DeviceCall::new(&Ones).input(DeviceTensor::from_buffer(&x, DType::F32, [2, 1]).unwrap()).unwrap();
        let call = call.output(y).unwrap();
        let workspace = DeviceBuffer::new(gpu, call.workspace_bytes().unwrap()).unwrap();
        workspace.fill(0, &stream).unwrap();
        // SAFETY: the buffers live until the download, which waits.
        unsafe { call.launch(gpu, &stream, workspace.address(), workspace.bytes()) }?;
        Ok::<_, Error>(download::<f32>(&buffer, &stream, 2))
    };
    assert_eq!(run(&on[0].gpu).unwrap(), [1.0, 1.0]);
    let e = run(&on[1].gpu).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Device);
    let [own, other] = [0, 1].map(|i| on[i].gpu.ordinal());
    let text = format!("kernel k is loaded on device {own}, and launched on device {other};");
    assert!(e.to_string().starts_with(&text), "{e}");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn columns_that_a_sparse_matrix_does_not_have_are_a_fault_on_the_host_and_on_a_device() {
    let op =
        Spmm::new(2, LongRows::new(&[1, 2], 2).most, false, 0, false, Activation::Identity).with_columns(3);
    let (x, scale, column_scale) = ([1.0f32, 10.0, 100.0], [1.0f32; 2], [1.0f32; 3]);
    for (col, fault) in [([2u32, 0, NONE], None), ([2, 3, 0], Some("spmm: row 1"))] {
        let mut y = [0.0f32; 2];
        let ids: [(&[u32], usize); 6] =
            [(&[0], 1), (&[0, 1], 1), (&[1, 2], 1), (&col, 1), (&[0, 0], 1), (&[], 4)];
        let mut call = Call::new(&op).input(&x, [3, 1]).unwrap();
        for (i, (ids, cols)) in ids.iter().enumerate() {
            if i == 4 {
                call = call.input(&scale, [2, 1]).unwrap();
            }
            call = call.input(ids, [ids.len() / cols, *cols]).unwrap();
        }
        let ran = call.input(&column_scale, [3, 1]).unwrap().output(&mut y).unwrap().run();
        let Some(on) = device(0) else { return };
        let (stream, mut buffers) = (CudaStream::new(&on.gpu).unwrap(), vec![]);
        let mut call = DeviceCall::new(&op);
        let mut tables = vec![(upload(&on, &stream, &x), DType::F32, [3, 1])];
        tables.extend(ids[..4].iter().map(|(i, c)| (upload(&on, &stream, i), DType::U32, [i.len() / c, *c])));
        tables.push((upload(&on, &stream, &scale), DType::F32, [2, 1]));
        tables.extend(ids[4..].iter().map(|(i, c)| (upload(&on, &stream, i), DType::U32, [i.len() / c, *c])));
        tables.push((upload(&on, &stream, &column_scale), DType::F32, [3, 1]));
        for (buffer, dtype, shape) in tables {
            call = call.input(DeviceTensor::from_buffer(&buffer, dtype, shape).unwrap()).unwrap();
            buffers.push(buffer);
        }
        let out = DeviceBuffer::new(&on.gpu, 8).unwrap();
        let call = call.output(DeviceTensor::from_buffer(&out, DType::F32, [2, 1]).unwrap()).unwrap();
        let workspace = DeviceBuffer::new(&on.gpu, call.workspace_bytes().unwrap()).unwrap();
        workspace.fill(0, &stream).unwrap();
        // SAFETY: the buffers live until the downloads, which wait.
        unsafe { call.launch(&on.gpu, &stream, workspace.address(), workspace.bytes()) }.unwrap();
        let word = bytemuck::cast::<[u32; 2], u64>(download(&workspace, &stream, 2).try_into().unwrap());
        match fault {
            None => {
                ran.unwrap();
                call.check(word).unwrap();
                assert_eq!((y, download::<f32>(&out, &stream, 2)), ([100.0, 1.0], vec![100.0, 1.0]));
            }
            Some(text) => {
                refused(ran, "spmm: row 1 of `col` names row 3 of a smaller table");
                refused(call.check(word), text);
            }
        }
    }
}
