//! Thread block clusters on the emulated device: kernels as host code, hand-written PTX, and `head_linear`.
use crate::{
    ops::bits,
    ptx_instructions::module,
    support::devices::{Shape, TestDevice, device, drawn, emulated},
};
use std::ffi::c_int;
use tgnn::{ops::cases, runtime::MatmulPrecision};

/// The driver's results.
const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;
const INVALID_CLUSTER_SIZE: c_int = 912;

/// Seeds of the schedules that these tests try; 0 is the plain order.
const SEEDS: std::ops::Range<u64> = 0..16;

/// What kernels of [`module`] do first: `%w0` is the thread, `%w1` the block and `%w2` its rank in the
/// cluster, `%x0` and `%x1` are the addresses, `%x2` and `%x3` those of this thread's words, and `%w3` is the
/// address of its word in shared memory.
const HEAD: &str = "mov.u32 %w0, %tid.x;\nmov.u32 %w1, %ctaid.x;\nmov.u32 %w2, %cluster_ctarank;
    ld.param.u64 %x0, [in];\nld.param.u64 %x1, [out];\nmov.u32 %w4, %ntid.x;\nmad.lo.u32 %w4, %w1, %w4, %w0;
    mad.wide.u32 %x2, %w4, 4, %x0;\nmad.wide.u32 %x3, %w4, 4, %x1;
    mov.u32 %w3, dynamic;\nmad.lo.u32 %w3, %w0, 4, %w3;\n";
/// The other block of a cluster of two.
const OTHER: &str = "xor.b32 %w5, %w2, 1;\n";
/// Whether the block is the first of its cluster.
const FIRST: &str = "setp.eq.u32 %p0, %w2, 0;\n";
const BARRIER: &str = "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n";

