//! Many comparisons as one check.

use crate::method::result::Check;

/// Comparisons made, and what the first wrong one was.
#[derive(Debug, Default)]
pub struct Findings {
    made: u64,
    wrong: u64,
    first: Option<String>,
}

impl Findings {
    pub fn note(&mut self, complaint: Result<(), String>) {
        self.made += 1;
        if let Err(complaint) = complaint {
            self.wrong += 1;
            self.first.get_or_insert(complaint);
        }
    }

    /// Nothing compared proves nothing.
    pub fn check(self, name: &str, what: &str) -> Check {
        let detail = match self.first {
            Some(first) => format!("{} of {} {what} are wrong; the first: {first}", self.wrong, self.made),
            None => format!("{} {what} compared", self.made),
        };
        Check::new(name, self.made > 0 && self.wrong == 0, detail)
    }
}
