//! The lines of a watch, each one event.

/// Cuts a stream into lines; what it holds is bounded by whoever looks at [`pending`](Self::pending).
#[derive(Default)]
pub(super) struct Lines {
    buffer: Vec<u8>,
    /// Up to here there is no line feed.
    searched: usize,
}

impl Lines {
    /// Takes the next piece, cut anywhere.
    pub(super) fn feed(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next whole line that is not blank.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let Some(at) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
                self.searched = self.buffer.len();
                return None;
            };
            let rest = self.buffer.split_off(self.searched + at + 1);
            let line = std::mem::replace(&mut self.buffer, rest);
            self.searched = 0;
            if line.iter().any(|byte| !byte.is_ascii_whitespace()) {
                return Some(line);
            }
        }
    }

    /// Bytes of the line that is not whole yet.
    pub(super) fn pending(&self) -> usize {
        self.buffer.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_out_whole_wherever_the_stream_is_cut() {
        let stream = b"{\"a\":1}\n\n{\"b\":2}\r\n{\"c\"";
        for size in 1..stream.len() {
            let (mut lines, mut seen) = (Lines::default(), Vec::new());
            for chunk in stream.chunks(size) {
                lines.feed(chunk);
                while let Some(line) = lines.next() {
                    seen.push(String::from_utf8(line).expect("text").trim().to_owned());
                }
            }
            assert_eq!(seen, ["{\"a\":1}", "{\"b\":2}"]);
            assert_eq!(lines.pending(), 4);
        }
    }
}
