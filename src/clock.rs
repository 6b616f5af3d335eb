//! Time: the only file that reads a clock or sleeps.
//!
//! Guarantees: under `Clock::embedded` and tokio's paused clock no wall time passes, and equal runs read equal times.
#![allow(
    clippy::disallowed_methods,
    reason = "every other file takes time as an argument or waits through here"
)]

use std::{future::Future, time::Duration};

use jiff::{SignedDuration, Timestamp, Unit};
use tokio::time::Instant;

use crate::lease::Moment;

/// Longest single sleep on the wall clock, so that a clock that was set forward is noticed.
const NAP: Duration = Duration::from_secs(30);

/// Where the present comes from; millisecond precision, as everything stored has it.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Source);

#[derive(Debug, Clone, Copy)]
enum Source {
    Wall { start: Instant },
    Embedded { base: Timestamp, start: Instant },
}

impl Clock {
    /// The wall clock.
    pub fn real() -> Self {
        Self(Source::Wall { start: Instant::now() })
    }

    /// A clock that stands at `base` now and moves with tokio's, paused or not.
    pub fn embedded(base: Timestamp) -> Self {
        Self(Source::Embedded { base: milliseconds(base), start: Instant::now() })
    }

    /// The present.
    pub fn now(&self) -> Timestamp {
        match self.0 {
            Source::Wall { .. } => milliseconds(Timestamp::now()),
            Source::Embedded { base, start } => milliseconds(later(base, start.elapsed())),
        }
    }

    /// The present, with a time that nobody sets.
    pub fn moment(&self) -> Moment {
        let (Source::Wall { start } | Source::Embedded { start, .. }) = self.0;
        Moment { wall: self.now(), steady: start.elapsed() }
    }

    /// Returns once the present has reached `at`, at once if it has; a clock that is set back makes no wait longer.
    pub async fn sleep_until(&self, at: Timestamp) {
        let deadline = Instant::now() + until(self.now(), at);
        while self.now() < at && Instant::now() < deadline {
            let nap = match self.0 {
                Source::Wall { .. } => deadline.min(Instant::now() + NAP),
                Source::Embedded { .. } => deadline,
            };
            tokio::time::sleep_until(nap).await;
        }
    }

    /// Result of the future if it ends before `at`; it is dropped otherwise.
    pub async fn before<T>(&self, at: Timestamp, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            result = future => Some(result),
            () = self.sleep_until(at) => None,
        }
    }
}

/// How long something takes, whatever the clock on the wall does meanwhile.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start; under a paused clock it is virtual time.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Moves a timestamp forward; stops at the end of time.
pub fn later(at: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by).ok().and_then(|by| at.checked_add(by).ok()).unwrap_or(Timestamp::MAX)
}

/// Time from one timestamp to another; zero if it has passed.
pub fn until(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(from.duration_until(to)).unwrap_or(Duration::ZERO)
}

fn milliseconds(at: Timestamp) -> Timestamp {
    let rounding = jiff::TimestampRound::new().smallest(Unit::Millisecond).mode(jiff::RoundMode::Trunc);
    at.round(rounding).unwrap_or(at)
}

/// Lets a paused clock follow the wall clock at a multiple of its speed, so that people can watch.
///
/// Assumptions: a paused current-thread runtime; everything that waits does so through tokio.
#[derive(Debug, Clone, Copy)]
pub struct Pacer {
    tick: Duration,
    speed: u32,
}

impl Pacer {
    /// Virtual time per step: short enough that a chain of short waits keeps its order and length.
    const STEP: Duration = Duration::from_millis(25);

    /// Runs virtual time `speed` times as fast as the wall clock; at least once.
    pub fn new(speed: u32) -> Self {
        Self { tick: Duration::from_millis(20), speed: speed.max(1) }
    }

    /// Advances the paused clock for ever; drop it to stop.
    pub async fn run(self) {
        loop {
            let tick = self.tick;
            // A blocking task keeps the paused clock from advancing by itself meanwhile.
            if tokio::task::spawn_blocking(move || std::thread::sleep(tick)).await.is_err() {
                return;
            }
            let mut left = tick.saturating_mul(self.speed);
            while !left.is_zero() {
                let step = left.min(Self::STEP);
                tokio::time::advance(step).await;
                left = left.saturating_sub(step);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Timestamp {
        "2026-03-01T10:00:00.1239Z".parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_embedded_clock_moves_with_the_paused_one_and_counts_milliseconds() {
        let clock = Clock::embedded(base());
        assert_eq!(clock.now().to_string(), "2026-03-01T10:00:00.123Z");
        clock.sleep_until("2026-03-01T11:00:00Z".parse().unwrap()).await;
        assert_eq!(clock.now().to_string(), "2026-03-01T11:00:00Z");
    }

    #[tokio::test(start_paused = true)]
    async fn a_future_that_is_late_is_dropped() {
        let clock = Clock::embedded(base());
        let soon = later(clock.now(), Duration::from_secs(1));
        assert_eq!(clock.before(soon, std::future::ready(7)).await, Some(7));
        assert_eq!(clock.before(soon, std::future::pending::<()>()).await, None);
        assert_eq!(clock.now(), soon);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pacer_moves_the_paused_clock_no_faster_than_told() {
        let clock = Clock::embedded(base());
        let begin = std::time::Instant::now();
        let pacer = tokio::spawn(Pacer::new(100).run());
        let target = later(clock.now(), Duration::from_secs(10));
        clock.sleep_until(target).await;
        pacer.abort();
        assert!(begin.elapsed() >= Duration::from_millis(90), "ten seconds took {:?}", begin.elapsed());
    }

    #[test]
    fn what_has_passed_is_no_time_away() {
        assert_eq!(until(Timestamp::MAX, Timestamp::MIN), Duration::ZERO);
        assert_eq!(later(Timestamp::MAX, Duration::MAX), Timestamp::MAX);
    }
}
