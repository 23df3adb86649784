//! Random bytes and mutated real configurations, within bounds; `cargo run --release -p sluice-language
//! --example fuzz_configurations` goes on for longer.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::fuzz;

#[test]
fn the_corpus_holds() {
    let corpus = fuzz::corpus();
    assert!(corpus.len() >= 130, "only {} configurations found", corpus.len());
    for text in corpus {
        fuzz::exercise(&text).unwrap_or_else(|why| panic!("{why}\n{}", String::from_utf8_lossy(&text)));
    }
}

#[test]
fn mutated_configurations_hold() {
    let corpus = fuzz::corpus();
    let config = ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() };
    let changes = vec(any::<[usize; 4]>(), 1..8);
    let inputs = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), changes);
    proptest!(config, |((one, other, changes) in inputs)| {
        let mut text = one.get(&corpus).clone();
        for change in changes {
            fuzz::mutate(&mut text, &corpus[other.index(corpus.len())], change);
        }
        fuzz::exercise(&text).map_err(|why| {
            TestCaseError::fail(format!("{why}\n--- input:\n{}", String::from_utf8_lossy(&text)))
        })?;
    });
}

#[test]
fn cut_and_flipped_routers_hold() {
    let corpus = fuzz::corpus();
    let config = ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() };
    let flips = vec(any::<(prop::sample::Index, u8)>(), 0..4);
    proptest!(config, |((one, end, flips) in (any::<prop::sample::Index>(), any::<prop::sample::Index>(), flips))| {
        let mut text = one.get(&corpus).clone();
        text.truncate(end.index(text.len() + 1));
        for (at, change) in flips {
            if !text.is_empty() {
                let at = at.index(text.len());
                text[at] ^= change;
            }
        }
        fuzz::exercise(&text).map_err(|why| {
            TestCaseError::fail(format!("{why}\n--- input:\n{}", String::from_utf8_lossy(&text)))
        })?;
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_hold(bytes in vec(any::<u8>(), 0..300)) {
        fuzz::exercise(&bytes).map_err(TestCaseError::fail)?;
    }
}
