//! Writes: create, replace, patch and delete, on objects and on their status.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    custom,
    failure::Failure,
    fields::{self, Writer},
    limits,
    list::object_ref,
    parse::{self, MetaWire, cause},
    patch::{self, Format},
    render,
    resources::{self, Resource},
    route::{Query, Target, Verb},
};
use crate::{
    api::names::{Rv, Uid},
    sim::model::{
        Model,
        body::Body,
        store::{DeleteOptions, Deletion, Kind, Manager, Meta, ObjRef, Preconditions, Propagation, Stored},
    },
};

/// A write as it came in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write<'a> {
    /// Objects that it is about.
    pub(super) target: &'a Target,
    /// Options.
    pub(super) query: &'a Query,
    /// `Content-Type`; empty = JSON.
    pub(super) content_type: &'a str,
    /// `User-Agent`, the field manager where none is named.
    pub(super) agent: &'a str,
    /// Body.
    pub(super) body: &'a [u8],
}

/// What a write answers.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Written {
    /// 201 with the object.
    Created(Arc<Stored>),
    /// 200 with the object.
    Changed(Arc<Stored>),
    /// 200 with a `Status` of success.
    Gone(Value),
}

impl Write<'_> {
    /// Does it; with `dryRun=All` on a copy that is thrown away.
    pub(super) fn perform(&self, verb: Verb, model: &mut Model) -> Result<Written, Failure> {
        limits::request(self.body)?;
        if !self.dry_run(verb)? {
            return self.on(verb, model);
        }
        let mut copy = model.clone();
        let seen = model.get(&object_ref(self.target)).map_or(0, |object| object.rv);
        let unstored = |object: Arc<Stored>| Arc::new(Stored { rv: seen, ..Stored::clone(&object) });
        Ok(match self.on(verb, &mut copy)? {
            Written::Created(object) => Written::Created(unstored(object)),
            Written::Changed(object) => Written::Changed(unstored(object)),
            Written::Gone(status) => Written::Gone(status),
        })
    }

    fn on(&self, verb: Verb, model: &mut Model) -> Result<Written, Failure> {
        match verb {
            Verb::Create => self.create(model).map(Written::Created),
            Verb::Replace => self.replace(model).map(Written::Changed),
            Verb::Patch => self.patch(model).map(Written::Changed),
            Verb::Delete => self.delete(model),
            Verb::Get | Verb::List | Verb::Watch => Err(Failure::MethodNotAllowed),
        }
    }

    fn dry_run(&self, verb: Verb) -> Result<bool, Failure> {
        let in_body =
            serde_json::from_slice::<DeleteWire>(self.body).is_ok_and(|wire| wire.dry_run == ["All"]);
        Ok(self.query.dry_run(verb)? || in_body)
    }

    fn resource(&self) -> &'static Resource {
        self.target.resource
    }

    fn writer(&self, model: &Model) -> Writer<'_> {
        let agent = self.agent.split('/').next().unwrap_or("");
        let name =
            [self.query.text("fieldManager"), agent, "unknown"].into_iter().find(|name| !name.is_empty());
        Writer { name: name.unwrap_or_default(), status: self.target.status, at: model.now() }
    }

    fn strict(&self) -> bool {
        self.query.text("fieldValidation") == "Strict"
    }

    /// The body as an object of the target's kind.
    fn object(&self) -> Result<Value, Failure> {
        let media = self.content_type.split(';').next().unwrap_or("").trim();
        if !matches!(media, "" | "application/json") {
            return Err(Failure::UnsupportedMediaType { accepted: "application/json" });
        }
        let object: Value = serde_json::from_slice(self.body).map_err(|error| {
            let kind = self.resource().kind;
            Failure::BadRequest(format!(
                "the object provided is unrecognized (must be of type {kind}): {error}"
            ))
        })?;
        let text = |key: &str| object.get(key).and_then(Value::as_str);
        let (version, kind) = (self.resource().api_version(), self.resource().kind);
        let fits =
            text("apiVersion").is_none_or(|is| is == version) && text("kind").is_none_or(|is| is == kind);
        if object.is_object() && fits {
            Ok(object)
        } else {
            Err(Failure::BadRequest(format!("the object in the body is no {kind} of {version}")))
        }
    }

    fn create(&self, model: &mut Model) -> Result<Arc<Stored>, Failure> {
        let resource = self.resource();
        let mut object = self.object()?;
        let wire = parse::metadata(resource, &object)?;
        let at = self.new_ref(&wire, model)?;
        if resource.status && resource.stored != Kind::Node {
            remove(&mut object, "status");
        }
        custom::admit(resource, &at.name, &mut object, None, self.strict())?;
        limits::object(resource, &at.name, &object)?;
        let body = parse::body(resource, &at.name, &object, None, model.now())?;
        let mut meta = wire.into_meta();
        if resource.custom {
            meta.managers = fields::after(&[], None, &object, self.writer(model));
        }
        Ok(model.create(at, meta, body)?)
    }

    fn new_ref(&self, wire: &MetaWire, model: &Model) -> Result<ObjRef, Failure> {
        let resource = self.resource();
        let namespace = self.target.namespace.as_deref().unwrap_or("");
        if !wire.namespace.is_empty() && wire.namespace != namespace {
            let message =
                "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Failure::BadRequest(message.to_owned()));
        }
        if !wire.resource_version.is_empty() {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Failure::BadRequest(message.to_owned()));
        }
        let name = match (wire.name.as_str(), wire.generate_name.as_str()) {
            ("", "") => String::new(),
            ("", start) => format!("{start}{}", suffix(model.rv())),
            (name, _) => name.to_owned(),
        };
        if !is_name(&name) {
            let cause = if name.is_empty() {
                cause(
                    "FieldValueRequired",
                    "metadata.name",
                    "Required value: name or generateName is required",
                )
            } else {
                let message = format!("Invalid value: {name:?}: {NO_SUBDOMAIN}");
                cause("FieldValueInvalid", "metadata.name", &message)
            };
            return Err(Failure::Invalid { resource, name, causes: vec![cause] });
        }
        let home = ObjRef::cluster(Kind::Namespace, namespace);
        if resource.namespaced() && model.get(&home).is_none() {
            let resource = resources::of(Kind::Namespace);
            return Err(Failure::NotFound { resource, name: namespace.to_owned() });
        }
        Ok(ObjRef::new(resource.stored, namespace, name))
    }

    fn replace(&self, model: &mut Model) -> Result<Arc<Stored>, Failure> {
        let object = self.object()?;
        let wire = parse::metadata(self.resource(), &object)?;
        let at = object_ref(self.target);
        if !wire.name.is_empty() && *wire.name != *at.name {
            return Err(Failure::BadRequest(format!(
                "the name of the object ({}) does not match the name on the URL ({})",
                wire.name, at.name
            )));
        }
        let resource = self.resource();
        let versioned =
            resource.custom || matches!(resource.stored, Kind::Lease | Kind::CustomResourceDefinition);
        if versioned && wire.resource_version.is_empty() && model.get(&at).is_some() {
            return Err(Failure::Unversioned { resource, name: (*at.name).to_owned() });
        }
        self.store(model, &at, object, wire)
    }

    fn patch(&self, model: &mut Model) -> Result<Arc<Stored>, Failure> {
        let resource = self.resource();
        let format = Format::of(self.content_type, resource.custom)?;
        let at = object_ref(self.target);
        let old = held(model, resource, &at)?;
        let object = patch::apply(format, &render::object(resource, &old), self.body)?;
        let wire = parse::metadata(resource, &object)?;
        self.store(model, &at, object, wire)
    }

    /// Stores the new form of an object, or of its status only.
    fn store(
        &self,
        model: &mut Model,
        at: &ObjRef,
        mut object: Value,
        wire: MetaWire,
    ) -> Result<Arc<Stored>, Failure> {
        let resource = self.resource();
        let old = held(model, resource, at)?;
        let rendered = render::object(resource, &old);
        let preconditions = preconditions(&wire);
        if self.target.status {
            let status = remove(&mut object, "status");
            object = rendered.clone();
            put(&mut object, "status", status);
        } else if resource.status {
            put(&mut object, "status", rendered.get("status").cloned());
        }
        custom::admit(resource, &at.name, &mut object, Some(&rendered), self.strict())?;
        limits::object(resource, &at.name, &object)?;
        let body = parse::body(resource, &at.name, &object, Some(&old.body), model.now())?;
        if self.target.status {
            let managers = self.managers(model, &old, &rendered, &object);
            return Ok(model.replace_status(at, &body, Some(managers), &preconditions)?);
        }
        if let Body::Pod(_) = body
            && object.get("spec") != rendered.get("spec")
        {
            let causes =
                vec![cause("FieldValueForbidden", "spec", "Forbidden: the spec of a pod stays as it is")];
            return Err(Failure::Invalid { resource, name: (*at.name).to_owned(), causes });
        }
        let managers = self.managers(model, &old, &rendered, &object);
        let meta = Meta { managers, ..wire.into_meta() };
        Ok(model.replace(at, meta, body, &preconditions)?)
    }

    /// Who wrote what, after this write.
    fn managers(&self, model: &Model, old: &Stored, before: &Value, after: &Value) -> Vec<Manager> {
        if self.resource().custom {
            fields::after(&old.meta.managers, Some(before), after, self.writer(model))
        } else {
            Vec::new()
        }
    }

    fn delete(&self, model: &mut Model) -> Result<Written, Failure> {
        let resource = self.resource();
        let options = self.delete_options()?;
        let at = object_ref(self.target);
        let seen = &options.preconditions;
        expect(&*held(model, resource, &at)?, resource, seen)?;
        let deletion = model.delete(&at, &options)?;
        match deletion {
            Deletion::Marked(object) => Ok(Written::Changed(object)),
            Deletion::Removed(object) if resource.stored == Kind::Pod => Ok(Written::Changed(object)),
            Deletion::Removed(object) => Ok(Written::Gone(json!({
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": of_deleted(resource, &object),
            }))),
        }
    }

    fn delete_options(&self) -> Result<DeleteOptions, Failure> {
        let wire: DeleteWire = if self.body.is_empty() {
            DeleteWire::default()
        } else {
            serde_json::from_slice(self.body)
                .map_err(|error| Failure::BadRequest(format!("the delete options cannot be read: {error}")))?
        };
        let asked = wire.propagation_policy.as_deref().unwrap_or(self.query.text("propagationPolicy"));
        let propagation = if asked == "Orphan" { Propagation::Orphan } else { Propagation::Background };
        let grace = self.query.number("gracePeriodSeconds")?.and_then(|grace| i64::try_from(grace).ok());
        let rv = wire.preconditions.resource_version.map(|text| Rv::parse(&text).0);
        Ok(DeleteOptions {
            preconditions: Preconditions { uid: wire.preconditions.uid, rv },
            grace: wire.grace_period_seconds.or(grace),
            propagation,
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeleteWire {
    preconditions: PreconditionsWire,
    grace_period_seconds: Option<i64>,
    propagation_policy: Option<String>,
    dry_run: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PreconditionsWire {
    uid: Option<Uid>,
    resource_version: Option<String>,
}

fn held(model: &Model, resource: &'static Resource, at: &ObjRef) -> Result<Arc<Stored>, Failure> {
    model.get(at).cloned().ok_or_else(|| Failure::NotFound { resource, name: (*at.name).to_owned() })
}

/// Checks what a deletion expects.
fn expect(object: &Stored, resource: &'static Resource, expected: &Preconditions) -> Result<(), Failure> {
    let differs = |what: &str, asked: &str, is: &str, guess: &str| {
        let why = format!(
            "the {what} in the precondition ({asked}) does not match the {what} in record ({is}). The object might \
             have been {guess}"
        );
        Err(Failure::Precondition { resource, name: (*object.at.name).to_owned(), why })
    };
    match (&expected.uid, expected.rv) {
        (Some(uid), _) if *uid != object.uid => {
            differs("UID", uid.as_str(), object.uid.as_str(), "deleted and then recreated")
        }
        (_, Some(rv)) if rv != object.rv => {
            differs("ResourceVersion", &rv.to_string(), &object.rv.to_string(), "modified")
        }
        _ => Ok(()),
    }
}

fn of_deleted(resource: &Resource, object: &Stored) -> Value {
    let mut details = json!({ "name": *object.at.name, "kind": resource.plural, "uid": object.uid });
    if !resource.group.is_empty() {
        put(&mut details, "group", Some(resource.group.into()));
    }
    details
}

fn preconditions(wire: &MetaWire) -> Preconditions {
    let given = |text: &String| (!text.is_empty()).then(|| text.clone());
    Preconditions {
        uid: given(&wire.uid).map(Uid::from),
        rv: given(&wire.resource_version).map(|text| Rv::parse(&text).0),
    }
}

fn remove(object: &mut Value, key: &str) -> Option<Value> {
    object.as_object_mut()?.remove(key)
}

fn put(object: &mut Value, key: &str, value: Option<Value>) {
    let Some(map) = object.as_object_mut() else { return };
    match value {
        Some(value) => map.insert(key.to_owned(), value),
        None => map.remove(key),
    };
}

/// What the API server says of a name that is none.
const NO_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
                            '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex \
                            used for validation is \
                            '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Whether a text can be the name of an object.
fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= 253
        && bytes.first().is_some_and(|byte| plain(*byte))
        && bytes.last().is_some_and(|byte| plain(*byte))
        && bytes.iter().all(|byte| plain(*byte) || matches!(byte, b'-' | b'.'))
}

/// Five letters that no earlier version gave.
fn suffix(rv: u64) -> String {
    const LETTERS: &[u8; 16] = b"bcdfghjklmnpqrst";
    (0..5)
        .filter_map(|place| LETTERS.get(usize::try_from(rv >> (4 * place) & 15).ok()?))
        .map(|letter| char::from(*letter))
        .collect()
}
