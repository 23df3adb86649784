//! Which names the HTTP interface over TCP answers to. A page from elsewhere whose name is made to mean this host (DNS
//! rebinding) still has the browser send that name.

use std::net::{IpAddr, SocketAddr};

use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{StatusCode, Version, header};

/// Refuses a request that is for somebody else: with 421 (RFC 9110 section 15.5.20), or 400 where the Host field is missing or
/// there are several (RFC 9112 section 3.2). `names` are answered to besides the address that was asked.
pub fn check<'a>(
    request: &Parts,
    local: SocketAddr,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Result<(), (StatusCode, String)> {
    let bad = |why: &str| Err((StatusCode::BAD_REQUEST, why.to_owned()));
    let mut fields = request.headers.get_all(header::HOST).iter();
    let host = match (fields.next(), fields.next()) {
        (_, Some(_)) => return bad("there is more than one Host field"),
        (Some(field), None) => match field.to_str().ok().and_then(|text| text.parse::<Authority>().ok()) {
            Some(host) => Some(host),
            None => return bad("the Host field cannot be read"),
        },
        // no browser speaks it
        (None, None) if request.version == Version::HTTP_10 => None,
        (None, None) => return bad("the Host field is missing"),
    };
    // the absolute form of a target counts for as much (RFC 9112 section 3.2.2)
    for authority in host.iter().chain(request.uri.authority()) {
        if !is_ours(authority, local, names.clone()) {
            return Err((StatusCode::MISDIRECTED_REQUEST, refusal(authority, local)));
        }
    }
    Ok(())
}

fn is_ours<'a>(authority: &Authority, local: SocketAddr, mut names: impl Iterator<Item = &'a str>) -> bool {
    let host = authority.host();
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = literal.parse::<IpAddr>() {
        let port = authority.port().map(|port| port.as_str() == local.port().to_string());
        return address.to_canonical() == local.ip().to_canonical() && port.unwrap_or(true);
    }
    // a forward or a proxy in front of it may have another port
    let name = host.strip_suffix('.').unwrap_or(host);
    name.eq_ignore_ascii_case("localhost") || names.any(|own| name.eq_ignore_ascii_case(own))
}

fn refusal(authority: &Authority, local: SocketAddr) -> String {
    let local = SocketAddr::new(local.ip().to_canonical(), local.port());
    format!(
        "this is not {authority}: ask for {local} or localhost; other names are given by `system host-name` or \
         `sluice run --listen-name NAME`"
    )
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn status(local: &str, uri: &str, hosts: &[&str], version: Version) -> u16 {
        let mut request = Request::builder().uri(uri).version(version);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let names = ["gw.example.net", "gw1"].into_iter();
        check(&parts, local.parse().unwrap(), names).map_or_else(|(status, _)| status.as_u16(), |()| 200)
    }

    #[test]
    fn only_own_names_and_the_address_that_was_asked() {
        let ours = [
            "127.0.0.1:8080",
            "127.0.0.1",
            "localhost:8080",
            "LocalHost",
            "localhost.:9090",
            "gw1",
            "GW.example.net:80",
        ];
        let theirs = [
            "evil.example:8080",
            "127.0.0.1:8081",
            "127.0.0.2:8080",
            "[::1]:8080",
            "localhost.evil.example",
            "gw1.evil",
            "0.0.0.0:8080",
        ];
        for (list, expected) in [(&ours[..], 200), (&theirs[..], 421)] {
            for host in list {
                assert_eq!(
                    status("127.0.0.1:8080", "/health", &[host], Version::HTTP_11),
                    expected,
                    "{host}"
                );
                let absolute = format!("http://{host}/health");
                let field = ["localhost"];
                assert_eq!(
                    status("127.0.0.1:8080", &absolute, &field, Version::HTTP_11),
                    expected,
                    "{absolute}"
                );
            }
        }
        for (local, host) in [
            ("[::1]:8080", "[::1]:8080"),
            ("[::ffff:10.0.0.1]:80", "10.0.0.1"),
            ("[fd00::1]:80", "[fd00:0::1]:80"),
        ] {
            assert_eq!(status(local, "/health", &[host], Version::HTTP_11), 200, "{host}");
        }
    }

    #[test]
    fn one_host_field_is_demanded() {
        let status = |hosts: &[&str], version| status("127.0.0.1:8080", "/health", hosts, version);
        assert_eq!(status(&[], Version::HTTP_11), 400);
        assert_eq!(status(&[], Version::HTTP_10), 200);
        assert_eq!(status(&["localhost", "localhost"], Version::HTTP_11), 400);
        assert_eq!(status(&["a b"], Version::HTTP_11), 400);
        assert_eq!(status(&["evil.example"], Version::HTTP_10), 421);
    }
}
