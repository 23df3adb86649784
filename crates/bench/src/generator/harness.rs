//! The measuring harness of one hook and family: wrapper, ring, floors. See `bpf/bench/harness.h`.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, OpenObject, ProgramInput, ProgramMut};
use serde::Serialize;

use crate::generator::endpoints::Endpoints;
use crate::generator::layouts::{BenchState, FRAME_ROOM, RingEntry4, RingEntry6};
use crate::generator::mapping::Mapping;
use crate::generator::packets::{
    Direction, Family, Protocol, TCP_ACK, TCP_START, TCP_SYN, Template, Tuple, sequence,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "clap would take them for help")]
pub enum Hook {
    Xdp,
    Tc,
}

impl Hook {
    /// What a program returns for a packet it has redirected.
    pub fn redirected(self) -> u32 {
        match self {
            Hook::Xdp => 4,
            Hook::Tc => 7,
        }
    }

    /// What the floors and the empty target return.
    pub fn dropped(self) -> u32 {
        match self {
            Hook::Xdp => 1,
            Hook::Tc => 2,
        }
    }
}

#[repr(align(8))]
struct Aligned<const N: usize>([u8; N]);

static XDP: &Aligned<{ include_bytes!(concat!(env!("OUT_DIR"), "/xdp.bpf.o")).len() }> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/xdp.bpf.o")));
static TC: &Aligned<{ include_bytes!(concat!(env!("OUT_DIR"), "/tc.bpf.o")).len() }> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/tc.bpf.o")));

/// One timed prog-run call.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Nanoseconds a packet, wrapper included.
    pub ns: f64,
    /// What the program returned for the last packet.
    pub returned: u32,
    /// How many were run.
    pub packets: u64,
    /// Packets that the floor found in its table.
    pub hits: u64,
    /// Packets that it did not find.
    pub misses: u64,
}

/// What became of one packet in the wrapper and its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Single {
    /// What the target returned.
    pub returned: u32,
    /// The frame as the target left it.
    pub frame: Vec<u8>,
}

/// Room for what a translation between families makes longer.
const ROOM_AFTERWARDS: usize = 128;
/// `TCP_SPAN` of `bpf/bench/harness.h`: how far sequence numbers go before they start again.
const TCP_SPAN: u32 = 32_768;

