//! Git over libgit2: one remote repository and its clone.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use git2::{
    AutotagOption, Direction, ErrorClass, ErrorCode, FetchOptions, FetchPrune, Oid, ProxyOptions,
    PushOptions, RemoteRedirect, Repository,
};

use super::{
    GitError, Pushed, Remote, TrackedQuery, commit,
    credentials::Credentials,
    probe::branches,
    process_options,
    read::{self, BlobCache},
    store,
    url::{Place, RemoteUrl},
};
use crate::world::git::{NewCommit, StatusBranch, Tracked};

/// Bytes of the server's text that are kept while a push runs; the text is cut further for people.
const MAX_SIDEBAND: usize = 4096;
/// Branches that are named where the tracked one does not exist.
const MAX_BRANCHES: usize = 100;

/// Where a repository is and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitOptions {
    /// https or ssh; with `allow_local` also a local path or http on loopback.
    pub url: String,
    /// Folder of the bare clone, made when absent; it belongs to this repository and process alone.
    pub clone_dir: PathBuf,
    /// Folder with `username` and `password`, or `token`, or `ssh-privatekey` and `known_hosts`, and `ca.crt`.
    pub credentials: Option<PathBuf>,
    /// Whether local paths and http on loopback are allowed.
    pub allow_local: bool,
    /// Longest wait for a connection; the first repository opened sets it for the whole process.
    pub connect_timeout: Duration,
    /// Longest silence of a connection; the first repository opened sets it for the whole process.
    pub read_timeout: Duration,
}

/// One remote repository with a bare clone as cache.
///
/// A clone that cannot be read is made anew from the remote; nothing that the remote does not have is lost with it,
/// since the id of a commit is a function of its content.
pub struct Git2Remote {
    url: RemoteUrl,
    dir: PathBuf,
    credentials: Option<PathBuf>,
    clone: Repository,
    /// Branches asked for so far, and whether the remote was looked at since; a look brings all of them up to date.
    branches: BTreeMap<String, bool>,
    tracked_blobs: BlobCache,
    status_blobs: BlobCache,
}

/// How the server took a push.
enum Answer {
    Accepted,
    /// The ref was not at the parent.
    Stale,
    Refused(String),
    /// Unknown: the connection was lost, or something else went wrong once the ref had been compared.
    Unclear(GitError),
}

impl Git2Remote {
    /// Checks the URL and opens the clone, or makes an empty one; the network is not used.
    pub fn open(options: GitOptions) -> Result<Self, GitError> {
        let url = admit(&options)?;
        let dir = options.clone_dir;
        let clone = store::open(&dir)
            .or_else(|_| store::init_beside(&dir).and_then(|_| store::swap_in(&dir)))
            .map_err(|error| in_clone(&error))?;
        Ok(Self {
            url,
            dir,
            credentials: options.credentials,
            clone,
            branches: BTreeMap::new(),
            tracked_blobs: BlobCache::default(),
            status_blobs: BlobCache::default(),
        })
    }

    /// From now on keeps this branch up to date.
    fn follow(&mut self, branch: &str) -> Result<(), GitError> {
        if !git2::Reference::is_valid_name(&full(branch)) {
            return Err(GitError::Clone(format!("{branch:?} is not a valid branch name")));
        }
        self.branches.entry(branch.to_owned()).or_default();
        Ok(())
    }

    /// Brings all branches up to date.
    fn sync(&mut self) -> Result<(), GitError> {
        if store::is_worn(&self.clone) {
            return self.make_anew();
        }
        let credentials = Credentials::read(self.credentials.as_deref())?;
        fetch(&self.clone, &self.url, &credentials, self.branches.keys())?;
        self.branches.values_mut().for_each(|looked| *looked = true);
        Ok(())
    }

    /// Names of the branches of the remote, the first hundred of them in order.
    fn branches_there(&self) -> Result<Vec<String>, GitError> {
        let credentials = Credentials::read(self.credentials.as_deref())?;
        let remote = self.clone.remote_anonymous(self.url.as_str()).map_err(|error| in_clone(&error))?;
        let branches = branches(remote, &self.url, &credentials)?;
        Ok(branches.into_keys().take(MAX_BRANCHES).collect())
    }

    /// Clones into a fresh folder and swaps it in; the old clone stays in place until that has worked.
    fn make_anew(&mut self) -> Result<(), GitError> {
        let credentials = Credentials::read(self.credentials.as_deref())?;
        let fresh = store::init_beside(&self.dir).map_err(|error| in_clone(&error))?;
        fetch(&fresh, &self.url, &credentials, self.branches.keys())?;
        drop(fresh);
        self.clone = store::swap_in(&self.dir).map_err(|error| in_clone(&error))?;
        self.branches.values_mut().for_each(|looked| *looked = true);
        Ok(())
    }

