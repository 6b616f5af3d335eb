//! Replicas with clocks of their own on a network that holds requests back and loses them, beside people who edit the
//! Lease: never two of them may write at one instant, and in the end one of them may.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Milliseconds of one step.
const STEP: u64 = 100;
const REPLICAS: usize = 3;

/// What happens to the requests of a replica, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Way {
    /// Until the server takes it; `None` = never.
    there: Option<u64>,
    /// Until the answer is back; `None` = never.
    back: Option<u64>,
}

const GOOD: Way = Way { there: Some(STEP), back: Some(STEP) };

#[derive(Debug, Clone)]
enum Event {
    Network(Way),
    /// Stopped, while its clocks go on.
    Stopped(u64),
    /// The machine sleeps: the steady clock stands still.
    Suspended(u64),
    WallSet(i64),
    Killed,
    GivesBack,
    Edited(Edit),
}

#[derive(Debug, Clone)]
enum Edit {
    Deleted,
    Holder(&'static str),
    Transitions(i64),
    Duration(u64),
    Annotated,
    Emptied,
}

fn way() -> impl Strategy<Value = Way> {
    let trip = || prop_oneof![6 => (0..1_000_u64).prop_map(Some), 2 => (1_000..40_000_u64).prop_map(Some), 1 => Just(None)];
    (trip(), trip()).prop_map(|(there, back)| Way { there, back })
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        Just(Edit::Deleted),
        prop::sample::select(vec!["", "people", "r0.0", "r1.0"]).prop_map(Edit::Holder),
        (0..20_i64).prop_map(Edit::Transitions),
        (0..30_u64).prop_map(Edit::Duration),
        Just(Edit::Annotated),
        Just(Edit::Emptied),
    ]
}

/// A wall clock is set back in runs without suspended machines only: both at once leave no clock that tells.
fn event(suspends: bool) -> impl Strategy<Value = Event> {
    let back = if suspends { 0 } else { -3_600_000 };
    let sleep = if suspends { 3 } else { 0 };
    prop_oneof![
        8 => way().prop_map(Event::Network),
        3 => (1_000..40_000_u64).prop_map(Event::Stopped),
        sleep => (1_000..40_000_u64).prop_map(Event::Suspended),
        3 => (back..=3_600_000_i64).prop_map(Event::WallSet),
        2 => Just(Event::Killed),
        2 => Just(Event::GivesBack),
        2 => edit().prop_map(Event::Edited),
    ]
}

fn story() -> impl Strategy<Value = Vec<(usize, Event, u64)>> {
    let line = |suspends| (0..REPLICAS, event(suspends), 0..12_000_u64);
    prop_oneof![prop::collection::vec(line(false), 1..40), prop::collection::vec(line(true), 1..40)]
}

/// The API server's one object.
#[derive(Default)]
struct Server {
    object: Option<Value>,
    version: u64,
    uids: u64,
}

impl Server {
    fn read(&self) -> Option<Lease> {
        self.object.as_ref().map(|object| Lease::parse(&object.to_string()).unwrap())
    }

    fn store(&mut self, mut object: Value) -> Lease {
        self.version += 1;
        object["metadata"]["uid"] = json!(format!("u{}", self.uids));
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.object = Some(object);
        self.read().unwrap()
    }

    /// A create, or a replace at a version.
    fn write(&mut self, body: Value) -> Option<Lease> {
        let asked = &body["metadata"];
        match &self.object {
            None if asked.get("uid").is_none() => {
                self.uids += 1;
                Some(self.store(body))
            }
            Some(object)
                if asked.get("uid").is_some()
                    && asked["uid"] == object["metadata"]["uid"]
                    && asked["resourceVersion"] == object["metadata"]["resourceVersion"] =>
            {
                Some(self.store(body))
            }
            _ => None,
        }
    }

    fn edit(&mut self, edit: &Edit) {
        let Some(mut object) = self.object.take() else { return };
        match edit {
            Edit::Deleted => return,
            Edit::Holder(name) => object["spec"]["holderIdentity"] = json!(name),
            Edit::Transitions(count) => object["spec"]["leaseTransitions"] = json!(count),
            Edit::Duration(seconds) if *seconds == 1 => {}
            Edit::Duration(seconds) => object["spec"]["leaseDurationSeconds"] = json!(seconds),
            Edit::Annotated => object["metadata"]["annotations"] = json!({ "at": self.version.to_string() }),
            Edit::Emptied => object["spec"] = json!(null),
        }
        self.store(object);
    }
}

#[derive(Clone)]
enum Ask {
    Look,
    Write(Step, Value),
    GiveBack(Value),
}

