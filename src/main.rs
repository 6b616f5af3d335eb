//! Arguments to library.

fn main() {}
