//! The bounds of the table of datagrams in pieces: room and time.

use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sluice_abi::{
    FRAGMENT_DATAGRAMS, FRAGMENT_REFUSED, FRAGMENT_SESSION, FRAGMENT_TIMEOUT_S, FragmentDatagram,
};
use sluice_dataplane::Sizes;
use sluice_packet_tests::case::File;
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::table;
use sluice_packet_tests::world::World;
use zerocopy::{FromBytes, IntoBytes};

const FIRST: &str =
    "in trust0.0: ip(src=10.0.1.100, dst=10.0.2.100, id=1, mf)/udp(sport=1, dport=2, len=48)/fill(n=16)";
const LATER: &str = "in trust0.0: ip(src=10.0.1.100, dst=10.0.2.100, id=1, frag=3, mf, proto=udp)/fill(n=16)";
const DENIED: &str =
    "in trust0.0: ip(src=10.0.1.100, dst=10.0.2.100, id=1, mf)/tcp(sport=1, dport=23, flags=S)/fill(n=12)";

struct Bed {
    gateway: Gateway,
    datagrams: MapHandle,
}

impl Bed {
    fn new(hook: Hook) -> Bed {
        let world = World::read(&tests().join("zones.world")).unwrap();
        let config = std::fs::read_to_string(&world.config).unwrap();
        let gateway =
            Gateway::new(world, &config, Sizes { sessions4: 64, sessions6: 64, ..Sizes::default() }, hook)
                .unwrap();
        gateway.idle_near_ends().unwrap();
        let datagrams =
            MapHandle::from_pinned_path(gateway.dataplane.pin().join("fragment_datagrams")).unwrap();
        Bed { gateway, datagrams }
    }

    fn now(&self) -> u32 {
        self.gateway.dataplane.now_jiffies().unwrap() as u32
    }

    /// Changes every place of the table.
    fn each(&self, change: impl Fn(&mut FragmentDatagram)) {
        for place in 0..FRAGMENT_DATAGRAMS {
            let key = place.to_ne_bytes();
            let bytes = self.datagrams.lookup(&key, MapFlags::ANY).unwrap().unwrap();
            let mut datagram = FragmentDatagram::read_from_bytes(&bytes).unwrap();
            change(&mut datagram);
            self.datagrams.update(&key, datagram.as_bytes(), MapFlags::ANY).unwrap();
        }
    }

    /// Other datagrams in all places.
    fn fill(&self, follow: u32, first_seen: u32) {
        self.each(|datagram| {
            datagram.tag = 2;
            datagram.follow = follow as u8;
            datagram.first_seen = first_seen;
        });
    }

    /// Runs steps in the words of a `.case` file.
    fn run(&mut self, steps: &[(&str, &str)]) {
        let text: String =
            steps.iter().map(|(packet, verdict)| format!("  {packet}\n  {verdict}\n")).collect();
        let path = std::env::temp_dir().join(format!(
            "sluice-fragments-{}-{}.case",
            std::process::id(),
            self.gateway.hook.name()
        ));
        std::fs::write(&path, format!("case \"steps\"\n{text}")).unwrap();
        let file = File::read(&path);
        std::fs::remove_file(&path).unwrap();
        table::run(&mut self.gateway, &file.unwrap().cases[0]).unwrap_or_else(|error| panic!("{error:#}"));
    }
}

fn tests() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packet")
}

const NEW: &str = "redirect untrust0.0 new policy trust>untrust/out";

fn bounds(hook: Hook) {
    let mut bed = Bed::new(hook);
    let timeout = FRAGMENT_TIMEOUT_S * bed.gateway.dataplane.hz();
    let now = bed.now();

    // full of live datagrams: a permitted first is dropped by name, a refused one as ever
    bed.fill(FRAGMENT_SESSION, now);
    bed.run(&[
        (FIRST, "drop fragment_table_full new policy trust>untrust/out"),
        (LATER, "drop fragment_no_first"),
    ]);
    bed.run(&[(DENIED, "drop policy_deny policy trust>untrust/no-telnet")]);

    // refused datagrams give way
    bed.fill(FRAGMENT_REFUSED, now);
    bed.run(&[(FIRST, NEW), (LATER, "redirect untrust0.0")]);

    // so do those whose time is over
    bed.fill(FRAGMENT_SESSION, now.wrapping_sub(timeout));
    bed.run(&[(FIRST, NEW), (LATER, "redirect untrust0.0")]);

    // the rest of a datagram that comes too late
    bed.each(|datagram| datagram.tag = 0);
    bed.run(&[(FIRST, NEW)]);
    bed.each(|datagram| datagram.first_seen = datagram.first_seen.wrapping_sub(timeout));
    bed.run(&[(LATER, "drop fragment_no_first")]);
}

#[test]
fn room_and_time_are_bounded_on_tc() {
    bounds(Hook::Tc);
}

#[test]
fn room_and_time_are_bounded_on_xdp() {
    bounds(Hook::Xdp);
}