    /// Runs a step, and once more with a new clone if the present one cannot be used.
    fn healing<T>(&mut self, mut step: impl FnMut(&mut Self) -> Result<T, GitError>) -> Result<T, GitError> {
        match step(self) {
            Err(GitError::Clone(reason)) => {
                tracing::warn!(clone = %self.dir.display(), reason, "making the clone anew");
                self.make_anew()?;
                step(self)
            }
            result => result,
        }
    }

    fn tip(&self, branch: &str) -> Result<Option<Oid>, GitError> {
        tip(&self.clone, branch).map_err(|error| in_clone(&error))
    }

    fn push_once(&mut self, new: &NewCommit) -> Result<Pushed, GitError> {
        let parent = match &new.parent {
            Some(id) => Some(Oid::from_str(id.as_str()).map_err(|error| in_clone(&error))?),
            None => None,
        };
        if parent.is_some_and(|parent| self.clone.find_commit(parent).is_err()) {
            self.sync()?;
            if parent.is_some_and(|parent| self.clone.find_commit(parent).is_err()) {
                return Ok(Pushed::Moved(self.tip(&new.branch)?.map(read::name)));
            }
        }
        let ours = match commit::write(&self.clone, new) {
            Ok(ours) => ours,
            // A path or a name that cannot be in a commit; another clone would not take it either.
            Err(error) if matches!(error.class(), ErrorClass::Tree | ErrorClass::Invalid) => {
                return Ok(Pushed::Refused(error.message().to_owned()));
            }
            Err(error) => return Err(in_clone(&error)),
        };
        let expected = parent.filter(|_| !new.again);
        let answer = match self.url.local_path() {
            Some(path) => push_locally(&self.clone, path, new, expected, ours)?,
            None => self.push_over_network(new, expected, ours)?,
        };
        if matches!(answer, Answer::Accepted) {
            self.clone
                .reference(&full(&new.branch), ours, true, "pushed")
                .map_err(|error| in_clone(&error))?;
            self.branches.insert(new.branch.clone(), true);
            return Ok(Pushed::Done(read::name(ours)));
        }
        self.settle(&new.branch, expected, ours, answer)
    }

    /// Reads the ref again and decides by it, never by the server's words.
    fn settle(
        &mut self,
        branch: &str,
        expected: Option<Oid>,
        ours: Oid,
        answer: Answer,
    ) -> Result<Pushed, GitError> {
        match (self.sync(), &answer) {
            (Err(_), Answer::Unclear(first)) => return Err(first.clone()),
            (result, _) => result?,
        }
        let tip = self.tip(branch)?;
        let contains = |tip: Oid| tip == ours || self.clone.graph_descendant_of(tip, ours).unwrap_or(false);
        if tip.is_some_and(contains) {
            return Ok(Pushed::Done(read::name(ours)));
        }
        match answer {
            Answer::Refused(text) if tip == expected => Ok(Pushed::Refused(text)),
            Answer::Unclear(error) if tip == expected => Err(error),
            Answer::Accepted | Answer::Stale | Answer::Refused(_) | Answer::Unclear(_) => {
                Ok(Pushed::Moved(tip.map(read::name)))
            }
        }
    }

    /// Pushes without force; the server compares the ref with the value it advertised, and so do we before sending.
    fn push_over_network(
        &self,
        new: &NewCommit,
        expected: Option<Oid>,
        ours: Oid,
    ) -> Result<Answer, GitError> {
        let credentials = Credentials::read(self.credentials.as_deref())?;
        let stale = Cell::new(false);
        let compared = Cell::new(false);
        let verdict = RefCell::new(None);
        let text = RefCell::new(Vec::new());
        let mut remote = self.clone.remote_anonymous(self.url.as_str()).map_err(|error| in_clone(&error))?;
        let mut callbacks = credentials.callbacks(&self.url);
        callbacks.push_negotiation(|updates| {
            compared.set(true);
            if updates.iter().all(|update| update.src() == expected.unwrap_or(Oid::ZERO_SHA1)) {
                return Ok(());
            }
            stale.set(true);
            Err(git2::Error::new(ErrorCode::User, ErrorClass::Callback, "the branch moved"))
        });
        callbacks.push_update_reference(|_, status| {
            *verdict.borrow_mut() = Some(status.map(str::to_owned));
            Ok(())
        });
        callbacks.sideband_progress(|bytes| {
            let mut text = text.borrow_mut();
            let room = MAX_SIDEBAND.saturating_sub(text.len());
            text.extend(bytes.iter().take(room));
            true
        });
        let mut options = PushOptions::new();
        options
            .remote_callbacks(callbacks)
            .proxy_options(proxy(&self.url))
            .follow_redirects(RemoteRedirect::None);
        let result = remote.push(&[format!("{ours}:{}", full(&new.branch))], Some(&mut options));
        drop(options);
        if stale.get() {
            return Ok(Answer::Stale);
        }
        Ok(match (result, verdict.into_inner()) {
            (Err(error), _) if compared.get() => Answer::Unclear(credentials.transfer_error(&error)),
            (Err(error), _) => return Err(credentials.network_error(&error)),
            (Ok(()), Some(None)) => Answer::Accepted,
            (Ok(()), Some(Some(reason))) => {
                let said = credentials.printable(&String::from_utf8_lossy(&text.into_inner()));
                let separator = if said.is_empty() { "" } else { ": " };
                Answer::Refused(credentials.printable(&format!("{reason}{separator}{said}")))
            }
            (Ok(()), None) => {
                Answer::Unclear(GitError::Unreachable("the server did not say how the push ended".into()))
            }
        })
    }
}

