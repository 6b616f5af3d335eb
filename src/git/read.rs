//! Reads trees and commits of the clone.
//!
//! Guarantees: only plain files are read, each blob once for as long as it is in use; whatever is passed over is listed
//! with its path and the reason. Limits: see the constants.

use std::{collections::BTreeMap, sync::Arc};

use git2::{Commit, FileMode, ObjectType, Oid, Repository, Sort, Tree};
use jiff::Timestamp;

use super::TrackedQuery;
use crate::{
    api::names,
    manifest::{self, MAX_FILES, MAX_LEVELS, Unread, yaml},
    world::git::{Blob, CommitInfo, CommitStep, Descent, Files, StatusBranch, Tracked},
};

/// Steps that are kept; of more, the newest.
const MAX_STEPS: usize = 500;
/// Files over all steps; a step beyond it and all older ones are dropped.
const MAX_FILES_IN_STEPS: usize = 500_000;
/// Changed paths named per commit.
const MAX_CHANGED: usize = 50;

/// Files and passed-over entries below the paths of one commit.
#[derive(Clone, Default)]
struct Contents {
    files: Files,
    skipped: BTreeMap<String, Unread>,
}

/// Blobs in use, so that an unchanged file is neither read nor held twice.
#[derive(Default)]
pub(super) struct BlobCache {
    now: BTreeMap<Oid, Blob>,
    before: BTreeMap<Oid, Blob>,
}

impl BlobCache {
    /// Starts a read: what the last one did not use is forgotten after this one.
    fn turn(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }

    fn get(&mut self, repository: &Repository, id: Oid) -> Result<Blob, git2::Error> {
        if let Some(blob) = self.now.get(&id) {
            return Ok(blob.clone());
        }
        let blob = match self.before.remove(&id) {
            Some(blob) => blob,
            None => Blob { oid: name(id), bytes: Arc::from(repository.find_blob(id)?.content()) },
        };
        self.now.insert(id, blob.clone());
        Ok(blob)
    }
}

/// Reads the tracked branch as of `head`.
pub(super) fn tracked(
    repository: &Repository,
    cache: &mut BlobCache,
    query: &TrackedQuery,
    head: Option<Oid>,
) -> Result<Tracked, git2::Error> {
    cache.turn();
    let (descent, path) = match (head, &query.since) {
        (Some(head), Some(since)) => match path_from(repository, since, head)? {
            Some(path) => (Descent::Descends, path),
            None => (Descent::Rewritten, vec![head]),
        },
        (Some(head), None) => (Descent::First, vec![head]),
        (None, None) => (Descent::First, Vec::new()),
        (None, Some(_)) => (Descent::Rewritten, Vec::new()),
    };
    let mut reader = Reader { repository, cache, last: None };
    let mut read = Tracked {
        head: head.map(name),
        since: query.since.clone(),
        descent,
        steps: Vec::new(),
        at_head: Files::new(),
        skipped: Vec::new(),
        missing_paths: Vec::new(),
        branches: Vec::new(),
    };
    let Some(head) = head else { return Ok(read) };
    let places = places(&repository.find_commit(head)?.tree()?, &query.paths)?;
    read.missing_paths =
        places.iter().filter(|place| place.entry.is_none()).map(|place| place.path.clone()).collect();
    let at_head = reader.contents(&places)?;
    read.at_head = at_head.files;
    read.skipped = listed(at_head.skipped);
    let mut room = MAX_FILES_IN_STEPS;
    for id in path {
        let commit = repository.find_commit(id)?;
        let Contents { files, skipped } = reader.contents(&places_of(&commit, &query.paths)?)?;
        let needed = files.len() + skipped.len();
        if needed > room && !read.steps.is_empty() {
            break;
        }
        room = room.saturating_sub(needed);
        let changed = changed(repository, &commit)?;
        read.steps.push(CommitStep { commit: info(&commit), files, skipped: listed(skipped), changed });
    }
    read.steps.reverse();
    Ok(read)
}

