//! The console's own files: its style, its script, its icon. They are part of the binary.

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};

/// Where a page finds its style; the version makes a browser fetch it anew after an upgrade.
pub(crate) const STYLE: &str = concat!("/console/console.css?v=", env!("CARGO_PKG_VERSION"));
/// Where a page finds its script.
pub(crate) const SCRIPT: &str = concat!("/console/console.js?v=", env!("CARGO_PKG_VERSION"));
/// Where a page finds its icon.
pub(crate) const ICON: &str = "/console/icon.svg";

/// One of the files.
pub(crate) async fn file(Path(name): Path<String>) -> Response {
    let (kind, text) = match name.as_str() {
        "console.css" => ("text/css; charset=utf-8", include_str!("../../assets/console.css")),
        "console.js" => ("text/javascript; charset=utf-8", include_str!("../../assets/console.js")),
        "icon.svg" => ("image/svg+xml", include_str!("../../assets/icon.svg")),
        _ => return (StatusCode::NOT_FOUND, "There is no such file.\n").into_response(),
    };
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "max-age=300")], text).into_response()
}