/// What the wrapper tail-calls.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// A program of the harness, by name.
    Own(&'a str),
    /// Any loaded program, by its descriptor.
    Foreign(BorrowedFd<'a>),
}

/// Of the link that all frames have: destination and source.
pub type Macs = ([u8; 6], [u8; 6]);

/// Programs that give a target one packet of a ring after the other, in test runs.
pub struct Harness {
    /// Of the programs and of every target.
    pub hook: Hook,
    /// Of the packets.
    pub family: Family,
    object: Object,
    state: Mapping<BenchState>,
    ring4: Option<Mapping<RingEntry4>>,
    ring6: Option<Mapping<RingEntry6>>,
    template: Template,
    /// Template of answers, where requests and answers of two families alternate.
    answers: Option<Template>,
    macs: Macs,
}

impl Harness {
    /// The floor's table has `floor_keys` slots, the ring `packets` entries.
    pub fn load(hook: Hook, family: Family, floor_keys: u32, packets: u32, macs: Macs) -> Result<Harness> {
        let [ring, floor] = ring_and_floor(family);
        Harness::with_maps(hook, family, &[(ring, packets), (floor, floor_keys)], macs)
    }

    /// Another hook's programs with this one's ring and floor table. Where the ring begins is each one's own.
    pub fn sharing(&self, hook: Hook) -> Result<Harness> {
        let mut open = open(hook)?;
        let mut sizes = vec![];
        for name in ring_and_floor(self.family) {
            let of_this = map_of(&self.object, name)?;
            for mut map in open.maps_mut().filter(|map| map.name() == name) {
                map.reuse_fd(of_this.as_fd()).context("cannot share the bench's maps")?;
            }
            sizes.push((name, of_this.max_entries()));
        }
        Harness::of_object(hook, self.family, open, &sizes, self.macs)
    }

    /// For a gate: a floor with a key for each of so many grants.
    pub fn for_grants(hook: Hook, family: Family, grants: u32, packets: u32, macs: Macs) -> Result<Harness> {
        let sizes = match family {
            Family::V4 => [("ring4", packets), ("grants4", grants)],
            Family::V6 => [("ring6", packets), ("grants6", grants)],
        };
        Harness::with_maps(hook, family, &sizes, macs)
    }

    /// For packets that change their family: no floors, both rings.
    pub fn between_families(hook: Hook, packets: u32, macs: Macs) -> Result<Harness> {
        Harness::with_maps(hook, Family::V6, &[("ring4", packets), ("ring6", packets)], macs)
    }

    fn with_maps(hook: Hook, family: Family, sizes: &[(&str, u32)], macs: Macs) -> Result<Harness> {
        let mut open = open(hook)?;
        for mut map in open.maps_mut() {
            if let Some((_, entries)) = sizes.iter().find(|(name, _)| map.name() == *name) {
                map.set_max_entries(*entries).context("cannot size the bench's maps")?;
            }
        }
        Harness::of_object(hook, family, open, sizes, macs)
    }

    fn of_object(
        hook: Hook,
        family: Family,
        open: OpenObject,
        sizes: &[(&str, u32)],
        macs: Macs,
    ) -> Result<Harness> {
        let entries = |name: &str| sizes.iter().find(|(map, _)| *map == name).map(|(_, entries)| *entries);
        let object =
            open.load().context("cannot load the bench's programs (root and Linux 6.8 are needed)")?;
        let state = Mapping::new(map_of(&object, ".data.bench")?.as_fd(), 1)?;
        let (mut ring4, mut ring6) = (None, None);
        if let Some(entries) = entries("ring4") {
            ring4 = Some(Mapping::new(map_of(&object, "ring4")?.as_fd(), entries as usize)?);
        }
        if let Some(entries) = entries("ring6") {
            ring6 = Some(Mapping::new(map_of(&object, "ring6")?.as_fd(), entries as usize)?);
        }
        let template = Template::new(family, Protocol::Udp, macs.0, macs.1, 0);
        Ok(Harness { hook, family, object, state, ring4, ring6, template, answers: None, macs })
    }

    /// Fills the ring with the packets of sessions `first..first + count`. For TCP `flags` decides the sequence
    /// numbers: of the handshake, or of data that goes on with every lap.
    pub fn set_packets(
        &mut self,
        protocol: Protocol,
        flags: u8,
        first: usize,
        count: usize,
        direction: Direction,
    ) -> Result<()> {
        self.template = Template::new(self.family, protocol, self.macs.0, self.macs.1, flags);
        let packets = order(first, count, direction);
        for (i, (session, reply)) in packets.iter().enumerate() {
            let tuple = Tuple::of_session(*session);
            if let Some(ring) = &mut self.ring4 {
                ring.write(i, self.template.entry4(tuple, *reply));
            }
            if let Some(ring) = &mut self.ring6 {
                ring.write(i, self.template.entry6(tuple, *reply));
            }
        }
        let template = self.template.clone();
        self.state.update(0, |state| {
            state.frame = template.bytes;
            state.cursor = 0;
            state.ring_size = packets.len() as u32;
            state.tcp_seq = if flags & TCP_SYN != 0 { TCP_START } else { TCP_START + 1 };
            state.tcp_first = state.tcp_seq;
            state.tcp_step = template.tcp_payload();
        });
        Ok(())
    }

    /// Fills the ring with packets that have these addresses and ports, all of the harness's family.
    pub fn set_endpoints(&mut self, template: Template, ends: &[Endpoints]) -> Result<()> {
        let (mut four, mut six) = (vec![], vec![]);
        for Endpoints { from, to } in ends {
            match (from.0, to.0) {
                (IpAddr::V4(a), IpAddr::V4(b)) => {
                    four.push(template.entry4_between(a.octets(), b.octets(), from.1, to.1));
                }
                (IpAddr::V6(a), IpAddr::V6(b)) => {
                    six.push(template.entry6_between(a.octets(), b.octets(), from.1, to.1));
                }
                _ => bail!("both ends of a packet are of one family"),
            }
        }
        match self.family {
            Family::V4 => self.set_entries4(template, &four),
            Family::V6 => self.set_entries6(template, &six),
        }
    }

    /// Fills the ring with entries of one's own; IPv4 only. What an entry does not say comes from the template.
    pub fn set_entries4(&mut self, template: Template, entries: &[RingEntry4]) -> Result<()> {
        let ring = self.ring4.as_mut().context("entries of one's own are IPv4")?;
        ring.fill(entries)?;
        self.state.update(0, |state| {
            state.frame = template.bytes;
            (state.cursor, state.ring_size) = (0, entries.len() as u32);
            (state.tcp_seq, state.tcp_first) = (TCP_START + 1, TCP_START + 1);
            state.tcp_step = template.tcp_payload();
        });
        self.template = template;
        Ok(())
    }

    /// The same for IPv6.
    pub fn set_entries6(&mut self, template: Template, entries: &[RingEntry6]) -> Result<()> {
        let ring = self.ring6.as_mut().context("these entries are IPv6")?;
        ring.fill(entries)?;
        self.state.update(0, |state| {
            state.frame = template.bytes;
            (state.cursor, state.ring_size) = (0, entries.len() as u32);
        });
        self.template = template;
        Ok(())
    }

    /// Requests and answers of sessions between two families, alternately: as many of the one as of the other.
    pub fn set_turns(
        &mut self,
        template: Template,
        requests: &[RingEntry6],
        answer: &Template,
        answers: &[RingEntry4],
    ) -> Result<()> {
        ensure!(requests.len() == answers.len(), "every request needs an answer");
        let ring = self.ring4.as_mut().context("no ring for IPv4")?;
        ring.fill(answers)?;
        self.set_entries6(template, requests)?;
        self.state.update(0, |state| {
            state.answer = answer.bytes;
            state.ring_size = 2 * answers.len() as u32;
        });
        self.answers = Some(answer.clone());
        Ok(())
    }

    /// Puts the keys of grants into their floor's table.
    pub fn fill_grants(&self, keys: &[u8]) -> Result<()> {
        let map = map_of(&self.object, if self.family == Family::V4 { "grants4" } else { "grants6" })?;
        let count = keys.len() / map.key_size() as usize;
        if count == 0 {
            return Ok(());
        }
        let values = vec![0; count * map.value_size() as usize];
        map.update_batch(keys, &values, count as u32, MapFlags::ANY, MapFlags::ANY)
            .context("cannot fill the floor's table")
    }

    /// A template with the addresses of the link that all frames have.
    pub fn template(&self, protocol: Protocol, flags: u8) -> Template {
        Template::new(self.family, protocol, self.macs.0, self.macs.1, flags)
    }

    /// Established traffic of `count` sessions: both directions, shuffled.
    pub fn set_established(&mut self, protocol: Protocol, count: usize) -> Result<()> {
        self.set_packets(protocol, TCP_ACK, 0, count, Direction::Both)
    }

    /// Packets in the ring.
    pub fn distinct_packets(&self) -> u32 {
        self.state.read(0).ring_size
    }

    /// From the next run on.
    pub fn set_target(&self, target: Target) -> Result<()> {
        let fd = match target {
            Target::Own(name) => self.program(name)?.as_fd().as_raw_fd(),
            Target::Foreign(fd) => fd.as_raw_fd(),
        };
        let map = map_of(&self.object, "target")?;
        map.update(&0u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
            .context("the program under test does not fit the wrapper (other hook, or xdp without frags)")
    }

    /// Runs `repeat` packets through the wrapper and the target, as if they had arrived on `ingress`.
    pub fn run(&mut self, repeat: u32, ingress: u32) -> Result<Sample> {
        self.state.update(0, |state| {
            (state.count, state.last) = (0, u64::from(repeat.max(2)) - 1);
            (state.first_ns, state.last_ns) = (0, 0);
            (state.hits, state.misses, state.failures) = (0, 0, 0);
        });
        let length = self.length();
        let mut context = context(self.hook, length, ingress);
        let input = ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(&self.template.bytes[..length]),
            repeat,
            ..Default::default()
        };
        let output = self.program(self.wrapper())?.test_run(input).context("prog-run failed")?;
        let state = self.state.read(0);
        if state.failures > 0 {
            bail!("{} of {repeat} packets did not reach the program under test", state.failures);
        }
        ensure!(state.count == u64::from(repeat), "the wrapper made {} packets, not {repeat}", state.count);
        Ok(Sample {
            ns: precise(output.duration.as_nanos() as f64, &state),
            returned: output.return_value,
            packets: state.count,
            hits: state.hits,
            misses: state.misses,
        })
    }

    /// Of two families, the longer frame with what the shorter one has more behind its header.
    fn length(&self) -> usize {
        if self.answers.is_some() { FRAME_ROOM as usize } else { self.template.frame_len() }
    }

    /// One packet through the wrapper and the target, and what is left of it.
    pub fn single(&mut self, ingress: u32) -> Result<Single> {
        let length = self.length();
        let mut context = context(self.hook, length, ingress);
        let mut frame = vec![0; ROOM_AFTERWARDS];
        // what the wrapper leaves as it is comes from the template of the packet that it makes
        let template = self.answers.as_ref().filter(|_| self.position() % 2 == 1).unwrap_or(&self.template);
        let input = ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(&template.bytes[..length]),
            data_out: Some(&mut frame),
            ..Default::default()
        };
        let output = self.program(self.wrapper())?.test_run(input).context("prog-run failed")?;
        let (returned, left) = (output.return_value, output.data.map_or(0, |data| data.len()));
        ensure!(self.state.read(0).failures == 0, "a packet did not reach the program under test");
        frame.truncate(left);
        Ok(Single { returned, frame })
    }

    /// Place in the ring of the packet that comes next.
    pub fn position(&self) -> u32 {
        self.state.read(0).cursor
    }

    /// The packet that comes `ahead` packets after the next one, by what ring and template say: the wrapper has no part
    /// in it.
    pub fn upcoming(&self, ahead: u64) -> Vec<u8> {
        let state = self.state.read(0);
        let at = u64::from(state.cursor) + ahead;
        let mut sequence = state.tcp_seq;
        // whoever takes the last entry of a lap begins the next one
        for _ in 0..(at + 1) / u64::from(state.ring_size) {
            sequence = sequence.wrapping_add(state.tcp_step);
            if sequence.wrapping_sub(state.tcp_first) > TCP_SPAN {
                sequence = state.tcp_first;
            }
        }
        let index = (at % u64::from(state.ring_size)) as usize;
        match (&self.answers, &self.ring4, &self.ring6) {
            (Some(answer), Some(ring), _) if index % 2 == 1 => answer.frame4(&ring.read(index / 2), 0),
            (Some(_), _, Some(ring)) => self.template.frame6(&ring.read(index / 2), 0),
            (_, Some(ring), _) => self.template.frame4(&ring.read(index), sequence),
            (_, _, Some(ring)) => self.template.frame6(&ring.read(index), sequence),
            _ => vec![],
        }
    }

    /// IP bytes of every packet of the ring.
    pub fn ip_len(&self) -> usize {
        self.template.ip_len()
    }

    /// The next frame as the wrapper makes it.
    pub fn frame(&mut self) -> Result<Vec<u8>> {
        self.set_target(Target::Own("empty"))?;
        let mut frame = vec![0; self.template.frame_len()];
        let blank = frame.clone();
        let input = ProgramInput { data_in: Some(&blank), data_out: Some(&mut frame), ..Default::default() };
        self.program(self.wrapper())?.test_run(input).context("prog-run failed")?;
        Ok(frame)
    }

    fn wrapper(&self) -> &'static str {
        match (self.template.protocol, self.family) {
            _ if self.answers.is_some() => "wrap_udp64",
            (Protocol::Udp, Family::V4) => "wrap_udp4",
            (Protocol::Tcp, Family::V4) => "wrap_tcp4",
            (Protocol::Udp, Family::V6) => "wrap_udp6",
            (Protocol::Tcp, Family::V6) => "wrap_tcp6",
        }
    }

    /// Name of a floor program for this family: `floor("lookup")`.
    pub fn floor(&self, kind: &str) -> String {
        let family = if self.family == Family::V4 { 4 } else { 6 };
        format!("floor_{kind}{family}")
    }

    /// Instructions of a program as compiled, and the helpers that it calls, in their order.
    pub fn size(&self, name: &str) -> Result<(usize, Vec<i32>)> {
        /// Of linux/bpf.h: a jump that is a call, of a helper where `src_reg` is 0.
        const CALL: u8 = 0x85;
        let program = self.program(name)?;
        let instructions = program.insns();
        let calls = instructions.iter().filter(|one| one.code == CALL && one.src_reg() == 0);
        Ok((instructions.len(), calls.map(|one| one.imm).collect()))
    }

    /// Of one of the harness's programs, by name.
    pub fn descriptor(&self, name: &str) -> Result<OwnedFd> {
        Ok(self.program(name)?.as_fd().try_clone_to_owned()?)
    }

    fn program(&self, name: &str) -> Result<ProgramMut<'_>> {
        let found = self.object.progs_mut().find(|program| program.name() == name);
        found.with_context(|| format!("the bench's object has no program {name}"))
    }
}

