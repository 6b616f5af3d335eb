//! Reviews: who asks, and what it may do. Everything is allowed that no test denies.

use serde_json::{Map, Value, json};

use super::{failure::Failure, faults::Faults, route::Review};

/// Whoever asks.
const USER: &str = "embedded";

/// The review with its answer.
pub(super) fn answer(review: Review, body: &[u8], faults: &Faults) -> Result<Value, Failure> {
    let mut asked: Map<String, Value> =
        serde_json::from_slice(body).map_err(|error| Failure::BadRequest(error.to_string()))?;
    let status = match review {
        Review::SelfSubject => {
            json!({ "userInfo": { "username": USER, "groups": ["system:authenticated"] } })
        }
        Review::SelfSubjectAccess => {
            let attributes = asked.get("spec").and_then(|spec| spec.get("resourceAttributes"));
            json!({ "allowed": !attributes.is_some_and(|attributes| faults.denies(attributes)) })
        }
    };
    asked.insert("status".to_owned(), status);
    Ok(Value::Object(asked))
}
