//! Mistakes in hand-written PTX: each kind is a fault, and a missing fence shows in memory that other blocks
//! see late.
use crate::{
    ptx_instructions::module,
    support::devices::{Shape, TestDevice, emulated},
};
use tgnn::runtime::cuda::CudaModule;

/// What kernels of [`module`] do first: `%w0` is the thread, `%x0` and `%x1` are the addresses.
const HEAD: &str = "mov.u32 %w0, %tid.x;\nld.param.u64 %x0, [in];\nld.param.u64 %x1, [out];\n";

/// Runs a kernel and returns its fault. `%w0` is the thread, `%x0` and `%x1` are addresses of 63 words each.
fn fault(on: &TestDevice, threads: u32, body: &str) -> String {
    let text = module(&format!("{HEAD}{body}"));
    let (input, out) = (on.words(&[0; 63]), on.words(&[0; 63]));
    on.launch(on.load(text.as_bytes()), "k", (1, threads, 64), &[&[input.address()], &[out.address()]]);
    let fault = on.fault();
    on.schedule(0);
    fault
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_kernel_that_starts_early_must_wait_before_it_uses_memory_and_must_follow_a_kernel() {
    let Some(on) = emulated() else { return };
    let words = on.words(&[0; 63]);
    let arguments: [&[u64]; 2] = [&[words.address()], &[words.address()]];
    let submit = |body: &str, early: bool| {
        let shape = Shape { early, ..Shape::new((1, 64, 64)) };
        on.submit(on.load(module(&format!("{HEAD}{body}")).as_bytes()), "k", shape, &arguments)
    };
    let writes = "st.global.u32 [%x1], %w0;";
    let before = on.early_launches();
    on.clear(&words);
    assert_ne!(submit(writes, true), 0, "it follows no kernel");
    assert_eq!((submit(writes, false), submit(&format!("griddepcontrol.wait;\n{writes}"), true)), (0, 0));
    on.wait();
    assert_eq!(on.fault(), "");
    let half = "setp.lt.u32 %p0, %w0, 40;\n@%p0 griddepcontrol.wait;\n";
    assert_eq!((submit(writes, false), submit(&format!("{half}{writes}"), true)), (0, 0));
    on.wait();
    let fault = on.fault();
    assert!(fault.contains("thread (40,0,0): touches memory before griddepcontrol.wait"), "{fault}");
    assert_eq!(on.early_launches() - before, 2);
    on.schedule(0);
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn every_kind_of_mistake_is_a_fault_that_names_kernel_thread_and_line() {
    let Some(on) = emulated() else { return };
    const FIFTH: &str = "setp.eq.u32 %p0, %w0, 5;";
    const LOWER: &str = "setp.lt.u32 %p0, %w0, 16;";
    let at_thread = "mul.wide.u32 %x2, %w0, 4;\nadd.s64 %x2, %x2, %x0;";
    let cases: &[(u32, String, &[&str])] = &[
        (32, format!("{FIFTH}\nmov.u64 %x2, 16;\n@%p0 ld.global.u32 %w1, [%x2];"), &[
            "kernel k, block (0,0,0), thread (5,0,0): touches the address 0x10, which is in no allocation",
            "PTX line 18, `@%p0 ld.global.u32 %w1, [%x2];`",
        ]),
        (96, format!("{at_thread}\nst.global.u32 [%x2], %w0;"), &["thread (63,0,0)", "in no allocation"]),
                (32, "ld.global.v2.u32 {%w1, %w2}, [%x0+248];".into(), &["beyond the end of one of 252"]),
(32, format!("{FIFTH}\n@%p0 ld.global.v2.u32 {{%w1, %w2}}, [%x0+4];"), &["thread (5,0,0)", "misaligned for 8"]),
        (32, "mul.lo.u32 %w1, %w0, 8;\nst.shared.u32 [%w1], %w0;".into(), &["thread (8,0,0)", "4 bytes at 64 of shared"]),
        (32, format!("{FIFTH}\nmov.u32 %w1, dynamic;\n@%p0 ld.shared.u32 %w1, [%w1+2];"), &["misaligned"]),
        (32, ".local .b8 l[8];\nmov.u64 %x2, l;\nst.local.u32 [%x2+8], %w0;".into(), &["4 bytes at 8 of local memory"]),
        (32, "mov.u64 %x2, table;\nst.global.u32 [%x2], %w0;".into(), &["which is a constant"]),
        (32, "shl.b32 %w1, 1, %w0;\nnot.b32 %w1, %w1;\nbar.warp.sync %w1;".into(), &["mask leaves it out"]),
        (20, "bar.warp.sync -1;".into(), &["mask names lanes that are not there"]),
        (32, format!("{LOWER}\n@!%p0 ret;\nshfl.sync.idx.b32 %w1, %w0, 20, 31, 65535;"), &["value of lane 20"]),
        (32, format!("{LOWER}\n@%p0 bra low;\nbar.sync 0;\nret;\nlow: bar.sync 0;"), &["every live thread waits"]),
        (64, format!("{LOWER}\n@%p0 bra low;\nbar.sync 0;\nlow: vote.sync.ballot.b32 %w1, %p0, -1;"), &[
            "every live thread waits", "collective",
        ]),
        (32, "again: ld.volatile.global.u32 %w1, [%x0];\nsetp.eq.u32 %p0, %w1, 0;\n@%p0 bra again;".into(), &[
            "jumps on and on",
        ]),
        (32, format!("{at_thread}\nld.global.nc.u32 %w1, [%x2];\nst.global.u32 [%x0+20], %w1;"), &[
            "writes what the launch has read with ld.global.nc",
        ]),
        (32, format!("{FIFTH}\n@%p0 trap;"), &["thread (5,0,0): executes trap"]),
        (32, "frob.s32 %w1, %w0;".into(), &["kernel k, PTX line 16: no such instruction: frob.s32"]),
        (32, "bra nowhere;".into(), &["PTX line 16: there is no label nowhere"]),
        (32, "add.s32 %w1, %w0;".into(), &["PTX line 16: add.s32 takes 3 operands"]),
        (32, "add.s64 %x2, %x0, %w0;".into(), &["`%w0` has another size"]),
        (16, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%w1,%w2,%w3,%w4}, {%w1,%w2,%w3,%w4}, {%w1,%w2}, \
              {%w1,%w2,%w3,%w4};".into(), &["is in a warp that is not whole"]),
    ];
    for (threads, body, pieces) in cases {
        let said = fault(&on, *threads, body);
        for piece in *pieces {
            assert!(said.contains(piece), "{body}\n{said}\n{piece}");
        }
    }
    // The source's line, and a block that is too large.
    let lines = ".version 8.5\n.target sm_90\n.file 1 \"folder/made.cu\"\n.visible .entry k()\n.maxntid 32\n{\n\
                 .loc 1 77 3\ntrap;\n}\n\0";
    for (threads, piece) in
        [(32, "executes trap (made.cu:77, PTX line 8, `trap;`)"), (64, "64 threads in a block")]
    {
        on.launch(on.load(lines.as_bytes()), "k", (1, threads, 0), &[]);
        assert!(on.fault().contains(piece), "{}", on.fault());
        on.schedule(0);
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn products_of_groups_of_warps_and_their_barriers_have_rules() {
    let Some(on) = emulated() else { return };
    let sums = (0..32).map(|r| format!("%d{r}")).collect::<Vec<_>>().join(",");
    // The columns begin at the block's first byte, with the 64-byte swizzle.
    let head =
        ".reg .b32 %d<32>;\nmov.u32 %w1, 0;\nmov.u64 %x2, 0x8000000000000000;\nsetp.ne.u32 %p0, %w1, 0;\n";
    let start = format!(
        "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {{{sums}}}, {{%w1,%w1,%w1,%w1}}, %x2, %p0, 1, 1;"
    );
    let (fence, end) = ("wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;");
    let wait = "wgmma.wait_group.sync.aligned 0;";
    let run = |threads: u32, body: &str| {
        let words = on.words(&[0; 63]);
        let text = module(&format!("{HEAD}{head}{body}"));
        let arguments: [&[u64]; 2] = [&[words.address()], &[words.address()]];
        on.launch(on.load(text.as_bytes()), "k", (1, threads, 1024), &arguments);
        let fault = on.fault();
        on.schedule(0);
        fault
    };
    let stores = "bar.sync 0;\nst.shared.u32 [%w1], %w1;\n";
    for (threads, body, piece) in [
        (128, format!("{stores}bar.sync 0;\n{fence}\n{start}\n{end}\n{wait}"), ""),
        (128, format!("{start}\n{end}\n{wait}"), "multiplies without wgmma.fence"),
        (128, format!("{fence}\n{start}\n{end}\n{stores}{wait}"), "change before the sums are waited for"),
        (128, format!("{fence}\n{start}\n{wait}"), "has not ended the group"),
        (128, format!("{fence}\n{start}\n{end}"), "ends before it has waited for its products"),
        (128, format!("mov.u64 %x2, 0;\n{fence}\n{start}"), "not with the 64-byte swizzle"),
        (64, "mov.u32 %w1, 1;\nbar.sync %w1, 64;".into(), ""),
        (64, "mov.u32 %w1, 1;\nbar.sync %w1, 128;".into(), "barrier of some warps"),
        (64, "mov.u32 %w1, 16;\nbar.sync %w1, 64;".into(), "waits at barrier 16 of 16"),
    ] {
        let said = run(threads, &body);
        assert!(
            if piece.is_empty() { said.is_empty() } else { said.contains(piece) },
            "{body}\n{said}\n{piece}"
        );
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_module_of_ptx_is_loaded_by_its_text() {
    let Some(on) = emulated() else { return };
    let load = |text: &str| {
        // SAFETY: a text of PTX.
        unsafe { CudaModule::load(&on.gpu, text.as_bytes()) }
    };
    let text = module("");
    let module = load(text.trim_end_matches('\0')).unwrap();
    module.kernel("k").unwrap();
    let e = module.kernel("linear").expect_err("a text has no kernels but its own").to_string();
    assert!(e.contains("there is no kernel `linear`"), "{e}");
    for wrong in
        [".version 8.5\n.entry k() {", ".version 8.5\n.frob 3", ".version 8.5\n.entry k() {}\n.entry k() {}"]
    {
        load(wrong).expect_err("the text is wrong");
    }
}

/// Each of 8 blocks writes 64 numbers, and the last one to be done adds all of them.
const HAND_OVER: &str = "
    mov.u32 %w0, %tid.x;
    mov.u32 %w1, %ctaid.x;
    ld.param.u64 %x0, [in];
    ld.param.u64 %x1, [out];
    mad.lo.u32 %w2, %w1, 64, %w0;
    mul.wide.u32 %x2, %w2, 4;
    add.s64 %x2, %x2, %x0;
    add.u32 %w2, %w2, 1;
    st.global.u32 [%x2], %w2;
    FIRST
    bar.sync 0;
    // So that L1 has numbers of other blocks.
    mul.wide.u32 %x4, %w0, 4;
    add.s64 %x4, %x4, %x0;
    ld.global.u32 %w10, [%x4];
    ld.global.u32 %w10, [%x4+256];
    ld.global.u32 %w10, [%x4+1024];
    ld.global.u32 %w10, [%x4+1792];
    setp.ne.u32 %p0, %w0, 0;
    @%p0 bra counted;
    // Behind an atomic, other blocks may go on for long.
    atom.global.add.u32 %w3, [%x1+4], 0;
    atom.global.add.u32 %w3, [%x1], 1;
    st.shared.u32 [dynamic], %w3;
counted: bar.sync 0;
    ld.shared.u32 %w3, [dynamic];
    setp.ne.u32 %p1, %w3, 7;
    @%p1 ret;
    setp.ge.u32 %p1, %w0, 32;
    @%p1 ret;
    SECOND
    mov.u32 %w4, 0;
    mov.u32 %w5, 0;
again: ld.global.LOAD.u32 %w6, [%x4];
    add.u32 %w4, %w4, %w6;
    add.s64 %x4, %x4, 128;
    add.u32 %w5, %w5, 1;
    setp.lt.u32 %p2, %w5, 16;
    @%p2 bra again;
    redux.sync.add.u32 %w4, %w4, -1;
    st.global.u32 [%x1+4], %w4;";

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_hand_over_between_blocks_without_its_fences_is_caught_and_with_them_it_is_right() {
    let Some(on) = emulated() else { return };
    // Returns how many of 12 schedules give a wrong sum.
    let wrong = |code: &str, first: &str, second: &str, load: &str| {
        on.code(code);
        let text = HAND_OVER.replace("FIRST", first).replace("SECOND", second).replace("LOAD", load);
        let loaded = on.load(module(&text).as_bytes());
        let count = (1..13).filter(|&seed| {
            on.schedule(seed);
            let (numbers, out) = (on.words(&[0; 512]), on.words(&[0; 2]));
            on.launch(loaded, "k", (8, 64, 16), &[&[numbers.address()], &[out.address()]]);
            assert_eq!(on.fault(), "", "schedule {seed}");
            on.read(&out) != [8, 512 * 513 / 2]
        });
        count.count()
    };
    const FENCE: &str = "membar.gl;";
    assert_eq!(wrong("weak", FENCE, FENCE, "ca"), 0, "both fences");
    assert_eq!(wrong("weak", FENCE, "", "cg"), 0, "loads past L1");
    assert_ne!(wrong("weak", "", FENCE, "cg"), 0, "no fence behind the stores");
    assert_ne!(wrong("weak", FENCE, "", "ca"), 0, "no fence before the loads, through L1");
    // A fence of one thread is one of all that it has met at a barrier before, and of no others.
    let of = |limit: u32| format!("setp.lt.u32 %p3, %w0, {limit};\n@%p3 membar.gl;");
    assert_eq!(wrong("weak", &format!("bar.sync 0;\n{}", of(1)), FENCE, "cg"), 0, "a fence behind a barrier");
    assert_ne!(wrong("weak", &of(1), FENCE, "cg"), 0, "a fence of one thread, before the barrier");
    assert_ne!(wrong("weak", &of(32), FENCE, "cg"), 0, "a fence of one warp, before the barrier");
    assert_eq!(wrong("ptx", "", "", "ca"), 0, "a memory that all blocks see at once hides it");
}
