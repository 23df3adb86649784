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
                    // what is left unread has rustls refuse more; there is an end, and it is an error
                    Ok(_) => drop(io::copy(&mut session.reader(), &mut io::sink())),
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

/// RFC 5425 4.4: the collector is told that nothing more comes. What it does not take at once is not waited for.
impl Drop for Tls {
    fn drop(&mut self) {
        let (session, tcp) = (&mut self.0.conn, &mut self.0.sock);
        session.send_close_notify();
        if tcp.set_nonblocking(true).is_ok() {
            while session.wants_write() && session.write_tls(tcp).is_ok_and(|written| written > 0) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::path::Path;
    use std::process::Command;
    use std::sync::mpsc::{Receiver, channel};
    use std::thread::{JoinHandle, spawn};

    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ServerConfig, ServerConnection};

    use super::*;

    /// One that a client can have as its signer, too.
    fn certificate(directory: &Path) {
        std::fs::create_dir_all(directory).unwrap();
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
            .args(["-keyout", "key.pem", "-out", "own.pem", "-subj", "/CN=collector", "-days", "2"])
            .args([
                "-addext",
                "subjectAltName=DNS:collector",
                "-addext",
                "basicConstraints=critical,CA:FALSE",
            ])
            .current_dir(directory)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
    }

    /// Says more than rustls keeps for whoever does not read, tells when that is done, and reads to the end.
    fn talkative(directory: &Path, tcp: TcpStream) -> (Receiver<()>, JoinHandle<io::Result<Vec<u8>>>) {
        let chain = CertificateDer::pem_file_iter(directory.join("own.pem")).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                chain.map(Result::unwrap).collect(),
                PrivateKeyDer::from_pem_file(directory.join("key.pem")).unwrap(),
            )
            .unwrap();
        let session = ServerConnection::new(Arc::new(config)).unwrap();
        let (done, said) = channel();
        let thread = spawn(move || {
            let mut stream = StreamOwned::new(session, tcp);
            stream.write_all(&[b'.'; 40_000])?;
            stream.flush()?;
            let _ = done.send(());
            let mut got = vec![];
            stream.read_to_end(&mut got).map(|_| got)
        });
        (said, thread)
    }

    #[test]
    fn what_the_collector_says_is_read_and_it_is_told_of_the_end() {
        let directory = std::env::temp_dir().join(format!("sluice-tls-{}", std::process::id()));
        certificate(&directory);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (said, server) = talkative(&directory, listener.accept().unwrap().0);
        let own = directory.join("own.pem").display().to_string();
        let mut tls = Tls::connect(client, Some(&own), "collector").unwrap();
        said.recv().unwrap();
        tls.look().expect("it stands");
        tls.write_all(b"12 <34>1 hello\n").unwrap();
        tls.flush().unwrap();
        drop(tls);
        assert_eq!(server.join().unwrap().expect("an end, and no cut"), b"12 <34>1 hello\n");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
