//! Properties of the compiled kernels that can be seen without a GPU.
use crate::support::paths::root;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The kernels of dense products, with their files.
const PRODUCTS: [(&str, &str); 16] = [
    ("gru_memory", "gru_memory"),
    ("rnn_memory", "rnn_memory"),
    ("memory_update", "memory_update_weight_grad"),
    ("memory_update", "memory_update_weight_grad_fixed"),
    ("linear", "linear"),
    ("linear_pair", "linear_pair"),
    ("linear_pair", "linear_pair_input_grad"),
    ("linear", "linear_input_grad"),
    ("linear", "linear_weight_grad"),
    ("linear_pair", "linear_pair_weight_grad"),
    ("head_linear", "head_linear_up"),
    ("head_linear", "head_linear_down"),
    ("head_linear", "head_weight_grad"),
    ("link_decoder", "link_decoder_products"),
    ("link_decoder", "link_decoder_input_grad"),
    ("link_decoder", "link_decoder_weight_grad"),
];

/// The architectures for which `__launch_bounds__` are chosen.
const TUNED: [&str; 2] = ["sm_80", "sm_90a"];

/// Returns the path of the compiler's report on every kernel; `None` if the kernels were not compiled.
fn report() -> Option<PathBuf> {
    let path = option_env!("TGNN_PTXAS").map(PathBuf::from);
    if path.is_none() {
        println!("skipped: built without nvcc, see scripts/fetch-nvcc");
    }
    path
}

/// Parses a report: for every kernel its name with architecture, and the text about it.
fn kernels(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.split("Compiling entry function ").nth(1) {
            found.push((name.replace('\'', ""), String::new()));
        } else if let Some((_, text)) = found.last_mut() {
            text.push_str(line);
            text.push('\n');
        }
    }
    found
}

/// Returns the claims of every kernel's `__launch_bounds__(threads, blocks)`: name, threads per block, and
/// blocks that fit on a multiprocessor.
fn claims() -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("kernels")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "cu") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for kernel in text.split("extern \"C\" __global__ void").skip(1) {
            let signature = kernel.split_once('{').map_or(kernel, |(s, _)| s);
            let bounds = signature.trim().strip_prefix("__launch_bounds__(").and_then(|s| s.split_once(')'));
            let claim = bounds.and_then(|(bounds, rest)| {
                let (threads, blocks) = bounds.split_once(", ")?;
                let name = rest.trim().split('(').next()?;
                let blocks = match blocks {
                    "FULL" => 8,
                    "FULL / 2" | "MESSAGE_BLOCKS" => 4,
                    blocks => blocks.parse().ok()?,
                };
                Some((name.to_owned(), threads.parse().ok()?, blocks))
            });
            found.push(claim.unwrap_or_else(|| panic!("{path:?}: no threads and blocks in `{signature}`")));
        }
    }
    found
}

/// Returns the number before the first `unit` in the report on a kernel; 0 if there is none.
fn number(report: &str, unit: &str) -> usize {
    let words = report.split(unit).next().filter(|w| w.len() < report.len());
    words.and_then(|w| w.trim_end().rsplit([' ', ',']).next()?.parse().ok()).unwrap_or(0)
}

/// Returns the number of blocks of `threads` that fit on a multiprocessor with `shared` bytes of shared
/// memory. Source: CUDA's `cuda_occupancy.h`.
fn blocks_that_fit(threads: usize, registers: usize, block_shared: usize, shared: usize) -> usize {
    // Each of the four partitions of a multiprocessor has a quarter of the registers, and takes every fourth
    // warp.
    let warp_registers = (32 * registers).next_multiple_of(256);
    let by_registers = 4 * (16_384 / warp_registers) / threads.div_ceil(32).next_multiple_of(4);
    let by_shared = shared / (block_shared.next_multiple_of(128) + 1024);
    by_registers.min(by_shared).min(2048 / threads).min(32)
}

#[test]
#[cfg_attr(not(kernels_compiled), ignore = "built without nvcc: scripts/fetch-nvcc")]
fn each_kernel_fits_the_blocks_per_multiprocessor_that_it_claims() {
    assert_eq!(blocks_that_fit(256, 64, 0, 164 << 10), 4, "registers");
    assert_eq!(blocks_that_fit(256, 16, 40 << 10, 164 << 10), 4, "shared memory");
    assert_eq!(blocks_that_fit(1024, 16, 0, 164 << 10), 2, "threads");
    let Some(path) = report() else { return };
    let report = kernels(&fs::read_to_string(path).unwrap());
    for (architecture, shared) in [("sm_80", 164 << 10), ("sm_90a", 228 << 10)] {
        for (name, threads, blocks) in claims() {
            let entry = format!("{name} for {architecture}");
            let (_, text) = report.iter().find(|(n, _)| *n == entry).unwrap_or_else(|| panic!("no {entry}"));
            let (registers, block_shared) = (number(text, " registers"), number(text, " bytes smem"));
            assert!(registers > 0, "{entry}: {text}");
            let fit = blocks_that_fit(threads, registers, block_shared, shared);
            assert!(fit >= blocks, "{entry}: {blocks} blocks are claimed, {fit} fit: {registers} registers");
        }
    }
}

