//! Arguments to library.

use std::process::ExitCode;

fn main() -> ExitCode {
    trunkline::cli::main()
}
