//! The measurements as Markdown.

use std::fmt::Write;

use super::noise::Samples;

/// A table with a header row.
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(head: &[&str]) -> Self {
        Self {
            head: head.iter().map(|cell| (*cell).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, cells: &[String]) {
        self.rows.push(cells.to_vec());
    }

    fn text(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = vec!["---".to_owned(); self.head.len()];
        let rows = self.rows.iter().map(|row| line(row));
        [line(&self.head), line(&rule)].into_iter().chain(rows).collect()
    }
}

/// A section of the document.
pub struct Section {
    title: String,
    parts: Vec<String>,
}

impl Section {
    pub fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            parts: Vec::new(),
        }
    }

    pub fn say(&mut self, sentence: &str) {
        self.parts.push(wrapped(sentence));
    }

    pub fn table(&mut self, table: Table) {
        self.parts.push(table.text());
    }

    /// Adds that something was not measured, and why.
    pub fn skip(&mut self, what: &str, why: &str) {
        self.say(&format!("{what}: **not measured**, because {why}."));
    }

    /// Adds a goal, the measured values, and whether their median meets the goal.
    pub fn goal(&mut self, what: &str, found: Samples, wanted: &str, enough: impl Fn(f64) -> bool) {
        let said = if enough(found.median()) {
            "met"
        } else {
            "**missed**"
        };
        self.say(&format!(
            "Goal: {what}: {wanted}. Measured: {found}. Goal {said}."
        ));
    }

    /// Adds a goal without a number, and whether it is met.
    pub fn verdict(&mut self, what: &str, holds: bool) {
        let said = if holds { "met" } else { "**missed**" };
        self.say(&format!("Goal: {what}. Goal {said}."));
    }

    pub fn text(&self) -> String {
        format!("## {}\n\n{}", self.title, self.parts.join("\n"))
    }
}

/// The whole document.
pub fn document(head: &str, sections: &[Section]) -> String {
    let mut text = head.to_owned();
    for section in sections {
        // Writing to a String does not fail.
        let _ = write!(text, "\n{}", section.text());
    }
    text
}

/// Lines of at most 140 characters.
fn wrapped(text: &str) -> String {
    let (mut out, mut width) = (String::new(), 0);
    for word in text.split_whitespace() {
        if width > 0 && width + 1 + word.len() > 140 {
            out.push('\n');
            width = 0;
        } else if width > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += word.len();
    }
    out.push('\n');
    out
}