fn open(hook: Hook) -> Result<OpenObject> {
    let bytes: &[u8] = match hook {
        Hook::Xdp => &XDP.0,
        Hook::Tc => &TC.0,
    };
    ObjectBuilder::default().open_memory(bytes).context("cannot open the bench's object")
}

fn ring_and_floor(family: Family) -> [&'static str; 2] {
    match family {
        Family::V4 => ["ring4", "floor4"],
        Family::V6 => ["ring6", "floor6"],
    }
}

/// Sessions `first..first + count` as [`Harness::set_packets`] has them in its ring.
pub fn order(first: usize, count: usize, direction: Direction) -> Vec<(usize, bool)> {
    sequence(first, count, direction, 0x5eed ^ count as u64)
}

fn map_of<'a>(object: &'a Object, name: &str) -> Result<libbpf_rs::Map<'a>> {
    let found = object.maps().find(|map| map.name() == name);
    found.with_context(|| format!("the bench's object has no map {name}"))
}

/// `struct xdp_md` or the beginning of `struct __sk_buff`.
pub fn context(hook: Hook, length: usize, ingress: u32) -> Vec<u8> {
    let words: Vec<u32> = match hook {
        Hook::Xdp => vec![0, length as u32, 0, ingress, 0, 0],
        Hook::Tc => vec![0, 0, 0, 0, 0, 0, 0, 0, 0, ingress, ingress, 0],
    };
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// prog-run reports whole nanoseconds, rounded down. The wrapper's own stamps add the fraction where both agree; where
/// they do not (the kernel takes preemption out of its figure), the middle of that nanosecond stands.
fn precise(reported: f64, state: &BenchState) -> f64 {
    if state.last_ns <= state.first_ns {
        return reported + 0.5;
    }
    let stamped = (state.last_ns - state.first_ns) as f64 / state.last as f64;
    if (reported..reported + 1.0).contains(&stamped) { stamped } else { reported + 0.5 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn stamps_refine_the_reported_figure_only_where_they_agree() {
        let mut state = BenchState::new_zeroed();
        (state.first_ns, state.last_ns, state.last) = (1000, 1000 + 12_340, 1000);
        assert_eq!(precise(12.0, &state), 12.34);
        assert_eq!(precise(11.0, &state), 11.5);
        state.last_ns = 0;
        assert_eq!(precise(12.0, &state), 12.5);
    }
}
