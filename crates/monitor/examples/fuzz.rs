//! Mutates captures until a time is over or something does not hold.
//!
//! `cargo run --release -p sluice-monitor --example fuzz -- [SECONDS [SEED]]`. The seed is printed; the same seed makes
//! the same inputs. A failing input is left in `fuzz-failure.pcap`.

#[path = "../tests/fuzz/mod.rs"]
mod fuzz;

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// xorshift64*: no cryptography, but the same numbers everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) as usize
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<u64>().expect("a number"));
    let seconds = arguments.next().unwrap_or(60);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
    let seed = arguments.next().unwrap_or(now).max(1);
    println!("seed {seed}");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (corpus, begun) = (fuzz::corpus(folder.path()), Instant::now());
    let mut random = Random(seed);
    let mut inputs: u64 = 0;
    while begun.elapsed() < Duration::from_secs(seconds) {
        let mut bytes = corpus[random.next() % corpus.len()].clone();
        for _ in 0..=random.next() % 8 {
            let other = &corpus[random.next() % corpus.len()];
            fuzz::mutate(&mut bytes, other, [random.next(), random.next(), random.next(), random.next()]);
        }
        let result = std::panic::catch_unwind(|| fuzz::exercise(folder.path(), &bytes));
        inputs += 1;
        if let Err(why) = result.unwrap_or_else(|_| Err("it panics".to_owned())) {
            println!("input {inputs}: {why}");
            std::fs::write("fuzz-failure.pcap", &bytes).expect("the directory is writable");
            return ExitCode::FAILURE;
        }
    }
    println!("{inputs} inputs held");
    ExitCode::SUCCESS
}
