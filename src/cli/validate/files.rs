//! Files from disk, as the daemon would see them in Git: plain ones, within its limits.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use crate::{
    api::names::Oid,
    manifest::{Code, Diagnostic, Severity, yaml},
    world::git::{Blob, Files},
};

/// Files that are read at most.
const MAX_FILES: usize = 10_000;
/// Folders below a given one.
const MAX_LEVELS: usize = 64;

/// What was found on disk.
#[derive(Debug, Default)]
pub(in crate::cli) struct Found {
    /// YAML files by the path that is shown.
    pub(in crate::cli) files: Files,
    /// What was not read, and why.
    pub(in crate::cli) skipped: Vec<Diagnostic>,
}

/// Reads the given files and everything below the given folders; hidden folders such as `.git` are left out.
pub(in crate::cli) fn gather(paths: &[PathBuf]) -> Found {
    let mut found = Found::default();
    for path in paths {
        if path.is_dir() {
            found.folder(path, MAX_LEVELS);
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
    let extension = path.extension().map(OsStr::to_ascii_lowercase);
    extension.is_some_and(|extension| extension == "yaml" || extension == "yml")
}

impl Found {
    fn named(&mut self, path: &Path) {
        if is_yaml(path) {
            self.file(path);
        } else {
            self.skip(
                path,
                Severity::Warning,
                Code::Skipped,
                "only .yaml and .yml files are read".to_owned(),
            );
        }
    }

    fn folder(&mut self, folder: &Path, levels: usize) {
        if levels == 0 {
            let message = format!("folders below {MAX_LEVELS} levels are not read");
            return self.skip(folder, Severity::Error, Code::Limit, message);
        }
        let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(error) => return self.skip(folder, Severity::Error, Code::Skipped, error.to_string()),
        };
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !hidden => self.folder(&path, levels - 1),
                Ok(kind) if kind.is_file() && is_yaml(&path) => self.file(&path),
                Ok(kind) if kind.is_symlink() && is_yaml(&path) => {
                    let message = "a symbolic link is not followed in Git".to_owned();
                    self.skip(&path, Severity::Warning, Code::Skipped, message);
                }
                Ok(_) => {}
                Err(error) => self.skip(&path, Severity::Error, Code::Skipped, error.to_string()),
            }
        }
    }

    fn file(&mut self, path: &Path) {
        if self.files.len() == MAX_FILES {
            let known = self.skipped.iter().any(|found| found.message.starts_with("more than"));
            if !known {
                let message = format!("more than {MAX_FILES} files; this one and later ones are not read");
                self.skip(path, Severity::Error, Code::Limit, message);
            }
            return;
        }
        match read(path) {
            Ok(bytes) => {
                self.files.insert(shown(path), Blob { oid: Oid::from(""), bytes: bytes.into() });
            }
            Err(error) => self.skip(path, Severity::Error, Code::Skipped, error.to_string()),
        }
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
