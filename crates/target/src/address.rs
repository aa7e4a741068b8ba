//! Decides which addresses deliveries may go to.
//!
//! In: a host, as it stands in a URL, or an address to which a name resolved. Out: leave, or a refusal with its reason.
//! The check stands in the resolver, so that what is checked is what is connected to, at every connection: a name that
//! resolves to a public address now and to a private one a second later (DNS rebinding) gains nothing. Host texts that are
//! addresses never reach a resolver, so they are checked on their own. What is not here: which ports, which schemes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use aws_smithy_runtime_api::client::dns::{DnsFuture, ResolveDns, ResolveDnsError};

use crate::names::Names;

/// Whether deliveries may go to addresses that are not public.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PrivateAddresses {
    /// They are refused.
    #[default]
    Refuse,
    /// They are as good as any other.
    Allow,
    /// Only those in these networks.
    AllowNetworks(Vec<Network>),
}

/// `refuse`, `allow`, or a comma list of networks such as `10.0.0.0/8,fd00::/8`.
impl FromStr for PrivateAddresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim() {
            "refuse" => Ok(Self::Refuse),
            "allow" => Ok(Self::Allow),
            list => list
                .split(',')
                .map(|item| item.trim().parse())
                .collect::<Result<_, _>>()
                .map(Self::AllowNetworks),
        }
    }
}

/// A range of addresses: those that share their first `prefix` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// The network of an address and a prefix length in bits; none where the prefix is longer than the address.
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        (prefix <= bits(address)).then_some(Self { address, prefix })
    }

    /// Whether the address lies in the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros() >= u32::from(self.prefix)
            }
            _ => false,
        }
    }
}

/// `10.0.0.0/8`; an address alone is the network of that one address.
impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong =
            || format!("network: `{text}` is not an address, or an address, a slash and a prefix length");
        let (address, prefix) =
            text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let prefix = prefix.map_or(Ok(bits(address)), str::parse).map_err(|_| wrong())?;
        Self::new(address, prefix).ok_or_else(wrong)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Why nothing is sent to an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "host {host}: {address} is a {kind} address; deliveries go to public addresses, and to others only where they are configured"
)]
pub(crate) struct AddressRefused {
    host: String,
    address: IpAddr,
    kind: &'static str,
}

/// The check, and a resolver that makes it.
#[derive(Clone, Debug)]
pub(crate) struct Guard(Arc<PrivateAddresses>);

impl Guard {
    pub(crate) fn new(allowed: PrivateAddresses) -> Self {
        Self(Arc::new(allowed))
    }

    /// Checks a host that is an address itself; with or without the brackets of a URL. Names pass: they are checked
    /// when they are resolved, and so are the spellings of addresses that only the resolver knows (`0x7f.1`).
    pub(crate) fn check_host(&self, host: &str) -> Result<(), AddressRefused> {
        let text = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        text.parse().map_or(Ok(()), |address| self.check(host, address))
    }

    /// Those of the addresses of a name that may be connected to. They are judged each time.
    pub(crate) fn admit(&self, host: &str, found: &[IpAddr]) -> Result<Vec<IpAddr>, AddressRefused> {
        let mut refused = None;
        let mut allowed = Vec::new();
        for address in found {
            match self.check(host, *address) {
                Ok(()) => allowed.push(*address),
                Err(refusal) => refused = Some(refusal),
            }
        }
        match refused {
            Some(refusal) if allowed.is_empty() => Err(refusal),
            _ => Ok(allowed),
        }
    }

    fn check(&self, host: &str, address: IpAddr) -> Result<(), AddressRefused> {
        let address = address.to_canonical();
        let Some(kind) = kind(address) else { return Ok(()) };
        // What gives out a machine's credentials is opened by its own name only, not by a network around it.
        let opens = |network: &Network| {
            network.contains(address) && (kind != METADATA || network.prefix == bits(address))
        };
        let allowed = match &*self.0 {
            PrivateAddresses::Allow => true,
            PrivateAddresses::Refuse => false,
            PrivateAddresses::AllowNetworks(networks) => networks.iter().any(opens),
        };
        if allowed { Ok(()) } else { Err(AddressRefused { host: host.to_owned(), address, kind }) }
    }
}

