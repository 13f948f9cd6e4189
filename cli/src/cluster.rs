//! The parts of a cluster: `baler coordinator`, `baler worker`, and the commands that users send to it.

mod client;
mod serve;
mod work;

pub use client::{cancel, check, compact, drain, list, pause, resume, watch};
pub use serve::{coordinator, parse_listen};
pub use work::worker;

use std::path::PathBuf;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::runtime::storage::{Store, Stores};
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

use crate::args::TlsArgs;

/// `NAME=URL`: a store that a process may touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedStore {
    pub name: String,
    pub url: String,
}

/// Parses `NAME=URL`.
pub fn parse_store(text: &str) -> Result<NamedStore, String> {
    let (name, url) = text.split_once('=').ok_or_else(|| format!("{text:?} is not NAME=URL"))?;
    let proper = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    if name.is_empty() || !name.chars().all(proper) {
        return Err(format!("{name:?}: a store's name has letters, digits, - and _ only"));
    }
    if url.is_empty() {
        return Err(format!("store {name} has no URL"));
    }
    Ok(NamedStore { name: name.to_owned(), url: url.to_owned() })
}

/// Opens the stores of a process. No two may have one name, and none may lie in another.
fn open_stores(named: &[NamedStore]) -> Result<Stores, Failure> {
    let mut stores = Stores::default();
    for NamedStore { name, url } in named {
        if stores.aliases().any(|other| other == name) {
            return Err(Failure::new(FailureClass::Policy, format!("two stores have the name {name}")));
        }
        let store = Store::open(name, url, false)?;
        if let Ok(other) = stores.alias_of(&store.location()) {
            let message = format!("store {name} lies in store {other}: name the outer one alone");
            return Err(Failure::new(FailureClass::Policy, message));
        }
        stores.insert(store);
    }
    Ok(stores)
}

fn read_file(path: &PathBuf) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .map_err(|error| Failure::new(FailureClass::Policy, error.to_string()).in_file(path.display().to_string()))
}

/// What a client shows and believes; `None` without TLS.
fn client_tls(args: &TlsArgs) -> Result<Option<ClientTlsConfig>, Failure> {
    let Some(ca) = &args.tls_ca else { return Ok(None) };
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read_file(ca)?));
    if let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) {
        tls = tls.identity(Identity::from_pem(read_file(certificate)?, read_file(key)?));
    }
    Ok(Some(tls))
}

/// What a server shows and demands; `None` without TLS.
fn server_tls(args: &TlsArgs) -> Result<Option<ServerTlsConfig>, Failure> {
    match (&args.tls_ca, &args.tls_cert, &args.tls_key) {
        (None, None, None) => Ok(None),
        (Some(ca), Some(certificate), Some(key)) => Ok(Some(
            ServerTlsConfig::new()
                .identity(Identity::from_pem(read_file(certificate)?, read_file(key)?))
                .client_ca_root(Certificate::from_pem(read_file(ca)?)),
        )),
        _ => {
            let message = "--tls-ca, --tls-cert and --tls-key belong together: clients are asked for a certificate too";
            Err(Failure::new(FailureClass::Policy, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_a_name_and_a_url() {
        let store = NamedStore { name: "data".into(), url: "file:///srv/data".into() };
        assert_eq!(parse_store("data=file:///srv/data"), Ok(store));
        for wrong in ["data", "=x", "a/b=x", "data=", "da ta=x"] {
            assert!(parse_store(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_location_is_found_in_the_store_that_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("data/in")).unwrap();
        std::fs::create_dir_all(root.join("database")).unwrap();
        let url = |path: &str| format!("file://{}/{path}", root.display());
        let data = NamedStore { name: "d".into(), url: url("data") };
        let stores = open_stores(std::slice::from_ref(&data)).unwrap();
        assert_eq!(stores.alias_of(&url("data/in/")).unwrap(), "d/in");
        assert_eq!(stores.alias_of(&url("data")).unwrap(), "d");
        assert!(stores.alias_of(&url("database")).is_err());
        assert!(stores.get("d/../database").is_err());
        assert!(stores.get("d/in").is_ok());
        let inner = NamedStore { name: "e".into(), url: url("data/in") };
        assert!(open_stores(&[data.clone(), inner]).is_err());
        assert!(open_stores(&[data.clone(), data]).is_err());
    }
}