/// Paths that a commit changed against its first parent, the first 50; none of a root commit.
fn changed(repository: &Repository, commit: &Commit<'_>) -> Result<Vec<String>, git2::Error> {
    if commit.parent_count() == 0 {
        return Ok(Vec::new());
    }
    let before = commit.parent(0)?.tree()?;
    let diff = repository.diff_tree_to_tree(Some(&before), Some(&commit.tree()?), None)?;
    let paths = diff.deltas().filter_map(|delta| delta.new_file().path().or_else(|| delta.old_file().path()));
    Ok(paths.take(MAX_CHANGED).map(|path| path.to_string_lossy().into_owned()).collect())
}

/// Reads all plain files of a branch.
pub(super) fn status(
    repository: &Repository,
    cache: &mut BlobCache,
    tip: Option<Oid>,
    lost: Option<Oid>,
) -> Result<StatusBranch, git2::Error> {
    cache.turn();
    let Some(last) = tip.or(lost) else { return Ok(StatusBranch::default()) };
    let commit = repository.find_commit(last)?;
    let mut contents = Contents::default();
    let mut walk = Walk { repository, cache, contents: &mut contents, wanted: |_| true };
    walk.tree(&commit.tree()?, "", 0)?;
    let (tip, lost) = (tip.map(name), lost.filter(|_| tip.is_none()).map(name));
    Ok(StatusBranch { tip, lost, files: contents.files, at: Some(time(&commit)) })
}

/// Commits after `since` up to `head`, newest first, at most `MAX_STEPS`; absent = `head` does not descend from it.
fn path_from(
    repository: &Repository,
    since: &names::Oid,
    head: Oid,
) -> Result<Option<Vec<Oid>>, git2::Error> {
    let Ok(since) = Oid::from_str(since.as_str()) else { return Ok(None) };
    if since == head {
        return Ok(Some(Vec::new()));
    }
    if repository.find_commit(since).is_err() {
        return Ok(None);
    }
    let mut walk = repository.revwalk()?;
    walk.set_sorting(Sort::TOPOLOGICAL | Sort::REVERSE)?;
    walk.push(head)?;
    walk.hide(since)?;
    // The parent through which each commit reaches `since`, the first where several do.
    let mut towards = BTreeMap::new();
    for id in walk {
        let commit = repository.find_commit(id?)?;
        let reaching = commit.parent_ids().find(|parent| *parent == since || towards.contains_key(parent));
        if let Some(parent) = reaching {
            towards.insert(commit.id(), parent);
        }
    }
    let mut path = Vec::new();
    let mut at = head;
    while at != since {
        let Some(parent) = towards.get(&at) else { return Ok(None) };
        if path.len() < MAX_STEPS {
            path.push(at);
        }
        at = *parent;
    }
    Ok(Some(path))
}

/// A configured path at one commit.
#[derive(Clone, PartialEq, Eq)]
struct Place {
    path: String,
    entry: Option<(Oid, i32)>,
}

fn places_of(commit: &Commit<'_>, paths: &[String]) -> Result<Vec<Place>, git2::Error> {
    places(&commit.tree()?, paths)
}

fn places(tree: &Tree<'_>, paths: &[String]) -> Result<Vec<Place>, git2::Error> {
    let place = |path: &String| {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        let path = parts.join("/");
        if path.is_empty() {
            return Ok(Place { path, entry: Some((tree.id(), FileMode::Tree.into())) });
        }
        match tree.get_path(path.as_ref()) {
            Ok(entry) => Ok(Place { path, entry: Some((entry.id(), entry.filemode())) }),
            Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(Place { path, entry: None }),
            Err(error) => Err(error),
        }
    };
    paths.iter().map(place).collect()
}

struct Reader<'a> {
    repository: &'a Repository,
    cache: &'a mut BlobCache,
    /// The places read last and what was there: most commits of a large repository touch none of them.
    last: Option<(Vec<Place>, Contents)>,
}

