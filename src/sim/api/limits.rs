//! How large requests and objects may be.

use serde_json::Value;

use super::{failure::Failure, parse::cause, resources::Resource};
use crate::sim::model::store::Kind;

/// Most bytes of a request's body.
const REQUEST: usize = 3 * 1024 * 1024;
/// Most bytes of an object that the store takes.
const STORED: usize = 1024 * 1024 * 3 / 2;
/// Most bytes of all values of a ConfigMap.
const DATA: usize = 1024 * 1024;

/// Refuses a body that is too large to be read.
pub(super) fn request(body: &[u8]) -> Result<(), Failure> {
    if body.len() > REQUEST { Err(Failure::TooLarge { limit: REQUEST }) } else { Ok(()) }
}

/// Refuses an object that is too large for its kind, or for the store.
pub(super) fn object(resource: &'static Resource, name: &str, object: &Value) -> Result<(), Failure> {
    if resource.stored == Kind::ConfigMap {
        let bytes = |field: &str| {
            let values = object.get(field).and_then(Value::as_object).into_iter().flatten();
            values.filter_map(|(_, value)| value.as_str()).map(str::len).sum::<usize>()
        };
        // Four characters of base64 are three bytes.
        if bytes("data") + bytes("binaryData") / 4 * 3 > DATA {
            let message = format!("Too long: may not be more than {DATA} bytes");
            let causes = vec![cause("FieldValueTooLong", "[]", &message)];
            return Err(Failure::Invalid { resource, name: name.to_owned(), causes });
        }
    }
    if object.to_string().len() > STORED { Err(Failure::StoreRefused) } else { Ok(()) }
}