#[derive(Clone)]
enum Answer {
    Seen(Option<Lease>),
    Written(Option<Lease>),
}

/// A request under way; what a replica no longer waits for arrives all the same.
struct Request {
    replica: usize,
    number: u64,
    ask: Ask,
    /// When the server takes it.
    there: Option<u64>,
    back: Option<u64>,
    answer: Option<(u64, Answer)>,
}

struct Replica {
    candidate: Candidate,
    lives: u64,
    way: Way,
    wall: i64,
    slept: u64,
    stopped_until: u64,
    /// Number, what, and since when it waits for the answer.
    waits: Option<(u64, Ask, Moment)>,
    round: Duration,
    next: Duration,
    gives_back: bool,
    looked: bool,
    /// Somebody else was faster in this round.
    overtaken: bool,
}

impl Replica {
    fn new(index: usize, lives: u64) -> Self {
        Self {
            candidate: Candidate::new(format!("r{index}.{lives}"), PERIODS),
            lives,
            way: GOOD,
            wall: 0,
            slept: 0,
            stopped_until: 0,
            waits: None,
            round: Duration::ZERO,
            next: Duration::ZERO,
            gives_back: false,
            looked: false,
            overtaken: false,
        }
    }

    fn moment(&self, now: u64) -> Moment {
        let wall = at(0).wall + SignedDuration::from_millis(i64::try_from(now).unwrap() + self.wall);
        Moment { wall, steady: Duration::from_millis(now - self.slept) }
    }
}

struct Cluster {
    now: u64,
    server: Server,
    replicas: Vec<Replica>,
    requests: Vec<Request>,
    numbers: u64,
    /// Who wrote statuses under which epoch.
    writers: BTreeMap<i64, String>,
}

impl Cluster {
    fn new() -> Self {
        Self {
            now: 0,
            server: Server::default(),
            replicas: (0..REPLICAS).map(|index| Replica::new(index, 0)).collect(),
            requests: Vec::new(),
            numbers: 0,
            writers: BTreeMap::new(),
        }
    }

    fn happens(&mut self, index: usize, event: &Event) {
        let now = self.now;
        let replica = &mut self.replicas[index];
        match event {
            Event::Network(way) => replica.way = *way,
            Event::Stopped(time) => replica.stopped_until = now + time,
            Event::Suspended(time) => {
                // Its steady clock falls behind from now on, and it does nothing.
                replica.slept += (*time).min(now - replica.slept);
                replica.stopped_until = now + time;
            }
            Event::WallSet(by) => replica.wall += by,
            Event::Killed => {
                *replica = Replica { wall: replica.wall, ..Replica::new(index, replica.lives + 1) }
            }
            Event::GivesBack => replica.gives_back = true,
            Event::Edited(edit) => self.server.edit(edit),
        }
    }

    fn pass(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / STEP {
            self.now += STEP;
            self.deliver();
            for index in 0..self.replicas.len() {
                if self.replicas[index].stopped_until <= self.now {
                    self.turn(index);
                }
            }
            self.check();
        }
    }

    fn deliver(&mut self) {
        for request in &mut self.requests {
            if request.there.is_some_and(|at| at <= self.now) {
                request.there = None;
                let answer = match &request.ask {
                    Ask::Look => Answer::Seen(self.server.read()),
                    Ask::Write(_, body) | Ask::GiveBack(body) => {
                        Answer::Written(self.server.write(body.clone()))
                    }
                };
                request.answer = request.back.map(|back| (self.now + back, answer));
            }
        }
        self.requests.retain(|request| request.there.is_some() || request.answer.is_some());
    }

    /// What the task of one replica does now, as `engine::lease` does it.
    fn turn(&mut self, index: usize) {
        let now = self.replicas[index].moment(self.now);
        if let Some((number, ask, sent)) = self.replicas[index].waits.clone() {
            let arrived = self.requests.iter().position(|request| {
                (request.replica, request.number) == (index, number)
                    && request.answer.as_ref().is_some_and(|(at, _)| *at <= self.now)
            });
            let answer = arrived.and_then(|place| self.requests.remove(place).answer);
            if answer.is_none() && now.steady < sent.steady + PERIODS.renew_deadline / 2 {
                return;
            }
            self.replicas[index].waits = None;
            self.answered(index, ask, answer.map(|(_, answer)| answer), sent, now);
        }
        if self.replicas[index].waits.is_none() {
            self.go_on(index, now);
        }
    }

