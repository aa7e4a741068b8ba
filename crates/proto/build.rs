//! Compiles `proto/tollgate/v1` without protoc: messages, clients, servers, and the descriptors that reflection and
//! the JSON mapping read.

use std::path::{Path, PathBuf};
use std::{env, error, fs};

use prost::Message as _;

const FILES: [&str; 9] = [
    "tollgate/v1/corrupt_row.proto",
    "tollgate/v1/policy.proto",
    "tollgate/v1/schedule.proto",
    "tollgate/v1/run.proto",
    "tollgate/v1/event.proto",
    "tollgate/v1/schedule_master.proto",
    "tollgate/v1/event_emitter.proto",
    "tollgate/v1/event_handler.proto",
    "tollgate/v1/handler_peer.proto",
];

fn main() -> Result<(), Box<dyn error::Error>> {
    let root = Path::new("../../proto");
    println!("cargo::rerun-if-changed={}", root.join("tollgate").display());
    let descriptors = protox::compile(FILES, [root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("tollgate.v1.bin"), descriptors.encode_to_vec())?;

    let mut messages = tonic_prost_build::Config::new();
    messages.enable_type_names();
    // Ordered maps: the same message is the same bytes and the same text.
    messages.btree_map(["."]);
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        .compile_fds_with_config(descriptors, messages)?;
    Ok(())
}