impl Remote for Git2Remote {
    fn tracked(&mut self, query: &TrackedQuery) -> Result<Tracked, GitError> {
        self.follow(&query.branch)?;
        self.healing(|this| {
            this.sync()?;
            let head = this.tip(&query.branch)?;
            let tracked = read::tracked(&this.clone, &mut this.tracked_blobs, query, head);
            let tracked = tracked.map_err(|error| in_clone(&error))?;
            // They are only told as help, so a server that does not list them is as good.
            let there = head.is_none().then(|| this.branches_there().unwrap_or_default());
            let branches = there.unwrap_or_default();
            Ok(Tracked { branches, ..tracked })
        })
    }

    fn status(&mut self, branch: &str) -> Result<StatusBranch, GitError> {
        self.follow(branch)?;
        self.healing(|this| {
            if this.branches.get(branch) != Some(&true) {
                this.sync()?;
            }
            let tip = this.tip(branch)?;
            let lost = keep(&this.clone, branch, tip).map_err(|error| in_clone(&error))?;
            read::status(&this.clone, &mut this.status_blobs, tip, lost).map_err(|error| in_clone(&error))
        })
    }

    fn push(&mut self, commit: &NewCommit) -> Result<Pushed, GitError> {
        self.follow(&commit.branch)?;
        self.healing(|this| this.push_once(commit))
    }
}

/// Checks the URL, and sets what libgit2 keeps for the whole process.
pub(super) fn admit(options: &GitOptions) -> Result<RemoteUrl, GitError> {
    let url = RemoteUrl::parse(&options.url, options.allow_local)?;
    process_options::set_once(options.connect_timeout, options.read_timeout).map_err(GitError::Clone)?;
    if let Some(certificates) = Credentials::certificates(options.credentials.as_deref()) {
        process_options::trust(&certificates)
            .map_err(|error| GitError::Unauthorised(format!("ca.crt cannot be used: {}", error.message())))?;
    }
    Ok(url)
}

/// Fetches what moved, in one connection, and forgets branches that are gone.
fn fetch<'a>(
    clone: &Repository,
    url: &RemoteUrl,
    credentials: &Credentials,
    branches: impl Iterator<Item = &'a String>,
) -> Result<(), GitError> {
    let specs: Vec<String> = branches.map(|branch| format!("+{0}:{0}", full(branch))).collect();
    let mut remote = clone.remote_anonymous(url.as_str()).map_err(|error| in_clone(&error))?;
    let mut connection = remote
        .connect_auth(Direction::Fetch, Some(credentials.callbacks(url)), Some(proxy(url)))
        .map_err(|error| credentials.network_error(&error))?;
    let mut options = FetchOptions::new();
    options
        .remote_callbacks(credentials.callbacks(url))
        .proxy_options(proxy(url))
        .follow_redirects(RemoteRedirect::None)
        .download_tags(AutotagOption::None)
        .update_fetchhead(false)
        .prune(FetchPrune::On);
    // libgit2 downloads nothing when it has all tips. Listing the refs here instead would panic on a name that is not
    // UTF-8, which anybody who may push a branch can make.
    let fetched = connection.remote().fetch(&specs, Some(&mut options), None);
    fetched.map_err(|error| credentials.transfer_error(&error))
}

