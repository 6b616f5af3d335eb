//! One worker per repository: looks at it at intervals, pushes, and tells the whole repository as one observation.
//!
//! Guarantees: the worker owns its `Remote`, so looks and pushes never overlap; a transport that hangs holds nobody
//! but this worker. Assumptions: the last accepted revision is known before the first look, since what a look reads
//! depends on it.

#[cfg(test)]
mod tests;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc as thread_mpsc},
    time::Duration,
};

use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::{
    api::names::Oid,
    clock::{Clock, Stopwatch, later},
    config::{Config, Repository},
    dice::Dice,
    git::{GitError, Pushed, Remote, TrackedQuery},
    metrics::{Metrics, PushedTo},
    perform::{Push, PushKind},
    rollout::effect::{EffectOutcome, Rejection, RejectionKind},
    world::{
        Observation,
        git::{GitSeen, GitTrouble, Refused, StatusBranch, Tracked},
    },
};

/// How long one look or push may take before it is given up from outside.
const LIMIT: Duration = Duration::from_secs(5 * 60);
/// Longest wait between two looks at a repository that cannot be read.
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 60);

/// Where Git's blocking calls run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// A thread of its own per repository: a hung transport takes nothing from others.
    Own,
    /// The thread that asks: time stands still meanwhile and nothing else happens, so that equal runs go alike.
    Caller,
}

/// The revision that looks start after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Since {
    /// The ledger has not been read yet.
    Unknown,
    /// As the ledger says.
    Accepted(Option<Oid>),
}

type Job = Box<dyn FnOnce(&mut dyn Remote) + Send>;

/// Runs jobs on the remote, one after the other.
enum Hands {
    Thread(thread_mpsc::SyncSender<Job>),
    Caller(Box<dyn Remote>),
}

impl Hands {
    fn new(mut remote: Box<dyn Remote>, name: &str, threads: Threads) -> std::io::Result<Self> {
        if threads == Threads::Caller {
            return Ok(Self::Caller(remote));
        }
        let (jobs, taken) = thread_mpsc::sync_channel::<Job>(2);
        std::thread::Builder::new().name(format!("git-{name}")).spawn(move || {
            for job in taken {
                // The job's other end sees that no answer came.
                let _ = catch_unwind(AssertUnwindSafe(|| job(&mut *remote)));
            }
        })?;
        Ok(Self::Thread(jobs))
    }

    async fn run<T: Send + 'static>(
        &mut self,
        clock: Clock,
        work: impl FnOnce(&mut dyn Remote) -> Result<T, GitError> + Send + 'static,
    ) -> Result<T, GitError> {
        let hung = || GitError::Unreachable("the transport gives no answer".to_owned());
        let (tell, told) = oneshot::channel();
        let job: Job = Box::new(move |remote| {
            // Nobody waits any more once the engine has gone.
            let _ = tell.send(work(remote));
        });
        match self {
            Self::Thread(jobs) => jobs.try_send(job).map_err(|_| hung())?,
            Self::Caller(remote) => job(&mut **remote),
        }
        match clock.before(later(clock.now(), LIMIT), told).await {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(GitError::Clone("reading the repository ended unexpectedly".to_owned())),
            None => Err(hung()),
        }
    }
}

/// What a worker listens to.
pub(super) struct Ears {
    pub(super) pushes: mpsc::Receiver<Push>,
    pub(super) since: watch::Receiver<Since>,
    /// Somebody asked to look now.
    pub(super) asked: Arc<Notify>,
}

pub(super) struct Worker {
    repository: Repository,
    status_branch: Option<String>,
    hands: Hands,
    seen: GitSeen,
    failures: u32,
    clock: Clock,
    dice: Dice,
    out: mpsc::Sender<Observation>,
    metrics: Metrics,
}

impl Worker {
    pub(super) fn new(
        repository: Repository,
        config: &Config,
        remote: Box<dyn Remote>,
        threads: Threads,
        (clock, dice): (Clock, Dice),
        (out, metrics): (mpsc::Sender<Observation>, Metrics),
    ) -> std::io::Result<Self> {
        let hands = Hands::new(remote, repository.name.as_str(), threads)?;
        let status_branch = repository.status_branch.then(|| Repository::status_branch_name(&config.cluster));
        let seen = GitSeen::unread(repository.name.clone());
        Ok(Self { repository, status_branch, hands, seen, failures: 0, clock, dice, out, metrics })
    }

    /// Works until nobody listens.
    pub(super) async fn run(mut self, mut ears: Ears) {
        let mut due = self.clock.now();
        loop {
            let known = *ears.since.borrow() != Since::Unknown;
            let clock = self.clock;
            tokio::select! {
                biased;
                changed = ears.since.changed() => match changed {
                    Ok(()) => due = self.clock.now(),
                    Err(_) => return,
                },
                push = ears.pushes.recv() => match push {
                    Some(push) => {
                        let since = ears.since.borrow().clone();
                        self.push(push, &since).await;
                    }
                    None => return,
                },
                () = ears.asked.notified() => due = self.clock.now(),
                () = clock.sleep_until(due), if known => {
                    let since = ears.since.borrow_and_update().clone();
                    self.look(&since).await;
                    let told = self.tell();
                    if self.out.send(told).await.is_err() {
                        return;
                    }
                    due = later(self.clock.now(), self.wait());
                }
            }
        }
    }

