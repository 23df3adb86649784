//! The YAML form of a fan-out, turned into statements of the tree.
//!
//! Every statement remembers the line it came from, so what the language refuses is said with the line of the YAML:
//! there is one schema behind both forms.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde::Deserialize;
use serde_saphyr::{Location, Spanned};
use sluice_language::fan_out::{FanOut, METRICS_PORT};

type Text = Spanned<String>;
type Number = Spanned<u32>;
type Flag = Spanned<bool>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    listeners: Vec<Spanned<Listener>>,
    health: Option<Health>,
    metrics: Option<Metrics>,
    log_level: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listener {
    name: Text,
    interface: Option<Text>,
    mode: Option<Text>,
    bind: Text,
    downstream: Spanned<Vec<Spanned<Downstream>>>,
    settings: Option<Settings>,
    health: Option<Health>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Downstream {
    name: Text,
    /// ADDRESS:PORT, or NAME:PORT to be looked up.
    address: Option<Text>,
    /// Name of SRV records.
    service: Option<Text>,
    weight: Option<Number>,
    drain: Option<Flag>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    max_packet_size: Option<Number>,
    balance: Option<Text>,
    workers: Option<Number>,
    keep_source: Option<Flag>,
    answer_arp: Option<Flag>,
    none_left: Option<Text>,
    framing: Option<Text>,
    queue_bytes: Option<Number>,
    receive_buffer: Option<Number>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Health {
    check: Text,
    /// What `http` asks for.
    path: Option<Text>,
    port: Option<Number>,
    interval_ms: Option<Number>,
    timeout_ms: Option<Number>,
    rise: Option<Number>,
    fall: Option<Number>,
    slow_start_ms: Option<Number>,
    drain_ms: Option<Number>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Metrics {
    enabled: Option<Flag>,
    bind: Option<Text>,
}

/// What is wrong, and where in the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct YamlError {
    /// As the caller named it.
    pub file: String,
    /// From 1.
    pub line: u64,
    /// From 1.
    pub column: u64,
    /// What is wrong, and what helps.
    pub message: String,
}

/// A fan-out, and the tree that means it.
#[derive(Debug)]
pub struct Loaded {
    /// Everything below `services fan-out`, as `set` commands.
    pub statements: String,
    /// What the tree means.
    pub fan_out: FanOut,
    /// `log-level` of the file, as it was written.
    pub log_level: Option<String>,
    /// Name, line and column of each listener.
    locations: Vec<(String, u64, u64)>,
}

impl Loaded {
    /// An error about a listener that only the machine can tell.
    pub fn error(&self, file: &str, listener: &str, message: String) -> YamlError {
        let found = self.locations.iter().find(|(name, _, _)| name == listener);
        let (line, column) = found.map_or((1, 1), |(_, line, column)| (*line, *column));
        YamlError { file: file.to_owned(), line, column, message }
    }
}

/// Statements and the locations they came from, line by line.
struct Writer<'a> {
    file: &'a str,
    text: String,
    locations: Vec<Location>,
}

const LOG_LEVELS: [&str; 5] = ["trace", "debug", "info", "warn", "error"];

/// Reads a configuration file; `file` names it in errors.
pub fn load(text: &str, file: &str) -> Result<Loaded, YamlError> {
    let document: Document = serde_saphyr::from_str(text).map_err(|error| yaml_error(file, &error))?;
    let mut writer = Writer { file, text: String::new(), locations: vec![] };
    writer.names(&document)?;
    for listener in &document.listeners {
        writer.listener(&listener.value, document.health.as_ref())?;
    }
    writer.metrics(document.metrics.as_ref())?;
    let log_level = document.log_level.map(|level| writer.log_level(level)).transpose()?;
    let fan_out = writer.compile()?;
    let location = |l: &Spanned<Listener>| {
        let at = l.value.bind.referenced;
        (l.value.name.value.clone(), at.line(), at.column())
    };
    let locations = document.listeners.iter().map(location).collect();
    Ok(Loaded { statements: writer.text, fan_out, log_level, locations })
}

fn yaml_error(file: &str, error: &serde_saphyr::Error) -> YamlError {
    let location = error.location().unwrap_or(Location::UNKNOWN);
    // the first line says it; what follows is an excerpt of the file
    let message = error.without_snippet().to_string();
    let message = message.lines().next().unwrap_or_default().to_owned();
    YamlError {
        file: file.to_owned(),
        line: location.line().max(1),
        column: location.column().max(1),
        message,
    }
}

impl Writer<'_> {
    fn error(&self, location: Location, message: String) -> YamlError {
        YamlError {
            file: self.file.to_owned(),
            line: location.line().max(1),
            column: location.column().max(1),
            message,
        }
    }

    fn set(&mut self, location: Location, path: &str) {
        self.text += &format!("set services fan-out {path}\n");
        self.locations.push(location);
    }

    /// Names become words of a statement, so they are looked at before.
    fn word<'t>(&self, text: &'t Text) -> Result<&'t str, YamlError> {
        let word = text.value.as_str();
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/');
        if !word.is_empty() && !word.starts_with('-') && word.chars().all(fits) {
            return Ok(word);
        }
        let message = format!("`{word}` is no name; expected letters, digits, `-`, `_`, `.`, `:` and `/`");
        Err(self.error(text.referenced, message))
    }

    /// The tree would take a second entry of the same name for more of the first.
    fn names(&self, document: &Document) -> Result<(), YamlError> {
        let mut listeners = BTreeSet::new();
        for listener in &document.listeners {
            let name = &listener.value.name;
            if !listeners.insert(self.word(name)?) {
                return Err(
                    self.error(name.referenced, format!("listener `{}` stands here twice", name.value))
                );
            }
            let mut receivers = BTreeSet::new();
            for receiver in &listener.value.downstream.value {
                let name = &receiver.value.name;
                if !receivers.insert(self.word(name)?) {
                    let message = format!("downstream `{}` stands here twice", name.value);
                    return Err(self.error(name.referenced, message));
                }
            }
        }
        if document.listeners.is_empty() {
            return Err(self.error(Location::UNKNOWN, "there is no listener; add one".to_owned()));
        }
        Ok(())
    }

    fn listener(&mut self, listener: &Listener, health: Option<&Health>) -> Result<(), YamlError> {
        let path = format!("listener {}", self.word(&listener.name)?);
        let (address, port) = self.endpoint(&listener.bind)?;
        self.set(listener.bind.referenced, &format!("{path} address {address}"));
        self.set(listener.bind.referenced, &format!("{path} port {port}"));
        if let Some(interface) = &listener.interface {
            let name = self.word(interface)?;
            self.set(interface.referenced, &format!("{path} interface {name}"));
        }
        if let Some(mode) = &listener.mode {
            let mode_word = self.word(mode)?.replace('_', "-");
            self.set(mode.referenced, &format!("{path} mode {mode_word}"));
        }
        for receiver in &listener.downstream.value {
            self.receiver(&path, &receiver.value)?;
        }
        if let Some(settings) = &listener.settings {
            self.settings(&path, settings)?;
        }
        if let Some(health) = listener.health.as_ref().or(health) {
            self.health(&path, health)?;
        }
        Ok(())
    }

    /// ADDRESS:PORT, `[ADDRESS]:PORT` for IPv6.
    fn endpoint(&self, text: &Text) -> Result<(String, u16), YamlError> {
        let parsed: Result<SocketAddr, _> = text.value.parse();
        parsed.map(|address| (address.ip().to_string(), address.port())).map_err(|_| {
            let message =
                format!("`{}` is no address and port; write 192.0.2.1:514 or [2001:db8::1]:514", text.value);
            self.error(text.referenced, message)
        })
    }

    fn receiver(&mut self, path: &str, receiver: &Downstream) -> Result<(), YamlError> {
        let path = format!("{path} receiver {}", self.word(&receiver.name)?);
        match (&receiver.address, &receiver.service) {
            (Some(address), None) => self.target(&path, address)?,
            (None, Some(service)) => {
                let name = self.word(service)?;
                self.set(service.referenced, &format!("{path} service {name}"));
            }
            _ => {
                let message = format!("downstream `{}` needs `address` or `service`", receiver.name.value);
                return Err(self.error(receiver.name.referenced, message));
            }
        }
        if let Some(weight) = &receiver.weight {
            self.set(weight.referenced, &format!("{path} weight {}", weight.value));
        }
        if let Some(drain) = receiver.drain.as_ref().filter(|drain| drain.value) {
            self.set(drain.referenced, &format!("{path} drain"));
        }
        Ok(())
    }

    fn target(&mut self, path: &str, address: &Text) -> Result<(), YamlError> {
        let location = address.referenced;
        if address.value.parse::<SocketAddr>().is_ok() {
            let (ip, port) = self.endpoint(address)?;
            self.set(location, &format!("{path} address {ip}"));
            self.set(location, &format!("{path} port {port}"));
            return Ok(());
        }
        let numeric = |host: &str| host.chars().all(|c| c.is_ascii_digit() || c == '.' || c == ':');
        match address.value.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() && !numeric(host) => {
                let host = self.word(&Spanned::new(host.to_owned(), location, location))?.to_owned();
                self.set(location, &format!("{path} host {host}"));
                self.set(location, &format!("{path} port {port}"));
                Ok(())
            }
            _ => {
                let message = format!(
                    "`{}` is no address and port; write 192.0.2.1:514 or name.example:514",
                    address.value
                );
                Err(self.error(location, message))
            }
        }
    }

    fn settings(&mut self, path: &str, settings: &Settings) -> Result<(), YamlError> {
        let numbers = [
            ("max-packet-size", &settings.max_packet_size),
            ("workers", &settings.workers),
            ("queue-bytes", &settings.queue_bytes),
            ("receive-buffer", &settings.receive_buffer),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                self.set(number.referenced, &format!("{path} {name} {}", number.value));
            }
        }
        let words = [
            ("balance", &settings.balance),
            ("none-left", &settings.none_left),
            ("framing", &settings.framing),
        ];
        for (name, text) in words {
            if let Some(text) = text {
                let word = self.word(text)?.replace('_', "-");
                self.set(text.referenced, &format!("{path} {name} {word}"));
            }
        }
        for (name, flag) in [("keep-source", &settings.keep_source), ("answer-arp", &settings.answer_arp)] {
            if let Some(flag) = flag.as_ref().filter(|flag| flag.value) {
                self.set(flag.referenced, &format!("{path} {name}"));
            }
        }
        Ok(())
    }

    fn health(&mut self, path: &str, health: &Health) -> Result<(), YamlError> {
        let path = format!("{path} health-check");
        let method = self.word(&health.check)?;
        self.set(health.check.referenced, &format!("{path} method {method}"));
        if let Some(asked) = &health.path {
            let word = self.word(asked)?;
            self.set(asked.referenced, &format!("{path} path \"{word}\""));
        }
        let numbers = [
            ("port", &health.port),
            ("interval", &health.interval_ms),
            ("timeout", &health.timeout_ms),
            ("rise", &health.rise),
            ("fall", &health.fall),
            ("slow-start", &health.slow_start_ms),
            ("drain", &health.drain_ms),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                self.set(number.referenced, &format!("{path} {name} {}", number.value));
            }
        }
        Ok(())
    }

    /// Port 9090 unless they are turned off.
    fn metrics(&mut self, metrics: Option<&Metrics>) -> Result<(), YamlError> {
        let none = Metrics::default();
        let metrics = metrics.unwrap_or(&none);
        if metrics.enabled.as_ref().is_some_and(|enabled| !enabled.value) {
            return Ok(());
        }
        let (location, (address, port)) = match &metrics.bind {
            Some(bind) => (bind.referenced, self.endpoint(bind)?),
            None => (Location::UNKNOWN, ("0.0.0.0".to_owned(), METRICS_PORT)),
        };
        self.set(location, &format!("metrics address {address}"));
        self.set(location, &format!("metrics port {port}"));
        Ok(())
    }

    fn log_level(&self, level: Text) -> Result<String, YamlError> {
        if LOG_LEVELS.contains(&level.value.as_str()) {
            return Ok(level.value);
        }
        let message = format!("log_level `{}` is none of: {}", level.value, LOG_LEVELS.join(", "));
        Err(self.error(level.referenced, message))
    }

    /// What the language makes of it. Interfaces are the caller's to define; here they stand for themselves.
    fn compile(&self) -> Result<FanOut, YamlError> {
        let tree = sluice_language::parse(&format!("{}{}", self.text, interfaces(&self.text)), self.file)
            .map_err(|errors| self.translated(&errors))?;
        let config = sluice_language::compile(&tree).map_err(|errors| self.translated(&errors))?;
        Ok(config.fan_out)
    }

    fn translated(&self, errors: &sluice_language::Errors) -> YamlError {
        let Some(error) = errors.iter().next() else { return self.error(Location::UNKNOWN, String::new()) };
        let location = self.locations.get(error.location.line.saturating_sub(1) as usize);
        let message = match &error.help {
            Some(help) => format!("{}; {help}", error.message),
            None => error.message.clone(),
        };
        self.error(location.copied().unwrap_or(Location::UNKNOWN), message)
    }
}

/// Definitions of the interfaces that statements name.
fn interfaces(statements: &str) -> String {
    let names = statements.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        (words.len() == 7 && words[5] == "interface").then(|| words[6].split('.').next().unwrap_or_default())
    });
    let names: BTreeSet<&str> = names.collect();
    names.into_iter().map(|name| format!("set interfaces {name} unit 0\n")).collect()
}

#[cfg(test)]
mod tests;
