//! Which kubeconfig counts, as `kubectl` reads it: one file by name, else the files of KUBECONFIG, else `~/.kube/config`.

use std::{
    env::{home_dir, split_paths, var_os},
    io::ErrorKind,
    path::PathBuf,
};

use anyhow::anyhow;
use kube::config::{Kubeconfig, KubeconfigError};

use super::{Usage, root};

/// Contexts that are named at most.
const SHOWN: usize = 10;

/// The files that count when none is named on the command line; with KUBECONFIG these are its files only.
pub(super) fn places() -> Vec<PathBuf> {
    let of_variable = var_os("KUBECONFIG").unwrap_or_default();
    let named: Vec<PathBuf> = split_paths(&of_variable).filter(|path| !path.as_os_str().is_empty()).collect();
    if named.is_empty() {
        home_dir().map(|home| home.join(".kube/config")).into_iter().collect()
    } else {
        named
    }
}

/// What the files say together, the first that sets a value winning; absent if none of them is there.
pub(super) fn merged(places: &[PathBuf]) -> anyhow::Result<Option<Kubeconfig>> {
    let mut whole: Option<Kubeconfig> = None;
    for place in places {
        let unusable = |error| {
            // The lines that follow show the file, tokens and keys too.
            let why = root(error).lines().next().unwrap_or_default().to_owned();
            anyhow!("{} is no usable kubeconfig: {why}", place.display())
        };
        let mut next = match Kubeconfig::read_from(place) {
            Ok(next) => next,
            Err(KubeconfigError::ReadConfig(error, _)) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(unusable(error)),
        };
        // `current-context: ""` sets none.
        next.current_context = next.current_context.filter(|name| !name.is_empty());
        whole = Some(whole.unwrap_or_default().merge(next).map_err(unusable)?);
    }
    Ok(whole)
}

/// The context that counts; a name that is not there is a slip on the command line or in the files.
pub(super) fn context<'k>(
    file: &'k Kubeconfig,
    asked: Option<&'k str>,
    places: &[PathBuf],
) -> anyhow::Result<&'k str> {
    let is_there = |name: &str| file.contexts.iter().any(|context| context.name == name);
    let (places, known) = (listed(places), known(file));
    match (asked, file.current_context.as_deref()) {
        (Some(name), _) | (None, Some(name)) if is_there(name) => Ok(name),
        (Some(name), _) => Err(Usage(format!("--context: `{name}` is not in {places}; {known}")).into()),
        (None, Some(name)) => {
            Err(anyhow!("the current context `{name}` is not in {places}; {known}; choose with --context"))
        }
        (None, None) => Err(anyhow!("no current context is set in {places}; {known}; choose with --context")),
    }
}

/// The first few contexts.
fn known(file: &Kubeconfig) -> String {
    let mut names: Vec<String> =
        file.contexts.iter().take(SHOWN).map(|context| format!("`{}`", context.name)).collect();
    if file.contexts.len() > SHOWN {
        names.push(format!("{} more", file.contexts.len() - SHOWN));
    }
    if names.is_empty() {
        "no context is there".to_owned()
    } else {
        format!("known are {}", names.join(", "))
    }
}

/// The files as a list.
pub(super) fn listed(places: &[PathBuf]) -> String {
    places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
}
