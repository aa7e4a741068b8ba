//! The server's side of a login: PLAIN (RFC 4616), and SCRAM (RFC 5802) with SHA-256 and SHA-512.
//!
//! In: what a client sends. Out: what it gets, and whether it is logged in. As brokers do, it keeps no password for SCRAM, but
//! what is made of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use sha2::{Digest as _, Sha256, Sha512};

const SALT: &[u8] = b"salt of this test";
const ITERATIONS: u32 = 4_096;
const SERVER_NONCE: &str = "nonce-of-the-front";

/// Who is let in.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) mechanism: &'static str,
    name: &'static str,
    password: &'static str,
    /// Of SCRAM alone.
    salted: Vec<u8>,
}

/// What the client gets, and whether that is all; or why it is not let in.
pub(super) type Step = Result<(Vec<u8>, bool), String>;

impl User {
    pub(crate) fn new(mechanism: &'static str, name: &'static str, password: &'static str) -> Self {
        let salted = if mechanism == "PLAIN" { Vec::new() } else { salted(mechanism, password, SALT) };
        Self { mechanism, name, password, salted }
    }
}

/// A login under way.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// The client's first message without its head, and the answer to it.
    first: Option<(String, String)>,
}

impl Exchange {
    /// Takes what a client sends.
    pub(super) fn step(&mut self, user: &User, token: &[u8]) -> Step {
        let refused = || format!("Authentication failed: no such user or password for {}", user.mechanism);
        let text = std::str::from_utf8(token).map_err(|_| refused())?;
        if user.mechanism == "PLAIN" {
            let wanted = format!("\0{}\0{}", user.name, user.password);
            return if text == wanted { Ok((Vec::new(), true)) } else { Err(refused()) };
        }
        let Some((first, answer)) = self.first.take() else {
            let bare = text.strip_prefix("n,,").ok_or_else(refused)?;
            let nonce = bare.strip_prefix(&format!("n={},r=", user.name)).ok_or_else(refused)?;
            let salt = STANDARD.encode(SALT);
            let answer = format!("r={nonce}{SERVER_NONCE},s={salt},i={ITERATIONS}");
            self.first = Some((bare.to_owned(), answer.clone()));
            return Ok((answer.into_bytes(), false));
        };
        let (without_proof, proof) = text.split_once(",p=").ok_or_else(refused)?;
        let nonce = answer.split(',').next().unwrap_or_default();
        let all = format!("{first},{answer},{without_proof}");
        let of = |key: &[u8], data: &[u8]| mac(user.mechanism, key, data);
        let client_key = of(&user.salted, b"Client Key");
        let signature = of(&hash(user.mechanism, &client_key), all.as_bytes());
        let wanted: Vec<u8> = client_key.iter().zip(&signature).map(|(one, other)| one ^ other).collect();
        if without_proof != format!("c=biws,{nonce}") || STANDARD.decode(proof).ok() != Some(wanted) {
            return Err(refused());
        }
        let server_key = of(&user.salted, b"Server Key");
        let verifier = STANDARD.encode(of(&server_key, all.as_bytes()));
        Ok((format!("v={verifier}").into_bytes(), true))
    }
}

fn mac(mechanism: &str, key: &[u8], data: &[u8]) -> Vec<u8> {
    if mechanism == "SCRAM-SHA-512" {
        let mut mac = Hmac::<Sha512>::new_from_slice(key).unwrap();
        mac.update(data);
        mac.finalize().into_bytes().to_vec()
    } else {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
        mac.update(data);
        mac.finalize().into_bytes().to_vec()
    }
}

fn hash(mechanism: &str, data: &[u8]) -> Vec<u8> {
    if mechanism == "SCRAM-SHA-512" { Sha512::digest(data).to_vec() } else { Sha256::digest(data).to_vec() }
}

/// `Hi` of RFC 5802.
fn salted(mechanism: &str, password: &str, salt: &[u8]) -> Vec<u8> {
    let mut last = mac(mechanism, password.as_bytes(), &[salt, &[0, 0, 0, 1][..]].concat());
    let mut all = last.clone();
    for _ in 1..ITERATIONS {
        last = mac(mechanism, password.as_bytes(), &last);
        for (one, other) in all.iter_mut().zip(&last) {
            *one ^= other;
        }
    }
    all
}

/// The example of RFC 7677.
#[test]
fn a_proof_is_that_of_the_specification_s_example() {
    let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
    let salted = salted("SCRAM-SHA-256", "pencil", &salt);
    let message = "n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                   s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    let key = mac("SCRAM-SHA-256", &salted, b"Client Key");
    let signature = mac("SCRAM-SHA-256", &hash("SCRAM-SHA-256", &key), message.as_bytes());
    let proof: Vec<u8> = key.iter().zip(&signature).map(|(one, other)| one ^ other).collect();
    assert_eq!(STANDARD.encode(proof), "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
}
