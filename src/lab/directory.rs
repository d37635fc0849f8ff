//! Temporary directories that only their owner may read.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use tempfile::TempDir;

/// A directory that only its owner can enter, removed with everything in it when dropped.
#[derive(Debug)]
pub struct PrivateDirectory(TempDir);

impl PrivateDirectory {
    /// Makes a new one in the system's temporary directory.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create() -> anyhow::Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder
            .prefix("hookwatch-demo-")
            .permissions(Permissions::from_mode(0o700));
        let made = builder.tempdir();
        made.map(Self).context("making a temporary directory")
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a new file into it that only its owner can read; returns where it is.
    ///
    /// # Errors
    /// When the file exists already or cannot be written.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.path().join(name);
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_for_its_owner_only_and_goes_away() {
        let directory = PrivateDirectory::create().unwrap();
        let path = directory.path().to_owned();
        let file = directory.write("kubeconfig", "secret").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&file)), (0o700, 0o600));
        drop(directory);
        assert!(!path.exists());
    }
}
