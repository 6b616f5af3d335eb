//! Which object a person means.

use std::collections::BTreeSet;

use anyhow::{anyhow, bail};

use crate::{
    api::{ClaimKey, ClaimKind},
    manifest::nearest,
    world::World,
};

/// An object by name.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ObjectArgs {
    /// The object: `NAME` or `KIND/NAME`, such as `calico` or `cniup/calico`.
    #[arg(value_name = "[KIND/]NAME")]
    name: Option<String>,
    /// Namespace of the object, for a ServiceUpgrade.
    #[arg(short, value_name = "NAMESPACE")]
    namespace_of_object: Option<String>,
}

impl ObjectArgs {
    /// The object that is meant; none if none is named.
    pub(super) fn find(&self, world: &World) -> anyhow::Result<Option<ClaimKey>> {
        let Some(text) = &self.name else { return Ok(None) };
        let (kind, namespace, name) = self.parts(text)?;
        let known = known(world);
        let fits = |key: &&ClaimKey| {
            key.name == name
                && kind.is_none_or(|kind| key.kind == kind)
                && namespace
                    .is_none_or(|namespace| key.namespace.as_deref().is_none_or(|own| own == namespace))
        };
        let found: Vec<&ClaimKey> = known.iter().filter(fits).collect();
        match found.as_slice() {
            [one] => Ok(Some((*one).clone())),
            [] => Err(unknown(text, name, &known)),
            several => bail!("{text} may be {}; name kind and namespace (-n)", list(several)),
        }
    }

    /// The object that is meant; without a name the only one there is.
    pub(super) fn find_one(&self, world: &World) -> anyhow::Result<ClaimKey> {
        if let Some(found) = self.find(world)? {
            return Ok(found);
        }
        let known = known(world);
        match known.iter().collect::<Vec<_>>().as_slice() {
            [one] => Ok((*one).clone()),
            [] => bail!("nothing is declared"),
            several => bail!("name the object: {}", list(several)),
        }
    }

    fn parts<'t>(&'t self, text: &'t str) -> anyhow::Result<(Option<ClaimKind>, Option<&'t str>, &'t str)> {
        let namespace = self.namespace_of_object.as_deref();
        let parts: Vec<&str> = text.split('/').collect();
        match parts.as_slice() {
            [name] => Ok((None, namespace, name)),
            [kind, name] => Ok((Some(kind_of(kind)?), namespace, name)),
            [kind, namespace, name] => Ok((Some(kind_of(kind)?), Some(namespace), name)),
            _ => bail!("`{text}` is not NAME, KIND/NAME or KIND/NAMESPACE/NAME"),
        }
    }
}

/// A kind as `kubectl` takes it.
fn kind_of(text: &str) -> anyhow::Result<ClaimKind> {
    match text.to_lowercase().as_str() {
        "cniupgrade" | "cniupgrades" | "cniup" => Ok(ClaimKind::CniUpgrade),
        "serviceupgrade" | "serviceupgrades" | "svcup" => Ok(ClaimKind::ServiceUpgrade),
        _ => bail!("`{text}` is no kind; write cniupgrade (cniup) or serviceupgrade (svcup)"),
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

fn unknown(text: &str, name: &str, known: &BTreeSet<ClaimKey>) -> anyhow::Error {
    let near = nearest(name, known.iter().map(|key| key.name.as_str()));
    match near.and_then(|near| known.iter().find(|key| key.name == near)) {
        Some(near) => anyhow!("nothing is known of {text}; did you mean {near}?"),
        None if known.is_empty() => anyhow!("nothing is known of {text}: nothing is declared"),
        None => anyhow!("nothing is known of {text}; known are {}", list(&known.iter().collect::<Vec<_>>())),
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
