//! The `hookwatch` binary. Everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    hookwatch::cli::main()
}
