//! What has to be said to FRR so that it has another configuration: two texts are compared line by line within their contexts,
//! and only the difference is said. A session whose lines are the same is not heard of at all.

use std::collections::BTreeSet;

/// A statement, and what it stands in from the outside.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    path: Vec<String>,
    text: String,
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.path.iter().try_for_each(|outer| write!(f, "{outer} / "))?;
        f.write_str(&self.text)
    }
}

/// Reads a configuration as FRR prints it: what stands further in belongs to the line before.
pub fn parse(text: &str) -> Vec<Line> {
    let mut path: Vec<(usize, String)> = vec![];
    let mut lines = vec![];
    for raw in text.lines() {
        let line = raw.trim();
        let depth = raw.len() - raw.trim_start().len();
        if line.is_empty() || line.starts_with('!') || closes(line) {
            continue;
        }
        while path.last().is_some_and(|(outer, _)| *outer >= depth) {
            path.pop();
        }
        let outer = path.iter().map(|(_, text)| text.clone()).collect();
        lines.push(Line { path: outer, text: line.to_owned() });
        path.push((depth, line.to_owned()));
    }
    lines
}

fn closes(line: &str) -> bool {
    line == "exit" || line == "end" || line.starts_with("exit-")
}

/// Whether a line is ours as soon as `protocols` stands in the configuration: BGP of the main table, OSPF, BFD, and the lists and
/// maps that they use. All else is somebody else's.
pub fn is_ours(line: &Line) -> bool {
    let root = line.path.first().unwrap_or(&line.text);
    let words: Vec<&str> = root.split(' ').collect();
    match words.as_slice() {
        ["interface", ..] => {
            !line.path.is_empty()
                && (line.text.starts_with("ip ospf ") || line.text.starts_with("ipv6 ospf6 "))
        }
        ["router", "bgp", _] | ["router", "ospf" | "ospf6"] | ["route-map", ..] | ["bfd"] => true,
        ["ip" | "ipv6", "prefix-list", ..] => true,
        ["bgp", "community-list" | "as-path", ..] => true,
        _ => false,
    }
}

/// Whether each daemon keeps a copy of its own: maps, and lists of prefixes.
pub fn is_shared(line: &Line) -> bool {
    let root = line.path.first().unwrap_or(&line.text);
    ["route-map ", "ip prefix-list ", "ipv6 prefix-list "].iter().any(|begin| root.starts_with(begin))
}

/// Ours of all that FRR has.
pub fn ours(text: &str) -> Vec<Line> {
    parse(text).into_iter().filter(is_ours).collect()
}

/// What `vtysh -f` is to read; None when there is nothing to say.
pub fn difference(base: &[Line], target: &[Line]) -> Option<String> {
    let (has, wants): (BTreeSet<&Line>, BTreeSet<&Line>) = (base.iter().collect(), target.iter().collect());
    let gone: Vec<&Line> = base.iter().filter(|line| !wants.contains(line)).collect();
    let mut gone = Gone { target, all: gone.iter().copied().collect() }.commands(&gone);
    // what uses a list or a map lets go of it before it goes
    gone.sort_by_key(|(line, _)| rank(line));
    let (uses, lists): (Vec<_>, Vec<_>) = gone.into_iter().partition(|(line, _)| rank(line) < LISTS);
    let said = |(line, text): (&Line, String)| Line { path: line.path.clone(), text };
    let mut lines: Vec<Line> = uses.into_iter().map(said).collect();
    lines.extend(target.iter().filter(|line| !has.contains(line) && !is_frame(line, target)).cloned());
    lines.extend(lists.into_iter().map(said));
    (!lines.is_empty()).then(|| text(&lines))
}

/// A context is opened by what is said within; said for itself only if that is nothing.
fn is_frame(line: &Line, all: &[Line]) -> bool {
    line.text.starts_with("interface ") || {
        let mut inner = line.path.clone();
        inner.push(line.text.clone());
        line.text.starts_with("address-family ") && all.iter().any(|other| other.path == inner)
    }
}

/// Contexts that are there without anybody's word: they are never taken away, only what is said within.
fn outlives_lines(text: &str) -> bool {
    text.starts_with("address-family ") || text.starts_with("interface ")
}

const LISTS: u8 = 3;

fn rank(line: &Line) -> u8 {
    let root = line.path.first().unwrap_or(&line.text);
    match root.split(' ').next() {
        Some("router") if line.path.is_empty() => 1,
        Some("router" | "interface") => 0,
        Some("route-map") => 2,
        _ => LISTS,
    }
}

