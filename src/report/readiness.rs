//! What the daemon is not ready for, one line each.

use super::{
    escape::line,
    words::{QUOTE, time},
};
use crate::{
    api::{ClaimKind, names::RepoName},
    world::{Feed, FeedHealth, World},
};

/// Says of each feed that is not live, and of each of the repositories that was not read yet, why.
pub fn unready<'r>(world: &World, repositories: impl IntoIterator<Item = &'r RepoName>) -> Vec<String> {
    let feeds = Feed::ALL.into_iter().filter_map(|feed| unready_feed(feed, world.feeds.get(&feed)));
    let repositories = repositories.into_iter().filter_map(|repo| unread(world, repo));
    feeds.chain(repositories).collect()
}

fn unready_feed(feed: Feed, health: Option<&FeedHealth>) -> Option<String> {
    match health {
        Some(FeedHealth::Live(_)) => None,
        Some(FeedHealth::Starting) | None => Some(format!("{feed:?} are being listed")),
        Some(FeedHealth::Cut(_, why)) if why.starts_with("404 ") && custom(feed).is_some() => {
            let kind = custom(feed)?.kind();
            Some(format!(
                "the cluster does not know {kind}; install the CustomResourceDefinitions with `trunkline crd | \
                 kubectl apply -f -`"
            ))
        }
        Some(FeedHealth::Cut(since, why)) => {
            Some(format!("{feed:?} cannot be watched since {}: {}", time(*since), line(why, QUOTE)))
        }
    }
}

/// The kind of ours that a feed is about.
const fn custom(feed: Feed) -> Option<ClaimKind> {
    match feed {
        Feed::CniUpgrades => Some(ClaimKind::CniUpgrade),
        Feed::ServiceUpgrades => Some(ClaimKind::ServiceUpgrade),
        Feed::Nodes | Feed::Pods | Feed::Agents | Feed::Revisions | Feed::Stores => None,
    }
}

fn unread(world: &World, repo: &RepoName) -> Option<String> {
    let seen = world.git.get(repo);
    if seen.is_some_and(|seen| seen.tracked.is_some()) {
        return None;
    }
    let trouble = seen.and_then(|seen| seen.trouble.as_ref());
    Some(match trouble {
        Some(trouble) => format!(
            "repository {repo} cannot be read since {}: {}",
            time(trouble.since),
            line(&trouble.message, QUOTE)
        ),
        None => format!("repository {repo} has not been read yet"),
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::world::{
        Observation,
        git::{GitSeen, GitTrouble},
    };

    fn lines(world: &World) -> Vec<String> {
        unready(world, [&RepoName::new("platform")])
    }

    #[test]
    fn every_feed_and_every_repository_has_its_line_with_the_reason() {
        let (mut world, now) = (World::default(), Timestamp::UNIX_EPOCH);
        assert_eq!(lines(&world).len(), Feed::ALL.len() + 1);
        for feed in Feed::ALL {
            world.apply(Observation::Relisting(feed), now);
            world.apply(Observation::Relisted(feed), now);
        }
        assert_eq!(lines(&world), ["repository platform has not been read yet"]);
        let trouble = GitTrouble { message: "no\u{1b}[31m route\nto host".to_owned(), since: now, count: 1 };
        let seen = GitSeen { trouble: Some(trouble), ..GitSeen::unread(RepoName::new("platform")) };
        world.apply(Observation::Git(Box::new(seen)), now);
        world.apply(Observation::Cut(Feed::Nodes, "403 nodes is forbidden".to_owned()), now);
        world.apply(Observation::Cut(Feed::CniUpgrades, "404 page not found".to_owned()), now);
        assert_eq!(
            lines(&world),
            [
                "Nodes cannot be watched since 1970-01-01T00:00:00Z: 403 nodes is forbidden",
                "the cluster does not know CNIUpgrade; install the CustomResourceDefinitions with `trunkline crd | \
                 kubectl apply -f -`",
                "repository platform cannot be read since 1970-01-01T00:00:00Z: no [31m route to host",
            ]
        );
    }
}
