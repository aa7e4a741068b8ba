//! An authority that a test makes for itself, and what it signs: the brokers' certificate, and those of clients.

use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// An authority.
pub(crate) struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// `{name}.pem`, its own certificate.
    pub(crate) fn write(&self, folder: &Path, name: &str) {
        std::fs::write(folder.join(format!("{name}.pem")), self.certificate.pem()).unwrap();
    }

    /// `{name}.pem` and `{name}.key`, of a client.
    pub(crate) fn write_client(&self, folder: &Path, name: &str) {
        let (certificate, key) = self.issue(name, ExtendedKeyUsagePurpose::ClientAuth);
        std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    /// What a broker at 127.0.0.1 speaks TLS by; it may ask its clients for a certificate of the same authority.
    pub(crate) fn server(&self, asks_clients: bool) -> Arc<ServerConfig> {
        let (certificate, key) = self.issue("127.0.0.1", ExtendedKeyUsagePurpose::ServerAuth);
        let provider = Arc::new(default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if asks_clients {
            let mut roots = RootCertStore::empty();
            roots.add(self.certificate.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Arc::new(builder.with_single_cert(vec![certificate.der().clone()], key).unwrap())
    }

    fn issue(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> (Certificate, KeyPair) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate, key)
    }
}
