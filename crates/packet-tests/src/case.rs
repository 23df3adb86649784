//! `*.case` files: one subject a file, each case a list of steps. A step is what happens and what must follow.
//!
//! ```text
//! world zones.world            # surroundings, relative to this file
//! sessions 64                  # size of the session tables
//!
//! case "the first packet opens a session, the next rides it"    [wire]
//!   in trust0.0: ip(src=10.0.1.100, dst=10.0.2.100)/udp(sport=1000, dport=53)/"q"
//!   redirect untrust0.0 new policy trust>untrust/any-out
//!   in untrust0.0: ip(src=10.0.2.100, dst=10.0.1.100)/udp(sport=53, dport=1000)/"a"
//!   redirect trust0.0
//! ```
//!
//! Steps: `in UNIT: PACKET` arrives on a unit (`in DEVICE raw: PACKET`: no header is added), `out UNIT: PACKET` leaves
//! this host's own stack; `sessions N` counts the live ones; `drain ZONE` empties its bucket of replies; `commit FILE`
//! changes the configuration; `ip ...` runs in the gateway's namespace; `routes` has ways looked up again, as a change of
//! the kernel's routes does; `wait MS` lets time pass; `grant USER SOURCE SERVICE [idle S] [absolute S]` and `revoke
//! all|user|service|source [NAME]` change grants, which every case begins anew.
//!
//! Verdicts follow `in` and `out`:
//!   `redirect UNIT [via HOST] [: PACKET]`, `local [: PACKET]`, `drop REASON`, `reply REASON: PACKET` (dropped and answered),
//!   `withheld REASON` (dropped, the answer withheld by its rate limit), `handoff UNIT`, `sent [: PACKET]`.
//! Words after a verdict name the other counters that change: `fast` (the slow path did not run), `new` (a session was
//! made), `policy NAME` (it permitted, or denied), `nat SET/RULE` (a NAT rule that matched; twice where two did, the
//! destination's first), `bound` (persistent-nat had given the source its port before), `unported` (it
//! takes no port of a pool), `related`, `rejudged`, `alarm SCREEN` (a screen counted it and let it pass), `counts NAME` (a
//! counter of the unit it arrived on, of bpf/counters.def). Every counter that neither the verdict nor these words imply must stay as it was.
//!
//! A packet without `eth` gets one (and the unit's VLAN tag): to the unit's MAC address, from the host that holds the
//! source address. A redirect without a packet expects what RFC 1812 makes of it: one hop fewer, new MAC addresses.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use sluice_wire::text::Packet;

/// A `.case` file.
#[derive(Debug, Clone)]
pub struct File {
    /// Where it was read from.
    pub path: PathBuf,
    /// Path of its `.world` file.
    pub world: PathBuf,
    /// Room in the session table of each family.
    pub sessions: u32,
    /// In the order of the file, each from a gateway without sessions.
    pub cases: Vec<Case>,
}

/// Steps that follow one another.
#[derive(Debug, Clone)]
pub struct Case {
    /// Its heading, unique in its file.
    pub name: String,
    /// Where it begins, from 1.
    pub line: usize,
    /// Also run over real devices.
    pub wire: bool,
    /// By prog-run on one hook only: `tc` or `xdp`.
    pub only: Option<String>,
    /// In order; each finds what the ones before it left.
    pub steps: Vec<Step>,
}

/// A line of a case, with what belongs to it.
#[derive(Debug, Clone)]
pub struct Step {
    /// Where it stands, from 1.
    pub line: usize,
    /// What is done, and what is expected of it.
    pub action: Action,
}

/// What a step does.
#[derive(Debug, Clone)]
pub enum Action {
    /// One packet goes in.
    Packet(Box<PacketStep>),
    /// As many sessions must be live as this.
    Sessions(usize),
    /// A zone's bucket of replies is emptied.
    Drain(String),
    /// Another configuration, by its path, is committed.
    Commit(PathBuf),
    /// `ip` with these arguments, in the gateway's namespace.
    Ip(String),
    /// The daemon has heard of a change of routes.
    Routes,
    /// Time passes.
    Wait(Duration),
    /// Grants are given or revoked.
    Gate(GateStep),
}

