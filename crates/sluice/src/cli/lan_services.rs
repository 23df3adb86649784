//! What hosts of a link get from this gateway, in words.

use sluice_control::api::{
    AdvertisedPrefixView, DhcpBindingView, DhcpClearRequest, DhcpCleared, DhcpServerView,
    RouterAdvertisementView,
};
use sluice_control::operations::{NoArguments, Operation};

use super::grammar::Given;
use super::out::{Done, Out};
use super::report::unix_time;
use super::shell::Shell;
use crate::exit::Failure;
use crate::output::table;

/// `show ipv6 router-advertisement`
pub fn router_advertisement(list: &[RouterAdvertisementView]) -> String {
    match list {
        [] => "No router is advertised: `protocols router-advertisement` is not configured.\n".to_owned(),
        list => list.iter().map(advertised).collect(),
    }
}

fn advertised(view: &RouterAdvertisementView) -> String {
    let mut text = format!("Interface: {}\n", view.interface);
    if let Some(error) = &view.error {
        text += &format!("  Nothing is sent: {error}\n");
    }
    let source = view.source.as_deref().unwrap_or("none");
    let last = view.last_sent_unix_ms.map_or_else(|| "never".to_owned(), unix_time);
    text +=
        &format!("  Router: {source} on {}, default lifetime {} s\n", view.device, view.default_lifetime_s);
    text += &format!(
        "  Advertisements sent: {} ({} to single hosts), last: {last}\n",
        view.sent, view.sent_unicast
    );
    text += &format!("  Solicitations received: {}, invalid: {}\n", view.solicitations, view.invalid);
    if view.prefixes.is_empty() {
        text += "  No prefix: the device has no global address\n";
    }
    text + &view.prefixes.iter().map(prefix).collect::<String>()
}

fn prefix(view: &AdvertisedPrefixView) -> String {
    let lifetime = |seconds: u32| match seconds {
        u32::MAX => "infinite".to_owned(),
        seconds => format!("{seconds} s"),
    };
    let mut words = vec![
        format!("valid {}", lifetime(view.valid_lifetime_s)),
        format!("preferred {}", lifetime(view.preferred_lifetime_s)),
    ];
    let told = [(view.on_link, "on-link"), (view.autonomous, "autonomous"), (view.withdrawn, "withdrawn")];
    words.extend(told.iter().filter(|(is, _)| *is).map(|(_, word)| (*word).to_owned()));
    format!("  Prefix: {}, {}\n", view.prefix, words.join(", "))
}

/// `show dhcp server binding`
pub fn dhcp_server(view: &DhcpServerView) -> String {
    let header = ["IP address", "Hardware address", "Hostname", "Expires", "State", "Interface", "Pool"];
    let row = |own: &DhcpBindingView| {
        let begin = [Some(&own.address), Some(&own.hardware_address), Some(&own.hostname)];
        [begin.map(or_dash).to_vec(), ending(own)].concat()
    };
    server(view, "system services dhcp-local-server", &header, row)
}

/// `show dhcpv6 server binding`
pub fn dhcpv6_server(view: &DhcpServerView) -> String {
    let header = ["Address or prefix", "DUID", "Next hop", "Expires", "State", "Interface", "Pool"];
    let row = |own: &DhcpBindingView| {
        let begin = [Some(&own.address), own.duid.as_ref(), own.next_hop.as_ref()];
        [begin.map(or_dash).to_vec(), ending(own)].concat()
    };
    server(view, "system services dhcp-local-server dhcpv6", &header, row)
}

fn or_dash(text: Option<&String>) -> String {
    text.filter(|text| !text.is_empty()).map_or("-", |text| text).to_owned()
}

/// What lines of both families end with.
fn ending(own: &DhcpBindingView) -> Vec<String> {
    vec![
        unix_time(own.expires_unix_ms),
        if own.declined { "declined" } else { "bound" }.to_owned(),
        or_dash(own.interface.as_ref()),
        or_dash(own.pool.as_ref()),
    ]
}

fn server(
    view: &DhcpServerView,
    statement: &str,
    header: &[&str],
    row: impl Fn(&DhcpBindingView) -> Vec<String>,
) -> String {
    let state = match (view.pid, &view.error) {
        (_, Some(error)) => format!("The server does not serve: {error}\n"),
        (Some(pid), None) => format!("The server runs, pid {pid}\n"),
        (None, None) => format!("No server: `{statement}` is not configured.\n"),
    };
    let rows = view.bindings.iter().map(row).collect();
    format!("{state}{}\n{} bindings\n", table(header, rows), view.bindings.len())
}

/// `clear dhcp server binding` and `clear dhcpv6 server binding`
pub fn clear_binding(
    shell: &mut Shell,
    given: &Given,
    out: &mut Out,
    operation: &Operation<NoArguments, DhcpCleared>,
) -> Done {
    let request = DhcpClearRequest { address: given.get("address").unwrap_or_default() };
    let body = serde_json::to_string(&request).map_err(Failure::failed)?;
    let done = shell.order(operation, &NoArguments {}, &body)?.cleared;
    out.text(if done { "The lease has ended" } else { "Nobody has this address" })
}
