//! When an engine dies, and the ports that make its death exact: after it nothing gets out.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::Notify;
use trunkline::{
    git::{GitError, Pushed, Remote, TrackedQuery},
    sim::api::{Asked, Fault},
    world::git::{NewCommit, StatusBranch, Tracked},
};

use crate::git::bare::Bare;

/// When, around one effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Moment {
    /// Nothing of it was done.
    Before,
    /// The objects of a push are there, and the ref stands where it stood.
    Between,
    /// It was done, and the engine never heard of it.
    Unheard,
    /// It was done, and the engine heard so and no more.
    After,
}

impl Moment {
    /// Moments around a cluster write.
    pub(crate) const OF_WRITES: &[Self] = &[Self::Before, Self::Unheard, Self::After];
    /// Moments around a push.
    pub(crate) const OF_PUSHES: &[Self] = &[Self::Before, Self::Between, Self::Unheard, Self::After];
}

/// Where an engine dies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Death {
    /// Nowhere.
    Never,
    /// Around the effect of that number.
    Around(usize, Moment),
    /// At these await points, counted over all engines of the run.
    At(BTreeSet<usize>),
}

impl Death {
    /// Engines that die of it.
    pub(crate) fn number(&self) -> usize {
        match self {
            Self::Never => 0,
            Self::Around(..) => 1,
            Self::At(points) => points.len(),
        }
    }
}

/// One effect as it was recorded.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// A write to the API server.
    Write(String),
    /// A push to this branch.
    Push(String),
}

impl fmt::Debug for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(what) => f.write_str(what),
            Self::Push(branch) => write!(f, "push to {branch}"),
        }
    }
}

struct State {
    death: Death,
    dead: bool,
    effects: Vec<Effect>,
    polls: usize,
    deaths: usize,
}

/// The death of the engines of one run, and everything that they did.
#[derive(Clone)]
pub(crate) struct Fate(Arc<(Mutex<State>, Notify)>);

impl Fate {
    pub(crate) fn new(death: Death) -> Self {
        let state = State { death, dead: false, effects: Vec::new(), polls: 0, deaths: 0 };
        Self(Arc::new((Mutex::new(state), Notify::new())))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap()
    }

    /// Effects in order.
    pub(crate) fn effects(&self) -> Vec<Effect> {
        self.state().effects.clone()
    }

    /// Await points passed.
    pub(crate) fn polls(&self) -> usize {
        self.state().polls
    }

    /// Engines that have died.
    pub(crate) fn deaths(&self) -> usize {
        self.state().deaths
    }

    /// Waits until an engine has to be dropped.
    pub(crate) async fn called(&self) {
        self.0.1.notified().await;
    }

    /// From now on nothing gets out, until the next engine is born.
    pub(crate) fn set_dead(&self, dead: bool) {
        self.state().dead = dead;
    }

    fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// Whether the engine dies at this await point.
    pub(crate) fn dies_at_poll(&self) -> bool {
        let mut state = self.state();
        state.polls += 1;
        let polls = state.polls;
        let dies = matches!(&state.death, Death::At(points) if points.contains(&polls));
        state.deaths += usize::from(dies);
        dies
    }

    fn meets(&self, effect: Effect) -> Option<Moment> {
        let mut state = self.state();
        if state.dead {
            return Some(Moment::Before);
        }
        let number = state.effects.len();
        state.effects.push(effect);
        let Death::Around(at, moment) = state.death else { return None };
        if at != number {
            return None;
        }
        state.dead = moment != Moment::After;
        state.deaths += 1;
        self.0.1.notify_one();
        Some(moment)
    }

    /// What becomes of a request.
    pub(crate) fn of(&self, asked: &Asked) -> Option<Fault> {
        if self.is_dead() {
            return Some(Fault::Unreachable);
        }
        if !asked.writes() {
            return None;
        }
        match self.meets(Effect::Write(format!("{} {}", asked.method, asked.uri)))? {
            Moment::Before | Moment::Between => Some(Fault::Unreachable),
            Moment::Unheard => Some(Fault::LostReply),
            Moment::After => None,
        }
    }
}

/// The remote of an engine that may die.
pub(crate) struct Mortal {
    pub(crate) remote: Box<dyn Remote>,
    pub(crate) bare: Bare,
    pub(crate) fate: Fate,
}

impl Mortal {
    fn alive(&mut self) -> Result<&mut dyn Remote, GitError> {
        if self.fate.is_dead() { Err(cut()) } else { Ok(&mut *self.remote) }
    }
}

impl Remote for Mortal {
    fn tracked(&mut self, query: &TrackedQuery) -> Result<Tracked, GitError> {
        self.alive()?.tracked(query)
    }

    fn status(&mut self, branch: &str) -> Result<StatusBranch, GitError> {
        self.alive()?.status(branch)
    }

    fn push(&mut self, commit: &NewCommit) -> Result<Pushed, GitError> {
        match self.fate.meets(Effect::Push(commit.branch.clone())) {
            None | Some(Moment::After) => self.remote.push(commit),
            Some(Moment::Before) => Err(cut()),
            Some(Moment::Between) => {
                // The push itself gets as far as the ref, which somebody else holds, and no further. A served repository
                // throws the objects of such a push away, which is `Before`.
                let locked = self.bare.lock(&commit.branch);
                let ended = self.remote.push(commit);
                drop(locked);
                assert!(matches!(ended, Err(GitError::Unreachable(_))), "{ended:?}");
                Err(cut())
            }
            Some(Moment::Unheard) => {
                self.remote.push(commit)?;
                Err(cut())
            }
        }
    }
}

fn cut() -> GitError {
    GitError::Unreachable("the process has ended".to_owned())
}
