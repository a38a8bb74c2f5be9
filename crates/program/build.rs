//! Tells the tests what the build of the kernels has found.
use std::env;

fn main() {
    println!("cargo:rustc-check-cfg=cfg(kernels_compiled, nvtx_headers)");
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("DEP_TGNN_COMPILED").is_some() {
        println!("cargo:rustc-cfg=kernels_compiled");
    }
    if let Ok(headers) = env::var("DEP_TGNN_NVTX_HEADERS") {
        println!("cargo:rustc-cfg=nvtx_headers");
        println!("cargo:rustc-env=TGNN_NVTX_HEADERS={headers}");
    }
}