impl Reader<'_> {
    fn contents(&mut self, places: &[Place]) -> Result<Contents, git2::Error> {
        if let Some((last, contents)) = &self.last
            && last == places
        {
            return Ok(contents.clone());
        }
        let mut contents = Contents::default();
        let mut walk = Walk {
            repository: self.repository,
            cache: self.cache,
            contents: &mut contents,
            wanted: is_manifest,
        };
        for Place { path, entry } in places {
            let Some((id, mode)) = *entry else { continue };
            if mode == i32::from(FileMode::Tree) {
                let levels = path.split('/').filter(|part| !part.is_empty()).count();
                walk.tree(&self.repository.find_tree(id)?, path, levels)?;
            } else {
                walk.file(path.clone(), id, mode)?;
            }
        }
        self.last = Some((places.to_vec(), contents.clone()));
        Ok(contents)
    }
}

struct Walk<'a> {
    repository: &'a Repository,
    cache: &'a mut BlobCache,
    contents: &'a mut Contents,
    wanted: fn(&str) -> bool,
}

impl Walk<'_> {
    /// Reads a folder that is `levels` deep; the recursion ends at `MAX_LEVELS`.
    fn tree(&mut self, tree: &Tree<'_>, folder: &str, levels: usize) -> Result<(), git2::Error> {
        for entry in tree {
            let name = String::from_utf8_lossy(entry.name_bytes());
            let path = if folder.is_empty() { name.into_owned() } else { format!("{folder}/{name}") };
            let is_tree = entry.kind() == Some(ObjectType::Tree);
            let is_plain =
                entry.kind() == Some(ObjectType::Blob) && entry.filemode() != i32::from(FileMode::Link);
            if is_plain && !(self.wanted)(&path) {
                continue;
            }
            if entry.name().is_err() {
                self.skip(path, Unread::Name);
            } else if levels >= MAX_LEVELS {
                self.skip(path, Unread::Levels);
            } else if is_tree {
                self.tree(&self.repository.find_tree(entry.id())?, &path, levels + 1)?;
            } else {
                self.file(path, entry.id(), entry.filemode())?;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: String, id: Oid, mode: i32) -> Result<(), git2::Error> {
        if mode == i32::from(FileMode::Link) {
            self.skip(path, Unread::Symlink);
        } else if mode == i32::from(FileMode::Commit) {
            self.skip(path, Unread::Submodule);
        } else if self.contents.files.len() >= MAX_FILES && !self.contents.files.contains_key(&path) {
            self.skip(path, Unread::Files);
        } else if self.repository.odb()?.read_header(id)?.0 > yaml::MAX_BYTES {
            self.skip(path, Unread::Bytes);
        } else {
            let blob = self.cache.get(self.repository, id)?;
            self.contents.files.insert(path, blob);
        }
        Ok(())
    }

    fn skip(&mut self, path: String, reason: Unread) {
        self.contents.skipped.insert(path, reason);
    }
}

fn is_manifest(path: &str) -> bool {
    manifest::is_yaml(path)
}

fn listed(skipped: BTreeMap<String, Unread>) -> Vec<(String, String)> {
    skipped.into_iter().map(|(path, reason)| (path, reason.as_str().to_owned())).collect()
}

pub(super) fn info(commit: &Commit<'_>) -> CommitInfo {
    CommitInfo {
        oid: name(commit.id()),
        parents: commit.parent_ids().map(name).collect(),
        author: String::from_utf8_lossy(commit.author().name_bytes()).into_owned(),
        at: time(commit),
        message: String::from_utf8_lossy(commit.message_raw_bytes()).into_owned(),
    }
}

/// A committer time beyond what a timestamp can hold counts as 1970.
fn time(commit: &Commit<'_>) -> Timestamp {
    Timestamp::from_second(commit.time().seconds()).unwrap_or_default()
}

/// The id in the form that the rest of the engine knows.
pub(super) fn name(id: Oid) -> names::Oid {
    names::Oid::from(id.to_string())
}
