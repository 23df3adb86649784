//! How long random traces are and where they begin, by two variables of the environment:
//!
//! * `SLUICE_SOAK=N`: traces are N times as long as in `make test`; [`make soak`](../../../Makefile) sets it.
//! * `SLUICE_SEED=S`: the first seed. What a trace complains of names its own, so that it can be had again.

/// Steps or packets of a trace that has `ordinary` of them in `make test`.
pub fn steps(ordinary: u64) -> u64 {
    ordinary
        .checked_mul(number("SLUICE_SOAK", 1))
        .expect("SLUICE_SOAK is too large for the length of a trace")
}

/// The first seed of every random trace.
pub fn first_seed() -> u64 {
    number("SLUICE_SEED", 1)
}

/// A word that is no number must not pass for a trace of ordinary length.
fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a whole number")),
        Err(_) => default,
    }
}
