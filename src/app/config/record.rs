//! Where observations are recorded.

use std::path::PathBuf;

use super::MIB;
use super::section::Section;

/// Where observations are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordConfig {
    /// The folder.
    pub directory: PathBuf,
    /// Most bytes that all recordings in the folder may take: 8 MiB to 1 TiB.
    pub max_bytes: u64,
}

impl RecordConfig {
    pub(super) fn read(section: &mut Section<'_>, flag: Option<PathBuf>) -> Option<Self> {
        let key = section.text("directory").map(PathBuf::from);
        let max_bytes = section.number("maxMebibytes", 256, 8..=1_048_576) * MIB;
        Some(Self {
            directory: flag.or(key)?,
            max_bytes,
        })
    }
}
