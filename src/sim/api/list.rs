//! Reads: one object, or many with limit, continue and selectors.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{
    failure::Failure,
    render,
    resources::Resource,
    route::{Query, Target},
    select::Selector,
};
use crate::sim::model::{
    Model,
    store::{ObjRef, Stored},
};

/// One page of objects, all as they were at one version.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Page {
    /// The objects, in order of namespace and name.
    pub(super) items: Vec<Arc<Stored>>,
    /// Version of the state they are from.
    pub(super) rv: u64,
    /// Token for the next page; empty after the last.
    pub(super) next: String,
    /// Objects after this page; absent when a selector makes them unknown.
    pub(super) remaining: Option<usize>,
}

impl Page {
    /// `metadata` of the list.
    pub(super) fn metadata(&self) -> Value {
        let mut meta = json!({ "resourceVersion": self.rv.to_string() });
        if let (false, Some(meta)) = (self.next.is_empty(), meta.as_object_mut()) {
            meta.insert("continue".to_owned(), self.next.as_str().into());
            meta.extend(self.remaining.map(|n| ("remainingItemCount".to_owned(), n.into())));
        }
        meta
    }

    /// The list itself.
    pub(super) fn render(&self, resource: &Resource) -> Value {
        let items: Vec<Value> = self.items.iter().map(|item| render::object(resource, item)).collect();
        json!({
            "apiVersion": resource.api_version(),
            "kind": format!("{}List", resource.kind),
            "metadata": self.metadata(),
            "items": items,
        })
    }
}

/// Which object a target is.
pub(super) fn object_ref(target: &Target) -> ObjRef {
    let (namespace, name) = (target.namespace.as_deref().unwrap_or(""), target.name.as_deref().unwrap_or(""));
    ObjRef::new(target.resource.stored, namespace, name)
}

/// All objects of a target's collection as they were at a version.
fn state(model: &Model, target: &Target, rv: u64) -> Result<BTreeMap<ObjRef, Arc<Stored>>, Failure> {
    let kind = target.resource.stored;
    let present = model.list(kind, target.namespace.as_deref());
    let mut state: BTreeMap<_, _> = present.map(|object| (object.at.clone(), Arc::clone(object))).collect();
    if rv < model.rv() {
        let changes: Vec<_> = model.changes_since(rv)?.collect();
        let in_scope = |at: &ObjRef| {
            at.kind == kind && target.namespace.as_deref().is_none_or(|wanted| *at.namespace == *wanted)
        };
        for change in changes.into_iter().rev().filter(|change| in_scope(&change.object.at)) {
            match &change.before {
                Some(before) => state.insert(before.at.clone(), Arc::clone(before)),
                None => state.remove(&change.object.at),
            };
        }
    }
    Ok(state)
}

/// One object as it was `stale` versions ago.
pub(super) fn get(model: &Model, target: &Target, stale: u64) -> Result<Arc<Stored>, Failure> {
    let at = object_ref(target);
    let found = if stale == 0 {
        model.get(&at).cloned()
    } else {
        state(model, target, model.rv().saturating_sub(stale))?.remove(&at)
    };
    found.ok_or_else(|| Failure::NotFound { resource: target.resource, name: (*at.name).to_owned() })
}

/// One page as it was `stale` versions ago.
pub(super) fn page(model: &Model, target: &Target, query: &Query, stale: u64) -> Result<Page, Failure> {
    let selector = Selector::of(query, target.resource)?;
    let limit = query.number("limit")?.unwrap_or(0);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let from = match query.text("continue") {
        "" => None,
        token => Some(read_token(target, token)?),
    };
    let exact = query.text("resourceVersionMatch") == "Exact";
    let asked = query.number("resourceVersion")?;
    if let Some(asked) = asked.filter(|asked| *asked > model.rv()) {
        return Err(Failure::Ahead { asked, newest: model.rv() });
    }
    let rv = match (&from, asked) {
        (Some((rv, _)), _) => *rv,
        (None, Some(rv)) if exact => rv,
        (None, _) => model.rv().saturating_sub(stale),
    };
    let old = if from.is_some() { Failure::PageExpired } else { Failure::ListExpired };
    let after = from.map(|(_, at)| at);
    let mut rest = state(model, target, rv)
        .map_err(|_| old)?
        .into_values()
        .filter(|object| after.as_ref().is_none_or(|after| object.at > *after))
        .filter(|object| selector.matches(object));
    let items: Vec<_> = rest.by_ref().take(if limit == 0 { usize::MAX } else { limit }).collect();
    let left = rest.count();
    let next = items.last().filter(|_| left > 0).map(|last| token(rv, &last.at)).unwrap_or_default();
    Ok(Page { items, rv, next, remaining: selector.is_empty().then_some(left) })
}

/// A token names the version of the first page and the last object sent.
fn token(rv: u64, last: &ObjRef) -> String {
    format!("{rv}/{}/{}", last.namespace, last.name)
}

fn read_token(target: &Target, token: &str) -> Result<(u64, ObjRef), Failure> {
    let parts: Vec<&str> = token.split('/').collect();
    let bad = || Failure::BadRequest("invalid continue token: continue key is not valid".to_owned());
    let [rv, namespace, name] = parts.as_slice() else { return Err(bad()) };
    Ok((rv.parse().map_err(|_| bad())?, ObjRef::new(target.resource.stored, *namespace, *name)))
}
