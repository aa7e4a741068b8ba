//! Decides where items are read from: a file, as often as needed; of what can be read once only, a copy.

use std::fs::File;
use std::io::{Read as _, Seek as _};

use anyhow::Context as _;
use bytes::Bytes;
use tempfile::NamedTempFile;
use tollgate_items::{Item, Next, Options, Packing, Reader};

use super::{Format, SubmitArgs, of_file};
use crate::usage::{Usage, plain};

/// How much is read at once.
const PIECE_BYTES: usize = 64 * 1024;

/// What items are read from.
pub(super) struct Source {
    name: String,
    place: Place,
    options: Options,
    /// How large it is, packed.
    pub(super) size_bytes: u64,
}

enum Place {
    File(String),
    Copy(NamedTempFile),
}

impl Source {
    /// Opens what the arguments name.
    pub(super) fn open(args: &SubmitArgs) -> anyhow::Result<Self> {
        let packing = if args.gzip { Packing::Gzip } else { Packing::Detect };
        let options = Options {
            packing,
            key_field: args.key_field.clone(),
            units_field: args.units_field.clone(),
            wrapped: args.wrapped,
            ..Options::new(format(args)?)
        };
        // What excludes what is said before anything is read.
        Reader::new(options.clone()).map_err(|error| Usage(error.to_string()))?;
        if args.file == "-" {
            return Self::copy("<stdin>", std::io::stdin().lock(), options);
        }
        let unread =
            |error: &std::io::Error| Usage(format!("{:?} cannot be read: {}", args.file, plain(error)));
        let file = File::open(&args.file).map_err(|error| unread(&error))?;
        let about = file.metadata().map_err(|error| unread(&error))?;
        if about.is_dir() {
            return Err(Usage(format!("{:?} is a folder, expected a file", args.file)).into());
        }
        if !about.is_file() {
            return Self::copy(&args.file, file, options);
        }
        let (name, place) = (args.file.clone(), Place::File(args.file.clone()));
        Ok(Self { name, place, options, size_bytes: about.len() })
    }

    /// A copy of what can be read once only.
    fn copy(name: &str, mut from: impl std::io::Read, options: Options) -> anyhow::Result<Self> {
        let kept =
            || format!("cannot keep {name} in a temporary file in {:?} (TMPDIR)", std::env::temp_dir());
        let mut copy = NamedTempFile::new().with_context(kept)?;
        let size_bytes = std::io::copy(&mut from, &mut copy).with_context(kept)?;
        copy.rewind().with_context(kept)?;
        Ok(Self { name: name.to_owned(), place: Place::Copy(copy), options, size_bytes })
    }

    /// Its items from the first one on.
    pub(super) fn items(&self) -> anyhow::Result<Items> {
        let opened = match &self.place {
            Place::File(path) => File::open(path),
            Place::Copy(copy) => copy.reopen(),
        };
        let file = opened.with_context(|| format!("cannot read {:?}", self.name))?;
        let reader = of_file(&self.name, Reader::new(self.options.clone()))?;
        Ok(Items { name: self.name.clone(), file, reader, read_bytes: 0 })
    }
}

/// How the items are written.
fn format(args: &SubmitArgs) -> Result<tollgate_items::Format, Usage> {
    let path = args.file.to_ascii_lowercase();
    let path = path.strip_suffix(".gz").unwrap_or(&path);
    let ends = |ending: &str| path.ends_with(ending);
    let format = match args.format {
        Some(format) => format,
        None if ends(".ndjson") || ends(".jsonl") => Format::Ndjson,
        None if ends(".json") => Format::Json,
        None if ends(".csv") => Format::Csv,
        None => {
            let said = "--format: the file's name does not say how the items are written, expected ndjson, json or csv";
            return Err(Usage(said.to_owned()));
        }
    };
    Ok(match format {
        Format::Ndjson => tollgate_items::Format::Ndjson,
        Format::Json => tollgate_items::Format::Json,
        Format::Csv => tollgate_items::Format::Csv,
    })
}

/// Items, one after the other.
pub(super) struct Items {
    name: String,
    file: File,
    reader: Reader,
    /// How much of the file has been read, packed.
    pub(super) read_bytes: u64,
}

impl Items {
    /// The next one; none behind the last.
    pub(super) fn next(&mut self) -> anyhow::Result<Option<Item>> {
        loop {
            match of_file(&self.name, self.reader.advance())? {
                Next::Item(item) => return Ok(Some(item)),
                Next::Busy => {}
                Next::End => return Ok(None),
                Next::Hungry => {
                    let mut piece = vec![0; PIECE_BYTES];
                    let read =
                        self.file.read(&mut piece).with_context(|| format!("cannot read {:?}", self.name))?;
                    piece.truncate(read);
                    self.read_bytes += read as u64;
                    if read == 0 {
                        self.reader.end();
                    } else {
                        self.reader.feed(Bytes::from(piece));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SubmitArgs,
    }

    fn args(line: &str) -> SubmitArgs {
        Line::try_parse_from(["submit", "nightly"].into_iter().chain(line.split(' '))).unwrap().args
    }

    #[test]
    fn the_name_of_a_file_says_how_it_is_written() {
        for (line, expected) in [
            ("a.ndjson", tollgate_items::Format::Ndjson),
            ("a.JSONL.GZ", tollgate_items::Format::Ndjson),
            ("a.json", tollgate_items::Format::Json),
            ("x/a.csv.gz", tollgate_items::Format::Csv),
            ("- --format csv", tollgate_items::Format::Csv),
            ("a.json --format ndjson", tollgate_items::Format::Ndjson),
        ] {
            assert_eq!(format(&args(line)).unwrap(), expected, "{line}");
        }
        for line in ["-", "a.txt", "csv"] {
            assert!(format(&args(line)).unwrap_err().0.starts_with("--format: "), "{line}");
        }
    }

    #[test]
    fn a_file_is_read_again_from_its_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ndjson");
        std::fs::write(&path, "1\n2\n").unwrap();
        let source = Source::open(&args(path.to_str().unwrap())).unwrap();
        let copy =
            Source::copy("pipe", &b"1\n2\n"[..], Options::new(tollgate_items::Format::Ndjson)).unwrap();
        for source in [&source, &copy] {
            for _ in 0..2 {
                let mut items = source.items().unwrap();
                let mut data = Vec::new();
                while let Some(item) = items.next().unwrap() {
                    data.push(item.data);
                }
                assert_eq!((data, items.read_bytes, source.size_bytes), (vec!["1".into(), "2".into()], 4, 4));
            }
        }
        std::fs::write(&path, "1\n{\n").unwrap();
        let mut items = source.items().unwrap();
        items.next().unwrap();
        let said = format!("{:#}", items.next().unwrap_err());
        assert!(
            said.starts_with("no run was made: ") && said.contains("a.ndjson: line 2: not JSON"),
            "{said}"
        );
    }
}
