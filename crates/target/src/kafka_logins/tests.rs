//! A file says who speaks to which brokers, and each of its faults names its place.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;

/// A folder with what files name, and nothing of it is good for anything.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("ca.pem", "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"),
        ("client.key", "-----BEGIN EC PRIVATE KEY-----\nAA==\n-----END EC PRIVATE KEY-----\n"),
        ("locked.key", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----\n"),
        ("password", "gehe im\r\n"),
        ("empty", "\n"),
        ("lines", "gehe\nim\n"),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

const GOOD: &str = "clusters:
  - bootstrapServers: ['a:9093', 'b:9093']
    namespaces: [team]
    tls: {caFile: ca.pem, certificateFile: ca.pem, keyFile: client.key}
    login: {mechanism: SCRAM-SHA-512, user: tollgate, passwordFile: password}
  - bootstrapServers: ['c:9093']
    tls: {}
  - bootstrapServers: ['A:9093']
    namespaces: [other]
    tls: {}
    login: {mechanism: PLAIN, user: other, passwordFile: password}
";

#[test]
fn each_broker_is_spoken_to_as_its_cluster_is_and_the_others_in_the_clear() {
    let folder = folder();
    let logins = KafkaLogins::parse(GOOD, folder.path()).unwrap();
    let of = |servers: &[&'static str], namespace: &str| logins.of(servers.iter().copied(), namespace);
    let access = of(&["B.:09093", "a:9093"], "team").unwrap();
    let tls = access.tls.as_ref().unwrap();
    assert_eq!(tls.ca_file.as_deref(), Some(folder.path().join("ca.pem").as_path()));
    let (certificate, key) = tls.identity.as_ref().unwrap();
    assert!(certificate.ends_with("ca.pem") && key.ends_with("client.key"), "{tls:?}");
    let login = access.login.as_ref().unwrap();
    assert_eq!((login.mechanism, login.user.as_str()), ("SCRAM-SHA-512", "tollgate"));
    assert_eq!(login.password.reveal(), "gehe im");
    let other = of(&["a:9093"], "other").unwrap();
    assert_eq!(other.login.as_ref().unwrap().user, "other");
    assert_ne!(access, other);
    let system = of(&["c:9093"], "anybody").unwrap();
    assert_eq!(system.tls.as_ref().unwrap().ca_file, None);
    assert_eq!(system.login, None);
    assert_eq!(of(&["d:9092", "a:9092"], "team").unwrap(), Arc::default());
    assert_eq!(KafkaLogins::default().of(["a:9093"], "team").unwrap(), Arc::default());
    for (servers, namespace, said) in [
        (
            &["b:9093"][..],
            "other",
            "`b:9093` is of a cluster of the setting kafka_logins_file that is not for the namespace other",
        ),
        (
            &["a:9093", "c:9093"][..],
            "team",
            "`a:9093` and `c:9093` are not of one cluster of the setting kafka_logins_file",
        ),
        (
            &["d:9092", "c:9093"][..],
            "team",
            "`d:9092` and `c:9093` are not of one cluster of the setting kafka_logins_file",
        ),
    ] {
        assert_eq!(of(servers, namespace), Err(said.to_owned()));
    }
    assert_eq!(logins.fault_at("a:9093", "team"), None);
    assert!(logins.fault_at("a:9093", "third").is_some());
    assert!(!format!("{logins:?}").contains("gehe"), "a password is shown nowhere");
}

/// A cluster's members, and what is wrong with them; files are shown as they are named.
const FAULTS: &[(&str, &[&str])] = &[
    (
        "bootstrapServers: []\n    tls: {}",
        &["clusters[0].bootstrapServers: 0 are not allowed, expected 1 to 100"],
    ),
    (
        "bootstrapServers: [a, 'a b:1', 'a:1', 'A.:01', '::1:9093', 'c:+1', '[::2]:9093']\n    tls: {}",
        &[
            "clusters[0].bootstrapServers[0]: \"a\" is not allowed, expected a host and a port, such as \
             kafka-1.example:9093 or [::1]:9093",
            "clusters[0].bootstrapServers[1]: \"a b:1\" is not allowed, expected a host and a port, such as \
             kafka-1.example:9093 or [::1]:9093",
            "clusters[0].bootstrapServers[4]: \"::1:9093\" is not allowed, expected a host and a port, such as \
             kafka-1.example:9093 or [::1]:9093",
            "clusters[0].bootstrapServers[5]: \"c:+1\" is not allowed, expected a host and a port, such as \
             kafka-1.example:9093 or [::1]:9093",
            "clusters[0].bootstrapServers[6]: \"[::2]:9093\" is not allowed with tls, expected a name: Kafka's client \
             believes no certificate for an address in brackets",
            "clusters[0].bootstrapServers[3]: \"A.:01\" is there twice",
        ],
    ),
    (
        "bootstrapServers: ['a:1']\n    namespaces: []\n    tls: {}",
        &[
            "clusters[0].namespaces: 0 are not allowed, expected 1 to 1000; all may use it where it is left out",
        ],
    ),
    (
        "bootstrapServers: ['a:1']\n    namespaces: [team, Team]\n    tls: {}",
        &[
            "clusters[0].namespaces[1]: \"Team\" is not allowed, expected 1 to 63 characters of a-z, 0-9, ., _ and -",
        ],
    ),
    (
        "bootstrapServers: ['a:1']",
        &[
            "clusters[0].tls: is missing, and so is login; brokers that are in no cluster are spoken to in the clear",
        ],
    ),
    (
        "bootstrapServers: ['a:1']\n    tls: {caFile: nowhere, certificateFile: password}",
        &[
            "clusters[0].tls.caFile: cannot read nowhere: No such file or directory",
            "clusters[0].tls.certificateFile: password holds no CERTIFICATE, expected a PEM file",
            "clusters[0].tls.keyFile: is missing: it goes with certificateFile",
        ],
    ),
    (
        "bootstrapServers: ['a:1']\n    tls: {keyFile: locked.key}",
        &[
            "clusters[0].tls.keyFile: locked.key is encrypted, expected a key without a pass phrase",
            "clusters[0].tls.certificateFile: is missing: it goes with keyFile",
        ],
    ),
    (
        "bootstrapServers: ['a:1']\n    tls: {certificateFile: ca.pem, keyFile: ca.pem}",
        &["clusters[0].tls.keyFile: ca.pem holds no PRIVATE KEY, expected a PEM file"],
    ),
    (
        "bootstrapServers: ['a:1']\n    login: {mechanism: PLAIN, user: me, passwordFile: password}",
        &[
            "clusters[0].login.mechanism: PLAIN is not allowed without tls, as it sends the password itself; expected \
           tls beside it, or SCRAM-SHA-256 or SCRAM-SHA-512",
        ],
    ),
    (
        "bootstrapServers: ['a:1']\n    login: {mechanism: GSSAPI, user: '', passwordFile: empty}",
        &[
            "clusters[0].login.mechanism: \"GSSAPI\" is not allowed, expected one of PLAIN, SCRAM-SHA-256, \
             SCRAM-SHA-512",
            "clusters[0].login.user: \"\" is not allowed, expected 1 to 255 characters, none of them a control \
             character",
            "clusters[0].login.passwordFile: empty is empty, expected a password",
        ],
    ),
    (
        "bootstrapServers: ['a:1']\n    login: {mechanism: SCRAM-SHA-256, user: me, passwordFile: lines}",
        &[
            "clusters[0].login.passwordFile: lines has more than one line or control characters, expected a password",
        ],
    ),
    (
        "bootstrapServers: ['a:1']\n    tls: {}\n  - bootstrapServers: ['b:1', 'A:1']\n    namespaces: [team]\n    tls: {}",
        &[
            "clusters[1].bootstrapServers[1]: \"A:1\" is in clusters[0], too, and each namespace has one way to speak to \
           a broker",
        ],
    ),
];

#[test]
fn each_fault_names_its_place_its_value_and_what_is_allowed() {
    let folder = folder();
    let path = format!("{}/", folder.path().display());
    for (members, expected) in FAULTS {
        let text = format!("clusters:\n  - {members}\n");
        let wrong = KafkaLogins::parse(&text, folder.path()).unwrap_err();
        let wrong: Vec<String> = wrong.iter().map(|said| said.replace(&path, "")).collect();
        assert_eq!(wrong, *expected, "{text}");
        assert!(!wrong.join("").contains("gehe"), "a password is not repeated: {wrong:?}");
    }
    let none = KafkaLogins::parse("clusters: []", folder.path()).unwrap_err();
    assert_eq!(none, ["clusters: 0 are not allowed, expected 1 to 100"]);
}

#[test]
fn what_is_not_known_is_refused_with_its_line() {
    for (members, word) in [
        ("servers: ['a:1']", "servers"),
        ("bootstrapServers: ['a:1']\n    tls: {verify: false}", "verify"),
        ("bootstrapServers: ['a:1']\n    login: {mechanism: PLAIN, user: me, password: geheim}", "password"),
    ] {
        let text = format!("clusters:\n  - {members}\n");
        let wrong = KafkaLogins::parse(&text, Path::new("")).unwrap_err().join("\n");
        assert!(wrong.contains(word) && wrong.contains("line "), "{wrong}");
        assert!(!wrong.contains("geheim"), "a password is not repeated: {wrong}");
    }
}

#[test]
fn a_member_with_nothing_behind_it_is_never_as_if_it_were_left_out() {
    type IsOpen = fn(&Cluster) -> bool;
    let folder = folder();
    let members: [(&str, IsOpen); 3] = [
        ("tls:", |cluster| cluster.access.tls.is_none()),
        ("tls: {}\n    login:", |cluster| cluster.access.login.is_none()),
        ("tls: {}\n    namespaces:", |cluster| cluster.namespaces.is_none()),
    ];
    for (members, is_open) in members {
        let text = format!("clusters:\n  - bootstrapServers: ['a:1']\n    {members}\n");
        if let Ok(logins) = KafkaLogins::parse(&text, folder.path()) {
            assert!(!logins.0.iter().any(is_open), "{text}");
        }
    }
}

#[test]
fn a_file_that_is_not_there_is_told_with_its_name() {
    let wrong = KafkaLogins::read(Path::new("nowhere/logins.yaml")).unwrap_err();
    assert_eq!(wrong, ["cannot read nowhere/logins.yaml: No such file or directory"]);
}
