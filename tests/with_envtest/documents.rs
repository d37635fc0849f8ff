//! What the documents say and tests play: each part stands between marks with a name of its own.

use std::path::Path;

/// The part of a document that is marked by this name.
fn marked(name: &str) -> String {
    let (begin, end) = (format!("<!-- {name}:begin -->\n"), format!("<!-- {name}:end -->"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = ["docs", "deploy"].map(|folder| root.join(folder).read_dir().unwrap());
    let files = files.into_iter().flatten().map(|file| file.unwrap().path());
    let documents = files.filter(|file| file.extension().is_some_and(|extension| extension == "md"));
    let mut parts = documents.filter_map(|document| {
        let text = std::fs::read_to_string(document).unwrap();
        let (_, rest) = text.split_once(&begin)?;
        Some(rest.split_once(&end)?.0.to_owned())
    });
    parts.next().unwrap_or_else(|| panic!("no {begin}"))
}

/// The block of code that is marked by this name.
pub fn documented(name: &str) -> String {
    let part = marked(name);
    let (_fence, rest) = part.split_once('\n').unwrap();
    rest.strip_suffix("```\n").unwrap().to_owned()
}

/// The cells of each row of the table that is marked by this name, its head first.
pub fn rows(name: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    let part = marked(name);
    let is_rule = |line: &&str| line.trim_matches(['|', '-', ' ', ':']).is_empty();
    part.lines().filter(|line| !is_rule(line)).map(cells).collect()
}
