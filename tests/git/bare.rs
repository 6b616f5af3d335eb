//! A bare repository with commits made for a test.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Once,
    time::Duration,
};

use git2::{Index, IndexEntry, IndexTime, Oid, Repository, Signature, Time};
use trunkline::git::{Git2Remote, GitOptions};

/// A bare repository; ids are deterministic, since times and names are.
#[derive(Clone)]
pub(crate) struct Bare(PathBuf);

/// What a commit does to one path.
pub(crate) enum Entry<'a> {
    /// A plain file.
    Text(&'a str),
    /// A plain file of any bytes.
    Bytes(&'a [u8]),
    /// A plain file of this many bytes.
    Sized(usize),
    /// A plain file with the executable bit.
    Executable(&'a str),
    /// A symlink.
    Link(&'a str),
    /// A submodule.
    Submodule,
    /// Nothing: the path is removed.
    Gone,
}

impl Bare {
    /// Makes an empty repository in which `main` is the default branch.
    pub(crate) fn init(path: &Path) -> Self {
        settle_process_options();
        let repository = Repository::init_bare(path).unwrap();
        repository.set_head("refs/heads/main").unwrap();
        Self(path.to_owned())
    }

    /// The repository that is already there.
    pub(crate) fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Its folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    fn open(&self) -> Repository {
        Repository::open_bare(&self.0).unwrap()
    }

    /// Commits text files on top of a branch, which is made if need be; returns the new tip.
    pub(crate) fn commit(&self, branch: &str, files: &[(&str, &str)]) -> String {
        let entries: Vec<_> = files.iter().map(|(path, text)| (*path, Entry::Text(text))).collect();
        self.commit_entries(branch, &entries)
    }

    /// Commits any entries on top of a branch, which is made if need be; returns the new tip.
    pub(crate) fn commit_entries(&self, branch: &str, entries: &[(&str, Entry<'_>)]) -> String {
        let tip = self.tip(branch);
        let parents: Vec<&str> = tip.iter().map(String::as_str).collect();
        let id = self.commit_on(&parents, entries, &format!("change {branch}\n"));
        self.set(branch, Some(&id));
        id
    }

    /// Makes a commit with these parents, from the tree of the first, without moving a branch.
    pub(crate) fn commit_on(&self, parents: &[&str], entries: &[(&str, Entry<'_>)], message: &str) -> String {
        let repository = self.open();
        let parents: Vec<_> =
            parents.iter().map(|id| repository.find_commit(Oid::from_str(id).unwrap()).unwrap()).collect();
        let mut index = Index::new().unwrap();
        if let Some(first) = parents.first() {
            index.read_tree(&first.tree().unwrap()).unwrap();
        }
        for (path, entry) in entries {
            let blob = |bytes: &[u8]| repository.blob(bytes).unwrap();
            let (id, mode) = match entry {
                Entry::Text(text) => (blob(text.as_bytes()), 0o100_644),
                Entry::Bytes(bytes) => (blob(bytes), 0o100_644),
                Entry::Sized(size) => (blob(&vec![b'#'; *size]), 0o100_644),
                Entry::Executable(text) => (blob(text.as_bytes()), 0o100_755),
                Entry::Link(target) => (blob(target.as_bytes()), 0o120_000),
                Entry::Submodule => {
                    (Oid::from_str("1234567890123456789012345678901234567890").unwrap(), 0o160_000)
                }
                Entry::Gone => {
                    index.remove_path(path.as_ref()).unwrap();
                    continue;
                }
            };
            index.add(&entry_at(path, id, mode)).unwrap();
        }
        let tree = repository.find_tree(index.write_tree_to(&repository).unwrap()).unwrap();
        let by = Signature::new("Kim", "kim@example.com", &Time::new(1_700_000_000, 0)).unwrap();
        repository
            .commit(None, &by, &by, message, &tree, &parents.iter().collect::<Vec<_>>())
            .unwrap()
            .to_string()
    }

    /// Points a branch at a commit, whatever it was at, or removes it.
    pub(crate) fn set(&self, branch: &str, commit: Option<&str>) {
        let repository = self.open();
        let name = format!("refs/heads/{branch}");
        match commit {
            Some(id) => {
                repository.reference(&name, Oid::from_str(id).unwrap(), true, "test").unwrap();
            }
            None => repository.find_reference(&name).unwrap().delete().unwrap(),
        }
    }

    /// Holds the lock of a branch's ref, as a process that is about to move it does, until it is dropped.
    pub(crate) fn lock(&self, branch: &str) -> RefLock {
        let path = self.0.join(format!("refs/heads/{branch}.lock"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::create_new(&path).unwrap();
        RefLock(path)
    }

    /// The tip of a branch.
    pub(crate) fn tip(&self, branch: &str) -> Option<String> {
        self.open().refname_to_id(&format!("refs/heads/{branch}")).ok().map(|id| id.to_string())
    }

    /// Ids along first parents from the tip, newest first.
    pub(crate) fn log(&self, branch: &str) -> Vec<String> {
        let repository = self.open();
        let mut ids = Vec::new();
        let mut next = self.tip(branch).map(|id| Oid::from_str(&id).unwrap());
        while let Some(id) = next {
            ids.push(id.to_string());
            next = repository.find_commit(id).unwrap().parent_ids().next();
        }
        ids
    }

    /// Message of a commit.
    pub(crate) fn message(&self, commit: &str) -> String {
        let commit = Oid::from_str(commit).unwrap();
        self.open().find_commit(commit).unwrap().message().unwrap().to_owned()
    }

    /// Mode and text of a file at the tip of a branch.
    pub(crate) fn file(&self, branch: &str, path: &str) -> Option<(i32, String)> {
        self.file_at(&self.tip(branch)?, path)
    }

    /// Mode and text of a file as of a commit.
    pub(crate) fn file_at(&self, commit: &str, path: &str) -> Option<(i32, String)> {
        let repository = self.open();
        let commit = repository.find_commit(Oid::from_str(commit).unwrap()).unwrap();
        let entry = commit.tree().unwrap().get_path(path.as_ref()).ok()?;
        let blob = repository.find_blob(entry.id()).unwrap();
        Some((entry.filemode(), String::from_utf8(blob.content().to_vec()).unwrap()))
    }
}

/// The lock of a ref.
pub(crate) struct RefLock(PathBuf);

impl Drop for RefLock {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

/// Process-wide options of libgit2 must be set before other threads use it; opening any remote sets them.
fn settle_process_options() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let dir = tempfile::tempdir().unwrap();
        let options = GitOptions {
            url: "https://git.example.com/a".into(),
            clone_dir: dir.path().join("clone"),
            credentials: None,
            allow_local: false,
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(20),
        };
        drop(Git2Remote::open(options).unwrap());
    });
}

fn entry_at(path: &str, id: Oid, mode: u32) -> IndexEntry {
    IndexEntry {
        ctime: IndexTime::new(0, 0),
        mtime: IndexTime::new(0, 0),
        dev: 0,
        ino: 0,
        mode,
        uid: 0,
        gid: 0,
        file_size: 0,
        id,
        flags: 0,
        flags_extended: 0,
        path: path.into(),
    }
}
