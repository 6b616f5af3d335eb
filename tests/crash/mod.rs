//! Engines that die before, in and after every single effect of the stories, and at any await point.
//!
//! A first run of each story records its effects: writes to the API server and pushes, in order. Then there is one run
//! per effect and moment in which the engine dies there, and another one over the same cluster, remote and clone goes
//! on. It must end as the recording did, with nothing done twice.
//!
//! By default a sample is run: `SAMPLE` deaths around effects per story. `TRUNKLINE_ALL=1` runs all of them,
//! `TRUNKLINE_ALL=2/5` every fifth from the second on. `TRUNKLINE_SEED=N` takes another sample and other await points; a
//! failure names its seed.

mod end;
mod fate;
mod story;

use std::collections::BTreeSet;

use trunkline::dice::Dice;

use end::End;
use fate::{Death, Effect, Fate, Moment};
use story::{Run, STORIES, Story, play};

/// Deaths around effects that are run per story unless all are.
const SAMPLE: usize = 8;
/// Deaths at await points per story.
const POLLS: usize = 20;

fn seed() -> u64 {
    std::env::var("TRUNKLINE_SEED").map_or(1, |text| text.parse().unwrap())
}

/// Which deaths around effects are run, of how many parts; `None` = a sample.
fn part() -> Option<(usize, usize)> {
    let text = std::env::var("TRUNKLINE_ALL").ok()?;
    let (part, of) = text.split_once('/').unwrap_or(("1", "1"));
    let (part, of) = (part.parse().unwrap(), of.parse().unwrap());
    assert!((1..=of).contains(&part), "there is no part {text}");
    Some((part, of))
}

fn below(dice: &mut Dice, bound: usize) -> usize {
    usize::try_from(dice.throw() % u64::try_from(bound).unwrap()).unwrap()
}

async fn record(story: Story) -> (Run, Fate) {
    let fate = Fate::new(Death::Never);
    let run = play(story, &fate, false).await.unwrap_or_else(|told| panic!("{}: {told}", story.name));
    (run, fate)
}

/// What differs from the recording.
async fn differs(story: Story, recorded: &Run, death: Death, forgetful: bool) -> Option<String> {
    let (fate, expected) = (Fate::new(death.clone()), death.number());
    let run = match play(story, &fate, forgetful).await {
        Ok(run) => run,
        Err(told) => return Some(told),
    };
    if fate.deaths() != expected {
        return Some(format!("{} deaths instead of {expected}", fate.deaths()));
    }
    if run.end != recorded.end {
        return Some(difference(&recorded.end, &run.end));
    }
    let twice = run.deletions.iter().find(|(node, times)| recorded.deletions.get(*node) < Some(times));
    if let Some((node, times)) = twice {
        return Some(format!("{times} agent pods of {node} deleted, {:?} recorded", recorded.deletions));
    }
    (run.patches > recorded.patches)
        .then(|| format!("{} changes of the DaemonSet instead of {}", run.patches, recorded.patches))
}

/// Lines that only one of two ends has.
fn difference(recorded: &End, found: &End) -> String {
    let (recorded, found) = (format!("{recorded:#?}"), format!("{found:#?}"));
    let only = |these: &str, those: &str, sign: &str| {
        let known: BTreeSet<&str> = those.lines().collect();
        let fresh = these.lines().filter(|line| !known.contains(line));
        fresh.fold(String::new(), |text, line| text + "\n" + sign + " " + line.trim())
    };
    let lines = only(&recorded, &found, "-") + &only(&found, &recorded, "+");
    if lines.is_empty() { format!("the same lines in another order or number:\n{found}") } else { lines }
}

async fn dies_around_effects(story: Story) {
    let (recorded, fate) = record(story).await;
    let effects = fate.effects();
    let mut deaths = Vec::new();
    for (number, effect) in effects.iter().enumerate() {
        let moments = match effect {
            Effect::Write(_) => Moment::OF_WRITES,
            Effect::Push(_) => Moment::OF_PUSHES,
        };
        deaths.extend(moments.iter().map(|moment| (number, *moment)));
    }
    let all = deaths.len();
    if let Some((part, of)) = part() {
        deaths = deaths.into_iter().skip(part - 1).step_by(of).collect();
    } else {
        let mut dice = Dice::new(seed());
        while deaths.len() > SAMPLE {
            deaths.swap_remove(below(&mut dice, deaths.len()));
        }
    }
    println!("{}: {} effects, {} of {all} deaths, seed {}", story.name, effects.len(), deaths.len(), seed());
    let mut wrong = Vec::new();
    for (number, moment) in deaths {
        if let Some(told) = differs(story, &recorded, Death::Around(number, moment), false).await {
            wrong.push(format!("{moment:?} effect {number}, {:?}: {told}", effects[number]));
        }
    }
    assert!(
        wrong.is_empty(),
        "{}, seed {}: {} wrong\n{}",
        story.name,
        seed(),
        wrong.len(),
        wrong.join("\n\n")
    );
}

async fn dies_anywhere(story: Story, forgetful: bool) {
    let (recorded, fate) = record(story).await;
    let mut dice = Dice::new(seed());
    let mut points = BTreeSet::new();
    while points.len() < POLLS {
        points.insert(1 + below(&mut dice, fate.polls()));
    }
    println!("{}: await points {points:?}, seed {}", story.name, seed());
    let told = differs(story, &recorded, Death::At(points.clone()), forgetful).await;
    assert!(told.is_none(), "{}, seed {}, {points:?}: {}", story.name, seed(), told.unwrap_or_default());
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_survives_a_death_around_any_effect() {
    dies_around_effects(STORIES[0]).await;
}

#[tokio::test(start_paused = true)]
async fn a_rollback_survives_a_death_around_any_effect() {
    dies_around_effects(STORIES[1]).await;
}

#[tokio::test(start_paused = true)]
async fn a_kept_failure_survives_a_death_around_any_effect() {
    dies_around_effects(STORIES[2]).await;
}

#[tokio::test(start_paused = true)]
async fn a_revert_survives_a_death_around_any_effect() {
    dies_around_effects(STORIES[3]).await;
}

#[tokio::test(start_paused = true)]
async fn twenty_deaths_at_any_await_point_change_no_end() {
    for story in STORIES {
        dies_anywhere(story, false).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_clone_is_only_a_cache() {
    for story in STORIES {
        dies_anywhere(story, true).await;
    }
}
