use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
};

use jiff::Timestamp;

use super::*;
use crate::{
    api::names::RepoName,
    config::{FirstContact, LeaderElection, ServeAt},
    metrics::Metrics,
    perform::GitPort,
    world::git::{Descent, NewCommit, Signature},
};

/// A remote whose next looks and pushes are laid out before.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<Lines>>);

#[derive(Default)]
struct Lines {
    looks: VecDeque<Result<(), GitError>>,
    pushes: VecDeque<Result<Pushed, GitError>>,
    asked: Vec<Option<Oid>>,
    tip: Option<Oid>,
    pushed: u32,
}

impl Remote for Script {
    fn tracked(&mut self, query: &TrackedQuery) -> Result<Tracked, GitError> {
        let mut lines = self.0.lock().unwrap();
        lines.asked.push(query.since.clone());
        lines.looks.pop_front().unwrap_or(Ok(()))?;
        Ok(Tracked {
            branches: Vec::new(),
            head: Some(Oid::new("c1")),
            since: query.since.clone(),
            descent: Descent::First,
            steps: Vec::new(),
            at_head: BTreeMap::new(),
            skipped: Vec::new(),
            missing_paths: Vec::new(),
        })
    }

    fn status(&mut self, _: &str) -> Result<StatusBranch, GitError> {
        Ok(StatusBranch { tip: self.0.lock().unwrap().tip.clone(), ..StatusBranch::default() })
    }

    fn push(&mut self, _: &NewCommit) -> Result<Pushed, GitError> {
        let mut lines = self.0.lock().unwrap();
        lines.pushed += 1;
        lines.pushes.pop_front().unwrap_or_else(|| Ok(Pushed::Done(Oid::new("c2"))))
    }
}

struct Bench {
    script: Script,
    seen: mpsc::Receiver<Observation>,
    since: watch::Sender<Since>,
    asked: Arc<Notify>,
    port: GitPort,
    clock: Clock,
}

impl Bench {
    fn new(script: Script, threads: Threads) -> Self {
        let repository = Repository {
            name: RepoName::new("platform"),
            url: String::new(),
            branch: "main".to_owned(),
            paths: vec![String::new()],
            poll: Duration::from_secs(30),
            credentials: None,
            status_branch: true,
            rollback_commit: true,
            by: Signature { name: String::new(), email: String::new() },
            subject_prefix: String::new(),
            first_contact: FirstContact::Hold,
            allow_namespaces: vec!["*".to_owned()],
        };
        let config = Config {
            cluster: "prod".to_owned(),
            namespace: "trunkline".to_owned(),
            repositories: vec![repository.clone()],
            revert_window: Duration::ZERO,
            leader_election: LeaderElection::OFF,
            cluster_uid: String::new(),
            metrics: ServeAt::Nowhere,
            policies: None,
        };
        let clock = Clock::embedded(Timestamp::UNIX_EPOCH);
        let (out, seen) = mpsc::channel(16);
        let (since, since_seen) = watch::channel(Since::Unknown);
        let (port, pushes) = GitPort::new();
        let asked = Arc::new(Notify::new());
        let time = (clock, Dice::new(1));
        let worker = Worker::new(
            repository,
            &config,
            Box::new(script.clone()),
            threads,
            time,
            (out, Metrics::default()),
        )
        .unwrap();
        tokio::spawn(worker.run(Ears { pushes, since: since_seen, asked: Arc::clone(&asked) }));
        Self { script, seen, since, asked, port, clock }
    }

    async fn next(&mut self) -> GitSeen {
        let Some(Observation::Git(seen)) = self.seen.recv().await else { panic!("the worker ended") };
        *seen
    }

    fn seconds(&self) -> i64 {
        self.clock.now().as_second()
    }

    async fn push(&self, kind: PushKind) -> (EffectOutcome, GitSeen) {
        let (outcome, seen) = self.port.push(kind, commit(), Timestamp::MAX).await;
        let Some(Observation::Git(seen)) = seen.into_iter().next() else { panic!("nothing seen") };
        (outcome, *seen)
    }
}

