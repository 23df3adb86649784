//! What the generator and the receiver can do, so that other figures can say that neither was the limiter.

mod devices;
mod external;
mod paced;
mod rates;
mod replay;

use anyhow::Result;

use crate::method::result::SuiteResult;
use crate::method::suite::{Context, Suite};

pub const SUITE: Suite = Suite {
    name: "wire",
    help: "Rates of the packet generator and receiver over frame sizes, and how exactly a requested rate is held",
    says: "Frames a second that one core makes, sends over a veth and receives: as fast as it goes, at requested rates, \
           over the sizes of RFC 2544 and IMIX, by live frames and by sockets. It is the ceiling of every figure \
           that uses this generator. With --if A,B the same over real devices, with what was lost.",
    silent: &[
        "Nothing of a device under test: sender, wire and receiver share one core and wait for each other, so nothing \
         can be lost and the rate is the inverse of their work together.",
        "The latency of a veth is the time to the end of the sender's batch (8 frames when paced), not of a wire.",
        "A paced frame leaves at the end of its batch, up to a microsecond after the time written into it.",
        "Checksums find corruption but one in 65,536; a device that computes them anew is found by the payload beyond \
         the first 18 bytes, which 64-byte frames do not have.",
    ],
    run,
};

type Part = fn(&Context, &mut SuiteResult) -> Result<()>;

fn run(context: &Context) -> Result<SuiteResult> {
    if context.interfaces.is_some() || context.peer.is_some() {
        return devices::run(context);
    }
    let mut result = SuiteResult::new(SUITE.name);
    // Each part goes on without the others.
    let parts: [(&str, Part); 4] = [
        ("rates", rates::run),
        ("paced rates", paced::run),
        ("replay", replay::run),
        ("external generators", external::run),
    ];
    // nothing is promised of the last two
    let parts = if context.wanted.is_empty() { &parts[..] } else { &parts[..2] };
    for (name, part) in parts {
        if let Err(error) = part(context, &mut result) {
            result.errors.push(format!("{name}: {error:#}"));
        }
    }
    Ok(result)
}
