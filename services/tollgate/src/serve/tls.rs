//! Decides with which certificate the port speaks, whose certificates it takes, and what other processes are shown.
//!
//! In: PEM files. Out: a rustls configuration for each handshake, read anew within seconds when a file has changed; and how
//! this process speaks to others. Invariant: files that cannot be used, a certificate that has expired among them, change
//! nothing, and are named in the log.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use sha2::{Digest as _, Sha256};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_util::sync::CancellationToken;
use tollgate_metrics::Metrics;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};
use webpki::EndEntityCert;

use crate::config::ServeConfig;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(2);

/// A certificate that ends within this time (a week) is named in the log.
const SOON_S: i64 = 7 * 86_400;
/// The end of the year 9999, after which no certificate ends, in seconds since the epoch.
const LAST_S: u64 = 253_402_300_800;

/// Where the certificates are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Files {
    certificate: String,
    key: String,
    client_ca: Option<String>,
}

/// What the files hold.
#[derive(Clone, PartialEq, Eq)]
struct Texts {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// TLS of the port.
pub(super) struct Tls {
    files: Files,
    current: RwLock<(Texts, Arc<ServerConfig>)>,
}

impl Files {
    /// None where the port speaks plain HTTP.
    pub(super) fn of(config: &ServeConfig) -> Option<Self> {
        Some(Self {
            certificate: config.tls_cert.clone()?,
            key: config.tls_key.clone()?,
            client_ca: config.tls_client_ca.clone(),
        })
    }

    fn read(&self) -> anyhow::Result<Texts> {
        Ok(Texts {
            certificate: read("tls_cert", &self.certificate)?,
            key: read("tls_key", &self.key)?,
            client_ca: self.client_ca.as_ref().map(|file| read("tls_client_ca", file)).transpose()?,
        })
    }
}

fn read(setting: &str, file: &str) -> anyhow::Result<Vec<u8>> {
    std::fs::read(Path::new(file)).with_context(|| format!("{setting}: {file:?} cannot be read"))
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// The file that cannot be used, and why.
    pub(super) fn load(files: Files) -> anyhow::Result<Self> {
        let texts = files.read()?;
        let config = server_config(&files, &texts)?;
        // There is no other one to stay with, and events are to be fired all the same.
        if let Err(error) = good_now(&files, &texts, UnixTime::now()) {
            tracing::error!("clients will refuse to connect: {error:#}");
        }
        Ok(Self { files, current: RwLock::new((texts, config)) })
    }

    /// For the next handshake.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.current.read().unwrap_or_else(PoisonError::into_inner).1.clone())
    }

    /// Takes changed files up until `stop`.
    pub(super) async fn watch(self: Arc<Self>, metrics: Metrics, stop: CancellationToken) {
        let (mut refused, mut told_s) = (String::new(), None);
        loop {
            let end_s = self.end_s();
            if let Some(end_s) = end_s {
                metrics.certificate_ends(end_s);
            }
            metrics.certificate_stale(!refused.is_empty());
            let left_s = end_s.map(|end_s| end_s.saturating_sub_unsigned(UnixTime::now().as_secs()));
            if left_s.is_some_and(|left_s| left_s < SOON_S) && told_s != end_s {
                let at = end_s.map(moment);
                tracing::warn!(
                    at,
                    "the port's certificate ends soon, or has ended, and there is no other one"
                );
                told_s = end_s;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            match self.look() {
                Ok(changed) => {
                    if changed {
                        tracing::info!("the TLS certificates have changed; new connections get the new ones");
                    }
                    refused.clear();
                }
                Err(error) => {
                    let text = format!("{error:#}");
                    if text != refused {
                        tracing::warn!("the TLS certificates stay as they were: {text}");
                        refused = text;
                    }
                }
            }
        }
    }

    /// When the port's certificate ends, in seconds since the epoch.
    fn end_s(&self) -> Option<i64> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        let chain = certificates("tls_cert", &self.files.certificate, &current.0.certificate).ok()?;
        let parsed = EndEntityCert::try_from(chain.first()?).ok()?;
        // Nothing else says it: when all have ended, this one has, and its end is in the refusal.
        let last = UnixTime::since_unix_epoch(Duration::from_secs(LAST_S));
        match check(&parsed, last) {
            Err(webpki::Error::CertExpired { not_after, .. }) => i64::try_from(not_after.as_secs()).ok(),
            _ => None,
        }
    }

