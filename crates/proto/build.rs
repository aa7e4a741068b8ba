//! Compiles `proto/tollgate/v1` without protoc: messages, clients, servers, and the descriptors that reflection, the
//! JSON mapping and the gateway read.

use std::path::{Path, PathBuf};
use std::{env, error, fs};

const FILES: [&str; 20] = [
    "tollgate/v1/corrupt_row.proto",
    "tollgate/v1/policy.proto",
    "tollgate/v1/schedule.proto",
    "tollgate/v1/run.proto",
    "tollgate/v1/event.proto",
    "tollgate/v1/trouble.proto",
    "tollgate/v1/history.proto",
    "tollgate/v1/warning.proto",
    "tollgate/v1/alert.proto",
    "tollgate/v1/calendar.proto",
    "tollgate/v1/failure.proto",
    "tollgate/v1/submission.proto",
    "tollgate/v1/many_schedules.proto",
    "tollgate/v1/schedule_master.proto",
    "tollgate/v1/event_emitter.proto",
    "tollgate/v1/event_handler.proto",
    "tollgate/v1/worker.proto",
    "tollgate/v1/handler_peer.proto",
    "google/rpc/status.proto",
    "google/rpc/error_details.proto",
];

fn main() -> Result<(), Box<dyn error::Error>> {
    let root = Path::new("../../proto");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut compiler = protox::Compiler::new([root])?;
    compiler.include_imports(true).include_source_info(true).open_files(FILES)?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Not by way of prost's types, which lose the options that extensions define: `google.api.http`.
    fs::write(out.join("tollgate.v1.bin"), compiler.encode_file_descriptor_set())?;

    let mut messages = tonic_prost_build::Config::new();
    messages.enable_type_names();
    // Ordered maps: the same message is the same bytes and the same text.
    messages.btree_map(["."]);
    // Written by hand, without the secret.
    messages.skip_debug([
        "tollgate.v1.HttpTarget",
        "tollgate.v1.HttpItems",
        "tollgate.v1.KafkaTarget",
        "tollgate.v1.SlackTarget",
    ]);
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        .codec_path("crate::codec::Codec")
        .compile_fds_with_config(compiler.file_descriptor_set(), messages)?;
    Ok(())
}
