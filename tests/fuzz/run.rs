//! The loop of the fuzz examples: mutates inputs of a corpus until a time is over or something does not hold.
//!
//! Arguments: `[SECONDS [SEED]]`. The seed is printed; the same seed makes the same inputs.

use std::panic::{AssertUnwindSafe, catch_unwind};
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

/// An input with which `exercise` fails or panics is left in the file `failure`.
pub fn run(
    corpus: &[Vec<u8>],
    failure: &str,
    mutate: impl Fn(&mut Vec<u8>, &[u8], [usize; 4]),
    exercise: impl Fn(&[u8]) -> Result<(), String>,
) -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<u64>().expect("a number"));
    let seconds = arguments.next().unwrap_or(60);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
    let seed = arguments.next().unwrap_or(now).max(1);
    println!("seed {seed}");
    let (mut random, mut inputs, begun) = (Random(seed), 0u64, Instant::now());
    while begun.elapsed() < Duration::from_secs(seconds) {
        let mut input = corpus[random.next() % corpus.len()].clone();
        for _ in 0..=random.next() % 8 {
            let other = &corpus[random.next() % corpus.len()];
            mutate(&mut input, other, [random.next(), random.next(), random.next(), random.next()]);
        }
        let result = catch_unwind(AssertUnwindSafe(|| exercise(&input)));
        inputs += 1;
        if let Err(why) = result.unwrap_or_else(|_| Err("it panics".to_owned())) {
            println!("input {inputs}: {why}");
            std::fs::write(failure, &input).expect("the directory is writable");
            return ExitCode::FAILURE;
        }
    }
    println!("{inputs} inputs held");
    ExitCode::SUCCESS
}
