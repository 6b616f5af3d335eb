//! Declarations at the accepted revision against custom resources and ledger: what to create, replace, delete.

pub mod ledger;