#[test]
#[cfg_attr(not(kernels_compiled), ignore = "built without nvcc: scripts/fetch-nvcc")]
fn no_kernel_keeps_arrays_in_memory_or_waits_for_each_product_and_only_products_spill_a_few_registers() {
    let Some(path) = report() else { return };
    let text = fs::read_to_string(path).unwrap();
    // What ptxas does if it finds other instructions among those of wgmma; it says so beside the kernels.
    let serialised = text.lines().find(|line| line.contains("are serialized"));
    assert_eq!(serialised, None);
    let kernels = kernels(&text);
    assert!(kernels.len() >= 2, "the report names no kernels");
    for (name, text) in &kernels {
        assert!(text.contains("Used "), "{name}: no registers in the report");
        // The sums of a product and their operands, in neighbouring registers, leave little room for others.
        // Registers are only counted out for the two architectures below.
        let most = match PRODUCTS.iter().any(|(_, kernel)| name.split(' ').next() == Some(kernel)) {
            true => 128,
            false if TUNED.iter().any(|architecture| name.ends_with(architecture)) => 0,
            false => 32,
        };
        let bytes = number(text, " bytes stack frame");
        assert!(
            text.contains(" bytes stack frame") && bytes <= most,
            "{name}: {bytes} bytes in memory\n{text}"
        );
    }
    for architecture in TUNED {
        assert!(kernels.iter().any(|(name, _)| name.ends_with(architecture)), "nothing for {architecture}");
    }
}

/// Returns the machine code of a kernel for compute capability 9.0.
fn machine_code(report: &Path, file: &str, kernel: &str) -> Option<String> {
    machine_code_for("sm_90a", report, file, kernel)
}

/// Returns the machine code of a kernel for an architecture.
fn machine_code_for(architecture: &str, report: &Path, file: &str, kernel: &str) -> Option<String> {
    let tool = root().join(".cuda/nvidia/cu13/bin/cuobjdump");
    if !tool.exists() {
        println!("skipped: no disassembler, see scripts/fetch-nvcc");
        return None;
    }
    let image = report.with_file_name(file).with_extension("fatbin");
    let path =
        std::env::join_paths([tool.parent().unwrap(), Path::new("/usr/bin"), Path::new("/bin")]).unwrap();
    let mut command = Command::new(&tool);
    command.args(["-arch", architecture, "-sass", "-fun", kernel]).arg(image).env("PATH", path);
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some(String::from_utf8(out.stdout).unwrap())
}

#[test]
#[cfg_attr(not(kernels_compiled), ignore = "built without nvcc: scripts/fetch-nvcc")]
fn kernels_that_move_rows_load_and_store_sixteen_bytes_at_a_time() {
    let Some(report) = report() else { return };
    for file in [
        "deliver_mails",
        "gather_rows",
        "gru_gates",
        "gru_state",
        "lstm_cell",
        "project_time",
        "spmm",
        "temporal_attention",
        "write_rows",
    ] {
        let kernel = file;
        let Some(code) = machine_code(&report, file, kernel) else { return };
        for instruction in ["LDG.E.128", "STG.E.128"] {
            assert!(code.contains(instruction), "{kernel} has no {instruction}");
        }
    }
}

#[test]
#[cfg_attr(not(kernels_compiled), ignore = "built without nvcc: scripts/fetch-nvcc")]
fn dense_products_run_on_the_matrix_units() {
    let Some(report) = report() else { return };
    for (file, kernel) in PRODUCTS {
        let Some(code) = machine_code(&report, file, kernel) else { return };
        // Operands along the sum are read 16 bytes at a time.
        let wide = if kernel.contains("weight_grad") { &[][..] } else { &["LDG.E.128"] };
        for instruction in [&["HGMMA.64x64x8.F32.TF32"], wide].concat() {
            assert!(code.contains(instruction), "{kernel} has no {instruction}");
        }
        // The memory updates scatter their results.
        assert!(file.contains("memory") || code.contains("STG.E.128"), "{kernel} has no STG.E.128");
        waits_before_it_reads(kernel, &code);
        let older = machine_code_for("sm_80", &report, file, kernel).unwrap();
        assert!(older.contains("HMMA.1688.F32.TF32"), "{kernel} for sm_80");
    }
}