/// Writes the objects into a repository of this machine and moves the ref only if it is still at the parent; libgit2's
/// own local push compares nothing.
fn push_locally(
    clone: &Repository,
    path: &Path,
    new: &NewCommit,
    expected: Option<Oid>,
    ours: Oid,
) -> Result<Answer, GitError> {
    let unreachable = |error: git2::Error| GitError::Unreachable(error.message().to_owned());
    let remote = Repository::open(path).map_err(unreachable)?;
    if tip(&remote, &new.branch).map_err(unreachable)? != expected {
        return Ok(Answer::Stale);
    }
    if is_checked_out(&remote, &new.branch) {
        return Ok(Answer::Refused("the branch is checked out in a work tree".into()));
    }
    let parent = new.parent.as_ref().and_then(|parent| Oid::from_str(parent.as_str()).ok());
    if let Some(parent) = parent.filter(|parent| remote.find_commit(*parent).is_err()) {
        carry(clone, &remote, parent).map_err(unreachable)?;
    }
    commit::write(&remote, new).map_err(unreachable)?;
    match compare_and_swap(&remote, &new.branch, expected, ours) {
        Ok(()) => Ok(Answer::Accepted),
        Err(error) => Ok(Answer::Unclear(unreachable(error))),
    }
}

/// Copies a commit, and all that it reaches, into a repository that lost it.
fn carry(clone: &Repository, remote: &Repository, commit: Oid) -> Result<(), git2::Error> {
    let mut walk = clone.revwalk()?;
    walk.push(commit)?;
    let mut pack = clone.packbuilder()?;
    pack.insert_walk(&mut walk)?;
    let mut bytes = git2::Buf::new();
    pack.write_buf(&mut bytes)?;
    let odb = remote.odb()?;
    let mut writer = odb.packwriter()?;
    let failed = |error: std::io::Error| git2::Error::from_str(&error.to_string());
    writer.write_all(&bytes).map_err(failed)?;
    writer.commit()?;
    Ok(())
}

/// Compares under the lock of the ref.
fn compare_and_swap(
    repository: &Repository,
    branch: &str,
    expected: Option<Oid>,
    new: Oid,
) -> Result<(), git2::Error> {
    let expected = expected.unwrap_or(Oid::ZERO_SHA1);
    repository.reference_matching(&full(branch), new, true, expected, "push").map(|_| ())
}

/// Moving such a branch would make the work tree look as if its files had been changed back.
fn is_checked_out(remote: &Repository, branch: &str) -> bool {
    let head = remote.find_reference("HEAD");
    !remote.is_bare()
        && head.is_ok_and(|head| head.symbolic_target().ok().flatten() == Some(full(branch).as_str()))
}

fn tip(repository: &Repository, branch: &str) -> Result<Option<Oid>, git2::Error> {
    match repository.refname_to_id(&full(branch)) {
        Ok(id) => Ok(Some(id)),
        Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Keeps the tip of a branch in the clone; of a branch that does not exist any more, the last tip that was kept.
fn keep(clone: &Repository, branch: &str, tip: Option<Oid>) -> Result<Option<Oid>, git2::Error> {
    let name = format!("refs/trunkline/kept/{branch}");
    let kept = clone.refname_to_id(&name).ok();
    if let Some(tip) = tip {
        if kept != Some(tip) {
            clone.reference(&name, tip, true, "seen")?;
        }
        return Ok(None);
    }
    Ok(kept.filter(|kept| clone.find_commit(*kept).is_ok()))
}

fn full(branch: &str) -> String {
    format!("refs/heads/{branch}")
}

/// Proxies from the environment, for https only.
pub(super) fn proxy(url: &RemoteUrl) -> ProxyOptions<'static> {
    let mut options = ProxyOptions::new();
    if *url.place() == Place::Https {
        options.auto();
    }
    options
}

fn in_clone(error: &git2::Error) -> GitError {
    GitError::Clone(error.message().to_owned())
}

#[cfg(test)]
mod tests {
    use git2::{Oid, Repository, Signature, Time};

    use super::{compare_and_swap, tip};

    fn commit(repository: &Repository, message: &str) -> Oid {
        let by = Signature::new("Kim", "kim@example.com", &Time::new(0, 0)).unwrap();
        let tree = repository.find_tree(repository.treebuilder(None).unwrap().write().unwrap()).unwrap();
        repository.commit(None, &by, &by, message, &tree, &[]).unwrap()
    }

    #[test]
    fn a_ref_moves_only_from_the_expected_commit() {
        let dir = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(dir.path()).unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|message| commit(&repository, message));
        assert!(compare_and_swap(&repository, "main", Some(a), b).is_err());
        assert_eq!(tip(&repository, "main"), Ok(None));
        assert!(compare_and_swap(&repository, "main", None, a).is_ok());
        for stale in [None, Some(b)] {
            assert!(compare_and_swap(&repository, "main", stale, c).is_err());
            assert_eq!(tip(&repository, "main"), Ok(Some(a)));
        }
        assert!(compare_and_swap(&repository, "main", Some(a), b).is_ok());
        assert_eq!(tip(&repository, "main"), Ok(Some(b)));
    }
}
