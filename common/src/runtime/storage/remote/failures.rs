//! What a store's error asks for, and how it may be told.
//!
//! The client keeps the status of an answer to itself, so it is read from the error's own words; a test holds the two
//! together. Nothing that could be a secret is repeated: no query of a URL, no value of a credential variable.

use std::error::Error as _;

use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};

use crate::model::error::{Failure, FailureClass};

const FORBIDDEN: &str = "; check the credentials in the environment and what they allow on this prefix";
/// Longest cause that is repeated, in bytes.
const CAUSE_BYTES_MAX: usize = 400;

/// The failure for `error`, which came up while `doing` (a verb with its object).
pub(super) fn classify(error: &Error, doing: &str) -> Failure {
    let text = whole_text(error);
    let (class, remedy) = match error {
        _ if text.contains("NoSuchBucket") || text.contains("ContainerNotFound") => {
            (FailureClass::Policy, "; the bucket does not exist: check its name, region and endpoint")
        }
        Error::NotFound { .. } => (FailureClass::InputMissing, ""),
        Error::Precondition { .. } | Error::NotModified { .. } => (FailureClass::InputChanged, ""),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => (FailureClass::Policy, FORBIDDEN),
        Error::InvalidPath { .. } => (FailureClass::Policy, "; rename the object, or leave it outside the table"),
        Error::NotSupported { .. } | Error::NotImplemented { .. } => (FailureClass::Unsupported, ""),
        Error::UnknownConfigurationKey { .. } => (FailureClass::Policy, "; correct the variable"),
        Error::AlreadyExists { .. } => (FailureClass::Policy, "; something else has this name"),
        _ if text.contains("169.254.169.254") || text.contains("metadata.google.internal") => {
            let remedy = "; no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or the \
                          variables of the other clouds), or AWS_SKIP_SIGNATURE=true for a public bucket";
            (FailureClass::Policy, remedy)
        }
        _ if status(&text).is_some_and(|status| (300..400).contains(&status)) || text.contains("without LOCATION") => {
            (FailureClass::Policy, "; the bucket is in another region: set AWS_REGION")
        }
        _ if text.contains("URL scheme is not allowed") || text.contains("BadScheme") => {
            (FailureClass::Policy, "; the endpoint is http: set AWS_ALLOW_HTTP=true to allow that")
        }
        _ => match status(&text) {
            Some(408 | 425 | 429) => (FailureClass::Transient, "; the store asks to slow down"),
            Some(401 | 403) => (FailureClass::Policy, FORBIDDEN),
            Some(416) => (FailureClass::InputChanged, ""),
            Some(400..=499) => (FailureClass::Policy, "; the store refuses this request"),
            Some(503) => (FailureClass::Transient, "; the store asks to slow down"),
            _ => (FailureClass::Transient, ""),
        },
    };
    let kind = match http_kind(error) {
        Some(HttpErrorKind::Connect) => ": cannot connect",
        Some(HttpErrorKind::Timeout) => ": no answer in time",
        _ => "",
    };
    Failure::new(class, format!("{doing}{kind}: {}{remedy}", told(&text)))
}

/// The error with all of its causes that it does not say itself.
fn whole_text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let words = next.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = next.source();
    }
    text
}

fn status(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

fn http_kind(error: &Error) -> Option<HttpErrorKind> {
    let mut cause = error.source();
    while let Some(next) = cause {
        if let Some(http) = next.downcast_ref::<HttpError>() {
            return Some(http.kind());
        }
        cause = next.source();
    }
    None
}

/// The cause as it may be told: on one line, short, the store's own code and message instead of its XML.
fn told(text: &str) -> String {
    let mut text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if let Some(code) = between(&text, "<Code>", "</Code>") {
        let message = between(&text, "<Message>", "</Message>").unwrap_or_default().to_owned();
        let status = status(&text).map_or(String::new(), |status| format!("{status} "));
        text = format!("{status}{code}: {message}");
    }
    let words: Vec<&str> = text
        .split_whitespace()
        .map(|word| match word.split_once('?') {
            Some((url, _)) if url.contains("://") => url,
            _ => word,
        })
        .collect();
    let mut text = words.join(" ");
    for (name, value) in std::env::vars_os() {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
        let secret = ["SECRET", "TOKEN", "KEY", "PASSWORD", "SAS", "CREDENTIAL"].iter().any(|word| name.contains(word));
        if secret && value.len() >= 8 && text.contains(value) {
            text = text.replace(value, "(hidden)");
        }
    }
    text.truncate(text.trim_end_matches(['.', ' ', ':']).len());
    if text.len() > CAUSE_BYTES_MAX {
        let end = (0..=CAUSE_BYTES_MAX).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        text.truncate(end);
        text.push_str(" ...");
    }
    text
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(start)?;
    rest.split_once(end).map(|(inside, _)| inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> Error {
        Error::Generic { store: "S3", source: text.to_owned().into() }
    }

    #[test]
    fn a_status_decides_whether_a_retry_can_help() {
        let class = |status: &str| classify(&generic(&format!("status code: {status}: x")), "read").class;
        assert_eq!(class("503 Service Unavailable"), FailureClass::Transient);
        assert_eq!(class("500 Internal Server Error"), FailureClass::Transient);
        assert_eq!(class("429 Too Many Requests"), FailureClass::Transient);
        assert_eq!(class("400 Bad Request"), FailureClass::Policy);
        assert_eq!(class("404 Not Found: NoSuchBucket"), FailureClass::Policy);
        assert_eq!(class("301 Moved"), FailureClass::Policy);
    }

    #[test]
    fn the_stores_own_words_are_told_and_no_query() {
        let body = "status code: 403 Forbidden: <?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>\
                    <Message>Access Denied.</Message><StringToSign>x</StringToSign></Error>";
        assert_eq!(told(body), "403 AccessDenied: Access Denied");
        assert_eq!(told("GET https://host/p?sig=hunter2&x=1 failed"), "GET https://host/p failed");
    }

    #[test]
    fn a_long_cause_is_cut_between_characters() {
        let long = "é".repeat(1_000);
        assert_eq!(told(&long).len(), CAUSE_BYTES_MAX + 4);
    }
}
