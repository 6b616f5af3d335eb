//! Makes commits out of trees and blobs, without index or work tree.

use std::collections::BTreeMap;

use git2::{FileMode, ObjectType, Oid, Repository, Signature, Time, Tree};

use crate::world::git::{Change, NewCommit};

/// Writes the commit and returns its id, which is a function of `new` alone.
///
/// A written file keeps the mode of the plain file it replaces and is an ordinary file otherwise, also where a symlink
/// or submodule was; emptied folders vanish. Writing what is there already, or removing what is not, changes nothing.
pub(super) fn write(repository: &Repository, new: &NewCommit) -> Result<Oid, git2::Error> {
    let parent = match &new.parent {
        Some(parent) => Some(repository.find_commit(Oid::from_str(parent.as_str())?)?),
        None => None,
    };
    let mut edits = Edits::default();
    for (path, change) in &new.changes {
        edits.add(path, change);
    }
    let base = parent.as_ref().map(git2::Commit::tree).transpose()?;
    let tree = match edits.apply(repository, base.as_ref())? {
        Some(tree) => tree,
        None => repository.treebuilder(None)?.write()?,
    };
    let by = Signature::new(&new.by.name, &new.by.email, &Time::new(new.at.as_second(), 0))?;
    let parents: Vec<_> = parent.iter().collect();
    repository.commit(None, &by, &by, &new.message, &repository.find_tree(tree)?, &parents)
}

/// Changes below one folder.
#[derive(Default)]
struct Edits<'a> {
    files: BTreeMap<&'a str, &'a Change>,
    folders: BTreeMap<&'a str, Edits<'a>>,
}

impl<'a> Edits<'a> {
    fn add(&mut self, path: &'a str, change: &'a Change) {
        match path.split_once('/') {
            Some((folder, rest)) => self.folders.entry(folder).or_default().add(rest, change),
            None => {
                self.files.insert(path, change);
            }
        }
    }

    /// Writes the changed tree; absent = nothing is left in it.
    fn apply(&self, repository: &Repository, base: Option<&Tree<'_>>) -> Result<Option<Oid>, git2::Error> {
        let mut builder = repository.treebuilder(base)?;
        // Folders first, so that a file can take the place of a folder emptied by the same commit.
        for (name, edits) in &self.folders {
            let below = match base.and_then(|base| base.get_name(name)) {
                Some(entry) if entry.kind() == Some(ObjectType::Tree) => {
                    Some(repository.find_tree(entry.id())?)
                }
                Some(_) | None => None,
            };
            match edits.apply(repository, below.as_ref())? {
                Some(tree) => {
                    builder.insert(*name, tree, FileMode::Tree.into())?;
                }
                None if below.is_some() => builder.remove(*name)?,
                None => {}
            }
        }
        for (name, change) in &self.files {
            let present = builder.get(*name)?.map(|entry| (entry.kind(), entry.filemode()));
            match change {
                Change::Write(bytes) => {
                    builder.insert(*name, repository.blob(bytes)?, mode_for(present))?;
                }
                Change::Remove if present.is_some_and(|(kind, _)| kind != Some(ObjectType::Tree)) => {
                    builder.remove(*name)?;
                }
                Change::Remove => {}
            }
        }
        if builder.is_empty() { Ok(None) } else { builder.write().map(Some) }
    }
}

fn mode_for(present: Option<(Option<ObjectType>, i32)>) -> i32 {
    match present {
        Some((Some(ObjectType::Blob), mode)) if mode != i32::from(FileMode::Link) => mode,
        Some(_) | None => FileMode::Blob.into(),
    }
}
