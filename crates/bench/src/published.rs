//! Verdicts in words: what terminal, report and published pages have in common.

use crate::suites::budgets::{Budget, Judged, Verdict};

pub fn limit(budget: &Budget) -> String {
    format!("{} {} {}", budget.bound.sign(), budget.limit, budget.unit)
}

pub fn verdict(entry: &Judged) -> String {
    let holds_limit = !entry.certain && entry.verdict != Verdict::NoVerdict;
    format!("{}{}", entry.verdict.word(), if holds_limit { " (interval holds the limit)" } else { "" })
}

pub fn summary(judged: &[Judged]) -> String {
    let count = |verdict: Verdict| {
        let entries = judged.iter().filter(|entry| entry.verdict == verdict);
        format!("{} {}", entries.count(), verdict.word())
    };
    format!("{} budgets: {}", judged.len(), Verdict::ALL.map(count).join(", "))
}
