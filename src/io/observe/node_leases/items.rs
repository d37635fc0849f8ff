//! Cuts the objects out of a list in JSON while it streams by, so that never more than one is held.

const ITEMS: &[u8] = b"items";

/// Where in a list the cutter is.
#[derive(Debug, Default)]
pub(super) struct ItemCutter {
    /// Open braces and brackets.
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// The last text at the top, as far as it is needed: the key of what follows.
    key: Vec<u8>,
    in_items: bool,
    seen_items: bool,
    begun: bool,
    whole: bool,
    item: Vec<u8>,
    /// The item is larger than allowed and is passed over.
    too_large: bool,
    limit: usize,
}

impl ItemCutter {
    /// A cutter that passes over objects larger than `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// Takes the next piece and hands every object that ends in it to `take`; `None` stands for one that is too large.
    pub(super) fn feed(
        &mut self,
        chunk: &[u8],
        take: &mut impl FnMut(Option<&[u8]>),
    ) -> Result<(), &'static str> {
        for &byte in chunk {
            if self.in_string {
                self.keep(byte);
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ if self.depth == 1 && self.key.len() <= ITEMS.len() => self.key.push(byte),
                    _ => {}
                }
                continue;
            }
            if !self.begun && !byte.is_ascii_whitespace() {
                if byte != b'{' {
                    return Err("the answer is not JSON");
                }
                self.begun = true;
            }
            match byte {
                b'{' | b'[' => {
                    if self.depth == 1 && byte == b'[' && self.key == ITEMS {
                        (self.in_items, self.seen_items) = (true, true);
                    }
                    self.depth += 1;
                    self.keep(byte);
                }
                b'}' | b']' => {
                    self.keep(byte);
                    self.depth = self.depth.checked_sub(1).ok_or("the answer is not JSON")?;
                    self.closed(take)?;
                }
                _ => {
                    // Go writes an empty list as null when it was never made.
                    self.seen_items |= self.depth == 1 && byte == b'n' && self.key == ITEMS;
                    self.in_string = byte == b'"';
                    if self.in_string && self.depth == 1 {
                        self.key.clear();
                    }
                    self.keep(byte);
                }
            }
        }
        Ok(())
    }

    fn closed(&mut self, take: &mut impl FnMut(Option<&[u8]>)) -> Result<(), &'static str> {
        match self.depth {
            2 if self.in_items => {
                take((!self.too_large).then_some(&self.item));
                self.item.clear();
                self.too_large = false;
            }
            1 => self.in_items = false,
            0 if !self.seen_items => return Err("the answer is no list"),
            0 => self.whole = true,
            _ => {}
        }
        Ok(())
    }

    fn keep(&mut self, byte: u8) {
        if self.in_items && self.depth > 2 && !self.too_large {
            self.item.push(byte);
            if self.item.len() > self.limit {
                self.item = Vec::new();
                self.too_large = true;
            }
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(pieces: &[&[u8]], limit: usize) -> (Vec<String>, bool) {
        let (mut items, mut found) = (ItemCutter::new(limit), Vec::new());
        for piece in pieces {
            let taken = items.feed(piece, &mut |item| {
                found.push(item.map_or("too large".into(), |it| String::from_utf8_lossy(it).into_owned()));
            });
            taken.expect("a list");
        }
        (found, items.is_whole())
    }

    const LIST: &[u8] = br#"{"kind":"L","metadata":{"x":{"y":"}]"}},"items":[{"a":{"b":"\"}{"}} ,
        {"c":[1,{"d":2}]}],"more":"[{"}"#;

    #[test]
    fn objects_are_cut_out_whatever_stands_in_them_and_wherever_the_pieces_end() {
        let expected = (
            vec![
                r#"{"a":{"b":"\"}{"}}"#.to_owned(),
                r#"{"c":[1,{"d":2}]}"#.to_owned(),
            ],
            true,
        );
        for at in 0..LIST.len() {
            assert_eq!(cut(&[&LIST[..at], &LIST[at..]], 100), expected, "cut at {at}");
        }
        assert_eq!(cut(&LIST.chunks(1).collect::<Vec<_>>(), 100), expected);
    }

    #[test]
    fn an_object_that_is_too_large_is_not_kept_and_the_next_one_is() {
        assert_eq!(cut(&[LIST], 17).0, ["too large", r#"{"c":[1,{"d":2}]}"#]);
    }

    #[test]
    fn an_empty_list_is_whole_and_a_cut_one_is_not() {
        assert_eq!(cut(&[br#"{"items":[]}"#], 100), (Vec::new(), true));
        assert_eq!(cut(&[br#"{"items":null}"#], 100), (Vec::new(), true));
        assert_eq!(cut(&[br#"{"items":[]"#], 100), (Vec::new(), false));
    }

    #[test]
    fn what_is_no_list_is_an_error() {
        let others = [
            r#"{"items":{}}"#,
            r#"{"error":null}"#,
            r#"{"errors":[{"message":"items"}]}"#,
        ];
        for body in ["<html>", "[]", "\"x\"", "{}"].into_iter().chain(others) {
            let fed = ItemCutter::new(100).feed(body.as_bytes(), &mut |_| {});
            assert!(fed.is_err(), "{body}");
        }
    }
}
