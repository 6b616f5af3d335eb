//! What the daemon accepts as a manifest and then refuses on every cluster.

use crate::{
    api::{CniUpgradeSpec, schema::FieldPath},
    manifest::{Code, Declaration, Diagnostic, Severity, Spec, nearest, source::Source, stream, yaml},
    profile::{self, Version},
    world::git::Files,
};

/// Findings about one declaration, in their places.
pub(super) fn of(declared: &Declaration, files: &Files) -> Vec<Diagnostic> {
    match &declared.spec {
        Spec::Cni(spec) => {
            let wrong = version(spec).into_iter().chain(provider(spec));
            let error = |(field, message, help): (&str, String, String)| {
                let found = whole(declared, Severity::Error, Code::OutOfRange, message, help);
                placed(found, declared, files, field)
            };
            wrong.map(error).collect()
        }
        Spec::Service(_) => {
            let message = "a ServiceUpgrade is read and checked, and then refused".to_owned();
            let help = "this version does nothing about Services yet".to_owned();
            vec![whole(declared, Severity::Warning, Code::NotSupported, message, help)]
        }
    }
}

fn version(spec: &CniUpgradeSpec) -> Option<(&'static str, String, String)> {
    let version = &spec.target_version;
    let message = format!("spec.targetVersion: `{version}` is no version");
    let help = "write all three numbers, without leading zeros, such as `v3.28.0`".to_owned();
    Version::parse(version).is_none().then_some(("targetVersion", message, help))
}

fn provider(spec: &CniUpgradeSpec) -> Option<(&'static str, String, String)> {
    let provider = spec.provider.as_deref()?;
    let known: Vec<String> = profile::built_in().into_iter().map(|profile| profile.name).collect();
    if known.iter().any(|name| name == provider) {
        return None;
    }
    let help = match nearest(provider, known.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("known are {}", known.join(", ")),
    };
    Some(("provider", format!("spec.provider: no profile is named `{provider}`"), help))
}

fn whole(
    declared: &Declaration,
    severity: Severity,
    code: Code,
    message: String,
    help: String,
) -> Diagnostic {
    let (path, line, snippet) = (declared.path.clone(), declared.line, String::new());
    Diagnostic { path, line, column: 0, severity, code, message, snippet, help }
}

/// The finding at a field of the spec.
fn placed(found: Diagnostic, declared: &Declaration, files: &Files, field: &str) -> Diagnostic {
    let at = || {
        let text = std::str::from_utf8(&files.get(&declared.path)?.bytes).ok()?;
        let chunk = stream::documents(text).into_iter().nth(declared.document)?;
        let root = yaml::parse(text.get(chunk.clone())?, chunk.start).ok()??;
        let source = Source::new(text);
        let field = FieldPath::default().key("spec").key(field);
        let at = source.position(root.locate(&field).value.span.start);
        Some((at.line, at.column, source.snippet(at.line, at.column)))
    };
    match at() {
        Some((line, column, snippet)) => Diagnostic { line, column, snippet, ..found },
        None => found,
    }
}
