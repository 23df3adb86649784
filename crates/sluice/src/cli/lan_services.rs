//! What hosts of a link get from this gateway, in words.

use sluice_control::api::{AdvertisedPrefixView, DhcpBindingView, DhcpServerView, RouterAdvertisementView};

use super::report::unix_time;
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
    let state = match (view.pid, &view.error) {
        (_, Some(error)) => format!("The server does not serve: {error}\n"),
        (Some(pid), None) => format!("The server runs, pid {pid}\n"),
        (None, None) => "No server: `system services dhcp-local-server` is not configured.\n".to_owned(),
    };
    let row = |binding: &DhcpBindingView| {
        let or_dash = |text: Option<&str>| text.filter(|text| !text.is_empty()).unwrap_or("-").to_owned();
        vec![
            binding.address.clone(),
            binding.hardware_address.clone(),
            or_dash(Some(&binding.hostname)),
            unix_time(binding.expires_unix_ms),
            if binding.declined { "declined" } else { "bound" }.to_owned(),
            or_dash(binding.interface.as_deref()),
            or_dash(binding.pool.as_deref()),
        ]
    };
    let header = ["IP address", "Hardware address", "Hostname", "Expires", "State", "Interface", "Pool"];
    let rows = view.bindings.iter().map(row).collect();
    format!("{state}{}\n{} bindings\n", table(&header, rows), view.bindings.len())
}
