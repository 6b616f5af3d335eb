//! `trunkline crd`: the CustomResourceDefinitions as YAML, for `kubectl apply -f -`.

use std::{
    io::{Write as _, stdout},
    process::ExitCode,
};

use crate::{api::crd, manifest::yaml};

pub(super) fn run() -> anyhow::Result<ExitCode> {
    let mut out = stdout().lock();
    for definition in crd::crds() {
        write!(out, "---\n{}", yaml::write(&definition)?)?;
    }
    Ok(ExitCode::SUCCESS)
}