    fn look(&self) -> anyhow::Result<bool> {
        let texts = self.files.read()?;
        if self.current.read().unwrap_or_else(PoisonError::into_inner).0 == texts {
            return Ok(false);
        }
        let config = server_config(&self.files, &texts)?;
        good_now(&self.files, &texts, UnixTime::now())?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = (texts, config);
        Ok(true)
    }
}

fn certificates(setting: &str, file: &str, text: &[u8]) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let found = found.map_err(|error| anyhow::anyhow!("{setting}: {file:?} is not PEM: {error}"))?;
    ensure!(!found.is_empty(), "{setting}: {file:?} holds no certificate");
    Ok(found)
}

/// Whether the port's certificate is good at a time; its issuer does not matter.
fn good_now(files: &Files, texts: &Texts, now: UnixTime) -> anyhow::Result<()> {
    let chain = certificates("tls_cert", &files.certificate, &texts.certificate)?;
    let Some(own) = chain.first() else { return Ok(()) };
    let parsed = EndEntityCert::try_from(own)
        .with_context(|| format!("tls_cert: {:?} cannot be read", files.certificate))?;
    match check(&parsed, now) {
        Err(webpki::Error::CertExpired { not_after, .. }) => {
            bail!("tls_cert: {:?} has expired, at {}", files.certificate, moment_of(not_after))
        }
        Err(webpki::Error::CertNotValidYet { not_before, .. }) => {
            bail!("tls_cert: {:?} is not valid yet, but from {} on", files.certificate, moment_of(not_before))
        }
        _ => Ok(()),
    }
}

/// Checks a certificate's time, which is looked at before anything else: nobody's signature is known here.
fn check(certificate: &EndEntityCert<'_>, now: UnixTime) -> Result<(), webpki::Error> {
    let usage = webpki::KeyUsage::server_auth();
    certificate.verify_for_usage(&[], &[], &[], now, usage, None, None).map(drop)
}

fn moment_of(at: UnixTime) -> String {
    moment(i64::try_from(at.as_secs()).unwrap_or(i64::MAX))
}

fn moment(at_s: i64) -> String {
    let at = chrono::DateTime::from_timestamp(at_s, 0);
    at.map_or_else(|| "a time far away".to_owned(), |at| at.to_rfc3339())
}

fn server_config(files: &Files, texts: &Texts) -> anyhow::Result<Arc<ServerConfig>> {
    let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
    let chain = certificates("tls_cert", &files.certificate, &texts.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&texts.key)
        .map_err(|error| anyhow::anyhow!("tls_key: {:?} holds no private key: {error}", files.key))?;
    let builder =
        ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let builder = match (&files.client_ca, &texts.client_ca) {
        (Some(file), Some(text)) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates("tls_client_ca", file, text)? {
                roots.add(certificate).with_context(|| format!("tls_client_ca: {file:?} cannot be used"))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.with_context(|| format!("tls_client_ca: {file:?}"))?)
        }
        _ => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).with_context(|| {
        format!("tls_cert {:?} and tls_key {:?} cannot be used", files.certificate, files.key)
    })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Whose a verified certificate is: its first URI, else its first DNS name, else the start of its fingerprint.
pub(super) fn name_of(certificate: &CertificateDer<'_>) -> Arc<str> {
    let fingerprint = || {
        let mut text = "certificate-".to_owned();
        for byte in Sha256::digest(certificate).iter().take(8) {
            // Writing to a text does not fail.
            let _written = write!(text, "{byte:02x}");
        }
        text
    };
    let Ok(parsed) = EndEntityCert::try_from(certificate) else { return fingerprint().into() };
    let named = parsed.valid_uri_names().next().or_else(|| parsed.valid_dns_names().next());
    named.map_or_else(fingerprint, str::to_owned).into()
}

/// How this process speaks to others of the installation over https: whom it believes, and what it shows.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn to_others(config: &ServeConfig) -> anyhow::Result<ClientTlsConfig> {
    let mut tls = ClientTlsConfig::new();
    tls = match config.tls_ca.as_ref().map(|file| read("tls_ca", file)).transpose()? {
        Some(text) => tls.ca_certificate(Certificate::from_pem(text)),
        None => tls.with_enabled_roots(),
    };
    if let Some(files) = Files::of(config).filter(|files| files.client_ca.is_some()) {
        let texts = files.read()?;
        tls = tls.identity(Identity::from_pem(texts.certificate, texts.key));
    }
    Ok(tls)
}
