//! `trunkline crd`: the CustomResourceDefinitions as YAML, for `kubectl apply -f -`.

use std::process::ExitCode;

use super::print;
use crate::{api::crd, manifest::yaml};

pub(super) fn run() -> anyhow::Result<ExitCode> {
    for definition in crd::crds() {
        print::text(format_args!("---\n{}", yaml::write(&definition)?));
    }
    Ok(ExitCode::SUCCESS)
}
