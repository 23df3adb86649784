//! `system syslog`

use std::net::{IpAddr, SocketAddr};

use super::log::{DIRECTORY, FILES, SIZE_MB, SYSLOG, SYSLOG_TLS, is_directory};
use super::view::View;
use crate::config::{
    Chosen, FACILITIES, LogFile, LogStream, LogTransport, MessageFile, MessageHost, SystemLog,
};
use crate::error::Report;

/// As RFC 5424 6.2.1 numbers them.
const SEVERITIES: [(&str, u8); 8] = [
    ("emergency", 0),
    ("alert", 1),
    ("critical", 2),
    ("error", 3),
    ("warning", 4),
    ("notice", 5),
    ("info", 6),
    ("any", 7),
];

pub(super) fn compile(top: View, report: &mut Report) -> SystemLog {
    let Some(log) = top.path(&["system", "syslog"]) else { return SystemLog::default() };
    let source = address(log, "source-address");
    SystemLog {
        hosts: log.entries(&["host"]).filter_map(|view| host(view, source, report)).collect(),
        files: log.entries(&["file"]).map(|view| file(view, report)).collect(),
    }
}

fn address(view: View, name: &str) -> Option<IpAddr> {
    view.value(&[name]).and_then(|view| view.word().parse().ok())
}

fn chosen(view: View, report: &mut Report) -> Chosen {
    let severity =
        |word: &str| SEVERITIES.iter().find(|(name, _)| *name == word).map(|(_, severity)| *severity);
    let named = FACILITIES.iter().filter_map(|name| Some((*name, view.value(&[name])?)));
    let least: Vec<_> = named.map(|(name, value)| (name, severity(value.word()))).collect();
    if least.is_empty() {
        let message = format!("`{}` gets no messages", view.context());
        report.error_help(&view.location(), message, "add a facility and a severity, such as `any info`");
    }
    Chosen { least, structured: view.has("structured-data") }
}

fn host(view: View, source: Option<IpAddr>, report: &mut Report) -> Option<MessageHost> {
    let ip: IpAddr = view.word().parse().ok()?;
    let transport = transport(view, report);
    let usual = if matches!(transport, LogTransport::Tls { .. }) { SYSLOG_TLS } else { SYSLOG };
    let own = view.value(&["source-address"]);
    let source = address(view, "source-address").or(source).filter(|source| source.is_ipv4() == ip.is_ipv4());
    if let Some(own) = own.filter(|_| source.is_none()) {
        let message = format!("`{}` cannot be sent to from {}", view.context(), own.word());
        report.error_help(&own.location(), message, "name an address of the host's own family");
    }
    let port = view.value(&["port"]).and_then(View::number).unwrap_or(usual);
    let name = view.word().to_owned();
    let to = LogStream { name, collector: SocketAddr::new(ip, port), source, transport };
    Some(MessageHost { to, chosen: chosen(view, report) })
}

fn transport(view: View, report: &mut Report) -> LogTransport {
    let text = |name| view.value(&[name]).map(|value| value.word().to_owned());
    let name = text("transport");
    if name.as_deref() == Some("tls") {
        return LogTransport::Tls { ca_file: text("ca-file"), server_name: text("server-name") };
    }
    for name in ["ca-file", "server-name"] {
        if let Some(value) = view.child(name) {
            let message = format!("`{}` is for TLS alone", value.context());
            report.error_help(&value.location(), message, "add `transport tls`, or remove it");
        }
    }
    if name.as_deref() == Some("tcp") { LogTransport::Tcp } else { LogTransport::Udp }
}

fn file(view: View, report: &mut Report) -> MessageFile {
    let directory = view.value(&["path"]);
    if let Some(path) = directory {
        is_directory(path, report);
    }
    let name = view.word().to_owned();
    if name.contains('/') {
        let message = format!("the file's name `{name}` has a `/`");
        report.error_help(&view.location(), message, "its directory is `path`");
    }
    let directory = directory.map_or(DIRECTORY, View::word).to_owned();
    let to = LogFile { name, directory, size_mb: SIZE_MB, files: FILES };
    MessageFile { to, chosen: chosen(view, report) }
}
