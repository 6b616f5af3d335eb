//! Leader election as the command line has it: flags that win over the configuration, and the name of this process.

use std::time::Duration;

use anyhow::Context as _;
use jiff::SignedDuration;
use ring::rand::{SystemRandom, generate};

use crate::config::ElectionFlags;

/// What the command line says of leader election; what it leaves out is as in the configuration.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct ElectionArgs {
    /// Whether replicas elect the one that writes; without, run one replica only.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    leader_elect: Option<bool>,
    /// How long the others wait for a leader that gives no sign.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    lease_duration: Option<Duration>,
    /// How long after its last renewal a leader still begins to write.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    renew_deadline: Option<Duration>,
    /// Time between two renewals.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    retry_period: Option<Duration>,
}

fn duration(text: &str) -> Result<Duration, String> {
    let signed: SignedDuration = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    Duration::try_from(signed).map_err(|_| "a duration cannot be negative".to_owned())
}

impl ElectionArgs {
    pub(super) const fn flags(&self) -> ElectionFlags {
        ElectionFlags {
            enabled: self.leader_elect,
            lease_duration: self.lease_duration,
            renew_deadline: self.renew_deadline,
            retry_period: self.retry_period,
        }
    }
}

/// Name of this process in the lease: its pod or machine, and a part that no earlier process had.
pub(super) fn identity() -> anyhow::Result<String> {
    let pod = std::env::var("POD_NAME").ok().filter(|name| !name.is_empty());
    let name = pod.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    let random = generate::<[u8; 8]>(&SystemRandom::new());
    let random = random.ok().context("this machine gives no random numbers")?.expose();
    Ok(format!("{name}_{:016x}", u64::from_ne_bytes(random)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::config::{Config, ConfigError, LeaderElection};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        election: ElectionArgs,
    }

    fn over(flags: &str) -> Result<LeaderElection, ConfigError> {
        let line = Line::parse_from(std::iter::once("trunkline").chain(flags.split_whitespace()));
        // Leader election is off in it.
        Config::assumed().under(line.election.flags()).map(|config| config.leader_election)
    }

    #[test]
    fn flags_win_over_the_configuration_and_what_they_leave_out_stays() {
        assert_eq!(over("").unwrap(), LeaderElection::OFF);
        assert_eq!(over("--leader-elect").unwrap(), LeaderElection::ASSUMED);
        assert_eq!(over("--leader-elect=false").unwrap(), LeaderElection::OFF);
        let all = over("--lease-duration 1m --renew-deadline 40s --retry-period 500ms").unwrap();
        assert_eq!(
            (all.lease_duration, all.renew_deadline),
            (Duration::from_mins(1), Duration::from_secs(40))
        );
        assert_eq!((all.enabled, all.retry_period), (false, Duration::from_millis(500)));
    }

    #[test]
    fn flags_that_do_not_go_with_the_configuration_are_an_error_that_names_both() {
        let text = over("--lease-duration 10s").unwrap_err().to_string();
        let words =
            "leaderElection, with the flags: leaseDuration (10s) must be longer than renewDeadline (10s)";
        assert!(text.contains(words), "{text}");
        assert!(duration("-3s").is_err() && duration("soon").is_err());
    }

    #[test]
    fn no_two_processes_have_the_same_name_in_the_lease() {
        let (one, other) = (identity().unwrap(), identity().unwrap());
        assert_ne!(one, other);
        assert!(
            one.rsplit_once('_').is_some_and(|(name, random)| !name.is_empty() && random.len() == 16),
            "{one}"
        );
    }
}