/// A change of grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateStep {
    /// User, source, service, idle and absolute seconds.
    #[allow(missing_docs, reason = "named above, in this order")]
    Grant { user: String, source: String, service: String, idle_s: Option<u32>, absolute_s: Option<u32> },
    /// `all`, or what and which.
    Revoke(String, String),
}

/// A packet and what must become of it.
#[derive(Debug, Clone)]
pub struct PacketStep {
    /// That it arrives on or, from the host's own stack, leaves by.
    pub unit: String,
    /// Nothing is put before the packet.
    pub raw: bool,
    /// From this host's own stack.
    pub egress: bool,
    /// What goes in.
    pub packet: Packet,
    /// Where it must end.
    pub verdict: Verdict,
    /// Counters that must change besides those of the verdict.
    pub words: Words,
}

/// Where a packet ends.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the reason is that of the drop, the packet what must come out")]
pub enum Verdict {
    /// It leaves by a unit, through a neighbour if `via` names one.
    Redirect { unit: String, via: Option<String>, packet: Option<Packet> },
    /// This host's stack gets it, as it came unless a packet says otherwise.
    Local { packet: Option<Packet> },
    /// It is dropped.
    Drop { reason: String },
    /// It is dropped, and its sender gets this packet.
    Reply { reason: String, packet: Packet },
    /// It is dropped, and the answer its sender would get is beyond the rate.
    Withheld { reason: String },
    /// The kernel gets it, to resolve the next hop behind this unit.
    Handoff { unit: String },
    /// The host's own packet leaves, as it is unless a packet says otherwise.
    Sent { packet: Option<Packet> },
}

/// Further counters that change by one.
#[derive(Debug, Clone, Default)]
pub struct Words {
    /// It took the established path.
    pub fast: bool,
    /// It made a session.
    pub new: bool,
    /// It is an ICMP error of a session.
    pub related: bool,
    /// Its session was judged anew.
    pub rejudged: bool,
    /// Its source had its outside endpoint already.
    pub bound: bool,
    /// It is translated by address only, and takes no port of a pool.
    pub unported: bool,
    /// The policy that decided, as counters name it.
    pub policy: Option<String>,
    /// NAT rules that a first packet matched, `SET/RULE`.
    pub nat: Vec<String>,
    /// Screens that count the packet, but let it pass.
    pub alarms: Vec<String>,
    /// Counters of the unit that no other word implies.
    pub counts: Vec<String>,
}

