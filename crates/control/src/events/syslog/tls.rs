//! Syslog over TLS (RFC 5425): the collector proves who it is, the gateway does not.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::stream::{Link, closed};

/// What Debian and Ubuntu trust.
const OF_THIS_MACHINE: &str = "/etc/ssl/certs/ca-certificates.crt";

pub struct Tls(StreamOwned<ClientConnection, TcpStream>);

impl Tls {
    /// The certificates are read at each connection, so that new ones count.
    pub fn connect(tcp: TcpStream, ca_file: Option<&str>, name: &str) -> io::Result<Self> {
        let roots = roots(ca_file.unwrap_or(OF_THIS_MACHINE))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        let mut own = Self(StreamOwned::new(session, tcp));
        while own.0.conn.is_handshaking() {
            own.0.conn.complete_io(&mut own.0.sock)?;
        }
        Ok(own)
    }
}

fn roots(file: &str) -> io::Result<RootCertStore> {
    let unusable = |error: String| io::Error::other(format!("{file}: {error}; name another `ca-file`"));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unusable(error.to_string()))? {
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        // one of many that rustls does not take spoils nothing
        let _ = roots.add(certificate);
    }
    if roots.is_empty() { Err(unusable("no certificate that can sign".to_owned())) } else { Ok(roots) }
}

impl Write for Tls {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Link for Tls {
    fn look(&mut self) -> io::Result<()> {
        let (session, tcp) = (&mut self.0.conn, &mut self.0.sock);
        tcp.set_nonblocking(true)?;
        let said = loop {
            match session.read_tls(tcp) {
                Ok(0) => break Err(closed()),
                Ok(_) => match session.process_new_packets() {
                    Ok(state) if state.peer_has_closed() => break Err(closed()),
                    Ok(_) => {}
                    Err(error) => break Err(io::Error::other(error)),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        tcp.set_nonblocking(false)?;
        said
    }
}
