//! Passwords, tokens and private keys.

/// A text that must never be printed: it has neither `Debug` nor `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text as it came.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself; the name makes every use easy to find.
    pub fn expose(&self) -> &str {
        &self.0
    }
}
