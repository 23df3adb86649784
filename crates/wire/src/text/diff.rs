//! How two frames differ, layer by layer and field by field.

use std::fmt::Write;

use super::{Kind, Layer, dissect, dissect::full};

/// `None` when the frames are equal, else a text for a person.
pub fn diff(expected: &[u8], seen: &[u8]) -> Option<String> {
    if expected == seen {
        return None;
    }
    let (want, got) = (full(expected), full(seen));
    let mut out = format!("expected {}\n    seen {}\n", dissect(expected), dissect(seen));
    for index in 0..want.len().max(got.len()) {
        match (want.get(index), got.get(index)) {
            (Some(want), Some(got)) if want == got => {}
            (Some(want), Some(got)) if want.kind == got.kind && want.kind != Kind::Raw => {
                fields(&mut out, want, got);
            }
            (want, got) => {
                want.iter().for_each(|layer| writeln!(out, "  - {layer}").unwrap_or_default());
                got.iter().for_each(|layer| writeln!(out, "  + {layer}").unwrap_or_default());
            }
        }
    }
    if expected.len() != seen.len() {
        let _ = writeln!(out, "  length: expected {} bytes, seen {}", expected.len(), seen.len());
    }
    Some(out)
}

fn fields(out: &mut String, want: &Layer, got: &Layer) {
    for field in want.kind.fields() {
        let print = |layer: &Layer| layer.get(field.name).map_or("absent".to_owned(), |v| field.print(v));
        let (expected, seen) = (print(want), print(got));
        if expected != seen {
            let _ = writeln!(out, "  {}.{}: expected {expected}, seen {seen}", want.kind.name(), field.name);
        }
    }
}
