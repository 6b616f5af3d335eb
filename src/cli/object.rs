//! Which object a person means.

use std::collections::BTreeSet;

use anyhow::{anyhow, bail};

use super::Usage;
use crate::{
    api::{ClaimKey, ClaimKind},
    manifest::{Severity, nearest},
    report::problems::place,
    world::World,
};

/// An object by name.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ObjectArgs {
    /// The object: `NAME` or `KIND/NAME`, such as `calico` or `cniup/calico`.
    #[arg(value_name = "[KIND/]NAME")]
    name: Option<String>,
    /// Namespace, for ServiceUpgrades; a CNIUpgrade has none.
    #[arg(short, value_name = "NAMESPACE", value_parser = super::namespace)]
    namespace_of_object: Option<String>,
}

impl ObjectArgs {
    /// The object that is meant; none if none is named.
    pub(super) fn find(&self, world: &World) -> anyhow::Result<Option<ClaimKey>> {
        let Some(text) = &self.name else { return Ok(None) };
        let (kind, namespace, name) = self.parts(text)?;
        let known = known(world);
        let named = |key: &&ClaimKey| key.name == name && kind.is_none_or(|kind| key.kind == kind);
        let within = |key: &&ClaimKey| namespace.is_none() || key.namespace.as_deref() == namespace;
        let found: Vec<&ClaimKey> = known.iter().filter(named).filter(within).collect();
        let everywhere = known.iter().filter(named).find(|key| key.namespace.is_none());
        match (found.as_slice(), everywhere) {
            ([one], _) => Ok(Some((*one).clone())),
            ([], Some(key)) => {
                Err(Usage(format!("{key} is in no namespace; leave the namespace out")).into())
            }
            ([], None) => Err(unknown(text, name, world, &known)),
            (several, _) => {
                let text = format!("{text} may be {}; name kind and namespace (-n)", list(several));
                Err(Usage(text).into())
            }
        }
    }

    /// The namespace to which a report without a named object is limited.
    pub(super) fn namespace(&self) -> Option<&str> {
        self.namespace_of_object.as_deref().filter(|_| self.name.is_none())
    }

    /// The object that is meant; without a name the only one there is.
    pub(super) fn find_one(&self, world: &World) -> anyhow::Result<ClaimKey> {
        if let Some(found) = self.find(world)? {
            return Ok(found);
        }
        let known = known(world);
        let namespace = self.namespace();
        let within = |key: &&ClaimKey| namespace.is_none() || key.namespace.as_deref() == namespace;
        match (known.iter().filter(within).collect::<Vec<_>>().as_slice(), namespace) {
            ([one], _) => Ok((*one).clone()),
            ([], None) => bail!("nothing is declared{}", in_files(world)),
            ([], Some(namespace)) => bail!("nothing is declared in namespace {namespace}{}", others(&known)),
            (several, _) => Err(Usage(format!("name the object: {}", list(several))).into()),
        }
    }

    fn parts<'t>(&'t self, text: &'t str) -> anyhow::Result<(Option<ClaimKind>, Option<&'t str>, &'t str)> {
        let namespace = self.namespace_of_object.as_deref();
        let parts: Vec<&str> = text.split('/').collect();
        match parts.as_slice() {
            [name] => Ok((None, namespace, name)),
            [kind, name] => Ok((Some(kind_of(kind)?), namespace, name)),
            [kind, namespace, name] => Ok((Some(kind_of(kind)?), Some(namespace), name)),
            _ => Err(Usage(format!("`{text}` is not NAME, KIND/NAME or KIND/NAMESPACE/NAME")).into()),
        }
    }
}

/// A kind as `kubectl` takes it.
fn kind_of(text: &str) -> anyhow::Result<ClaimKind> {
    match text.to_lowercase().as_str() {
        "cniupgrade" | "cniupgrades" | "cniup" => Ok(ClaimKind::CniUpgrade),
        "serviceupgrade" | "serviceupgrades" | "svcup" => Ok(ClaimKind::ServiceUpgrade),
        _ => {
            let text = format!("`{text}` is no kind; write cniupgrade (cniup) or serviceupgrade (svcup)");
            Err(Usage(text).into())
        }
    }
}

/// Objects in the cluster, in the ledgers, and in the attempts that ledgers remember.
fn known(world: &World) -> BTreeSet<ClaimKey> {
    let ledgers = || world.ledgers.values().filter_map(|seen| seen.is.as_ref().ok());
    let attempts = ledgers().flat_map(|ledger| ledger.targets.values()).flat_map(|target| &target.attempts);
    world
        .claims
        .keys()
        .chain(ledgers().flat_map(|ledger| ledger.objects.keys()))
        .chain(attempts.map(|attempt| &attempt.claim))
        .cloned()
        .collect()
}

fn unknown(text: &str, name: &str, world: &World, known: &BTreeSet<ClaimKey>) -> anyhow::Error {
    let near = nearest(name, known.iter().map(|key| key.name.as_str()));
    let broken = in_files(world);
    match near.and_then(|near| known.iter().find(|key| key.name == near)) {
        Some(near) => anyhow!("nothing is known of {text}; did you mean {near}?"),
        None if known.is_empty() => anyhow!("nothing is known of {text}: nothing is declared{broken}"),
        None => {
            let known = list(&known.iter().collect::<Vec<_>>());
            anyhow!("nothing is known of {text}; known are {known}{broken}")
        }
    }
}

/// Namespaces in which something is declared.
fn others(known: &BTreeSet<ClaimKey>) -> String {
    let namespaces: BTreeSet<&str> = known.iter().filter_map(|key| key.namespace.as_deref()).collect();
    if namespaces.is_empty() {
        return ", nor in any other".to_owned();
    }
    format!("; something is in {}", namespaces.into_iter().collect::<Vec<_>>().join(", "))
}

/// Where manifests have errors: what is looked for may stand there.
fn in_files(world: &World) -> String {
    let ledgers = world.ledgers.values().filter_map(|seen| seen.is.as_ref().ok());
    let mut errors =
        ledgers.flat_map(|ledger| &ledger.diagnostics).filter(|found| found.severity == Severity::Error);
    match (errors.next(), errors.count()) {
        (None, _) => String::new(),
        (Some(one), 0) => format!("; {} has an error: {}", place(one), one.message),
        (Some(one), more) => {
            format!("; {} has an error: {} (`trunkline status` shows {more} more)", place(one), one.message)
        }
    }
}

/// The first few names.
fn list(keys: &[&ClaimKey]) -> String {
    const SHOWN: usize = 10;
    let mut names: Vec<String> = keys.iter().take(SHOWN).map(ToString::to_string).collect();
    if keys.len() > SHOWN {
        names.push(format!("{} more", keys.len() - SHOWN));
    }
    names.join(", ")
}
