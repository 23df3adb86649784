//! Keys that a router shows as `$9$...`: reversibly hidden, and of use to a neighbour only in clear.

use super::{Cost, Import};
use crate::compile::HIDDEN;

/// The first character is of one of these families; as many of no meaning follow it as families come behind its own.
const FAMILIES: [&str; 4] = ["QzF3n6/9CAtpu0O", "B1IREhcSyrleKvMW8LXx", "7N-dVbwsY2g4oaJZGUDj", "iHkq.mPf5T"];

/// Each character of the key is a few distances in the row of all families; what they count, by the character's place.
const WEIGHTS: [&[usize]; 7] =
    [&[1, 4, 32], &[1, 16, 32], &[1, 8, 32], &[1, 64], &[1, 32], &[1, 4, 16, 128], &[1, 32, 64]];

/// The key in clear; `None` for what is no such key.
fn clear(hidden: &str) -> Option<String> {
    let row: Vec<u8> = FAMILIES.concat().into_bytes();
    let place = |byte: u8| row.iter().position(|of_row| *of_row == byte);
    let (&first, rest) = hidden.strip_prefix(HIDDEN)?.as_bytes().split_first()?;
    let family = FAMILIES.iter().position(|family| family.as_bytes().contains(&first))?;
    let mut rest = rest.get(FAMILIES.len() - 1 - family..)?;
    let mut before = place(first)?;
    let mut key = String::new();
    while !rest.is_empty() {
        let weights = WEIGHTS[key.len() % WEIGHTS.len()];
        let (distances, behind) = rest.split_at_checked(weights.len())?;
        rest = behind;
        let mut sum = 0;
        for (&byte, weight) in distances.iter().zip(weights) {
            let at = place(byte)?;
            sum += weight * ((at + row.len() - before) % row.len()).checked_sub(1)?;
            before = at;
        }
        let byte = (sum % 256) as u8;
        key.push(byte.is_ascii_graphic().then_some(char::from(byte))?);
    }
    Some(key).filter(|key| !key.is_empty())
}

impl Import {
    /// Writes keys of neighbours in clear; those that cannot be read are refused later, with what they protect.
    pub(super) fn reveal_keys(&mut self) {
        for id in self.all() {
            let node = self.tree.node(id);
            let is_key = matches!(self.tree.node(node.parent).word.as_str(), "authentication-key" | "key");
            let is_of_protocols = self.tree.path(id).contains(&"protocols");
            if !is_key || !is_of_protocols {
                continue;
            }
            let (keyword, key) = (node.parent, clear(&node.word));
            if let Some(key) = key
                && self.tree.reword_if_free(id, key)
            {
                let why = "the key stands in clear here: keep the text from others' eyes".to_owned();
                self.found(keyword, Cost::Form, why, false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_routers_are_read() {
        for (hidden, key) in [("$9$LbHX-wg4Z", "lc"), ("$9$41JDk5T3CpBFnCuB1rl8X7-VYq.5", "netscreen")] {
            assert_eq!(clear(hidden).as_deref(), Some(key));
        }
        for odd in ["", "lc", "$9$", "$9$L", "$9$LbHX-wg4", "$9$aBcDeFgHiJkLmNoP", "$9$\u{e9}bHX-wg4Z"] {
            assert_eq!(clear(odd), None, "{odd}");
        }
    }
}
