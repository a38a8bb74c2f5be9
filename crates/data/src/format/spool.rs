//! Copies of streams, for formats that are not read from their start to their end.
use std::{
    fs::{self, File},
    io::{self, Read, Seek},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};
use tgnn::error::{Error, Result};

/// Copies a stream to a file without a name, which goes away when it is closed. Errors name `path`.
pub(super) fn copy(path: &Path, mut stream: impl Read) -> Result<File> {
    static COPIES: AtomicU64 = AtomicU64::new(0);
    let (process, copy) = (std::process::id(), COPIES.fetch_add(1, Ordering::Relaxed));
    let name = std::env::temp_dir().join(format!("tgnn-stream-{process}-{copy}"));
    let mut copied = || -> io::Result<File> {
        let mut file = File::options().read(true).write(true).create_new(true).open(&name)?;
        // Where an open file cannot be removed, its name stays.
        let _ = fs::remove_file(&name);
        io::copy(&mut stream, &mut file)?;
        file.rewind()?;
        Ok(file)
    };
    copied().map_err(|e| Error::io(path, format!("cannot copy to {}", name.display()), e))
}
