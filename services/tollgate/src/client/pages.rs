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

/// Stands for the token of several lists of which some are not complete: the token of one would lead nobody on.
pub(super) const MORE: &str = "more";

/// As [`collect`], of several parents one after the other; `fetch` gets the parent first.
///
/// # Errors
/// Those of `fetch`.
pub(super) async fn collect_all<T>(
    parents: &[String],
    limit: u32,
    mut fetch: impl AsyncFnMut(String, i32, String) -> anyhow::Result<(Vec<T>, String)>,
) -> anyhow::Result<(Vec<T>, String)> {
    if let [parent] = parents {
        return collect(limit, async |size, token| fetch(parent.clone(), size, token).await).await;
    }
    let mut items = Vec::new();
    for parent in parents {
        let read = u32::try_from(items.len()).unwrap_or(u32::MAX);
        // One more than asked for tells whether there is more.
        let left = if limit == 0 { 0 } else { limit.saturating_sub(read).saturating_add(1) };
        let (page, _) = collect(left, async |size, token| fetch(parent.clone(), size, token).await).await?;
        items.extend(page);
        if limit > 0 && items.len() > limit as usize {
            items.truncate(limit as usize);
            return Ok((items, MORE.to_owned()));
        }
    }
    Ok((items, String::new()))
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

    #[tokio::test]
    async fn several_lists_are_read_up_to_the_limit() {
        let parents = ["a".to_owned(), "b".to_owned()];
        let read = async |limit: u32| {
            let fetch = async |parent: String, size: i32, _: String| {
                let all = [format!("{parent}1"), format!("{parent}2")];
                Ok((all.into_iter().take(size.unsigned_abs() as usize).collect(), String::new()))
            };
            collect_all(&parents, limit, fetch).await.unwrap()
        };
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(read(3).await, (words(&["a1", "a2", "b1"]), MORE.to_owned()));
        assert_eq!(read(2).await, (words(&["a1", "a2"]), MORE.to_owned()));
        assert_eq!(read(4).await, (words(&["a1", "a2", "b1", "b2"]), String::new()));
        assert_eq!(read(0).await.0.len(), 4);
    }
}
