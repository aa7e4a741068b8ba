//! Published migrations never change: a store that was migrated with other bytes, be it a comment's, refuses the next
//! migration, and with it the version that brings it.

use sqlx::migrate::Migrator;

/// The first 64 bits of each migration's checksum (SHA-384), in their order. A new migration adds a line here.
const POSTGRES: [&str; 35] = [
    "bf0570182c2de113",
    "2be0e4bd07895bbe",
    "c32db5868f17785e",
    "5b8aa53fcb57dd16",
    "36de0f7442569958",
    "ecc2ab320e4a5056",
    "b565595ab4d2f97b",
    "b12604ab6e83a4aa",
    "ed514aa8fab0f975",
    "04e9fb2bb94bd2a6",
    "4621f795fcd15344",
    "ada715f6180d438a",
    "8abc12a36446a62d",
    "a6f26c510e7c3c98",
    "8ab30653d986094c",
    "b644e88711fc2f95",
    "700f0abe77212660",
    "5cedcec708ff3b81",
    "1dba50dc1382e4b1",
    "912c63d57ba01368",
    "7c8f37fbffadb530",
    "76bf86e230253418",
    "25a343276d5ee76a",
    "5132cd67d0bed8e8",
    "16d53352b4f23738",
    "edde02c4e3fa12a7",
    "e9c61b7b4bcb33c6",
    "fb8fa3c948950410",
    "a69259a7919b7d5c",
    "3f472de70eeb265f",
    "23e64aaf38a7ac23",
    "f19df4278693d133",
    "fdbed40d0de0ecb7",
    "62715676803b04de",
    "34ec5ea7ce9180e3",
];
/// As [`POSTGRES`].
const SQLITE: [&str; 35] = [
    "b16b9ad3d625a4c3",
    "ea735384898d9ff7",
    "8f076406529b4447",
    "4f518597d24b63e3",
    "36de0f7442569958",
    "9c1d36c8a4a5b0da",
    "804ce49e8da31776",
    "2158a538fd17bdb1",
    "c522da0f37d31c06",
    "c522da0f37d31c06",
    "2a9aa71779f68898",
    "c522da0f37d31c06",
    "8b5d66b6b58defad",
    "ca5fc547076d7503",
    "e5323a180e97cb8c",
    "8740d773765d1bc0",
    "91295c5db82a77e3",
    "5cedcec708ff3b81",
    "3f33e13275b2d3dd",
    "a0b7ddaa9278c855",
    "74be99d655b803a4",
    "f43bc8940bfdb6e7",
    "e172f0a24a0b9c81",
    "e4fd8c8ab310aee1",
    "16d53352b4f23738",
    "df12736f9ec39bb5",
    "69c6b6843d7648ae",
    "dce8b6e7c00709e0",
    "a740dc66cd87db8f",
    "9095381960dfef1f",
    "d1b1b616d88aa169",
    "22fb0ca3b7a10ebe",
    "0435377b7866eba1",
    "1c693504823ec13d",
    "bea4265ed1d45d59",
];

fn checksums(migrations: &Migrator) -> Vec<String> {
    let first = |checksum: &[u8]| checksum.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    migrations.iter().map(|migration| first(&migration.checksum)).collect()
}

#[test]
fn published_migrations_are_as_they_were() {
    assert_eq!(checksums(&sqlx::migrate!("../../migrations/postgres")), POSTGRES);
    assert_eq!(checksums(&sqlx::migrate!("../../migrations/sqlite")), SQLITE);
}
