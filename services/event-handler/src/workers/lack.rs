//! Says what the workers of a queue lack, where none of them is able to do what waits.
//!
//! In: the sets of labels that there are, what is required, and the same of other processes. Out: which labels nobody has, and
//! which of those that are there may be meant. Not here: for how long that has been so.

use tollgate_core::nearest::nearest;

/// What those lack that are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lack {
    /// How many workers take events of the queue.
    workers: u32,
    /// Labels that none of them has, in order, each with the nearest one that one has; empty where none is near.
    missing: Vec<(String, String)>,
}

impl Lack {
    /// `kinds`: each set of labels, and how many workers have it.
    pub(super) fn of<'k>(kinds: impl Iterator<Item = (&'k [String], u32)>, requires: &[String]) -> Self {
        let (mut workers, mut labels) = (0_u32, Vec::new());
        for (of_kind, count) in kinds {
            workers = workers.saturating_add(count);
            labels.extend(of_kind.iter().map(String::as_str));
        }
        let missing = requires.iter().filter(|label| !labels.contains(&label.as_str()));
        let near = |label: &String| nearest(label, labels.iter().copied()).unwrap_or_default().to_owned();
        Self { workers, missing: missing.map(|label| (label.clone(), near(label))).collect() }
    }

    /// As another process tells it.
    pub(super) fn told(workers: u32, missing: Vec<String>, near: Vec<String>) -> Self {
        let near = near.into_iter().chain(std::iter::repeat(String::new()));
        Self { workers, missing: missing.into_iter().zip(near).collect() }
    }

    /// As it is told to another process: how many workers, which labels are missing, which are near.
    pub(super) fn tell(self) -> (u32, Vec<String>, Vec<String>) {
        let (missing, near) = self.missing.into_iter().unzip();
        (self.workers, missing, near)
    }

    /// What neither these workers nor those of another process have.
    pub(super) fn and(mut self, other: &Self) -> Self {
        self.workers = self.workers.saturating_add(other.workers);
        self.missing.retain_mut(|(label, near)| {
            let theirs = other.missing.iter().find(|(missing, _)| missing == label);
            if let Some((_, also_near)) = theirs.filter(|_| near.is_empty()) {
                near.clone_from(also_near);
            }
            theirs.is_some()
        });
        self
    }

    /// In words.
    pub(super) fn words(&self, queue: &str, requires: &[String]) -> String {
        if self.workers == 0 {
            return format!("no worker of the queue {queue} is connected");
        }
        let (labels, near): (Vec<&str>, Vec<&str>) =
            self.missing.iter().map(|(label, near)| (label.as_str(), near.as_str())).unzip();
        let has = match labels.as_slice() {
            [] => format!("all of {}", requires.join(", ")),
            labels => labels.join(" or "),
        };
        let near: Vec<&str> = near.into_iter().filter(|near| !near.is_empty()).collect();
        let meant = match near.as_slice() {
            [] => String::new(),
            near => format!("; {} is a label that one has: is that meant?", near.join(" or ")),
        };
        format!("no worker of the queue {queue} is connected that has {has}{meant}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn of(kinds: &[&str], requires: &str) -> Lack {
        let kinds: Vec<Vec<String>> = kinds.iter().map(|kind| labels(kind)).collect();
        Lack::of(kinds.iter().map(|kind| (kind.as_slice(), 2)), &labels(requires))
    }

    #[test]
    fn what_nobody_has_is_named_with_what_may_be_meant() {
        let words = |kinds: &[&str], requires: &str| of(kinds, requires).words("render", &labels(requires));
        assert_eq!(words(&[], "gpu"), "no worker of the queue render is connected");
        assert_eq!(
            words(&["eu"], "arm64 gpu"),
            "no worker of the queue render is connected that has arm64 or gpu"
        );
        assert_eq!(
            words(&["gpu", "eu"], "eu gpu"),
            "no worker of the queue render is connected that has all of eu, gpu"
        );
        assert_eq!(
            words(&["zone=eu gpu"], "gpux"),
            "no worker of the queue render is connected that has gpux; gpu is a label that one has: is that meant?"
        );
    }

    #[test]
    fn what_one_process_knows_another_one_adds_to() {
        let (here, there) = (of(&["eu"], "arm64 gpux"), of(&["gpu", "arm64"], "arm64 gpux"));
        let (workers, missing, near) = there.tell();
        let there = Lack::told(workers, missing, near);
        let both = here.clone().and(&there);
        assert_eq!((both.workers, both.missing), (6, vec![("gpux".to_owned(), "gpu".to_owned())]));
        assert_eq!(here.clone().and(&of(&[], "arm64 gpux")), here, "a process without workers adds nothing");
        let short = Lack::told(1, vec!["a".to_owned()], Vec::new());
        assert_eq!(short.missing, [("a".to_owned(), String::new())]);
    }
}
