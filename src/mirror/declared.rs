//! From the last accepted revision to the next: which objects are new, changed, moved, hidden or removed.
//!
//! An object is its kind, namespace and name; its file may move. One bad document holds back only itself.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    accept::Accepted,
    ledger::{Ledger, ObjectEntry, Removal, Scope, Standing},
    readings::{Presence, Readings, presence},
};
use crate::{
    api::{
        ClaimKey,
        names::{Oid, WishHash},
    },
    config::Repository,
    manifest::{Declaration, Reading},
    world::{Target, digest},
};

/// Most hiding files remembered; one beyond counts as changed, so that nothing is removed because of it.
const HIDING: usize = 500;

/// Takes an accepted revision into the ledger and returns the keys with a new wish, in order of acceptance.
pub(super) fn take(
    ledger: &mut Ledger,
    accepted: &Accepted<'_>,
    readings: &Readings,
    repo: &Repository,
) -> Vec<ClaimKey> {
    let step = Step {
        accepted: accepted.revision,
        readings,
        first: !ledger.started,
        scope: ledger.scope.clone(),
        hiding: hiding(accepted, readings),
        hid: std::mem::take(&mut ledger.hiding),
    };
    let mut brought = Vec::new();
    if let Some(revision) = accepted.revision {
        let known = |key| ledger.objects.contains_key(key);
        let mut room = if readings.head.declarations.keys().all(known) { 0 } else { ledger.room() };
        for (key, declaration) in &readings.head.declarations {
            if !ledger.objects.contains_key(key) {
                let Some(left) = room.checked_sub(bytes(key, declaration)) else { continue };
                room = left;
            }
            if let Some(place) = step.declare(ledger, key, declaration, revision) {
                brought.push((place, key.clone()));
            }
        }
    }
    for (key, entry) in &mut ledger.objects {
        let target = ledger.targets.get(&entry.target);
        step.miss(key, entry, target.and_then(|target| target.provider.as_deref()));
    }
    brought.sort();
    let brought: Vec<ClaimKey> = brought.into_iter().map(|(_, key)| key).collect();
    order(ledger, &brought);
    note_paths(ledger, readings, repo);
    ledger.hiding = step.hiding.into_iter().take(HIDING).collect();
    ledger.started = true;
    ledger.accepted = accepted.revision.cloned();
    ledger.branch.clone_from(&repo.branch);
    ledger.scope = Scope { paths: repo.paths.clone(), namespaces: repo.allow_namespaces.clone() };
    brought
}

/// Bytes that a new declaration takes in the ledger, at most: as an object, as a wish, and under its target.
fn bytes(key: &ClaimKey, declaration: &Declaration) -> usize {
    let wish = serde_json::to_string(&declaration.wish).map_or(usize::MAX, |text| text.len());
    let written: usize = declaration.written.values().map(String::len).sum();
    let names = 8 * key.to_string().len() + declaration.path.len();
    1024_usize.saturating_add(wish.saturating_mul(2)).saturating_add(2 * written).saturating_add(names)
}

fn order(ledger: &mut Ledger, brought: &[ClaimKey]) {
    let last = ledger.objects.values().map(|entry| entry.order).max().unwrap_or(0);
    for (order, key) in (last.saturating_add(1)..).zip(brought) {
        if let Some(entry) = ledger.objects.get_mut(key) {
            entry.order = order;
        }
    }
}

fn note_paths(ledger: &mut Ledger, readings: &Readings, repo: &Repository) {
    for path in &repo.paths {
        let used = readings.head.declarations.values().any(|declaration| is_under(&declaration.path, path));
        if used && !ledger.used_paths.contains(path) {
            ledger.used_paths.push(path.clone());
        }
    }
}

/// Files that hide which key stands in them, with what they are: blob id, or why the entry was skipped.
fn hiding(accepted: &Accepted<'_>, readings: &Readings) -> BTreeMap<String, String> {
    let files = readings.head.hiding.iter().map(|path| {
        let blob = accepted.files.get(path).map(|file| file.oid.to_string());
        (path.clone(), blob.unwrap_or_default())
    });
    files.chain(accepted.skipped.iter().cloned()).collect()
}

/// Whether a configured path covers a file; `""` and `.` cover everything.
pub(super) fn is_under(file: &str, path: &str) -> bool {
    let path = path.trim_start_matches("./").trim_end_matches('/');
    path.is_empty()
        || path == "."
        || file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

struct Step<'r> {
    accepted: Option<&'r Oid>,
    readings: &'r Readings,
    first: bool,
    scope: Scope,
    hiding: BTreeMap<String, String>,
    hid: BTreeMap<String, String>,
}

