//! Mutated captures within bounds; `cargo run --release -p sluice-monitor --example fuzz_captures` goes on
//! for as long as one likes.

use crate::fuzz;

use proptest::prelude::*;

#[test]
fn the_corpus_itself_holds() {
    let folder = tempfile::tempdir().unwrap();
    for bytes in fuzz::corpus(folder.path()) {
        fuzz::exercise(folder.path(), &bytes).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn mutated_captures_hold(
        which in any::<usize>(),
        steps in prop::collection::vec((any::<usize>(), any::<[usize; 4]>()), 1..8)
    ) {
        let folder = tempfile::tempdir().unwrap();
        let corpus = CORPUS.get_or_init(|| fuzz::corpus(folder.path()));
        let mut bytes = corpus[which % corpus.len()].clone();
        for (other, numbers) in steps {
            fuzz::mutate(&mut bytes, &corpus[other % corpus.len()], numbers);
        }
        fuzz::exercise(folder.path(), &bytes).map_err(TestCaseError::fail)?;
    }
}

static CORPUS: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
