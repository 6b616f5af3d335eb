//! The policies folder: `providers/*.yaml`, each one profile, in the place of the built-in ones.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use super::{LoadError, unreadable};
use crate::profile::Profile;

/// Folder of the profiles.
pub(super) const PROVIDERS: &str = "providers";

/// Reads every profile, in order of file name; anything unknown is an error.
pub(super) fn read(folder: &Path) -> Result<Vec<Profile>, LoadError> {
    for path in entries(folder)? {
        if !path.ends_with(PROVIDERS) {
            return Err(LoadError::UnknownPolicy { path });
        }
    }
    let folder = folder.join(PROVIDERS);
    let (mut profiles, mut names) = (Vec::new(), BTreeSet::new());
    for path in entries(&folder)? {
        if !path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
            return Err(LoadError::UnknownPolicy { path });
        }
        let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, error))?;
        let profile =
            Profile::parse(&text).map_err(|error| LoadError::Profile { path: path.clone(), error })?;
        if !names.insert(profile.name.clone()) {
            return Err(LoadError::SameProfile { path, name: profile.name });
        }
        profiles.push(profile);
    }
    if profiles.is_empty() { Err(LoadError::NoProfile { path: folder }) } else { Ok(profiles) }
}

/// What is in a folder, in order, without the `..data` and `..2026_...` of a mounted ConfigMap.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let read = || -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        let own = entries.into_iter().filter(|entry| !entry.file_name().to_string_lossy().starts_with(".."));
        Ok(own.map(|entry| entry.path()).collect())
    };
    let mut paths = read().map_err(|error| unreadable(folder, error))?;
    paths.sort();
    Ok(paths)
}