/// Lines that FRR has and shall not have.
struct Gone<'a> {
    target: &'a [Line],
    all: BTreeSet<&'a Line>,
}

impl<'a> Gone<'a> {
    /// How each is taken away, the last one first.
    fn commands(&self, lines: &[&'a Line]) -> Vec<(&'a Line, String)> {
        lines.iter().rev().filter_map(|line| Some((*line, self.command(line)?))).collect()
    }

    fn command(&self, line: &Line) -> Option<String> {
        let text = line.text.as_str();
        if outlives_lines(text)
            || self.goes_with_context(line)
            || self.goes_with_neighbor(line)
            || self.is_replaced(line)
        {
            return None;
        }
        let words: Vec<&str> = text.split(' ').collect();
        Some(match words.as_slice() {
            ["no", rest @ ..] => rest.join(" "),
            ["neighbor", name, "remote-as", ..] => format!("no neighbor {name}"),
            ["on-match", how, ..] => format!("no on-match {how}"),
            // the short form takes away all of it
            ["area", area, kind, ..] if !self.wants(line, &format!("area {area} {kind}")) => {
                format!("no area {area} {kind}")
            }
            _ => format!("no {text}"),
        })
    }

    /// Whether a context that goes takes this line with it.
    fn goes_with_context(&self, line: &Line) -> bool {
        (0..line.path.len()).any(|depth| {
            let outer = Line { path: line.path[..depth].to_vec(), text: line.path[depth].clone() };
            self.all.contains(&outer) && !outlives_lines(&outer.text)
        })
    }

    /// A neighbour that is gone altogether takes its lines of every family with it.
    fn goes_with_neighbor(&self, line: &Line) -> bool {
        let (Some(router), Some(("neighbor", rest))) = (line.path.first(), line.text.split_once(' ')) else {
            return false;
        };
        let Some((name, what)) = rest.split_once(' ') else { return false };
        let of = |line: &Line, what: &str| {
            line.path.len() == 1
                && line.path.first() == Some(router)
                && line.text.starts_with(&format!("neighbor {name} {what}"))
        };
        let says = |what: &str| self.all.iter().any(|line| of(line, what));
        let stays = |what: &str| self.target.iter().any(|line| of(line, what));
        let is_group = says("peer-group");
        if is_group && !stays("peer-group") {
            return what != "peer-group";
        }
        says("remote-as") && !stays("remote-as") && (line.path.len() > 1 || !what.starts_with("remote-as"))
    }

    fn wants(&self, near: &Line, beginning: &str) -> bool {
        self.target.iter().any(|line| line.path == near.path && line.text.starts_with(beginning))
    }

    /// Another line says the same of something else, or more: FRR puts it in the place of this one.
    fn is_replaced(&self, line: &Line) -> bool {
        let slot = slot(&line.text);
        let same = |other: &&Line| other.path == line.path && !self.all.contains(other);
        let longer = format!("{} ", line.text);
        self.target
            .iter()
            .filter(same)
            .any(|other| slot.is_some() && self::slot(&other.text) == slot || other.text.starts_with(&longer))
    }
}

/// What a line says something of, where a second one would take the place of the first; None = each stands for itself.
fn slot(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split(' ').collect();
    let count = match words.as_slice() {
        ["neighbor", _, "route-map", _, direction] => {
            return Some(format!("{} {direction}", words[..3].join(" ")));
        }
        ["neighbor", _, "bfd", ..] => 4,
        ["neighbor", _, "peer-group", ..] | ["bgp", "listen", ..] | ["route-map", ..] => return None,
        ["neighbor", ..] => 3,
        ["ip" | "ipv6", "prefix-list", ..] => 5,
        ["bgp", "community-list" | "as-path", ..] => 6,
        ["ip" | "ipv6", "ospf" | "ospf6", "area" | "message-digest-key", ..] => return None,
        ["ip" | "ipv6", "ospf" | "ospf6", "bfd", ..] => 4,
        ["ip" | "ipv6", "ospf" | "ospf6", ..] => 3,
        ["bgp" | "ospf" | "ospf6", "router-id", ..] => 2,
        ["auto-cost" | "redistribute" | "default-information", ..] => 2,
        ["maximum-paths", "ibgp", _] => 2,
        ["maximum-paths", _] => return Some("maximum-paths".to_owned()),
        ["match", "ip" | "ipv6", ..] => 4,
        ["match", ..] => 2,
        ["set", "ip" | "ipv6", ..] => 3,
        ["set", ..] => 2,
        ["on-match" | "detect-multiplier" | "transmit-interval" | "receive-interval", ..] => 1,
        _ => return None,
    };
    words.get(..count).map(|words| words.join(" "))
}

/// Lines with what opens and closes their contexts.
fn text(lines: &[Line]) -> String {
    let mut text = String::new();
    let mut open: Vec<String> = vec![];
    for line in lines {
        let common = open.iter().zip(&line.path).take_while(|(a, b)| a == b).count();
        close(&mut text, &mut open, common);
        for outer in &line.path[common..] {
            text += &format!("{}{outer}\n", " ".repeat(open.len()));
            open.push(outer.clone());
        }
        text += &format!("{}{}\n", " ".repeat(open.len()), line.text);
        if line.path.is_empty() && opens(&line.text) || line.text.starts_with("profile ") {
            open.push(line.text.clone());
        }
    }
    close(&mut text, &mut open, 0);
    text
}

fn opens(line: &str) -> bool {
    ["router ", "route-map ", "interface "].iter().any(|word| line.starts_with(word)) || line == "bfd"
}

fn close(text: &mut String, open: &mut Vec<String>, until: usize) {
    while open.len() > until {
        let Some(context) = open.pop() else { return };
        let word = if context.starts_with("address-family ") { "exit-address-family" } else { "exit" };
        *text += &format!("{}{word}\n", " ".repeat(open.len()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OURS: &str = "\
ip prefix-list a-1 seq 5 permit 10.0.0.0/8
route-map import-v4 permit 10
router bgp 65000
 no bgp ebgp-requires-policy
 neighbor 192.0.2.1 remote-as 65001
 neighbor 192.0.2.1 timers 30 90
 address-family ipv4 unicast
  neighbor 192.0.2.1 activate
  neighbor 192.0.2.1 route-map import-v4 in
";

    fn said(base: &str, target: &str) -> String {
        difference(&ours(base), &ours(target)).unwrap_or_default()
    }

    #[test]
    fn what_is_the_same_is_not_said() {
        let printed =
            "!\nhostname x\ninterface a\n ip address 10.0.0.1/24\nexit\n!\nip route 10.0.0.0/8 Null0\n";
        assert_eq!(said(&format!("{printed}{OURS}"), OURS), "");
        assert_eq!(
            said(OURS, &OURS.replace("30 90", "10 30")),
            "router bgp 65000\n neighbor 192.0.2.1 timers 10 30\nexit\n"
        );
    }

    #[test]
    fn a_neighbour_goes_with_all_it_has_and_lists_go_last() {
        let kept: String = OURS.lines().take(4).map(|line| format!("{line}\n")).collect();
        assert_eq!(said(OURS, &kept), "router bgp 65000\n no neighbor 192.0.2.1\nexit\n");
        assert_eq!(
            said(OURS, ""),
            "no router bgp 65000\nno route-map import-v4 permit 10\nno ip prefix-list a-1 seq 5 permit 10.0.0.0/8\n"
        );
    }

    #[test]
    fn a_policy_takes_the_place_of_another_without_a_gap() {
        let other = OURS.replace("import-v4", "import-v4-in");
        assert_eq!(
            said(OURS, &other),
            "no route-map import-v4 permit 10\nroute-map import-v4-in permit 10\nexit\nrouter bgp 65000\n address-family ipv4 \
             unicast\n  neighbor 192.0.2.1 route-map import-v4-in in\n exit-address-family\nexit\n"
        );
    }

    #[test]
    fn interfaces_stay_and_what_is_said_of_them_goes() {
        let ospf = "interface left0\n ip ospf area 0\n ip ospf cost 6\nexit\nrouter ospf\n ospf router-id 1.2.3.4\nexit\n";
        assert_eq!(
            said(ospf, ""),
            "interface left0\n no ip ospf cost 6\n no ip ospf area 0\nexit\nno router ospf\n"
        );
    }

    #[test]
    fn what_others_have_is_left_alone() {
        let others = "interface a\n ip ospf cost 5\n ipv6 nd ra-interval 3\nrouter rip\n network 10.0.0.0/8\nrouter bgp 1 vrf red\n";
        assert_eq!(said(others, ""), "interface a\n no ip ospf cost 5\nexit\n");
    }

    proptest! {
        #[test]
        fn whatever_is_printed_is_read(text in "( {0,3}(router bgp [12]|neighbor [ab] (remote-as|timers|activate) [12]|bfd|area 1 stub|exit|!|no x|é)\n){0,12}") {
            let lines = parse(&text);
            prop_assert!(difference(&lines, &lines).is_none());
            if let Some(said) = difference(&[], &lines) {
                prop_assert!(!said.contains('!'));
            }
            let _ = difference(&lines, &[]);
        }
    }
}
