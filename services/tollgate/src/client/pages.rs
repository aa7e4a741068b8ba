//! Decides how many pages of a list are read.

/// The largest page that the service gives.
const PAGE_MAX: u32 = 1_000;

/// Up to `limit` items (0 means all), and the token of what follows; `fetch` gets a page's size and token.
///
/// # Errors
/// Those of `fetch`.
pub(super) async fn collect<T>(
    limit: u32,
    mut fetch: impl AsyncFnMut(i32, String) -> anyhow::Result<(Vec<T>, String)>,
) -> anyhow::Result<(Vec<T>, String)> {
    let mut items = Vec::new();
    let mut token = String::new();
    loop {
        let read = u32::try_from(items.len()).unwrap_or(u32::MAX);
        let wanted = if limit == 0 { PAGE_MAX } else { limit.saturating_sub(read).min(PAGE_MAX) };
        let (page, next) = fetch(i32::try_from(wanted).unwrap_or(i32::MAX), token).await?;
        items.extend(page);
        token = next;
        if token.is_empty() || (limit > 0 && items.len() >= limit as usize) {
            return Ok((items, token));
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    async fn read(limit: u32) -> (Vec<i32>, String, Vec<i32>) {
        let mut sizes = Vec::new();
        let fetch = async |size: i32, token: String| {
            sizes.push(size);
            let from: i32 = token.parse().unwrap_or(0);
            let to = (from + size).min(2_500);
            let next = if to < 2_500 { to.to_string() } else { String::new() };
            Ok(((from..to).collect(), next))
        };
        let (items, token) = collect(limit, fetch).await.unwrap();
        (items, token, sizes)
    }

    #[tokio::test]
    async fn pages_are_read_up_to_the_limit() {
        let (items, token, sizes) = read(1_200).await;
        assert_eq!((items.len(), token.as_str()), (1_200, "1200"));
        assert_eq!(sizes, [1_000, 200]);
        let (items, token, sizes) = read(0).await;
        assert_eq!((items, token.as_str()), ((0..2_500).collect(), ""));
        assert_eq!(sizes, [1_000, 1_000, 1_000]);
    }
}
