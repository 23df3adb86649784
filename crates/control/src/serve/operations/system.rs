//! The daemon as a whole.

use super::operation::{About, Act, NoArguments, Operation};
use crate::api::{self, Health, StageView, Stats};
use crate::views::{self, metrics, nat};

/// Whether the daemon is there, and what it is doing.
pub static HEALTH: Operation<NoArguments, Health> = Operation {
    about: About::open(
        "health",
        "/health",
        "The daemon: version, commit in force, what is under way, what it has to say",
    ),
    act: Act::Say(|shared, _| views::health(shared)),
};

/// For Prometheus.
pub static METRICS: Operation<NoArguments, String> = Operation {
    about: About::open("metrics", "/metrics", "What is counted, in the text format of Prometheus"),
    act: Act::Metrics(|shared| Ok(metrics::text(&views::stats(shared)?, &nat::view(shared)?))),
};

/// Everything that is counted of packets.
pub static STATS: Operation<NoArguments, Stats> = Operation {
    about: About::open(
        "stats",
        "/api/stats",
        "Sessions, interfaces, zones, dropped packets by stage and reason, and the conservation equations",
    ),
    act: Act::Read(|shared, _| Ok(views::stats(shared)?)),
};

/// What the program is made of.
pub static PIPELINE: Operation<NoArguments, Vec<StageView>> = Operation {
    about: About::open(
        "pipeline",
        "/api/pipeline",
        "Stages in the order packets walk them, with their drop reasons",
    ),
    act: Act::Say(|_, _| api::pipeline()),
};