#[test]
#[cfg_attr(not(kernels_compiled), ignore = "built without nvcc: scripts/fetch-nvcc")]
fn a_product_has_a_short_loop_for_each_precision_and_alignment_which_keeps_all_in_registers() {
    let Some(report) = report() else { return };
    for (file, kernel) in PRODUCTS {
        let Some(code) = machine_code(&report, file, kernel) else { return };
        let slabs = innermost_loops(&code).into_iter().filter(|code| code.contains("HGMMA"));
        // The loop of before tests its precision among the products; behind a test, ptxas begins them anew.
        let (known, tested): (Vec<String>, Vec<String>) =
            slabs.partition(|slab| slab.matches("WARPGROUP.ARRIVE").count() == 1);
        // Only operands along the sum may be unaligned; in memory updates these have the loop of before.
        let alignments = if kernel.contains("weight_grad") || kernel.ends_with("_memory") { 1 } else { 2 };
        let of =
            |products: usize| known.iter().filter(|slab| slab.matches("HGMMA").count() == products).count();
        let each = alignments * tested.len();
        assert!(
            each > 0 && (of(6), of(2)) == (each, each) && known.len() == 2 * each,
            "{kernel}: {} and {}",
            tested.len(),
            known.len()
        );
        known.iter().for_each(|slab| check_slab(kernel, slab));
    }
}

/// Checks a loop over slabs: its products run while the next slab is prepared, and the matrix units see what
/// threads have stored in shared memory; it is short, and nothing in it is spilled.
fn check_slab(kernel: &str, slab: &str) {
    let count = |what: &str| slab.matches(what).count();
    assert_eq!((count("WARPGROUP.DEPBAR"), count("BAR.SYNC")), (1, 1), "{kernel}");
    let fence = slab.find("FENCE.VIEW.ASYNC").filter(|fence| Some(*fence) < slab.find("BAR.SYNC"));
    assert!(fence.is_some(), "{kernel}");
    // Where a time encoding is learned, most of the loop computes columns.
    let computes = slab.contains("DMUL");
    let most = match kernel {
        _ if computes => 960,
        "head_linear_up" => 270,
        "head_weight_grad" => 335,
        _ if kernel.contains("weight_grad") => 270,
        _ => 200,
    };
    let length = slab.lines().count();
    assert!(length <= most, "{kernel}: {length} instructions for a slab");
    let spilled = count("LDL") + count("STL");
    assert!(computes || spilled == 0, "{kernel}: {spilled} of {length} instructions for a slab spill");
}

/// Returns the instructions of the loops that contain no other loop.
fn innermost_loops(code: &str) -> Vec<String> {
    let address = |line: &str| {
        let (address, instruction) = line.trim_start().strip_prefix("/*")?.split_once("*/")?;
        Some((u64::from_str_radix(address, 16).ok()?, instruction.trim().to_owned()))
    };
    let instructions: Vec<(u64, String)> = code.lines().filter_map(address).collect();
    let mut loops = Vec::new();
    for (end, (from, instruction)) in instructions.iter().enumerate() {
        let target = instruction.split_once("BRA").and_then(|(_, rest)| rest.split_once("0x"));
        let hex =
            target.map(|(_, rest)| rest.chars().take_while(char::is_ascii_hexdigit).collect::<String>());
        let Some(to) = hex.and_then(|hex| u64::from_str_radix(&hex, 16).ok()).filter(|to| to < from) else {
            continue;
        };
        let first = instructions.partition_point(|(at, _)| *at < to);
        if loops.iter().all(|&(inner, _): &(usize, usize)| inner < first) {
            loops.push((first, end));
        }
    }
    let text = |(first, end): (usize, usize)| {
        instructions[first..=end].iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n")
    };
    loops.into_iter().map(text).collect()
}

/// Small operands leave two innermost loops: one over angles of any size, which rarely runs (it has the
/// arithmetic in f64), and in the gradient one that stores rows, two at a time. Without sines a round over
/// two angles has 116 instructions, with them 143.
#[test]
#[cfg_attr(not(kernels_compiled), ignore = "built without nvcc: scripts/fetch-nvcc")]
fn attention_over_small_operands_has_no_inner_loops_and_its_gradient_no_sines_if_time_encodings_are_fixed() {
    let Some(report) = report() else { return };
    for (kernel, angles, stores, longest) in [
        ("temporal_attention_small", 1, 0, 60),
        ("temporal_attention_grad_small", 1, 1, 60),
        ("temporal_attention_grad_fixed", 4, 2, 120),
    ] {
        let Some(code) = machine_code(&report, "temporal_attention", kernel) else { return };
        // Code behind the kernel's end, where warps of which threads are missing wait for them, jumps back.
        let loops = innermost_loops(&code).into_iter().filter(|text| !text.contains("ENDCOLLECTIVE"));
        let (of_angles, others): (Vec<_>, Vec<_>) = loops.partition(|text| text.contains("DFMA"));
        let of_stores = others.iter().filter(|text| text.contains("STG")).count();
        assert_eq!((of_angles.len(), others.len(), of_stores), (angles, stores, stores), "{kernel}");
        for text in of_angles.iter().chain(&others) {
            let length = text.lines().count();
            assert!(length <= longest && !text.contains("LDL"), "{kernel}: {length} instructions\n{text}");
        }
    }
}

