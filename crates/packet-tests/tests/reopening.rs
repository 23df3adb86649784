//! A new connection on the ports of a live session (RFC 9293 3.10.7, RFC 5961 4): the SYN passes and changes nothing, and
//! what answers it tells whether the session still has two ends. Every way of a session, both callers, every answer.

use sluice_dataplane::Sizes;
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::table;

/// One end of a session.
struct End {
    /// How its packets come to the gateway.
    says: &'static str,
    v4: &'static str,
    v6: &'static str,
    port: u16,
    passes: &'static str,
    /// What follows once the session is plain.
    plain: &'static str,
    /// What becomes of its answer to a new connection.
    reopening: &'static str,
    /// What becomes of a SYN of its own that belongs to no session.
    opens: &'static str,
}

/// Client and server: through the gateway, to it, from it.
const WAYS: [[End; 2]; 3] = [
    [
        End {
            says: "in trust0.0",
            v4: "10.0.1.100",
            v6: "fd00:1::100",
            port: 40000,
            passes: "redirect untrust0.0",
            plain: "redirect untrust0.0 fast",
            reopening: "drop tcp_reopening",
            opens: "redirect untrust0.0 new policy trust>untrust/out",
        },
        End {
            says: "in untrust0.0",
            v4: "10.0.2.100",
            v6: "fd00:2::100",
            port: 80,
            passes: "redirect trust0.0",
            plain: "redirect trust0.0 fast",
            reopening: "drop tcp_reopening",
            opens: "drop policy_default",
        },
    ],
    [
        End {
            says: "in trust0.0",
            v4: "10.0.1.100",
            v6: "fd00:1::100",
            port: 40000,
            passes: "local",
            plain: "local fast",
            reopening: "drop tcp_reopening",
            opens: "local new",
        },
        End {
            says: "out trust0.0",
            v4: "10.0.1.1",
            v6: "fd00:1::1",
            port: 22,
            passes: "sent",
            plain: "sent",
            reopening: "drop egress_reopening",
            opens: "sent",
        },
    ],
    [
        End {
            says: "out untrust0.0",
            v4: "10.0.2.1",
            v6: "fd00:2::1",
            port: 40000,
            passes: "sent",
            plain: "sent",
            reopening: "drop egress_reopening",
            opens: "sent",
        },
        End {
            says: "in untrust0.0",
            v4: "10.0.2.100",
            v6: "fd00:2::100",
            port: 80,
            passes: "local",
            plain: "local fast",
            reopening: "drop tcp_reopening",
            opens: "drop host_inbound",
        },
    ],
];

const CLIENT: usize = 0;

struct Story<'a> {
    ends: &'a [End; 2],
    v4: bool,
    steps: String,
}

impl Story<'_> {
    fn step(&mut self, side: usize, segment: &str, verdict: &str) {
        let (from, to) = (&self.ends[side], &self.ends[1 - side]);
        let (kind, source, destination) =
            if self.v4 { ("ip", from.v4, to.v4) } else { ("ip6", from.v6, to.v6) };
        let tcp = format!("tcp(sport={}, dport={}, {segment})", from.port, to.port);
        self.steps +=
            &format!("  {}: {kind}(src={source}, dst={destination})/{tcp}\n  {verdict}\n", from.says);
    }

    fn passes(&mut self, side: usize, segment: &str) {
        self.step(side, segment, self.ends[side].passes);
    }

    fn plain(&mut self, side: usize, segment: &str) {
        self.step(side, segment, self.ends[side].plain);
    }

    fn opens(&mut self, side: usize, segment: &str) {
        self.step(side, segment, self.ends[side].opens);
    }

    fn reopening(&mut self, side: usize, segment: &str) {
        self.step(side, segment, self.ends[side].reopening);
    }

    /// The client has sent up to 1001 and the server up to 5001.
    fn established(&mut self) {
        self.opens(CLIENT, "flags=S, seq=1000");
        self.passes(1, "flags=SA, seq=5000, ack=1001");
        self.passes(CLIENT, "flags=A, seq=1001, ack=5001");
    }

    fn still_there(&mut self) {
        self.plain(CLIENT, "flags=A, seq=1001, ack=5001");
        self.plain(1, "flags=A, seq=5001, ack=1001");
    }
}

