//! Splits a watch's stream into lines. Each line is one event.

/// Splits a stream into lines. The caller limits its memory by checking [`pending`](Self::pending).
#[derive(Default)]
pub(super) struct Lines {
    buffer: Vec<u8>,
    /// Offset of the next line; everything before it was returned.
    begin: usize,
    /// There is no line feed between `begin` and this offset.
    searched: usize,
}

impl Lines {
    /// Appends the next piece of the stream, which may end within a line.
    pub(super) fn feed(&mut self, chunk: &[u8]) {
        self.buffer.drain(..self.begin);
        self.searched -= self.begin;
        self.begin = 0;
        self.buffer.extend_from_slice(chunk);
    }

    /// The next whole line that is not blank.
    pub(super) fn next(&mut self) -> Option<&[u8]> {
        loop {
            let Some(at) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
                self.searched = self.buffer.len();
                return None;
            };
            let line = self.begin..self.searched + at;
            self.begin = line.end + 1;
            self.searched = self.begin;
            if !self.buffer[line.clone()].trim_ascii().is_empty() {
                return Some(&self.buffer[line]);
            }
        }
    }

    /// The length of the last, incomplete line, in bytes.
    pub(super) fn pending(&self) -> usize {
        self.buffer.len() - self.begin
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
                    seen.push(String::from_utf8_lossy(line).trim().to_owned());
                }
            }
            assert_eq!(seen, ["{\"a\":1}", "{\"b\":2}"]);
            assert_eq!(lines.pending(), 4);
        }
    }
}