/// Names, of whose addresses only those that may be reached are found.
#[derive(Clone, Debug)]
pub(crate) struct GuardedNames {
    pub(crate) guard: Guard,
    pub(crate) names: Names,
}

impl GuardedNames {
    /// The addresses of a name that may be connected to, at the charge of a namespace.
    pub(crate) async fn resolve(
        &self,
        host: &str,
        namespace: &str,
    ) -> Result<Vec<IpAddr>, Box<dyn std::error::Error + Send + Sync>> {
        let found = self.names.find(host, namespace).await?;
        Ok(self.guard.admit(host, &found)?)
    }
}

impl ResolveDns for GuardedNames {
    fn resolve_dns<'a>(&'a self, name: &'a str) -> DnsFuture<'a> {
        DnsFuture::new(async move { self.resolve(name, "").await.map_err(ResolveDnsError::new) })
    }
}

/// Where clouds tell a machine its credentials.
const METADATA: &str = "cloud metadata";

/// IANA's special-purpose IPv4 registry, as far as an address there is not globally reachable.
const SPECIAL_V4: &[(Ipv4Addr, u8, &str)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8, "unspecified"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "carrier NAT"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    // Azure's, though it lies among the public ones; the others are link-local.
    (Ipv4Addr::new(168, 63, 129, 16), 32, METADATA),
    (Ipv4Addr::new(169, 254, 169, 254), 32, METADATA),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "protocol"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "6to4 relay"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "benchmark"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

/// The same for IPv6.
const SPECIAL_V6: &[(Ipv6Addr, u8, &str)] = &[
    (Ipv6Addr::UNSPECIFIED, 128, "unspecified"),
    (Ipv6Addr::LOCALHOST, 128, "loopback"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "private NAT64"),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, "discard"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "protocol"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "documentation"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "documentation"),
    (Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16, "segment routing"),
    // Amazon's.
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128, METADATA),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "unique-local"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "site-local"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

/// What kind of address it is, where it is not a public one.
fn kind(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(_) => SPECIAL_V4
            .iter()
            .find(|(start, prefix, _)| {
                Network { address: (*start).into(), prefix: *prefix }.contains(address)
            })
            .map(|(_, _, kind)| *kind),
        IpAddr::V6(v6) => SPECIAL_V6
            .iter()
            .find(|(start, prefix, _)| {
                Network { address: (*start).into(), prefix: *prefix }.contains(address)
            })
            .map(|(_, _, kind)| *kind)
            .or_else(|| kind(embedded(v6)?.into())),
    }
}

/// The IPv4 address that a translator would make of an IPv6 address: IPv4-mapped, IPv4-compatible, IPv4-translated
/// (`::ffff:0:a.b.c.d`, RFC 2765), NAT64, 6to4.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, ..] = address.segments();
    let bits = address.to_bits();
    // The shifts leave 32 bits.
    match (a, b) {
        (0x2002, _) => Some(Ipv4Addr::from_bits((u32::from(b) << 16) | u32::from(c))),
        (0x64, 0xff9b) => Some(Ipv4Addr::from_bits(low(bits))),
        _ if bits >> 32 == 0xffff_0000 => Some(Ipv4Addr::from_bits(low(bits))),
        _ if bits >> 32 == 0 => Some(Ipv4Addr::from_bits(low(bits))),
        _ => address.to_ipv4_mapped(),
    }
}