/// Checks that a kernel waits for the end of the previous one before it uses memory.
fn waits_before_it_reads(kernel: &str, code: &str) {
    let waits = code.find("ACQBULK").unwrap_or_else(|| panic!("{kernel} has no ACQBULK"));
    let first = ["LDG", "STG", "ATOM", "RED."].iter().filter_map(|i| code.find(i)).min();
    assert!(first.is_some_and(|first| waits < first), "{kernel} uses memory before ACQBULK");
}

#[test]
fn every_kernel_waits_for_the_previous_one_before_anything_else() {
    let files = fs::read_dir(root().join("kernels")).unwrap().map(|file| file.unwrap().path());
    for (text, path) in files.map(|path| (fs::read_to_string(&path).unwrap_or_default(), path)) {
        for kernel in text.split("extern \"C\" __global__").skip(1) {
            let first =
                kernel.split_once(") {\n").map(|(_, body)| body.lines().next().unwrap_or_default().trim());
            assert_eq!(first, Some("after_previous_kernel();"), "{path:?}: {kernel:.80}");
        }
    }
}

/// The emulated device runs one block after another, so it cannot show whether a block sees the writes of
/// another block.
#[test]
#[cfg_attr(not(kernels_compiled), ignore = "built without nvcc: scripts/fetch-nvcc")]
fn the_block_that_adds_up_partial_sums_reads_them_after_two_fences_and_past_the_l1_cache() {
    let Some(report) = report() else { return };
    for (file, kernel) in [
        ("memory_update", "memory_update_weight_grad"),
        ("memory_update", "memory_update_weight_grad_fixed"),
        ("head_linear", "head_weight_grad"),
        ("layer_norm", "layer_norm_grad"),
        ("ungroup_norm", "ungroup_norm_grad"),
        ("linear", "linear_weight_grad"),
        ("linear_pair", "linear_pair_weight_grad"),
        ("link_decoder", "link_decoder_grad"),
        ("link_decoder", "link_decoder_weight_grad"),
        ("mean", "mean"),
        ("pair_logits", "pair_logits_source_grad"),
        ("project_time", "project_time_grad"),
        ("clip_norm", "clip_norm"),
        ("spmm", "spmm"),
        ("spmm", "sum_rows"),
        ("squared_loss", "squared_loss"),
        ("time_encode", "time_encode_grad"),
    ] {
        let Some(code) = machine_code(&report, file, kernel) else { return };
        let mut rest = code.as_str();
        for next in ["BAR.SYNC", "MEMBAR.SC.GPU", "ATOMG.E.INC", "MEMBAR.SC.GPU", "BAR.RED.OR", "STRONG.GPU"]
        {
            let at = rest.find(next);
            rest =
                &rest[at.unwrap_or_else(|| panic!("{kernel} has no {next} where it should")) + next.len()..];
        }
    }
}

/// The interpreter of PTX shows the writes of other blocks to shared memory at once, and not what ptxas makes
/// of the barriers.
#[test]
#[cfg_attr(not(kernels_compiled), ignore = "built without nvcc: scripts/fetch-nvcc")]
fn the_block_that_adds_up_the_sums_of_its_cluster_reads_their_shared_memory_between_two_barriers() {
    let Some(report) = report() else { return };
    let Some(code) = machine_code(&report, "head_linear", "head_linear_down") else { return };
    let behind_the_stores = code.rsplit_once("STS.128").expect("it stores its sums").1;
    let mut rest = behind_the_stores;
    for next in ["UCGABAR_ARV", "UCGABAR_WAIT", "LD.E.128", "UCGABAR_ARV", "UCGABAR_WAIT", "EXIT"] {
        let at = rest.find(next).unwrap_or_else(|| panic!("there is no {next} where it should be"));
        rest = &rest[at + next.len()..];
    }
    // The first barrier waits for shared memory alone.
    let first = behind_the_stores.split("UCGABAR_ARV").next().unwrap_or_default();
    assert!(first.contains("MEMBAR.ALL.CTA") && !first.contains("GPU"), "{first}");
}
