//! How strictly the text of files is read, and how deep it may go.

/// How deep a document may be nested; the API's messages are not half as deep with the deepest payload. Readers
/// recurse, and the stack is not endless.
const DEPTH_MAX: usize = 64;
/// How deep aliases may lead to text with aliases: each may add [`DEPTH_MAX`] levels.
const ALIAS_DEPTH_MAX: usize = 8;
/// How many values aliases may bring in, all together.
const ALIAS_VALUES_MAX: usize = 100_000;

/// How files are read: strictly, and of any size. Files are the caller's own, so only what is out of all proportion
/// to their size is bounded: depth and aliases.
pub(super) fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        with_snippet: false,
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            flow_nesting_limit: DEPTH_MAX,
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_anchors: usize::MAX,
            max_aliases: usize::MAX,
            max_merge_keys: usize::MAX,
            max_total_scalar_bytes: usize::MAX,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_replay_stack_depth: ALIAS_DEPTH_MAX,
            max_total_replayed_events: ALIAS_VALUES_MAX,
        },
    }
}
