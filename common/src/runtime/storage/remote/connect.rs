//! From a URL and the environment to a client.
//!
//! Credentials, region and endpoint come from the variables that each cloud's own tools read (`AWS_*`, `GOOGLE_*`,
//! `AZURE_*`), never from the URL: a URL ends up in logs, plans and manifests.

use std::sync::{Arc, Once};
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, S3CopyIfNotExists};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{BackoffConfig, ClientConfigKey, ObjectStore, RetryConfig};

use super::failures::classify;
use crate::model::error::{Failure, FailureClass};

/// Longest time for one request with its whole body. A part of an upload must get through in this time.
const REQUEST_TIMEOUT: &str = "300s";
/// Longest silence within a request.
const READ_TIMEOUT: &str = "30s";

fn refused(message: impl Into<String>) -> Failure {
    Failure::new(FailureClass::Policy, message)
}

/// The client, the prefix in its bucket, and the location as it may be shown.
pub(super) fn open(location: &str) -> Result<(Arc<dyn ObjectStore>, String, String), Failure> {
    let (scheme, bucket, prefix) = split(location)?;
    check_environment()?;
    install_tls();
    let shown = match prefix.is_empty() {
        true => format!("{scheme}://{bucket}"),
        false => format!("{scheme}://{bucket}/{prefix}"),
    };
    let failed = |error: object_store::Error| {
        let failure = classify(&error, "configure the client");
        Failure { class: FailureClass::Policy, ..failure }.in_file(shown.clone())
    };
    let store: Arc<dyn ObjectStore> = match scheme {
        "s3" => {
            let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retries());
            for (key, variable, value) in client_defaults("AWS") {
                if std::env::var_os(variable).is_none() {
                    builder = builder.with_config(object_store::aws::AmazonS3ConfigKey::Client(key), value);
                }
            }
            if std::env::var_os("AWS_COPY_IF_NOT_EXISTS").is_none() {
                builder = builder.with_copy_if_not_exists(S3CopyIfNotExists::Multipart);
            }
            Arc::new(builder.build().map_err(failed)?)
        }
        "gs" => {
            let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).with_retry(retries());
            for (key, variable, value) in client_defaults("GOOGLE") {
                if std::env::var_os(variable).is_none() {
                    builder = builder.with_config(object_store::gcp::GoogleConfigKey::Client(key), value);
                }
            }
            Arc::new(builder.build().map_err(failed)?)
        }
        _ => {
            let mut builder = MicrosoftAzureBuilder::from_env().with_container_name(bucket).with_retry(retries());
            for (key, variable, value) in client_defaults("AZURE") {
                if std::env::var_os(variable).is_none() {
                    builder = builder.with_config(object_store::azure::AzureConfigKey::Client(key), value);
                }
            }
            Arc::new(builder.build().map_err(failed)?)
        }
    };
    Ok((store, prefix.to_owned(), shown))
}

/// Scheme, bucket and prefix of a URL. What may hold a secret is refused and not repeated.
fn split(location: &str) -> Result<(&'static str, &str, &str), Failure> {
    let (scheme, rest) = location.split_once("://").unwrap_or(("", location));
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "s3" | "s3a" => "s3",
        "gs" | "gcs" => "gs",
        "az" | "azure" => "az",
        _ => {
            let message = "the location is neither a path nor a file://, s3://, gs:// or az:// URL";
            return Err(refused(message));
        }
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.contains('@') {
        let message = "the URL holds a user or password: credentials come from the environment, take them out";
        return Err(refused(message));
    }
    if rest.contains('?') {
        let message = "the URL holds a query, which may be a secret token: credentials come from the environment, \
                       take it out";
        return Err(refused(message));
    }
    if bucket.is_empty() {
        return Err(refused(format!("the URL names no bucket: write {scheme}://BUCKET/FOLDER")));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '$');
    if !bucket.chars().all(plain) {
        return Err(refused("the bucket's name has characters that bucket names do not have"));
    }
    Ok((scheme, bucket, prefix.trim_matches('/')))
}

/// An endpoint with a password in it would show in every error of the client.
fn check_environment() -> Result<(), Failure> {
    for (name, value) in std::env::vars_os() {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
        let ours = ["AWS_", "GOOGLE_", "AZURE_"].iter().any(|prefix| name.starts_with(prefix));
        let has_user = value
            .split_once("://")
            .is_some_and(|(_, rest)| rest.split_once('/').map_or(rest, |(authority, _)| authority).contains('@'));
        if ours && has_user && (name.contains("ENDPOINT") || name.contains("URL")) {
            return Err(refused(format!("the URL in {name} holds a user or password: take them out")));
        }
    }
    Ok(())
}

fn client_defaults(cloud: &str) -> [(ClientConfigKey, String, &'static str); 2] {
    [
        (ClientConfigKey::Timeout, format!("{cloud}_TIMEOUT"), REQUEST_TIMEOUT),
        (ClientConfigKey::ReadTimeout, format!("{cloud}_READ_TIMEOUT"), READ_TIMEOUT),
    ]
}

fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(8),
            base: 2.0,
        },
        max_retries: 6,
        retry_timeout: Duration::from_secs(60),
    }
}

pub(super) fn install_tls() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // Fails only if the process has chosen a provider already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_gives_scheme_bucket_and_prefix_as_they_are() {
        assert_eq!(split("s3://bucket/a b/%2e/c/"), Ok(("s3", "bucket", "a b/%2e/c")));
        assert_eq!(split("S3A://bucket"), Ok(("s3", "bucket", "")));
        assert_eq!(split("gs://bucket/"), Ok(("gs", "bucket", "")));
        assert_eq!(split("az://container/p"), Ok(("az", "container", "p")));
    }

    #[test]
    fn a_secret_in_a_url_is_refused_and_not_repeated() {
        for location in ["s3://AKIA:hunter2@bucket/p", "s3://bucket/p?sig=hunter2", "s3://hunter2@bucket"] {
            let failure = split(location).expect_err(location);
            assert_eq!(failure.class, FailureClass::Policy);
            assert!(!failure.to_string().contains("hunter2"), "{failure}");
        }
    }

    #[test]
    fn other_schemes_and_nameless_buckets_are_refused() {
        for location in ["ftp://host/p", "s3://", "s3:///p", "https://bucket/p", "s3://bu cket/p"] {
            assert_eq!(split(location).expect_err(location).class, FailureClass::Policy);
        }
    }
}
