//! Each input of the corpus, once: what was found once is found at once if it comes back.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::panic::catch_unwind;
use std::path::Path;

use tollgate_fuzz::TARGETS;

#[test]
fn inputs_of_the_corpus_break_nothing() {
    for (name, target) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let mut count = 0;
        for file in std::fs::read_dir(&folder).unwrap() {
            let path = file.unwrap().path();
            let input = std::fs::read(&path).unwrap();
            assert!(catch_unwind(|| target(&input)).is_ok(), "{name}: {} breaks it", path.display());
            count += 1;
        }
        assert!(count > 0, "{} is empty", folder.display());
    }
}
