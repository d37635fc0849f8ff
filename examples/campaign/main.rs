//! A measured accuracy.
mod model;
mod random;
fn main() {}