fn low(bits: u128) -> u32 {
    let [.., a, b, c, d] = bits.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn addresses_that_are_not_public_are_refused_in_every_dress() {
        let guard = Guard::new(PrivateAddresses::Refuse);
        for host in [
            "127.0.0.1",
            "127.8.9.1",
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "169.254.169.254",
            "168.63.129.16",
            "[::ffff:168.63.129.16]",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "192.0.0.8",
            "198.19.0.1",
            "224.0.0.1",
            "239.255.255.255",
            "255.255.255.255",
            "[::]",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:a9fe:a9fe]",
            "[::7f00:1]",
            "[fe80::1]",
            "[fec0::1]",
            "[fd00:ec2::254]",
            "[fc00::1]",
            "[ff02::1]",
            "[64:ff9b::10.0.0.1]",
            "[64:ff9b::169.254.169.254]",
            "[64:ff9b::7f00:1]",
            "[::ffff:0:127.0.0.1]",
            "[::ffff:0:a00:1]",
            "[2002:a9fe:a9fe::]",
            "[2002:c0a8:1::1]",
            "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
            "[3fff::1]",
            "[5f00::1]",
            "[64:ff9b:1::1]",
            "[2002:7f00:1::]",
            "[2001:0:1::1]",
            "[2001:db8::1]",
            "[100::1]",
        ] {
            assert!(guard.check_host(host).is_err(), "{host}");
        }
        for host in [
            "1.1.1.1",
            "168.63.129.15",
            "168.63.129.17",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "169.253.0.1",
            "223.255.255.255",
            "[2606:4700::1111]",
            "[64:ff9b::1.1.1.1]",
            "[::ffff:1.1.1.1]",
            "[::ffff:0:1.1.1.1]",
            "[2002:101:101::]",
            "example.com",
        ] {
            assert!(guard.check_host(host).is_ok(), "{host}");
        }
    }

    #[test]
    fn a_name_is_judged_by_what_it_resolves_to_now() {
        let guard = Guard::new(PrivateAddresses::Refuse);
        let at = |ip: &str| ip.parse::<IpAddr>().unwrap();
        let admit = |ips: &[&str]| {
            let found: Vec<IpAddr> = ips.iter().map(|ip| at(ip)).collect();
            guard.admit("rebind.example", &found)
        };
        assert_eq!(admit(&["1.1.1.1"]).unwrap(), [at("1.1.1.1")]);
        // The same name, a second later.
        let refusal = admit(&["127.0.0.1"]).unwrap_err().to_string();
        assert!(refusal.contains("rebind.example") && refusal.contains("loopback"), "{refusal}");
        // Of several, only the public ones are left to connect to.
        let mixed = ["169.254.169.254", "1.1.1.1", "::1", "fd00::1", "64:ff9b::a00:1"];
        assert_eq!(admit(&mixed).unwrap(), [at("1.1.1.1")]);
        assert!(admit(&["::ffff:10.0.0.1", "fe80::1"]).is_err());
    }

    #[test]
    fn configured_networks_open_only_themselves() {
        let guard = Guard::new("10.0.0.0/8, 127.0.0.1,fd00::/8".parse().unwrap());
        for (host, allowed) in [
            ("10.255.0.1", true),
            ("127.0.0.1", true),
            ("127.0.0.2", false),
            ("[::ffff:10.0.0.1]", true),
            ("[fd12::1]", true),
            ("[fd00:ec2::254]", false),
            ("[fc00::1]", false),
            ("[::1]", false),
            ("192.168.0.1", false),
            ("1.1.1.1", true),
        ] {
            assert_eq!(guard.check_host(host).is_ok(), allowed, "{host}");
        }
        assert!(Guard::new(PrivateAddresses::Allow).check_host("[::1]").is_ok());
        let wide = Guard::new("169.254.0.0/16,168.0.0.0/8".parse().unwrap());
        assert!(wide.check_host("169.254.1.1").is_ok());
        assert!(wide.check_host("169.254.169.254").is_err() && wide.check_host("168.63.129.16").is_err());
        let named = Guard::new("169.254.169.254".parse().unwrap());
        assert!(named.check_host("169.254.169.254").is_ok());
    }

    #[test]
    fn networks_are_read_or_refused_with_their_text() {
        assert_eq!("refuse".parse(), Ok(PrivateAddresses::Refuse));
        assert_eq!("allow".parse(), Ok(PrivateAddresses::Allow));
        assert_eq!("10.0.0.0/8".parse::<Network>().unwrap().to_string(), "10.0.0.0/8");
        assert!("0.0.0.0/0".parse::<Network>().unwrap().contains("9.9.9.9".parse().unwrap()));
        for text in ["", "10.0.0.0/33", "10.0.0/8", "10.0.0.0/", "::/129", "10.0.0.0/8/8", "yes"] {
            assert!(text.parse::<PrivateAddresses>().unwrap_err().contains('`'), "{text}");
        }
    }
}
