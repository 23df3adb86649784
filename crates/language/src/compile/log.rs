//! `security log`

use std::net::{IpAddr, SocketAddr};

use super::view::View;
use crate::config::{LogFile, LogStream, LogTransport, SecurityLog};
use crate::error::Report;
use crate::log::RATE_CAP;

pub(super) const DIRECTORY: &str = "/var/log";
pub(super) const SIZE_MB: u32 = 10;
pub(super) const FILES: u32 = 10;
pub(super) const SYSLOG: u16 = 514;
/// RFC 5425 4.1
pub(super) const SYSLOG_TLS: u16 = 6514;

pub(super) fn compile(top: View, report: &mut Report) -> SecurityLog {
    let Some(log) = top.path(&["security", "log"]) else { return SecurityLog::default() };
    let source = log.value(&["source-address"]).and_then(|view| view.word().parse().ok());
    SecurityLog {
        rate_cap: log.value(&["rate-cap"]).and_then(View::number).unwrap_or(RATE_CAP),
        file: log.child("file").and_then(|view| file(view, report)),
        streams: log.entries(&["stream"]).filter_map(|view| stream(view, source, report)).collect(),
    }
}

fn file(view: View, report: &mut Report) -> Option<LogFile> {
    let Some(name) = view.value(&["name"]) else {
        report.error_help(&view.location(), "`security log file` has no name", "add `name NAME`");
        return None;
    };
    let directory = view.value(&["path"]);
    if let Some(path) = directory {
        is_directory(path, report);
    }
    if name.word().contains('/') {
        report.error_help(
            &name.location(),
            format!("the file's name `{}` has a `/`", name.word()),
            "its directory is `path`",
        );
    }
    Some(LogFile {
        name: name.word().to_owned(),
        directory: directory.map_or(DIRECTORY, View::word).to_owned(),
        size_mb: view.value(&["size"]).and_then(View::number).unwrap_or(SIZE_MB),
        files: view.value(&["files"]).and_then(View::number).unwrap_or(FILES),
    })
}

/// One by which the file is the same wherever the daemon was started.
pub(super) fn is_directory(path: View, report: &mut Report) {
    if !path.word().starts_with('/') {
        report.error_help(
            &path.location(),
            format!("`{}` is no directory that begins at the root", path.word()),
            "write it with all that stands before it, like /var/log/sluice",
        );
    }
}

fn stream(view: View, source: Option<IpAddr>, report: &mut Report) -> Option<LogStream> {
    let name = view.word().to_owned();
    let addresses = view.entries(&["host"]).filter(|child| child.word() != "port");
    let addresses: Vec<View> = addresses.collect();
    let Some(address) = addresses.first() else {
        report.error_help(
            &view.location(),
            format!("stream `{name}` has no collector"),
            "add `host ADDRESS`, or remove the stream",
        );
        return None;
    };
    if let Some(second) = addresses.get(1) {
        let message = format!("stream `{name}` has two collectors");
        report.error_help(&second.location(), message, "make a stream of its own for each");
    }
    let ip: IpAddr = address.word().parse().ok()?;
    let transport = transport(view, report);
    let usual = if matches!(transport, LogTransport::Tls { .. }) { SYSLOG_TLS } else { SYSLOG };
    let port = view.value(&["host", "port"]).and_then(View::number).unwrap_or(usual);
    let source = source.filter(|source| source.is_ipv4() == ip.is_ipv4());
    Some(LogStream { name, collector: SocketAddr::new(ip, port), source, transport })
}

fn transport(view: View, report: &mut Report) -> LogTransport {
    let text = |name| view.value(&["transport", name]).map(|value| value.word().to_owned());
    let protocol = text("protocol");
    if protocol.as_deref() == Some("tls") {
        return LogTransport::Tls { ca_file: text("ca-file"), server_name: text("server-name") };
    }
    for name in ["ca-file", "server-name"] {
        if let Some(value) = view.path(&["transport", name]) {
            let message = format!("`{}` is for TLS alone", value.context());
            report.error_help(&value.location(), message, "add `transport protocol tls`, or remove it");
        }
    }
    if protocol.as_deref() == Some("tcp") { LogTransport::Tcp } else { LogTransport::Udp }
}