    fn wait(&mut self) -> Duration {
        let poll = self.repository.poll;
        match self.failures {
            0 => self.dice.jitter(poll),
            failures => self.dice.backoff(poll, LONGEST_WAIT.max(poll), failures),
        }
    }

    async fn look(&mut self, since: &Since) {
        let Since::Accepted(since) = since else { return };
        let query = TrackedQuery {
            branch: self.repository.branch.clone(),
            paths: self.repository.paths.clone(),
            since: since.clone(),
        };
        let (branch, watch) = (self.status_branch.clone(), Stopwatch::start());
        let looked = self.hands.run(self.clock, move |remote| {
            let tracked = remote.tracked(&query)?;
            let status = branch.map(|branch| remote.status(&branch)).transpose()?;
            Ok((tracked, status))
        });
        let looked = looked.await;
        let (took, now) = (watch.elapsed(), self.clock.now());
        self.metrics.fetched(&self.seen.repo, looked.as_ref().map(|_| ()), took, now);
        match looked {
            Ok((tracked, status)) => self.saw(tracked, status),
            Err(error) => self.failed(&error),
        }
    }

    fn saw(&mut self, tracked: Tracked, status: Option<StatusBranch>) {
        if self.seen.tracked.as_ref().map(|old| &old.head) != Some(&tracked.head) {
            let head = tracked.head.as_ref().map_or("(no branch)", Oid::as_str);
            tracing::info!(repository = %self.seen.repo, branch = self.repository.branch, head, "read the tracked branch");
        }
        self.seen.tracked = Some(tracked);
        self.seen.status = status.or(self.seen.status.take());
        self.seen.trouble = None;
        self.failures = 0;
    }

    fn failed(&mut self, error: &GitError) {
        self.failures = self.failures.saturating_add(1);
        tracing::warn!(repository = %self.seen.repo, %error, tries = self.failures, "the repository cannot be read");
        let since = self.seen.trouble.as_ref().map_or_else(|| self.clock.now(), |trouble| trouble.since);
        self.seen.trouble = Some(GitTrouble { message: error.to_string(), since, count: self.failures });
    }

    async fn push(&mut self, push: Push, since: &Since) {
        let Push { kind, commit, until, reply } = push;
        if until <= self.clock.now() {
            let late = "the repository was busy until the right to write ended; it is decided anew";
            let _ = reply.send((no(RejectionKind::Unavailable, late.to_owned()), Vec::new()));
            return;
        }
        let (branch, watch) = (self.status_branch.clone(), Stopwatch::start());
        let sent = commit.clone();
        let pushed = self.hands.run(self.clock, move |remote| {
            let pushed = remote.push(&sent)?;
            let status = branch.map(|branch| remote.status(&branch)).transpose();
            Ok((pushed, status.ok().flatten()))
        });
        let (what, to) = match &kind {
            PushKind::Status => ("status".to_owned(), PushedTo::Status),
            PushKind::Rollback(attempt) => (attempt.to_string(), PushedTo::Tracked),
        };
        let pushed = pushed.await;
        self.metrics.pushed(&self.seen.repo, to, pushed.as_ref().map(|(pushed, _)| pushed), watch.elapsed());
        let done = matches!(pushed, Ok((Pushed::Done(_), _)));
        let outcome = match pushed {
            Ok((Pushed::Done(oid), status)) => {
                tracing::info!(repository = %self.seen.repo, branch = commit.branch, commit = %oid, "pushed");
                self.seen.refused.remove(&what);
                self.seen.status = status.or(self.seen.status.take());
                EffectOutcome::Done
            }
            Ok((Pushed::Moved(tip), _)) => {
                let tip = tip.map_or_else(|| "gone".to_owned(), |tip| format!("at {tip}"));
                no(RejectionKind::RefMoved, format!("the branch is {tip} now"))
            }
            Ok((Pushed::Refused(message), _)) => {
                let count = self.seen.refused.get(&what).map_or(0, |old| old.count).saturating_add(1);
                let refused = Refused {
                    what: what.clone(),
                    expect: commit.expects().cloned(),
                    message: message.clone(),
                    at: self.clock.now(),
                    count,
                };
                self.seen.refused.insert(what, refused);
                no(RejectionKind::PushRefused, message)
            }
            Err(error) => failed_push(&error),
        };
        // After a push to the status branch its tip is known; anything else needs a look before the next decision.
        if !(done && kind == PushKind::Status) {
            self.look(since).await;
        }
        let told = self.tell();
        // The engine has gone if nobody waits.
        let _ = reply.send((outcome, vec![told]));
    }

    /// What is known now. Looks and answers to pushes go different ways, so that one can overtake the other.
    fn tell(&mut self) -> Observation {
        self.seen.told += 1;
        Observation::Git(Box::new(self.seen.clone()))
    }
}

fn no(kind: RejectionKind, message: String) -> EffectOutcome {
    EffectOutcome::Rejected(Rejection { kind, message })
}

/// Only a lost connection can hide that the push arrived.
fn failed_push(error: &GitError) -> EffectOutcome {
    match error {
        GitError::Unreachable(message) => EffectOutcome::Unknown(message.clone()),
        GitError::Unauthorised(message) => no(RejectionKind::Forbidden, message.clone()),
        GitError::UrlNotAllowed(message) | GitError::Clone(message) => {
            no(RejectionKind::Unavailable, message.clone())
        }
    }
}
