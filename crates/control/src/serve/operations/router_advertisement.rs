//! Router advertisements.

use super::operation::{About, Act, NoArguments, Operation};
use crate::api::RouterAdvertisementView;

/// What links are told of this router.
pub static ROUTER_ADVERTISEMENT: Operation<NoArguments, Vec<RouterAdvertisementView>> = Operation {
    about: About::open(
        "router-advertisement",
        "/api/router-advertisement",
        "What hosts are told by router advertisements: prefixes with lifetimes, how many were sent and asked for",
    ),
    act: Act::Say(|shared, _| shared.advertised.get()),
};
