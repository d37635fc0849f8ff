//! Reads files up to a size limit.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Most bytes of a file with a certificate, key, password or token: 1 MiB.
pub const LONGEST_SECRET: u64 = 1 << 20;

/// Reads a whole file of at most `most` bytes. Reads no further than that, so endless files such as devices fail, too.
///
/// # Errors
/// If it cannot be read; [`ErrorKind::FileTooLarge`] if it has more than `most` bytes.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 <= most {
        return Ok(bytes);
    }
    let bound = match most {
        ..0x10_0000 => format!("{} KiB", most >> 10),
        _ => format!("{} MiB", most >> 20),
    };
    Err(Error::new(
        ErrorKind::FileTooLarge,
        format!("it is larger than {bound}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_bound_is_read_and_one_byte_more_is_too_much() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [b'a'; 4_096]).unwrap();
        assert_eq!(read(&path, 4_096).unwrap().len(), 4_096);
        std::fs::write(&path, [b'a'; 4_097]).unwrap();
        let error = read(&path, 4_096).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "it is larger than 4 KiB");
    }

    #[test]
    fn of_a_file_without_an_end_no_more_is_read_than_the_bound() {
        let error = read(Path::new("/dev/zero"), 1 << 20).unwrap_err();
        assert_eq!(error.to_string(), "it is larger than 1 MiB");
    }
}