/// What a side has sent last.
const ENDS: [u32; 2] = [1001, 5001];

/// `caller` has forgotten the session, and what comes of it. Far from all that the session knows.
fn stories(story: &mut Story, caller: usize, answer: &str) {
    let other = 1 - caller;
    story.established();
    match answer {
        "half closed, taken" => {
            story.passes(other, &format!("flags=FA, seq={}, ack={}", ENDS[other], ENDS[caller]));
        }
        "copy of the handshake" => {
            story.passes(1, "flags=SA, seq=5000, ack=1001");
            return story.still_there();
        }
        _ => {}
    }
    story.passes(caller, "flags=S, seq=900000000");
    match answer {
        "taken" | "half closed, taken" => {
            story.reopening(other, "flags=SA, seq=700000000, ack=900000001");
            story.reopening(other, "flags=SA, seq=700000000, ack=900000001");
            story.opens(caller, "flags=S, seq=900000000");
            if caller == CLIENT {
                story.passes(other, "flags=SA, seq=700000000, ack=900000001");
                story.passes(caller, "flags=A, seq=900000001, ack=700000001");
                story.plain(other, "flags=A, seq=700000001, ack=900000001");
            }
        }
        "refused" => {
            story.passes(other, "flags=RA, seq=0, ack=900000001");
            story.opens(caller, "flags=S, seq=910000000");
        }
        "challenged" => {
            story.plain(other, &format!("flags=A, seq={}, ack={}", ENDS[other], ENDS[caller]));
            story.passes(caller, &format!("flags=R, seq={}", ENDS[caller]));
            story.opens(caller, "flags=S, seq=900000000");
        }
        "forged, no answer" => story.still_there(),
        "forged, wrong answer" => {
            story.passes(other, "flags=SA, seq=700000000, ack=900000000");
            story.passes(other, "flags=SA, seq=700000000, ack=900000002");
            story.still_there();
        }
        "both forged" => {
            story.reopening(other, "flags=SA, seq=700000000, ack=900000001");
            // whoever goes on shows that there still is somebody
            story.passes(CLIENT, "flags=A, seq=1001, ack=5001");
            story.still_there();
        }
        other => unreachable!("{other}"),
    }
}

const ANSWERS: [&str; 8] = [
    "taken",
    "half closed, taken",
    "refused",
    "challenged",
    "forged, no answer",
    "forged, wrong answer",
    "both forged",
    "copy of the handshake",
];

fn run(hook: Hook) {
    let sizes = Sizes { sessions4: 64, sessions6: 64, ..Sizes::default() };
    let mut gateway = Gateway::of("zones.world", sizes, hook).unwrap();
    let mut wrong = Vec::new();
    for (number, ends) in WAYS.iter().enumerate() {
        for (v4, caller, answer) in [true, false].into_iter().flat_map(|v4| {
            [CLIENT, 1].into_iter().flat_map(move |side| ANSWERS.map(|answer| (v4, side, answer)))
        }) {
            let mut story = Story { ends, v4, steps: String::new() };
            stories(&mut story, caller, answer);
            if let Err(error) = table::run_text(&mut gateway, &story.steps) {
                wrong.push(format!("way {number}, IPv4 {v4}, caller {caller}, {answer}:\n{error:#}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} stories on {}\n{}", wrong.len(), hook.name(), wrong.join("\n"));
}

#[test]
fn ports_of_live_sessions_begin_anew_on_tc() {
    in_thread(|| run(Hook::Tc));
}

#[test]
fn ports_of_live_sessions_begin_anew_on_xdp() {
    in_thread(|| run(Hook::Xdp));
}