impl Step<'_> {
    /// Takes one declaration in; if its wish is new, says where on the way it came.
    fn declare(
        &self,
        ledger: &mut Ledger,
        key: &ClaimKey,
        declaration: &Declaration,
        revision: &Oid,
    ) -> Option<usize> {
        let spec = digest::of(&declaration.stored);
        let Some(entry) = ledger.objects.get_mut(key) else {
            let (place, introduced) = self.brought(key, None, Some(&declaration.hash), None);
            let seen_coming = place != usize::MAX && self.scope_covers(key, &declaration.path);
            let entry = ObjectEntry {
                path: declaration.path.clone(),
                wish: declaration.hash.clone(),
                wished: declaration.wish.clone(),
                spec,
                introduced: introduced.unwrap_or(revision).clone(),
                accepted: revision.clone(),
                order: 0,
                before: None,
                first_contact: self.first || !seen_coming,
                hidden_in: BTreeSet::new(),
                token: declaration.token.clone(),
                asked: None,
                hold: None,
                standing: Standing::FirstContact,
                removed: None,
                target: Target::Unresolved(key.clone()),
            };
            ledger.objects.insert(key.clone(), entry);
            return Some(place);
        };
        let target = ledger.targets.get(&entry.target);
        let provider = target.and_then(|target| target.provider.as_deref());
        let wish = declaration.wish.on(provider);
        let failed = target.is_some_and(|target| target.quarantine.contains(&wish.hash()));
        let returned = entry.removed.take().is_some();
        let from = if returned { None } else { Some(entry.wish.clone()) };
        let new_wish = returned || entry.wished.on(provider) != wish;
        let new_token = declaration.token.is_some() && entry.token != declaration.token;
        if new_wish || entry.token != declaration.token {
            entry.asked = new_token.then(|| self.asked(key, declaration).unwrap_or(revision).clone());
        }
        if new_wish || entry.spec != spec || entry.token != declaration.token {
            entry.accepted = revision.clone();
        }
        entry.first_contact &= !new_wish && !new_token;
        entry.path.clone_from(&declaration.path);
        entry.hidden_in.clear();
        entry.spec = spec;
        entry.token.clone_from(&declaration.token);
        entry.wish = wish.hash();
        entry.wished = declaration.wish.clone();
        let (place, introduced) = self.brought(key, from.as_ref(), Some(&entry.wish), provider);
        if !new_wish {
            // It went and came back on the way: of a wish that failed here that is one more declaration.
            if let Some(commit) = introduced.filter(|_| failed) {
                entry.introduced = commit.clone();
            }
            return None;
        }
        entry.introduced = introduced.unwrap_or(revision).clone();
        entry.before = from;
        Some(place)
    }

    /// Looks at an object that the revision does not declare: held, hidden or removed.
    fn miss(&self, key: &ClaimKey, entry: &mut ObjectEntry, provider: Option<&str>) {
        match presence(&self.readings.head, key) {
            Presence::Declared(_) => return,
            Presence::Held => return entry.hidden_in.clear(),
            Presence::Absent => {}
        }
        if entry.removed.is_some() {
            return;
        }
        entry.hidden_in = self
            .hiding
            .iter()
            .filter(|(path, id)| {
                **path == entry.path || entry.hidden_in.contains(*path) || self.hid.get(*path) != Some(*id)
            })
            .map(|(path, _)| path.clone())
            .collect();
        if entry.hidden_in.is_empty() {
            let (_, by) = self.brought(key, Some(&entry.wish), None, provider);
            let by = by.or(self.accepted).unwrap_or(&entry.accepted);
            entry.removed = Some(Removal { by: by.clone() });
        }
    }

    /// The last step that changed the wish of a key on the way from one wish to another: its place and
    /// commit.
    fn brought(
        &self,
        key: &ClaimKey,
        from: Option<&WishHash>,
        to: Option<&WishHash>,
        provider: Option<&str>,
    ) -> (usize, Option<&Oid>) {
        let mut current = from.cloned();
        let mut by = (usize::MAX, None);
        for (place, (commit, reading)) in self.readings.steps.iter().enumerate() {
            let next = match presence(reading, key) {
                Presence::Declared(declaration) => Some(declaration.wish.on(provider).hash()),
                Presence::Held => current.clone(),
                Presence::Absent => None,
            };
            if next != current {
                by = (place, Some(commit));
            }
            current = next;
        }
        if current.as_ref() == to { by } else { (usize::MAX, None) }
    }

    /// The last step that put the token of a declaration beside its wish.
    fn asked(&self, key: &ClaimKey, declaration: &Declaration) -> Option<&Oid> {
        let asks = |reading: &Reading| match presence(reading, key) {
            Presence::Declared(step) => step.token == declaration.token,
            Presence::Held | Presence::Absent => false,
        };
        let steps = self.readings.steps.iter().rev();
        steps.take_while(|(_, reading)| asks(reading)).last().map(|(commit, _)| commit)
    }

    fn scope_covers(&self, key: &ClaimKey, path: &str) -> bool {
        let namespaces = &self.scope.namespaces;
        self.scope.paths.iter().any(|covered| is_under(path, covered))
            && key.namespace.as_ref().is_none_or(|ours| namespaces.iter().any(|n| n == "*" || n == ours))
    }
}