/// Runs `body` after [`HEAD`] in clusters of two blocks; returns what the threads leave in their words.
fn pairs(on: &TestDevice, (blocks, threads): (u32, u32), body: &str) -> Vec<u32> {
    let text = module(&format!("{HEAD}{body}"));
    let count = (blocks * threads) as usize;
    let (input, out) = (on.words(&vec![0; count]), on.words(&vec![0; count]));
    let shape = Shape { cluster: Some((2, 1, 1)), ..Shape::new((blocks, threads, 4 * threads)) };
    let arguments: [&[u64]; 2] = [&[input.address()], &[out.address()]];
    assert_eq!(on.submit(on.load(text.as_bytes()), "k", shape, &arguments), SUCCESS, "{body}");
    on.wait();
    if on.fault().is_empty() { on.read(&out) } else { Vec::new() }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn the_driver_takes_clusters_of_at_most_eight_blocks_that_divide_the_grid() {
    let Some(on) = emulated() else { return };
    let loaded = on.load(module("").as_bytes());
    let words = on.words(&[0]);
    let before = on.clustered_launches();
    for (cluster, want) in [
        ((1, 2, 3), SUCCESS),
        ((2, 2, 2), SUCCESS),
        ((1, 1, 1), SUCCESS),
        ((1, 4, 1), INVALID_VALUE),
        ((0, 1, 1), INVALID_VALUE),
        ((2, 2, 6), INVALID_CLUSTER_SIZE),
    ] {
        let shape = Shape { grid: (4, 2, 6), cluster: Some(cluster), ..Shape::new((1, 32, 0)) };
        let arguments: [&[u64]; 2] = [&[words.address()], &[words.address()]];
        assert_eq!(on.submit(loaded, "k", shape, &arguments), want, "{cluster:?}");
    }
    on.wait();
    assert_eq!(on.clustered_launches() - before, 2, "a block by itself is no cluster");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_block_reads_another_ones_shared_memory_between_two_barriers_of_their_cluster() {
    let Some(on) = emulated() else { return };
    const THREADS: usize = 64;
    let count = 16 * THREADS;
    let x: Vec<u32> = (0..count).map(|i| (i as f32).to_bits()).collect();
    // Returns what a kernel gives back, or its fault.
    let run = |name: &str, cluster: u32| {
        let (input, out) = (on.words(&x), on.words(&vec![0; count]));
        let shape = Shape { cluster: Some((cluster, 1, 1)), ..Shape::new((16, THREADS as u32, 0)) };
        let arguments: [&[u64]; 2] = [&[input.address()], &[out.address()]];
        assert_eq!(on.submit(std::ptr::null_mut(), name, shape, &arguments), SUCCESS);
        on.wait();
        let fault = on.fault();
        if fault.is_empty() { Ok(on.read(&out)) } else { Err(fault) }
    };
    let (mut missing, mut exited) = (0, 0);
    for seed in SEEDS {
        for cluster in [1, 2, 4, 8] {
            let block = |i: usize| {
                let (first, rank) = (i / THREADS / cluster * cluster, i / THREADS % cluster);
                first + (rank + 1) % cluster
            };
            let want: Vec<u32> = (0..count).map(|i| x[block(i) * THREADS + i % THREADS]).collect();
            on.schedule(seed);
            let found = run("passed_to_block", cluster as u32);
            assert!(found.as_ref() == Ok(&want), "seed {seed}, clusters of {cluster}: {:?}", found.err());
            if cluster == 1 {
                continue;
            }
            let found = run("planted_missing_cluster_barrier", cluster as u32);
            missing += u32::from(found != Ok(want));
            on.schedule(seed);
            let fault = run("planted_early_exit", cluster as u32).err();
            exited += u32::from(fault.is_some_and(|f| f.contains("exited")));
        }
    }
    on.schedule(0);
    assert!(
        missing > 40 && exited > 20,
        "a missing barrier shows {missing} times, an early exit {exited} times"
    );
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn mistakes_of_host_code_in_clusters_are_faults_that_name_block_thread_and_line() {
    let Some(on) = emulated() else { return };
    let words = on.words(&[0; 256]);
    for (name, pieces) in [
        (
            "planted_missing_cluster_barrier",
            ["block (0,0,0), thread (0,0,0)", "block 1, which has not begun"],
        ),
        ("planted_divergent_cluster_barrier", ["every live thread waits", "waits in a barrier at line"]),
        (
            "planted_second_arrival",
            ["arrives at the barrier of its cluster again, before that has opened", "line"],
        ),
        ("planted_missing_block", ["asks for block 2 of its cluster, which has 2", "line"]),
    ] {
        let shape = Shape { cluster: Some((2, 1, 1)), ..Shape::new((2, 64, 0)) };
        let arguments: [&[u64]; 2] = [&[words.address()], &[words.address()]];
        assert_eq!(on.submit(std::ptr::null_mut(), name, shape, &arguments), SUCCESS);
        on.wait();
        let fault = on.fault();
        for piece in pieces {
            assert!(fault.contains(name) && fault.contains(piece), "{name}: {fault}");
        }
        on.schedule(0);
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn special_registers_tell_the_cluster_and_the_place_of_a_block_in_it() {
    let Some(on) = emulated() else { return };
    const NAMES: [&str; 8] = [
        "cluster_ctarank",
        "cluster_nctarank",
        "cluster_ctaid.x",
        "cluster_ctaid.y",
        "cluster_ctaid.z",
        "cluster_nctaid.x",
        "cluster_nctaid.y",
        "cluster_nctaid.z",
    ];
    let mut body = String::from(
        "ld.param.u64 %x1, [out];\nmov.u32 %w0, %ctaid.x;\nmov.u32 %w1, %ctaid.y;\nmov.u32 %w2, %ctaid.z;
        mov.u32 %w3, %nctaid.x;\nmov.u32 %w4, %nctaid.y;\nmad.lo.u32 %w1, %w2, %w4, %w1;
        mad.lo.u32 %w0, %w1, %w3, %w0;\nmad.wide.u32 %x1, %w0, 32, %x1;\n",
    );
    for (i, name) in NAMES.iter().enumerate() {
        body += &format!("mov.u32 %w5, %{name};\nst.global.u32 [%x1+{}], %w5;\n", 4 * i);
    }
    let loaded = on.load(module(&body).as_bytes());
    let (nx, ny, nz) = (2, 4, 6);
    for (cluster, seed) in [(None, 0), (Some((2, 2, 1)), 0), (Some((1, 2, 3)), 0), (Some((1, 2, 3)), 5)] {
        on.schedule(seed);
        let out = on.words(&vec![0; (8 * nx * ny * nz) as usize]);
        let shape = Shape { grid: (nx, ny, nz), cluster, ..Shape::new((1, 1, 0)) };
        assert_eq!(on.submit(loaded, "k", shape, &[&[0], &[out.address()]]), SUCCESS);
        on.wait();
        let found = on.read(&out);
        let (cx, cy, cz) = cluster.unwrap_or((1, 1, 1));
        for (found, at) in found.chunks_exact(8).zip(0..) {
            let (x, y, z) = (at % nx % cx, at / nx % ny % cy, at / nx / ny % cz);
            let want = [x + cx * (y + cy * z), cx * cy * cz, x, y, z, cx, cy, cz];
            assert_eq!(found, want, "block {at}, clusters of {cluster:?}");
        }
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn every_form_of_access_to_another_blocks_shared_memory_works_in_every_order() {
    let Some(on) = emulated() else { return };
    let map = "mapa.shared::cluster.u32 %w6, %w3, %w5;\n";
    let wide = "cvt.u64.u32 %x4, %w3;\nmapa.shared::cluster.u64 %x4, %x4, %w5;\n";
    let generic = "cvt.u64.u32 %x4, %w3;\ncvta.shared.u64 %x4, %x4;\nmapa.u64 %x4, %x4, %w5;\n";
    let reads = [
        format!("{map}ld.shared::cluster.u32 %w7, [%w6];\n"),
        format!("{wide}ld.shared::cluster.u32 %w7, [%x4];\n"),
        format!("{generic}ld.u32 %w7, [%x4];\n"),
        // A vector, of which the second word is taken, if the thread is odd.
        "and.b32 %w8, %w3, -8;\nmapa.shared::cluster.u32 %w6, %w8, %w5;
            ld.shared::cluster.v2.u32 {%w7, %w9}, [%w6];\nand.b32 %w8, %w0, 1;\nsetp.eq.u32 %p1, %w8, 1;
            @%p1 mov.u32 %w7, %w9;\n"
            .into(),
    ];
    let writes = [
        format!("{map}st.shared::cluster.u32 [%w6], %w4;\n"),
        format!("{generic}st.u32 [%x4], %w4;\n"),
        format!(
            "mov.u32 %w8, 0;\nst.shared.u32 [%w3], %w8;\n{BARRIER}{map}
            atom.shared::cluster.add.u32 %w8, [%w6], %w4;\n"
        ),
    ];
    let barriers = [
        BARRIER,
        "barrier.cluster.arrive;\nbarrier.cluster.wait;\n",
        "fence.release.sync_restrict::shared::cta.cluster;\nbarrier.cluster.arrive.relaxed.aligned;
            barrier.cluster.wait.aligned;\n",
        "fence.acq_rel.cluster;\nbarrier.cluster.arrive.relaxed;\nbarrier.cluster.wait.acquire;\n",
    ];
    let want: Vec<u32> = (0..6 * 48).map(|i| ((i / 48) ^ 1) * 48 + i % 48).collect();
    for (code, seed) in SEEDS.map(|seed| ("ptx", seed)).chain((1..5).map(|seed| ("weak", seed))) {
        on.code(code);
        on.schedule(seed);
        let barrier = barriers[seed as usize % barriers.len()];
        for read in &reads {
            let body = format!(
                "{OTHER}st.shared::cta.u32 [%w3], %w4;\n{barrier}{read}{BARRIER}st.global.u32 [%x3], %w7;"
            );
            let found = pairs(&on, (6, 48), &body);
            assert!(found == want, "{code}, seed {seed}: {read}{}", on.fault());
        }
        for write in &writes {
            // A block writes to another one that has begun.
            let body = format!(
                "{OTHER}{BARRIER}{write}{barrier}ld.shared.u32 %w7, [%w3];\nst.global.u32 [%x3], %w7;"
            );
            let found = pairs(&on, (6, 48), &body);
            assert!(found == want, "{code}, seed {seed}: {write}{}", on.fault());
        }
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_clusters_barrier_waits_for_all_live_threads_and_arrivals_do_not_wait() {
    let Some(on) = emulated() else { return };
    // The first block waits once, the second one twice; both arrive twice. A third of the threads has exited.
    let body = format!(
        "{OTHER}st.shared.u32 [%w3], %w4;\nsetp.ge.u32 %p1, %w0, 64;\n@%p1 ret;\n{BARRIER}
        setp.ne.u32 %p2, %w2, 0;\n@%p2 bra behind;
        mapa.shared::cluster.u32 %w6, %w3, %w5;\nld.shared::cluster.u32 %w7, [%w6];\nst.global.u32 [%x3], %w7;
    behind: barrier.cluster.arrive.aligned;\n@!%p2 ret;\nbarrier.cluster.wait.aligned;"
    );
    for seed in SEEDS {
        on.schedule(seed);
        let found = pairs(&on, (4, 96), &body);
        assert_eq!(on.fault(), "", "seed {seed}");
        for (i, found) in found.into_iter().enumerate() {
            let reads = i / 96 % 2 == 0 && i % 96 < 64;
            assert_eq!(found, if reads { i as u32 + 96 } else { 0 }, "seed {seed}, thread {i}");
        }
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn writes_to_global_memory_are_visible_behind_a_clusters_barrier_that_releases_them() {
    let Some(on) = emulated() else { return };
    on.code("weak");
    // Returns how many of the schedules give a wrong result.
    let wrong = |arrive: &str| {
        let body = format!(
            "xor.b32 %w5, %w1, 1;\nmov.u32 %w6, %ntid.x;\nmad.lo.u32 %w5, %w5, %w6, %w0;
            mad.wide.u32 %x4, %w5, 4, %x0;\nld.global.u32 %w7, [%x4];\nst.global.u32 [%x2], %w4;\n{arrive}
            barrier.cluster.wait.aligned;\nld.global.u32 %w7, [%x4];\nst.global.u32 [%x3], %w7;"
        );
        let want: Vec<u32> = (0..6 * 64).map(|i| ((i / 64) ^ 1) * 64 + i % 64).collect();
        let count = (1..13).filter(|&seed| {
            on.schedule(seed);
            pairs(&on, (6, 64), &body) != want
        });
        count.count()
    };
    assert_eq!(wrong("barrier.cluster.arrive.release.aligned;"), 0);
    assert_eq!(wrong("fence.acq_rel.cluster;\nbarrier.cluster.arrive.relaxed.aligned;"), 0);
    assert_ne!(wrong("barrier.cluster.arrive.relaxed.aligned;"), 0);
    let shared = "fence.release.sync_restrict::shared::cta.cluster;\nbarrier.cluster.arrive.relaxed.aligned;";
    assert_ne!(wrong(shared), 0, "a fence of shared memory alone");
}

/// Checks that each body of a kernel, in a cluster of two blocks of 64 threads, is a fault whose text has all
/// pieces.
fn check_faults(on: &TestDevice, cases: &[(String, &[&str])]) {
    for (body, pieces) in cases {
        pairs(on, (2, 64), body);
        let said = on.fault();
        for piece in *pieces {
            assert!(said.contains(piece), "{body}\n{said}\n{piece}");
        }
        on.schedule(0);
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn mistakes_of_ptx_with_other_blocks_memory_are_faults_that_name_block_thread_and_line() {
    let Some(on) = emulated() else { return };
    let map = format!("{OTHER}mapa.shared::cluster.u32 %w6, %w3, %w5;\n");
    let generic =
        format!("{OTHER}cvt.u64.u32 %x4, %w3;\ncvta.shared.u64 %x4, %x4;\nmapa.u64 %x4, %x4, %w5;\n");
    let cases: &[(String, &[&str])] = &[
        (
            format!("{map}ld.shared::cluster.u32 %w7, [%w6];"),
            &[
                "kernel k, block (0,0,0), thread (0,0,0): uses 4 bytes at 0 of the shared memory of block 1 ",
                "of its cluster, which has not begun",
                "`ld.shared::cluster.u32 %w7, [%w6];`",
            ],
        ),
        (format!("{generic}ld.u32 %w7, [%x4];"), &["block (0,0,0)", "which has not begun"]),
        (
            format!("{FIRST}@!%p0 ret;\n{BARRIER}{map}ld.shared::cluster.u32 %w7, [%w6];"),
            &["block (0,0,0)", "which has exited"],
        ),
        (
            format!("{FIRST}@!%p0 ret;\n{BARRIER}{generic}st.u32 [%x4], %w0;"),
            &["block (0,0,0)", "which has exited"],
        ),
        (
            format!("{BARRIER}{map}ld.shared::cluster.u32 %w7, [%w6+252];\n{BARRIER}"),
            &["of the shared memory of block 0 of its cluster, of which there are 256"],
        ),
        (format!("{BARRIER}{map}ld.shared::cluster.u32 %w7, [%w6+2];\n{BARRIER}"), &["which is misaligned"]),
        (format!("{map}ld.shared.u32 %w7, [%w6];"), &["of shared memory, of which there are 256"]),
        (
            "mov.u32 %w6, 83886080;\nld.shared::cluster.u32 %w7, [%w6];".into(),
            &["none of the shared memory of its cluster"],
        ),
        (
            "mov.u32 %w5, 5;\nmapa.shared::cluster.u32 %w6, %w3, %w5;".into(),
            &["maps an address to block 5 of its cluster, which has 2"],
        ),
        (
            "mov.u32 %w5, 0;\nmapa.u64 %x4, %x0, %w5;".into(),
            &["maps an address that is not in shared memory"],
        ),
        ("mapa.shared.u32 %w6, %w3, %w5;".into(), &["no such instruction: mapa.shared.u32"]),
    ];
    check_faults(&on, cases);
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn mistakes_of_ptx_at_a_clusters_barrier_are_faults_and_no_hangs() {
    let Some(on) = emulated() else { return };
    const ARRIVE: &str = "barrier.cluster.arrive.aligned;\n";
    const WAIT: &str = "barrier.cluster.wait.aligned;\n";
    let cases: &[(String, &[&str])] = &[
        (format!("{ARRIVE}{ARRIVE}{WAIT}"), &["block (0,0,0)", "again, before that has opened"]),
        (
            format!("{ARRIVE}{FIRST}@%p0 ret;\nbar.sync 0;\n{ARRIVE}{WAIT}"),
            &["block (1,0,0)", "again, and has not waited"],
        ),
        (WAIT.into(), &["waits at the barrier of its cluster, and has not arrived"]),
        (
            format!("setp.lt.u32 %p0, %w0, 32;\n@%p0 bra low;\n{BARRIER}ret;\nlow: bar.sync 0;"),
            &["every live thread waits", "wait in a barrier (", "wait in a barrier of the cluster ("],
        ),
        (format!("setp.lt.u32 %p0, %w0, 16;\n@%p0 {ARRIVE}{WAIT}"), &["does not take part, by a guard"]),
        (
            format!("setp.lt.u32 %p0, %w0, 16;\n@%p0 bra low;\n{BARRIER}ret;\nlow: bar.sync 0;"),
            &["every live thread waits", "15 others of its warp wait in a warp collective"],
        ),
        ("barrier.cluster.arrive.acquire;".into(), &["no such instruction: barrier.cluster.arrive.acquire"]),
    ];
    check_faults(&on, cases);
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn clusters_change_no_bit_of_head_linear_in_any_order() {
    let Some(on) = device(0).filter(|on| on.emulated) else { return };
    let codes: &[&str] = if cfg!(kernels_compiled) { &["host", "ptx", "weak"] } else { &["host"] };
    let mut clustered = 0;
    for (at, case) in cases().into_iter().filter(|case| case.op == "head_linear").enumerate() {
        for code in codes {
            for (variant, seed) in drawn(at, 1, 9) {
                on.code(code);
                let gpu = on.gpu.multiplying_in(MatmulPrecision::ALL[variant % 2]);
                on.schedule(0);
                let before = on.clustered_launches();
                let apart = bits(&case, gpu.without_clusters());
                assert_eq!(on.clustered_launches(), before, "{case}");
                for seed in [0, seed] {
                    on.schedule(seed);
                    assert!(bits(&case, gpu.clone()) == apart, "{case}, {code}, schedule {seed}");
                }
                clustered += on.clustered_launches() - before;
            }
        }
    }
    assert!(clustered > 0, "no case launches clusters");
}
