//! What libgit2 keeps once per process: time-outs, size of its cache, trusted certificates, where configuration files are looked for.
//!
//! Guarantees: no configuration file of the machine or user is read (`insteadOf`, proxies, credential helpers).
//! Limits: the time-outs of the first repository opened hold for all; a `ca.crt` is trusted for all repositories.

#![allow(
    unsafe_code,
    reason = "libgit2 has process-wide variables, which git2 can only set in unsafe functions"
)]

use std::{
    path::Path,
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use git2::{ConfigLevel, opts};

/// Bytes of parsed commits and trees that libgit2 keeps, over all repositories.
const CACHE: isize = 32 * 1024 * 1024;

static SET: OnceLock<Result<(), String>> = OnceLock::new();
static TRUST: Mutex<()> = Mutex::new(());

/// Sets time-outs and the size of the cache, and clears the configuration search paths; later calls change nothing.
pub(super) fn set_once(connect: Duration, read: Duration) -> Result<(), String> {
    SET.get_or_init(|| set(connect, read).map_err(|error| error.message().to_owned())).clone()
}

fn set(connect: Duration, read: Duration) -> Result<(), git2::Error> {
    let milliseconds = |time: Duration| i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the lock of `SET` lets one thread in, and every use of libgit2 in this crate comes after it.
    unsafe {
        opts::set_server_connect_timeout_in_milliseconds(milliseconds(connect))?;
        opts::set_server_timeout_in_milliseconds(milliseconds(read))?;
        opts::set_cache_max_size(CACHE)?;
        for level in [ConfigLevel::ProgramData, ConfigLevel::System, ConfigLevel::XDG, ConfigLevel::Global] {
            opts::set_search_path(level, "")?;
        }
    }
    Ok(())
}

/// Adds the certificates of a PEM file to those that are trusted.
pub(super) fn trust(file: &Path) -> Result<(), git2::Error> {
    let _one_at_a_time = TRUST.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the lock keeps other callers out; OpenSSL guards the store against handshakes under way.
    unsafe { opts::set_ssl_cert_file(file) }
}