impl File {
    /// Every file of `tests/packet`, or those where `/FILE.case` contains `$SLUICE_CASES`.
    pub fn all() -> Result<Vec<File>> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packet").canonicalize()?;
        let wanted = std::env::var("SLUICE_CASES").unwrap_or_default();
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let name = format!("/{}", entry.file_name().to_string_lossy());
            if name.ends_with(".case") && name.contains(&wanted) {
                paths.push(entry.path());
            }
        }
        paths.sort();
        let mut files = paths.iter().map(|path| File::read(path)).collect::<Result<Vec<_>>>()?;
        // those that may share a gateway stand together
        files.sort_by_key(|file| (file.world.clone(), file.sessions));
        Ok(files)
    }

    /// Whether it leaves another configuration, or other addresses, than it found.
    pub fn changes_the_gateway(&self) -> bool {
        let mut steps = self.cases.iter().flat_map(|case| &case.steps);
        steps.any(|step| matches!(step.action, Action::Commit(_) | Action::Ip(_)))
    }

    /// Fails with line and column of what cannot be read.
    pub fn read(path: &Path) -> Result<File> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        File::parse(path, &text)
    }

    /// `path` is where names of other files are looked for, and what errors call the text.
    pub fn parse(path: &Path, text: &str) -> Result<File> {
        let mut file = File { path: path.to_owned(), world: PathBuf::new(), sessions: 64, cases: Vec::new() };
        let mut pending: Option<(usize, String, &str)> = None;
        for (line, statement) in statements(text) {
            let at = format!("{}:{line}", path.display());
            file.statement(line, &statement, &mut pending).context(at)?;
        }
        if let Some((line, ..)) = pending {
            bail!("{}:{line}: a packet without a verdict", path.display());
        }
        ensure!(!file.cases.is_empty(), "{}: no cases", path.display());
        Ok(file)
    }

    fn statement(
        &mut self,
        line: usize,
        text: &str,
        pending: &mut Option<(usize, String, &'static str)>,
    ) -> Result<()> {
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        if let Some((from, packet, kind)) = pending.take() {
            let step = packet_step(kind, &packet, word, rest)?;
            return self.push(from, Action::Packet(Box::new(step)));
        }
        match word {
            "world" => self.world = self.path.with_file_name(rest),
            "sessions" if self.cases.is_empty() => self.sessions = rest.parse()?,
            "case" => self.cases.push(case_head(line, rest)?),
            "in" => *pending = Some((line, rest.to_owned(), "in")),
            "out" => *pending = Some((line, rest.to_owned(), "out")),
            "sessions" => self.push(line, Action::Sessions(rest.parse()?))?,
            "drain" => self.push(line, Action::Drain(rest.to_owned()))?,
            "commit" => self.push(line, Action::Commit(self.path.with_file_name(rest)))?,
            "ip" => self.push(line, Action::Ip(rest.to_owned()))?,
            "grant" => self.push(line, Action::Gate(grant_step(rest)?))?,
            "revoke" => {
                let (what, which) = rest.split_once(' ').unwrap_or((rest, ""));
                self.push(line, Action::Gate(GateStep::Revoke(what.to_owned(), which.trim().to_owned())))?;
            }
            "routes" => self.push(line, Action::Routes)?,
            "wait" => self.push(line, Action::Wait(Duration::from_millis(rest.parse()?)))?,
            _ => bail!("`{word}` is no statement; a verdict follows an `in` or `out` line"),
        }
        Ok(())
    }

    fn push(&mut self, line: usize, action: Action) -> Result<()> {
        let case = self.cases.last_mut().ok_or_else(|| anyhow!("a step before the first case"))?;
        case.steps.push(Step { line, action });
        Ok(())
    }
}

/// `USER SOURCE SERVICE [idle S] [absolute S]`
fn grant_step(text: &str) -> Result<GateStep> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [user, source, service, limits @ ..] = &words[..] else {
        bail!("expected `grant USER SOURCE SERVICE [idle S] [absolute S]`");
    };
    let (mut idle_s, mut absolute_s) = (None, None);
    for limit in limits.chunks(2) {
        match limit {
            ["idle", seconds] => idle_s = Some(seconds.parse()?),
            ["absolute", seconds] => absolute_s = Some(seconds.parse()?),
            _ => bail!("limits of a grant are `idle S` and `absolute S`"),
        }
    }
    let [user, source, service] = [user, source, service].map(|word| (*word).to_owned());
    Ok(GateStep::Grant { user, source, service, idle_s, absolute_s })
}

/// Logical lines with the number of their first: comments gone, and joined where one begins with `/` or `:`.
fn statements(text: &str) -> Vec<(usize, String)> {
    let mut out: Vec<(usize, String)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = without_comment(line).trim();
        match (line.chars().next(), out.last_mut()) {
            (None, _) => {}
            (Some('/' | ':'), Some((_, last))) => last.push_str(line),
            _ => out.push((index + 1, line.to_owned())),
        }
    }
    out
}

fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    let end = line.char_indices().find(|(_, letter)| {
        quoted ^= *letter == '"';
        *letter == '#' && !quoted
    });
    end.map_or(line, |(at, _)| &line[..at])
}

fn case_head(line: usize, text: &str) -> Result<Case> {
    let inner = text.strip_prefix('"').and_then(|text| text.split_once('"'));
    let (name, flags) = inner.ok_or_else(|| anyhow!("expected case \"NAME\" [FLAGS]"))?;
    let mut case = Case { name: name.to_owned(), line, wire: false, only: None, steps: Vec::new() };
    let flags = flags.trim().trim_start_matches('[').trim_end_matches(']');
    for flag in flags.split_whitespace() {
        match flag {
            "wire" => case.wire = true,
            "tc" | "xdp" => case.only = Some(flag.to_owned()),
            _ => bail!("`{flag}` is no flag of a case; there are: wire, tc, xdp"),
        }
    }
    Ok(case)
}

