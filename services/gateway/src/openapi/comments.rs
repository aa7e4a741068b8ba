//! Finds the comment of a thing in the descriptors' source information.

use std::collections::HashMap;

use prost_reflect::{DescriptorPool, FieldDescriptor, FileDescriptor};

/// All comments, by file and by the path of what they are about.
pub(super) struct Comments(HashMap<(String, Vec<i32>), String>);

impl Comments {
    pub(super) fn new(pool: &DescriptorPool) -> Self {
        let mut comments = HashMap::new();
        for file in pool.files() {
            let source = file.file_descriptor_proto().source_code_info.as_ref();
            for location in source.map(|source| source.location.as_slice()).unwrap_or_default() {
                if let Some(text) = &location.leading_comments {
                    comments.insert((file.name().to_owned(), location.path.clone()), tidy(text));
                }
            }
        }
        Self(comments)
    }

    /// The comment, or nothing.
    pub(super) fn of(&self, file: &FileDescriptor, path: &[i32]) -> String {
        self.0.get(&(file.name().to_owned(), path.to_vec())).cloned().unwrap_or_default()
    }

    pub(super) fn of_field(&self, field: &FieldDescriptor) -> String {
        self.of(&field.parent_file(), field.path())
    }
}

/// Lines of a paragraph become one.
fn tidy(text: &str) -> String {
    let paragraphs =
        text.split("\n\n").map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
    paragraphs.filter(|paragraph| !paragraph.is_empty()).collect::<Vec<_>>().join("\n\n")
}
