//! Whether a body is an API server's metrics at all, decided while it streams.

use memchr::memmem::Finder;

/// Bytes after which a body without any metric family is given up, so that an endless one is not read on.
pub(super) const PATIENCE: u64 = 1024 * 1024;

/// Looks for the marks of an exposition in pieces cut anywhere.
pub(super) struct Sniffer {
    family: SoughtText,
    api_server: SoughtText,
    seen: u64,
    last: Option<u8>,
}

impl Sniffer {
    pub(super) fn new() -> Self {
        Self {
            family: SoughtText::new(b"\n# TYPE "),
            api_server: SoughtText::new(b"\n# TYPE apiserver_"),
            seen: 0,
            last: None,
        }
    }

    /// Looks at the next piece.
    pub(super) fn feed(&mut self, chunk: &[u8]) -> Result<(), String> {
        let Some(&last) = chunk.last() else { return Ok(()) };
        if self.seen == 0 {
            let first = chunk.iter().find(|byte| !byte.is_ascii_whitespace());
            match first {
                Some(b'<') => return Err("a page of HTML instead of metrics".to_owned()),
                Some(b'{' | b'[') => return Err("JSON instead of metrics".to_owned()),
                _ => {}
            }
        }
        if !self.family.found && memchr::memchr(0, chunk).is_some() {
            return Err("binary data instead of metrics".to_owned());
        }
        self.family.look(chunk);
        self.api_server.look(chunk);
        self.seen += chunk.len() as u64;
        self.last = Some(last);
        if !self.family.found && self.seen > PATIENCE {
            return Err(format!("no metric family within {} bytes", self.seen));
        }
        Ok(())
    }

    /// The result for the whole body: an error when it is not an API server's, else whether its last line is complete.
    pub(super) fn finish(self) -> Result<bool, String> {
        if self.seen == 0 {
            Err("an empty body instead of metrics".to_owned())
        } else if !self.family.found {
            Err("text without any metric family".to_owned())
        } else if !self.api_server.found {
            Err("metrics, but none of an API server (no apiserver_* family)".to_owned())
        } else {
            Ok(self.last == Some(b'\n'))
        }
    }
}

/// A text to find, also where it is cut between two pieces.
struct SoughtText {
    finder: Finder<'static>,
    /// The end of what was read so far, one byte shorter than the text.
    tail: Vec<u8>,
    found: bool,
}

impl SoughtText {
    fn new(text: &'static [u8]) -> Self {
        Self {
            finder: Finder::new(text),
            // A family on the very first line has no line feed before it.
            tail: vec![b'\n'],
            found: false,
        }
    }

    fn look(&mut self, chunk: &[u8]) {
        if self.found {
            return;
        }
        let overlap = self.finder.needle().len() - 1;
        let mut seam = std::mem::take(&mut self.tail);
        seam.extend_from_slice(&chunk[..chunk.len().min(overlap)]);
        self.found = self.finder.find(&seam).is_some() || self.finder.find(chunk).is_some();
        if chunk.len() >= overlap {
            self.tail = chunk[chunk.len() - overlap..].to_vec();
        } else {
            let kept = seam.len().min(overlap);
            self.tail = seam[seam.len() - kept..].to_vec();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sniff(pieces: &[&[u8]]) -> Result<bool, String> {
        let mut sniffer = Sniffer::new();
        for piece in pieces {
            sniffer.feed(piece)?;
        }
        sniffer.finish()
    }

    #[test]
    fn the_marks_are_found_wherever_the_body_is_cut() {
        let body = b"# HELP a b\n# TYPE go_x gauge\ngo_x 1\n# TYPE apiserver_y counter\napiserver_y 1\n";
        for first in 0..body.len() {
            for second in first..body.len() {
                let pieces = [&body[..first], &body[first..second], &body[second..]];
                assert_eq!(sniff(&pieces), Ok(true), "cut at {first} and {second}");
            }
        }
        assert_eq!(sniff(&body.chunks(1).collect::<Vec<_>>()), Ok(true));
        assert_eq!(sniff(&[b"# TYPE apiserver_y counter\n"]), Ok(true));
    }

    #[test]
    fn what_is_not_an_api_servers_exposition_is_said_to_be_what_it_is() {
        for (body, says) in [
            (&b""[..], "empty"),
            (b" \n<!doctype html><p># TYPE apiserver_", "HTML"),
            (b"{\"kind\":\"Status\"}", "JSON"),
            (b"\x0a\x05hello\x00", "binary"),
            (b"hello\n", "without any metric family"),
            (b"see # TYPE apiserver_\n", "without any metric family"),
            (b"# TYPE etcd_x counter\n", "none of an API server"),
        ] {
            let said = sniff(&[body]).expect_err("no metrics");
            assert!(said.contains(says), "{said}");
        }
    }

    #[test]
    fn an_endless_text_is_left_early() {
        let line = "blah blah\n".repeat(1_000);
        let pieces = vec![line.as_bytes(); 10_000];
        assert!(
            sniff(&pieces)
                .expect_err("no metrics")
                .contains("no metric family within")
        );
    }

    #[test]
    fn a_cut_within_a_line_is_noticed() {
        assert_eq!(
            sniff(&[b"# TYPE apiserver_y counter\napiserver_y 123"]),
            Ok(false)
        );
    }
}
