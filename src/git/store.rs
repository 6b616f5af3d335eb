//! The bare clone on disk.
//!
//! Guarantees: a clone made anew replaces the old one by a rename; lock files of a killed process do not block.
//! Assumptions: the folder belongs to one process alone and can be renamed (it is no mount point).

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use git2::{ErrorClass, ErrorCode, Repository, RepositoryInitOptions, RepositoryOpenFlags};

/// Packs after which a clone is made anew, since every fetch leaves one.
const MAX_PACKS: usize = 256;

/// Opens the clone and removes lock files that a killed process left.
pub(super) fn open(dir: &Path) -> Result<Repository, git2::Error> {
    let flags = RepositoryOpenFlags::BARE | RepositoryOpenFlags::NO_SEARCH | RepositoryOpenFlags::NO_DOTGIT;
    let repository = Repository::open_ext(dir, flags, None::<&Path>)?;
    remove_locks(dir).map_err(|error| on_disk(&error))?;
    Ok(repository)
}

/// Makes an empty clone beside `dir`, to be filled and then swapped in.
pub(super) fn init_beside(dir: &Path) -> Result<Repository, git2::Error> {
    let fresh = beside(dir, "new");
    remove(&fresh).map_err(|error| on_disk(&error))?;
    let mut options = RepositoryInitOptions::new();
    // A template could bring hooks and configuration.
    options.bare(true).mkpath(true).external_template(false);
    let repository = Repository::init_opts(&fresh, &options)?;
    repository.config()?.set_bool("http.followRedirects", false)?;
    Ok(repository)
}

/// Puts the clone made by `init_beside` in the place of the old one.
pub(super) fn swap_in(dir: &Path) -> Result<Repository, git2::Error> {
    let (fresh, old) = (beside(dir, "new"), beside(dir, "old"));
    let swap = || -> io::Result<()> {
        remove(&old)?;
        match fs::rename(dir, &old) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        fs::rename(&fresh, dir)?;
        remove(&old)
    };
    swap().map_err(|error| on_disk(&error))?;
    open(dir)
}

/// Says whether so many packs have gathered that reading becomes slow.
pub(super) fn is_worn(repository: &Repository) -> bool {
    fs::read_dir(repository.path().join("objects/pack")).is_ok_and(|files| {
        files.flatten().filter(|file| file.path().extension().is_some_and(|e| e == "pack")).count()
            > MAX_PACKS
    })
}

fn beside(dir: &Path, suffix: &str) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(suffix);
    dir.with_file_name(name)
}

fn remove(path: &Path) -> io::Result<()> {
    let result = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Locks are on refs and on the files at the top; objects are written under unique names.
fn remove_locks(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() && (path.ends_with("refs") || path.iter().any(|part| part == "refs")) {
            remove_locks(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "lock") {
            remove(&path)?;
        }
    }
    Ok(())
}

fn on_disk(error: &io::Error) -> git2::Error {
    git2::Error::new(ErrorCode::GenericError, ErrorClass::Os, error.to_string())
}
