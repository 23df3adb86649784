//! What runs on the hosts of a lab: iperf3 servers and web servers.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::netns::Netns;
use crate::patience::until;

pub const IPERF_PORT: u16 = 5201;
pub const WEB_PORT: u16 = 80;

/// Size of the page every web server serves; a transfer that long needs many segments.
pub const PAGE_BYTES: usize = 256 * 1024;
/// How long a server may take until it listens.
pub const LISTEN: Duration = Duration::from_secs(5);

/// A child process that ends with this value.
#[derive(Debug)]
pub struct Service(pub Child);

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to do but to collect it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts an iperf3 server and nginx in every namespace; `directory` takes their files.
pub fn start(hosts: &[&Netns], directory: &Path) -> Result<Vec<Service>> {
    let page = directory.join("www");
    fs::create_dir_all(&page)?;
    fs::write(page.join("index.html"), "sluice\n".repeat(PAGE_BYTES / 7 + 1).split_at(PAGE_BYTES).0)?;
    let mut services = vec![];
    for host in hosts {
        services.push(start_iperf(host)?);
        services.push(start_nginx(host, &page, directory)?);
    }
    for host in hosts {
        for port in [IPERF_PORT, WEB_PORT] {
            wait_for_listener(host, port)?;
        }
    }
    Ok(services)
}

fn start_iperf(host: &Netns) -> Result<Service> {
    let port = IPERF_PORT.to_string();
    let mut command = host.command("iperf3");
    command.args(["-s", "-p", &port]).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Service(command.spawn().context("cannot start iperf3; scripts/setup.sh installs it")?))
}

fn start_nginx(host: &Netns, page: &Path, directory: &Path) -> Result<Service> {
    let home: PathBuf = directory.join(format!("nginx-{}", host.name()));
    fs::create_dir_all(&home)?;
    let configuration = home.join("nginx.conf");
    fs::write(&configuration, nginx_configuration(&home, page))?;
    let mut command = host.command("nginx");
    command.arg("-p").arg(&home).arg("-c").arg(&configuration).arg("-e").arg(home.join("error.log"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Service(command.spawn().context("cannot start nginx; scripts/setup.sh installs it")?))
}

/// One process in the foreground that writes nowhere but under `home`.
fn nginx_configuration(home: &Path, page: &Path) -> String {
    let home = home.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path {home}/{kind};\n"))
        .concat();
    format!(
        "daemon off;\nmaster_process off;\npid {home}/nginx.pid;\nevents {{ worker_connections 256; }}\n\
         http {{\n    access_log off;\n{temporary}    server {{\n        listen {WEB_PORT};\n        \
         listen [::]:{WEB_PORT};\n        root {page};\n    }}\n}}\n",
        page = page.display()
    )
}

/// A port is taken when we cannot bind it ourselves.
fn wait_for_listener(host: &Netns, port: u16) -> Result<()> {
    let listens = || Ok(host.enter(|| TcpListener::bind(("::", port)).is_err())?);
    until(LISTEN, listens, || format!("nothing listens on port {port} in {}", host.name()))
}