fn packet_step(kind: &str, packet: &str, verdict: &str, rest: &str) -> Result<PacketStep> {
    let (source, text) = packet.split_once(':').ok_or_else(|| anyhow!("expected `{kind} UNIT: PACKET`"))?;
    let mut source = source.split_whitespace();
    let unit = source.next().unwrap_or_default().to_owned();
    let raw = match source.next() {
        None => false,
        Some("raw") => true,
        Some(other) => bail!("`{other}` after the unit; only `raw` may stand there"),
    };
    let (verdict, words) = parse_verdict(verdict, rest)?;
    let packet = Packet::parse(text.trim())?;
    Ok(PacketStep { unit, raw, egress: kind == "out", packet, verdict, words })
}

fn parse_verdict(verdict: &str, rest: &str) -> Result<(Verdict, Words)> {
    let (head, packet) = match rest.split_once(':') {
        Some((head, packet)) => (head, Some(Packet::parse(packet.trim())?)),
        None => (rest, None),
    };
    let mut tokens = head.split_whitespace();
    let mut operand =
        |what: &str| tokens.next().map(str::to_owned).ok_or_else(|| anyhow!("`{verdict}` needs {what}"));
    let mut parsed = match verdict {
        "redirect" => Verdict::Redirect { unit: operand("a unit")?, via: None, packet },
        "local" => Verdict::Local { packet },
        "drop" => Verdict::Drop { reason: operand("a reason")? },
        "withheld" => Verdict::Withheld { reason: operand("a reason")? },
        "reply" => {
            let packet = packet.ok_or_else(|| anyhow!("`reply REASON: PACKET` needs its packet"))?;
            Verdict::Reply { reason: operand("a reason")?, packet }
        }
        "handoff" => Verdict::Handoff { unit: operand("a unit")? },
        "sent" => Verdict::Sent { packet },
        _ => bail!(
            "`{verdict}` is no verdict; there are: redirect, local, drop, reply, withheld, handoff, sent"
        ),
    };
    let mut words = Words::default();
    while let Some(token) = tokens.next() {
        match (token, &mut parsed) {
            ("via", Verdict::Redirect { via, .. }) => *via = tokens.next().map(str::to_owned),
            ("policy", _) => words.policy = tokens.next().map(str::to_owned),
            ("nat", _) => words.nat.extend(tokens.next().map(str::to_owned)),
            ("alarm", _) => words.alarms.extend(tokens.next().map(str::to_owned)),
            ("counts", _) => words.counts.extend(tokens.next().map(str::to_owned)),
            ("fast", _) => words.fast = true,
            ("new", _) => words.new = true,
            ("related", _) => words.related = true,
            ("rejudged", _) => words.rejudged = true,
            ("bound", _) => words.bound = true,
            ("unported", _) => words.unported = true,
            _ => bail!("`{token}` is no word of a verdict; see the head of case.rs"),
        }
    }
    Ok((parsed, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_continuations() {
        let text = "a # b\n\n  c \"#\"\n  /d\n  : e";
        assert_eq!(statements(text), [(1, "a".to_owned()), (3, "c \"#\"/d: e".to_owned())]);
    }

    #[test]
    fn verdicts_and_their_words() {
        let (verdict, words) = parse_verdict("redirect", "dmz0.0 via server new policy a>b/c").unwrap();
        let Verdict::Redirect { unit, via, packet: None } = verdict else { panic!("{verdict:?}") };
        assert_eq!((unit.as_str(), via.as_deref()), ("dmz0.0", Some("server")));
        assert!(words.new && !words.fast && words.policy.as_deref() == Some("a>b/c"));
        let (_, words) = parse_verdict("drop", "land counts one counts two").unwrap();
        assert_eq!(words.counts, ["one", "two"]);
        assert!(parse_verdict("reply", "ttl_exceeded").is_err());
        assert!(parse_verdict("drop", "land quickly").is_err());
        assert!(parse_verdict("accept", "").is_err());
    }
}
