//! Files from disk, as the daemon would see them in Git: what it passes over is passed over and said here too.

use std::{
    fs::{self, DirEntry, File},
    io::{self, Read as _},
    path::{Component, Path, PathBuf},
};

use crate::{
    api::names::Oid,
    manifest::{self, Code, Diagnostic, MAX_FILES, MAX_LEVELS, Severity, Unread, yaml},
    world::git::{Blob, Files},
};

/// What was found on disk.
#[derive(Debug, Default)]
pub(in crate::cli) struct Found {
    /// YAML files by the path that is shown.
    pub(in crate::cli) files: Files,
    /// What was not read, and why.
    pub(in crate::cli) skipped: Vec<Diagnostic>,
}

/// Reads the given files and everything below the given folders except `.git`.
pub(in crate::cli) fn gather(paths: &[PathBuf]) -> Found {
    let mut found = Found::default();
    for path in paths {
        if path.is_dir() {
            let levels = path.components().filter(|part| matches!(part, Component::Normal(_))).count();
            found.folder(path, if path.is_relative() { levels } else { 0 });
        } else {
            found.named(path);
        }
    }
    found
}

/// A path as people wrote it, without a leading `./`.
pub(in crate::cli) fn shown(path: &Path) -> String {
    path.strip_prefix(".").unwrap_or(path).to_string_lossy().into_owned()
}

fn is_yaml(path: &Path) -> bool {
    manifest::is_yaml(&path.to_string_lossy())
}

impl Found {
    fn named(&mut self, path: &Path) {
        if is_yaml(path) {
            self.file(path, true);
        } else {
            let message = "only .yaml and .yml files are read".to_owned();
            self.skip(path, Severity::Warning, Code::Skipped, message);
        }
    }

    /// Reads a folder that is `levels` deep; the recursion ends at `MAX_LEVELS`.
    fn folder(&mut self, folder: &Path, levels: usize) {
        let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(error) => return self.skip(folder, Severity::Error, Code::Skipped, error.to_string()),
        };
        entries.sort_by_key(DirEntry::file_name);
        for entry in entries.iter().filter(|entry| entry.file_name() != ".git") {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_file() && !is_yaml(&path) => {}
                Ok(kind) if kind.is_file() || kind.is_dir() || kind.is_symlink() => {
                    self.entry(entry, kind, levels);
                }
                // No other kind of entry is ever in Git.
                Ok(_) => {}
                Err(error) => self.skip(&path, Severity::Error, Code::Skipped, error.to_string()),
            }
        }
    }

    fn entry(&mut self, entry: &DirEntry, kind: fs::FileType, levels: usize) {
        let path = entry.path();
        if entry.file_name().to_str().is_none() {
            self.unread(&path, Unread::Name);
        } else if levels >= MAX_LEVELS {
            self.unread(&path, Unread::Levels);
        } else if kind.is_symlink() {
            self.unread(&path, Unread::Symlink);
        } else if kind.is_dir() && path.join(".git").exists() {
            self.unread(&path, Unread::Submodule);
        } else if kind.is_dir() {
            self.folder(&path, levels + 1);
        } else {
            self.file(&path, false);
        }
    }

    fn file(&mut self, path: &Path, named: bool) {
        if self.files.len() == MAX_FILES {
            let known = self.skipped.iter().any(|found| found.message.starts_with("more than"));
            if !known {
                let message = format!("more than {MAX_FILES} files; this one and later ones are not read");
                self.skip(path, Severity::Error, Code::Limit, message);
            }
            return;
        }
        match read(path) {
            // One that names us, or that was named, gets an error where it is read.
            Ok(bytes) if bytes.len() > yaml::MAX_BYTES && !named && !manifest::names_us(&bytes) => {
                self.unread(path, Unread::Bytes);
            }
            Ok(bytes) => {
                self.files.insert(shown(path), Blob { oid: Oid::from(""), bytes: bytes.into() });
            }
            Err(error) => self.skip(path, Severity::Error, Code::Skipped, error.to_string()),
        }
    }

    fn unread(&mut self, path: &Path, why: Unread) {
        self.skipped.push(Diagnostic::unread(shown(path), why.as_str()));
    }

    fn skip(&mut self, path: &Path, severity: Severity, code: Code, message: String) {
        self.skipped.push(Diagnostic {
            path: shown(path),
            line: 0,
            column: 0,
            severity,
            code,
            message,
            snippet: String::new(),
            help: String::new(),
        });
    }
}

/// One byte more than is allowed shows that a file is too large without reading all of it.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let most = u64::try_from(yaml::MAX_BYTES).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}
