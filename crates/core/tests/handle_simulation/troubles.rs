//! Which troubles a world has.

use crate::random::Random;

/// Which troubles a world has: worlds that lack some go deeper into the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Troubles {
    pub(crate) commits: bool,
    pub(crate) crashes: bool,
    pub(crate) freezes: bool,
    pub(crate) cuts: bool,
    pub(crate) stops: bool,
    pub(crate) clocks: bool,
    pub(crate) consumers: bool,
    pub(crate) changes: bool,
    pub(crate) moves: bool,
    pub(crate) emitters: bool,
    pub(crate) masters: bool,
    pub(crate) pauses: bool,
    pub(crate) senders: bool,
    /// Events that take several tokens.
    pub(crate) units: bool,
    /// Workers that pull, and have little room.
    pub(crate) workers: bool,
}

impl Troubles {
    pub(crate) fn new(random: &mut Random) -> Self {
        let mut some = || random.percent(70);
        Self {
            commits: some(),
            crashes: some(),
            freezes: some(),
            cuts: some(),
            stops: some(),
            clocks: some(),
            consumers: some(),
            changes: some(),
            moves: some(),
            emitters: some(),
            masters: some(),
            pauses: some(),
            senders: some(),
            units: some(),
            workers: some(),
        }
    }
}
