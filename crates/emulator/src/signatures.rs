//! Kernels and their signatures, read from their files.
use crate::files_in;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A kernel, as declared in its file.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// C type and name of each argument.
    pub arguments: Vec<(String, String)>,
    /// The declaration in C, without qualifiers.
    pub signature: String,
}

/// A kernel file.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path.
    pub path: PathBuf,
    /// Its kernels, in their order.
    pub kernels: Vec<Kernel>,
}

impl Source {
    /// Returns the name of the file, without its extension.
    ///
    /// # Panics
    /// If that is not UTF-8.
    pub fn stem(&self) -> &str {
        self.path.file_stem().and_then(|s| s.to_str()).expect("file names are plain")
    }
}

/// Returns the kernel files of a folder, `*.cu`, sorted by path.
///
/// # Panics
/// If a file cannot be read, has no kernel, or has a signature that cannot be parsed.
pub fn sources_in(folder: &Path) -> Vec<Source> {
    let paths = files_in(folder).into_iter().filter(|p| p.extension().is_some_and(|e| e == "cu"));
    paths
        .map(|path| {
            let text = fs::read_to_string(&path).expect("kernels are readable");
            let kernels = kernels(&path, &text);
            assert!(!kernels.is_empty(), "{}: no `extern \"C\" __global__` kernel", path.display());
            Source { path, kernels }
        })
        .collect()
}

/// Parses the signatures of the kernels in a file.
///
/// # Panics
/// If a signature cannot be parsed.
fn kernels(path: &Path, text: &str) -> Vec<Kernel> {
    let without_comment = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    let code = text.lines().map(without_comment).collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    for declaration in code.split("extern \"C\" __global__").skip(1) {
        let invalid = || panic!("{}: cannot parse the signature `{:.80}`", path.display(), declaration);
        let mut rest = declaration.trim_start().strip_prefix("void").unwrap_or_else(invalid).trim_start();
        if let Some(bounds) = rest.strip_prefix("__launch_bounds__(") {
            let bounds = bounds.split_once(')');
            let (_, after) =
                bounds.unwrap_or_else(|| panic!("{}: `__launch_bounds__(` is not closed", path.display()));
            rest = after.trim_start();
        }
        let (name, rest) = rest
            .split_once('(')
            .unwrap_or_else(|| panic!("{}: a kernel has no list of arguments", path.display()));
        let (list, _) = rest
            .split_once(')')
            .unwrap_or_else(|| panic!("{}: a list of arguments is not closed", path.display()));
        let arguments: Vec<(String, String)> = list
            .split(',')
            .map(|argument| {
                let words = argument.split_whitespace().filter(|word| *word != "__restrict__");
                let argument = words.collect::<Vec<_>>().join(" ");
                let end_of_type = argument.rfind([' ', '*']);
                let end_of_type = end_of_type
                    .unwrap_or_else(|| panic!("{}: argument `{argument}` has no type", path.display()));
                (argument[..=end_of_type].trim().to_owned(), argument[end_of_type + 1..].to_owned())
            })
            .collect();
        let signature =
            format!("void {}({})", name.trim(), list.split_whitespace().collect::<Vec<_>>().join(" "));
        found.push(Kernel { name: name.trim().to_owned(), arguments, signature });
    }
    found
}
