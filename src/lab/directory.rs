//! Temporary directories for what nobody else may read.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// A directory that only its owner can enter, removed with everything in it when dropped.
#[derive(Debug)]
pub struct PrivateDirectory {
    path: PathBuf,
}

impl PrivateDirectory {
    /// Makes a new one in the system's temporary directory.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create() -> anyhow::Result<Self> {
        // The hasher's keys are random; the mode and the refusal of an existing directory are what protects it.
        let random = RandomState::new().hash_one(std::process::id());
        let path = std::env::temp_dir().join(format!("hookwatch-demo-{random:016x}"));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("making the directory {}", path.display()))?;
        Ok(Self { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a new file into it that only its owner can read; returns where it is.
    ///
    /// # Errors
    /// When the file exists already or cannot be written.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.path.join(name);
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

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "a temporary directory stays behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

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