fn commit() -> NewCommit {
    NewCommit {
        branch: "main".to_owned(),
        parent: Some(Oid::new("c1")),
        again: false,
        changes: BTreeMap::new(),
        message: String::new(),
        by: Signature { name: String::new(), email: String::new() },
        at: Timestamp::UNIX_EPOCH,
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_read_before_the_accepted_revision_is_known_and_all_again_when_it_moves() {
    let mut bench = Bench::new(Script::default(), Threads::Caller);
    bench.clock.sleep_until(Timestamp::from_second(3600).unwrap()).await;
    assert!(bench.script.0.lock().unwrap().asked.is_empty());
    bench.since.send(Since::Accepted(None)).unwrap();
    assert_eq!(bench.next().await.tracked.unwrap().since, None);
    bench.since.send(Since::Accepted(Some(Oid::new("c1")))).unwrap();
    assert_eq!(bench.next().await.tracked.unwrap().since, Some(Oid::new("c1")));
    assert_eq!(bench.seconds(), 3600);
}

#[tokio::test(start_paused = true)]
async fn looks_come_at_the_interval_and_at_once_when_asked_for() {
    let mut bench = Bench::new(Script::default(), Threads::Caller);
    bench.since.send(Since::Accepted(None)).unwrap();
    bench.next().await;
    bench.next().await;
    assert!((27..=33).contains(&bench.seconds()), "{}", bench.seconds());
    let before = bench.seconds();
    bench.asked.notify_one();
    bench.next().await;
    assert_eq!(bench.seconds(), before);
}

#[tokio::test(start_paused = true)]
async fn a_repository_that_cannot_be_read_is_asked_ever_less_often_and_keeps_what_was_read() {
    let mut bench = Bench::new(Script::default(), Threads::Caller);
    bench.since.send(Since::Accepted(None)).unwrap();
    bench.next().await;
    let gone = || Err(GitError::Unreachable("no route".to_owned()));
    bench.script.0.lock().unwrap().looks.extend((0..8).map(|_| gone()));
    let mut times = Vec::new();
    for count in 1..=8 {
        let seen = bench.next().await;
        let trouble = seen.trouble.unwrap();
        assert_eq!((trouble.count, trouble.message.as_str()), (count, "no route"));
        assert!(seen.tracked.is_some());
        times.push(bench.seconds());
    }
    let waits: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits.is_sorted_by(|a, b| a <= b || *b > 500), "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= 600), "{waits:?}");
    assert_eq!(bench.next().await.trouble, None);
}

#[tokio::test(start_paused = true)]
async fn every_end_of_a_push_has_its_outcome() {
    let bench = Bench::new(Script::default(), Threads::Caller);
    bench.script.0.lock().unwrap().pushes.extend([
        Ok(Pushed::Refused("hook: no".to_owned())),
        Ok(Pushed::Refused("hook: no".to_owned())),
        Ok(Pushed::Moved(Some(Oid::new("c9")))),
        Err(GitError::Unreachable("cut".to_owned())),
        Err(GitError::Unauthorised("401".to_owned())),
    ]);
    let kind = |outcome: &EffectOutcome| match outcome {
        EffectOutcome::Rejected(no) => Some(no.kind),
        _ => None,
    };
    for count in [1, 2] {
        let (outcome, seen) = bench.push(PushKind::Status).await;
        assert_eq!(kind(&outcome), Some(RejectionKind::PushRefused));
        assert_eq!((seen.refused["status"].count, &*seen.refused["status"].message), (count, "hook: no"));
    }
    assert_eq!(kind(&bench.push(PushKind::Status).await.0), Some(RejectionKind::RefMoved));
    assert!(matches!(bench.push(PushKind::Status).await.0, EffectOutcome::Unknown(_)));
    assert_eq!(kind(&bench.push(PushKind::Status).await.0), Some(RejectionKind::Forbidden));
    let (outcome, seen) = bench.push(PushKind::Status).await;
    assert_eq!(outcome, EffectOutcome::Done);
    assert!(seen.refused.is_empty());
}

#[tokio::test]
async fn a_thread_of_its_own_works_as_the_caller_does() {
    let mut bench = Bench::new(Script::default(), Threads::Own);
    bench.since.send(Since::Accepted(None)).unwrap();
    assert_eq!(bench.next().await.tracked.unwrap().head, Some(Oid::new("c1")));
    assert_eq!(bench.push(PushKind::Rollback("a1".into())).await.0, EffectOutcome::Done);
}

#[tokio::test(start_paused = true)]
async fn a_look_that_the_answer_to_a_later_push_overtook_takes_nothing_back() {
    let mut bench = Bench::new(Script::default(), Threads::Caller);
    bench.since.send(Since::Accepted(None)).unwrap();
    let old = bench.next().await;
    bench.script.0.lock().unwrap().tip = Some(Oid::new("s1"));
    let (_, new) = bench.push(PushKind::Status).await;
    let tip = |seen: &GitSeen| seen.status.as_ref().and_then(|status| status.tip.clone());
    assert_ne!(tip(&old), tip(&new));
    let mut world = crate::world::World::default();
    for seen in [new.clone(), old] {
        let _ = world.apply(Observation::Git(Box::new(seen)), bench.clock.now());
    }
    assert_eq!(tip(&world.git[&new.repo]), tip(&new));
    let again = bench.push(PushKind::Status).await.1;
    assert!(world.apply(Observation::Git(Box::new(again)), bench.clock.now()).is_empty(), "no news");
}

#[tokio::test(start_paused = true)]
async fn a_push_that_comes_to_its_turn_too_late_does_not_begin() {
    let bench = Bench::new(Script::default(), Threads::Caller);
    let ended = bench.clock.now();
    let (outcome, seen) = bench.port.push(PushKind::Status, commit(), ended).await;
    assert!(matches!(outcome, EffectOutcome::Rejected(no) if no.kind == RejectionKind::Unavailable));
    assert!(seen.is_empty() && bench.script.0.lock().unwrap().pushed == 0);
    bench.push(PushKind::Status).await;
    assert_eq!(bench.script.0.lock().unwrap().pushed, 1);
}
