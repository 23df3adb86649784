//! docs/BENCH.md says of every suite what the program itself says.

use std::path::Path;

use sluice_bench::suites::SUITES;

const BEGIN: &str = "<!-- suites:begin, written by UPDATE=1 cargo test -p sluice-bench --test docs -->\n";
const END: &str = "<!-- suites:end -->";

fn suites() -> String {
    let mut text = String::new();
    for suite in SUITES {
        text += &format!(
            "\n### {}\n\n{}.\n\n{}\n\nWhat these numbers do not say:\n\n",
            suite.name, suite.help, suite.says
        );
        suite.silent.iter().for_each(|sentence| text += &format!("- {sentence}\n"));
    }
    text + "\n"
}

#[test]
fn the_page_tells_every_suite_as_the_program_does() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/BENCH.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has lost its marker");
    let (found, after) = rest.split_once(END).expect("the page has lost its end marker");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{}{END}{after}", suites())).unwrap();
    } else {
        assert!(
            found == suites(),
            "docs/BENCH.md is not up to date: UPDATE=1 cargo test -p sluice-bench --test docs"
        );
    }
}

#[test]
fn every_suite_says_what_it_does_not_say() {
    for suite in SUITES {
        assert!(suite.says.ends_with('.') && !suite.help.ends_with('.'), "{}", suite.name);
        assert!(!suite.silent.is_empty(), "{} claims to say everything", suite.name);
        assert!(suite.silent.iter().all(|sentence| sentence.ends_with('.')), "{}", suite.name);
    }
}
