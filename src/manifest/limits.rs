//! What of a tree is not read, for the daemon in Git and for a person on disk alike.

/// Files that are read at most.
pub const MAX_FILES: usize = 10_000;
/// Levels of folders and file that a path may have.
pub const MAX_LEVELS: usize = 64;

/// Why an entry of a tree is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// A symbolic link, to whatever.
    Symlink,
    /// A repository within the repository.
    Submodule,
    /// A name that is not UTF-8.
    Name,
    /// Too many levels of folders.
    Levels,
    /// Too many files.
    Files,
    /// Too many bytes.
    Bytes,
}

impl Unread {
    /// The reason in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Symlink => "a symlink",
            Self::Submodule => "a submodule",
            Self::Name => "the name is not UTF-8",
            Self::Levels => "more than 64 levels deep",
            Self::Files => "more than 10,000 files",
            Self::Bytes => "larger than 1 MiB",
        }
    }
}
