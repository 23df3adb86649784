//! Regular expressions over AS numbers, as Junos writes them, in those that FRR has over the path's text.

/// `65001 .* ` matches a whole path number by number; FRR matches text in which a blank stands between two numbers, and `_`
/// is a blank or the end. So each number takes its `_` with it.
pub(super) fn translate(text: &str) -> Result<String, String> {
    let inner = text.strip_prefix('^').unwrap_or(text);
    let inner = inner.strip_suffix('$').unwrap_or(inner);
    let (mut out, mut open, mut may_repeat) = (String::from("^"), 0_u32, false);
    let mut rest = inner;
    while let Some(first) = rest.chars().next() {
        let mut taken = first.len_utf8();
        match first {
            ' ' => {}
            '0'..='9' => {
                taken = rest.bytes().take_while(u8::is_ascii_digit).count();
                let number: u32 =
                    rest[..taken].parse().map_err(|_| format!("`{}` is no AS", &rest[..taken]))?;
                out += &format!("({number}_)");
            }
            '.' => out += "([0-9]+_)",
            '(' => (out, open) = (out + "(", open + 1),
            ')' if open > 0 && !out.ends_with(['(', '|']) => (out, open) = (out + ")", open - 1),
            '|' if !out.ends_with(['(', '|', '^']) => out.push('|'),
            '*' | '+' | '?' if may_repeat => out.push(first),
            '{' if may_repeat => {
                taken = rest.find('}').ok_or("`{` has no `}`")? + 1;
                out += &times(&rest[1..taken - 1])?;
            }
            other => return Err(format!("`{other}` may not stand there")),
        }
        may_repeat = match first {
            ' ' => may_repeat,
            other => matches!(other, '0'..='9' | '.' | ')'),
        };
        rest = &rest[taken..];
    }
    if open > 0 || out.ends_with('|') {
        return Err("a group or a choice has no end".to_owned());
    }
    Ok(match out.contains('|') {
        true => format!("^({})$", &out[1..]),
        false => out + "$",
    })
}

/// How often: `2`, `2,4` or `2,`; POSIX counts to 255.
fn times(text: &str) -> Result<String, String> {
    let complaint = || format!("`{{{text}}}` does not say how often");
    let count = |text: &str| text.trim().parse::<u8>().map_err(|_| complaint());
    let (least, most) = text.split_once(',').unwrap_or((text, text));
    let least = count(least)?;
    if most.trim().is_empty() {
        return Ok(format!("{{{least},}}"));
    }
    let most = count(most)?;
    if most < least { Err(complaint()) } else { Ok(format!("{{{least},{most}}}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_take_their_blank_with_them() {
        for (junos, frr) in [
            ("65001", "^(65001_)$"),
            ("65001 .*", "^(65001_)([0-9]+_)*$"),
            (".* (65002|65003) .{0,2}", "^(([0-9]+_)*((65002_)|(65003_))([0-9]+_){0,2})$"),
            ("()", ""),
        ] {
            match frr {
                "" => assert!(translate(junos).is_err()),
                frr => assert_eq!(translate(junos).unwrap(), frr),
            }
        }
        for wrong in ["*", "65001 |", "(1", "1)", "a", "1{3,2}", "1{", "4294967296", "1**", "1 [2-3]"] {
            assert!(translate(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_taken_or_refused(text in "[0-9 .*+?|(){},^$a_]{0,24}") {
            if let Ok(frr) = translate(&text) {
                prop_assert!(frr.starts_with('^') && frr.ends_with('$') && !frr.contains(' '));
                prop_assert_eq!(frr.matches('(').count(), frr.matches(')').count());
            }
        }
    }
}