    fn answered(&mut self, index: usize, ask: Ask, answer: Option<Answer>, sent: Moment, now: Moment) {
        let replica = &mut self.replicas[index];
        match (ask, answer) {
            (Ask::Look, Some(Answer::Seen(lease))) => {
                replica.candidate.saw(lease, now);
                replica.looked = true;
            }
            (Ask::Write(step, _), Some(Answer::Written(Some(lease)))) => {
                replica.candidate.wrote(&step, lease, sent, now);
                self.rest(index, now);
            }
            (Ask::Write(..), Some(Answer::Written(None))) if !replica.overtaken => {
                replica.overtaken = true;
                self.send(index, Ask::Look, now);
            }
            _ => self.rest(index, now),
        }
    }

    /// The round is over.
    fn rest(&mut self, index: usize, now: Moment) {
        let epochs = self.epochs();
        let replica = &mut self.replicas[index];
        let period = replica.round + PERIODS.retry_period;
        (replica.looked, replica.overtaken) = (false, false);
        replica.next = match replica.candidate.evaluate(Some(epochs), now) {
            Step::Wait { until: Some(free), .. } => period.min(free),
            _ => period,
        };
    }

    fn go_on(&mut self, index: usize, now: Moment) {
        let epochs = self.epochs();
        let replica = &mut self.replicas[index];
        if !replica.looked {
            if now.steady < replica.next {
                return;
            }
            replica.round = now.steady;
            if replica.candidate.must_look(now) {
                return self.send(index, Ask::Look, now);
            }
        }
        if std::mem::take(&mut replica.gives_back)
            && let Some(body) = replica.candidate.given_back(now)
        {
            replica.candidate.resign();
            return self.send(index, Ask::GiveBack(body), now);
        }
        let step = replica.candidate.evaluate(Some(epochs), now);
        match replica.candidate.written(&step, "home", now) {
            Some(body) => {
                replica.candidate.doubt();
                self.send(index, Ask::Write(step, body), now);
            }
            None => self.rest(index, now),
        }
    }

    fn send(&mut self, replica: usize, ask: Ask, now: Moment) {
        self.numbers += 1;
        let Way { there, back } = self.replicas[replica].way;
        let number = self.numbers;
        self.replicas[replica].waits = Some((number, ask.clone(), now));
        let there = there.map(|time| self.now + time);
        self.requests.push(Request { replica, number, ask, there, back, answer: None });
    }

    fn epochs(&self) -> i64 {
        self.writers.keys().next_back().copied().unwrap_or(0)
    }

    /// Those whose clocks tell them that they may write.
    fn leaders(&self) -> Vec<(String, i64)> {
        let fence = |replica: &Replica| {
            let fence = replica.candidate.fence(replica.moment(self.now))?;
            Some((replica.candidate.me.clone(), fence.epoch()))
        };
        self.replicas.iter().filter_map(fence).collect()
    }

    fn check(&mut self) {
        let leaders = self.leaders();
        assert!(leaders.len() < 2, "at {} ms: {leaders:?}", self.now);
        for (name, epoch) in leaders {
            let writer = self.writers.entry(epoch).or_insert_with(|| name.clone());
            assert_eq!(*writer, name, "two wrote under epoch {epoch}");
        }
    }

    /// Nothing goes wrong any more.
    fn calm(&mut self) {
        for replica in &mut self.replicas {
            replica.way = GOOD;
            replica.stopped_until = 0;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn no_two_replicas_may_write_at_one_instant_and_in_the_end_one_may_and_stays(story in story()) {
        let mut cluster = Cluster::new();
        for (index, event, time) in &story {
            cluster.happens(*index, event);
            cluster.pass(*time);
        }
        cluster.calm();
        // Requests of the story may still arrive for 40 s, and people may have written a duration of 30 s.
        cluster.pass(120_000);
        let leaders = cluster.leaders();
        prop_assert_eq!(leaders.len(), 1);
        cluster.pass(60_000);
        prop_assert_eq!(cluster.leaders(), leaders);
    }
}

#[test]
fn the_next_one_takes_over_within_lease_duration_and_retry_period() {
    for stops_at in (20_000..24_000).step_by(300) {
        let mut cluster = Cluster::new();
        cluster.pass(stops_at);
        let (name, epoch) = cluster.leaders().remove(0);
        let index = cluster.replicas.iter().position(|replica| replica.candidate.me == name).unwrap();
        cluster.happens(index, &Event::Stopped(1_000_000));
        // Two requests of two trips each, seen at the end of a step.
        cluster.pass(15_000 + 2_000 + 5 * STEP);
        let next = cluster.leaders().remove(0);
        assert!(next.0 != name && next.1 == epoch + 1, "{next:?} after {name} {epoch}");
    }
}
