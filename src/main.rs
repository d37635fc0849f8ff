//! The `hookwatch` binary.
fn main() {}
