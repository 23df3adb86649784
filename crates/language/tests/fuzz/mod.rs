//! What must hold for any bytes: nothing panics, errors name a place in the text, and printing is a fixed point.
//!
//! `tests/mutations.rs` runs it over mutated configurations within bounds, `examples/fuzz_configurations.rs` for
//! as long as one likes.

use std::fs;
use std::path::Path;

use sluice_language::import::{Import, ImportError};
use sluice_language::{Errors, Tree, compile, parse};

/// Runs one input through lexer, parser, printers and compiler. Err = what does not hold.
pub fn exercise(bytes: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    imports(&text)?;
    match parse(&text, "input") {
        Err(errors) => places(&errors, &text),
        Ok(tree) => {
            let compiled = compile(&tree);
            fixed_point(&tree, compiled.is_err())?;
            if let Err(errors) = &compiled {
                places(errors, &text)?;
            }
            match tree.to_inherited_text() {
                Ok(inherited) => inherited_means_the_same(&inherited, &tree),
                Err(_) if compiled.is_err() => Ok(()),
                Err(errors) => Err(format!("it compiles, but does not inherit: {errors}")),
            }
        }
    }
}

/// What is imported passes `check`, and importing it again changes nothing.
fn imports(text: &str) -> Result<(), String> {
    let Ok(import) = Import::read(text, "input") else { return Ok(()) };
    let ports = import.ports().into_iter().enumerate();
    let devices: Vec<(String, String)> = ports.map(|(n, port)| (port.name, format!("eth{n}"))).collect();
    let imported = match import.finish(&devices) {
        Ok(imported) => imported,
        Err(error @ ImportError::Stuck(_)) => return Err(format!("import is stuck: {error}")),
        // a device that is there already
        Err(_) => return Ok(()),
    };
    import_holds(&imported.text)
}

pub fn import_holds(text: &str) -> Result<(), String> {
    let tree = parse(text, "imported").map_err(|errors| format!("imported: {errors}\n{text}"))?;
    compile(&tree).map_err(|errors| format!("imported: {errors}\n{text}"))?;
    let again = match Import::read(text, "imported").and_then(|import| import.finish(&[])) {
        Ok(again) => again,
        // everything was deleted
        Err(ImportError::Empty(_)) => return Ok(()),
        Err(error) => return Err(format!("imported again: {error}\n{text}")),
    };
    match again.text == text && again.findings.is_empty() {
        true => Ok(()),
        false => Err(format!("imported again it differs:\n{text}\n--- again:\n{}", again.text)),
    }
}

/// Every error stands on a line of the text, at most one column behind its end, and so does the `apply-groups` it names.
fn places(errors: &Errors, text: &str) -> Result<(), String> {
    if errors.is_empty() {
        return Err("refused without an error".to_owned());
    }
    let lines: Vec<usize> = text.split('\n').map(|line| line.chars().count()).collect();
    for error in errors.iter() {
        for place in [Some(&error.location), error.location.applied.as_deref()].into_iter().flatten() {
            let length = (place.line as usize).checked_sub(1).and_then(|line| lines.get(line));
            let inside = length.is_some_and(|length| (1..=length + 1).contains(&(place.column as usize)));
            if !inside || error.message.is_empty() {
                return Err(format!("an error without a place: {error}"));
            }
        }
    }
    Ok(())
}

/// What is refused may hold several of a choice: of those the `set` form keeps the last, and so does what it becomes.
pub fn fixed_point(tree: &Tree, refused: bool) -> Result<(), String> {
    let (text, set) = (tree.to_text(), tree.to_set());
    for (form, printed) in [("text", &text), ("set", &set)] {
        let again = parse(printed, form).map_err(|errors| format!("printed as {form}: {errors}"))?;
        let is_same = match form {
            "set" if refused => parse(&again.to_set(), form).is_ok_and(|third| third == again),
            _ => again == *tree,
        };
        if !is_same {
            return Err(format!("printed as {form}, it reads back as another tree:\n{printed}"));
        }
        // How statements that the schema does not know are laid out is not kept in set form.
        if form == "text" && again.to_text() != text {
            return Err(format!("printing is not a fixed point:\n{text}"));
        }
    }
    Ok(())
}

/// What is inherited, written out, reads back and means what the tree means.
fn inherited_means_the_same(inherited: &str, tree: &Tree) -> Result<(), String> {
    let again =
        parse(inherited, "inherited").map_err(|errors| format!("inherited: {errors}\n{inherited}"))?;
    match (compile(tree), compile(&again)) {
        (Ok(one), Ok(other)) if one != other => {
            Err(format!("inherited, it means something else:\n{inherited}"))
        }
        (Ok(_), Err(errors)) => Err(format!("inherited, it does not compile: {errors}\n{inherited}")),
        _ => Ok(()),
    }
}

/// Real configurations: the goldens and the examples.
pub fn corpus() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = Vec::new();
    for directory in ["tests/golden", "tests/golden-plan", "tests/import", "examples"] {
        let entries = fs::read_dir(root.join(directory)).expect("the directory is part of the sources");
        paths.extend(entries.map(|entry| entry.expect("it can be read").path()));
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "conf"));
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("it can be read")).collect()
}

const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ";",
    "\"",
    "\n",
    "/*",
    "*/",
    "#",
    "inactive: ",
    "set ",
    "delete ",
    "insert ",
    " before ",
    "<*>",
    " apply-groups g;",
    "groups { g {",
    "any",
    "-excluded",
    "65536",
    "-1",
    "\u{e9}",
    "\\",
    "\0",
];

/// One change to a text; `numbers` choose which and where.
pub fn mutate(text: &mut Vec<u8>, other: &[u8], numbers: [usize; 4]) {
    let [kind, at, length, pick] = numbers;
    let start = at % (text.len() + 1);
    let end = (start + length % 40).min(text.len());
    match kind % 6 {
        0 => drop(text.splice(start..start, PIECES[pick % PIECES.len()].bytes())),
        1 => drop(text.drain(start..end)),
        2 => {
            let copy = text[start..end].to_vec();
            let to = pick % (text.len() + 1);
            text.splice(to..to, copy);
        }
        3 if start < text.len() => text[start] ^= 1 << (pick % 8),
        4 => {
            // A whole line of another configuration.
            let lines: Vec<&[u8]> = other.split(|byte| *byte == b'\n').collect();
            let line = lines[pick % lines.len()].to_vec();
            text.splice(start..start, line);
        }
        _ => {
            // Two lines change places.
            let mut lines: Vec<Vec<u8>> = text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            let count = lines.len();
            lines.swap(at % count, pick % count);
            *text = lines.join(&b'\n');
        }
    }
}
