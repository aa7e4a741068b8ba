//! The columns of a table, said once.
//!
//! In: [`row!`], which says each column of a table, and the texts of statements, in which placeholders stand for lists of
//! columns. Out: the row's type, its readers and binds, and the final texts. A text is composed when it is first used, and is the
//! same from then on. Not here: what a column's value means (`rows`), what statements do (`queries/`).
//!
//! | placeholder | stands for |
//! | --- | --- |
//! | `{runs}` | all columns |
//! | `{runs.key}` | the columns of its key |
//! | `{runs.set new}` | `state = new.state, …`, for each column that changes |
//! | `{runs.rows $2}` | the table `new` of rows bound from `$2` on: PostgreSQL: an array a column; SQLite: one JSON text |
//! | `{in uuid $1}` | `= ANY($1::uuid[])` in PostgreSQL, `IN (SELECT … FROM json_each($1))` in SQLite |
//! | `{postgres FOR UPDATE}` | words of PostgreSQL alone: SQLite has one writer, and locks no rows |
//! | `{sqlite INDEXED BY x}` | words of SQLite alone: PostgreSQL takes no hints |
//! | `{runs.unnest state}` | the columns of a [`Part`], and the shard's, as arrays from parameters of their own |

use std::borrow::Cow;
use std::iter::from_fn;

use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Postgres, Sqlite};
use uuid::Uuid;

use crate::rows::TABLES;

/// The database that a statement is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// SQLite.
    Sqlite,
}

/// What becomes of a column when its row is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// The row is found by it.
    Key,
    /// It stays as it was inserted.
    Fixed,
    /// It is as it is now.
    Changing,
}

/// Some columns of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of them.
    All,
    /// The key without the shard, and what changes.
    State,
    /// The key without the shard.
    Key,
    /// What changes.
    Changing,
    /// Nothing.
    None,
}

impl Part {
    pub(crate) fn has(self, column: &str, group: Group) -> bool {
        match self {
            Self::All => true,
            Self::State => group != Group::Fixed && column != SHARD,
            Self::Key => group == Group::Key && column != SHARD,
            Self::Changing => group == Group::Changing,
            Self::None => false,
        }
    }

    fn named(word: &str) -> Option<Self> {
        [("all", Self::All), ("state", Self::State), ("key", Self::Key)]
            .into_iter()
            .find_map(|(name, part)| (name == word).then_some(part))
    }
}

/// The column that tables are distributed by. Rows of one commit share it, and most do not have it.
const SHARD: &str = "shard_id";

/// A column as statements have it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    /// PostgreSQL's name of its type.
    pub(crate) sql_type: &'static str,
    pub(crate) group: Group,
}

/// A table as statements have it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [Column],
}

/// A type of which a column can be.
pub(crate) trait Cell {
    /// PostgreSQL's name of it.
    const SQL_TYPE: &'static str;
}

macro_rules! cells {
    ($($cell:ty: $name:literal)+) => {
        $(impl Cell for $cell {
            const SQL_TYPE: &'static str = $name;
        })+
    };
}

cells! { i32: "int" i64: "bigint" bool: "boolean" String: "text" Uuid: "uuid" Vec<u8>: "bytea" JsonText: "jsonb" }

/// JSON in a column that PostgreSQL looks into.
#[derive(Clone, Debug, serde::Serialize, sqlx::Type)]
#[sqlx(transparent)]
pub(crate) struct JsonText(pub(crate) String);

impl<T: Cell> Cell for Option<T> {
    const SQL_TYPE: &'static str = T::SQL_TYPE;
}

/// A statement of PostgreSQL that gets its values.
pub(crate) type PostgresQuery = Query<'static, Postgres, PgArguments>;
/// The same of SQLite.
pub(crate) type SqliteQuery = Query<'static, Sqlite, SqliteArguments>;

/// A row of a table whose columns are said by [`row!`].
pub(crate) trait Row: Sized {
    /// The table.
    const TABLE: Table;

    /// Binds an array a column.
    fn bind_arrays<'r>(
        query: PostgresQuery,
        part: Part,
        rows: impl Iterator<Item = &'r Self> + Clone,
    ) -> PostgresQuery
    where
        Self: 'r;

    /// Binds the columns of one row.
    fn bind_values(&self, query: SqliteQuery, part: Part) -> SqliteQuery;
}

/// Says the columns of a table, once: the row's type with its readers, and all that [`Row`] knows.
macro_rules! row {
    (
        $(#[$doc:meta])*
        $row:ident of $table:literal {
            key { $($(#[$key_meta:meta])* $key:ident: $key_type:ty,)* }
            fixed { $($(#[$fixed_meta:meta])* $fixed:ident: $fixed_type:ty,)* }
            changing { $($(#[$changing_meta:meta])* $changing:ident: $changing_type:ty,)* }
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, sqlx::FromRow, serde::Serialize)]
        pub(crate) struct $row {
            $($(#[$key_meta])* pub(crate) $key: $key_type,)*
            $($(#[$fixed_meta])* pub(crate) $fixed: $fixed_type,)*
            $($(#[$changing_meta])* pub(crate) $changing: $changing_type,)*
        }

        impl $crate::columns::Row for $row {
            const TABLE: $crate::columns::Table = $crate::columns::Table {
                name: $table,
                columns: &[
                    $(row!(@column $key: $key_type, Key),)*
                    $(row!(@column $fixed: $fixed_type, Fixed),)*
                    $(row!(@column $changing: $changing_type, Changing),)*
                ],
            };

            fn bind_arrays<'r>(
                query: $crate::columns::PostgresQuery,
                part: $crate::columns::Part,
                rows: impl Iterator<Item = &'r Self> + Clone,
            ) -> $crate::columns::PostgresQuery {
                use sqlx::postgres::PgBindIterExt as _;
                $(let query = row!(@if part, Key, $key, query,
                    query.bind(rows.clone().map(|row| &row.$key).bind_iter()));)*
                $(let query = row!(@if part, Fixed, $fixed, query,
                    query.bind(rows.clone().map(|row| &row.$fixed).bind_iter()));)*
                $(let query = row!(@if part, Changing, $changing, query,
                    query.bind(rows.clone().map(|row| &row.$changing).bind_iter()));)*
                query
            }

            fn bind_values(
                &self,
                query: $crate::columns::SqliteQuery,
                part: $crate::columns::Part,
            ) -> $crate::columns::SqliteQuery {
                $(let query = row!(@if part, Key, $key, query, query.bind(self.$key.clone()));)*
                $(let query = row!(@if part, Fixed, $fixed, query, query.bind(self.$fixed.clone()));)*
                $(let query = row!(@if part, Changing, $changing, query, query.bind(self.$changing.clone()));)*
                query
            }
        }
    };
    (@column $column:ident: $type:ty, $group:ident) => {
        $crate::columns::Column {
            name: stringify!($column),
            sql_type: <$type as $crate::columns::Cell>::SQL_TYPE,
            group: $crate::columns::Group::$group,
        }
    };
    (@if $part:ident, $group:ident, $column:ident, $query:ident, $bound:expr) => {
        if $part.has(stringify!($column), $crate::columns::Group::$group) { $bound } else { $query }
    };
}
pub(crate) use row;

impl Table {
    fn of(&self, part: Part) -> impl Iterator<Item = &'static Column> {
        self.columns.iter().filter(move |column| part.has(column.name, column.group))
    }

    /// All columns, in their order.
    pub(crate) fn names(&self) -> String {
        joined(self.columns.iter().map(|column| column.name.to_owned()))
    }

    /// The columns of the key, the shard's too.
    fn key(&self) -> String {
        let columns = self.columns.iter().filter(|column| matches!(column.group, Group::Key));
        joined(columns.map(|column| column.name.to_owned()))
    }

    /// Each column that changes, as that of a row that `source` names.
    pub(crate) fn set(&self, source: &str) -> String {
        joined(self.of(Part::Changing).map(|Column { name, .. }| format!("{name} = {source}.{name}")))
    }

    /// A place for each column that changes.
    pub(crate) fn places(&self) -> String {
        joined(self.of(Part::Changing).map(|Column { name, .. }| format!("{name} = ?")))
    }

    /// How many columns a part has.
    pub(crate) fn count(&self, part: Part) -> usize {
        self.of(part).count()
    }

    /// The table `new` of rows that are bound from parameter `first` on.
    fn rows(&self, dialect: Dialect, first: usize) -> String {
        match dialect {
            Dialect::Postgres => {
                let arrays =
                    (first..).zip(self.columns).map(|(n, column)| format!("${n}::{}[]", column.sql_type));
                format!("unnest({}) AS new ({})", joined(arrays), self.names())
            }
            Dialect::Sqlite => {
                let values = self.columns.iter().map(|Column { name, sql_type, .. }| match *sql_type {
                    "uuid" => format!("unhex(value ->> '{name}', '-') AS {name}"),
                    "bytea" => format!("unhex(value ->> '{name}') AS {name}"),
                    _ => format!("value ->> '{name}' AS {name}"),
                });
                format!("(SELECT {} FROM json_each(${first})) AS new", joined(values))
            }
        }
    }

    /// Arrays as columns, that of the shards first, unless it is one of the part's.
    fn unnest(&self, part: Part, numbers: &mut impl Iterator<Item = usize>) -> String {
        const OF_SHARD: Column = Column { name: SHARD, sql_type: i32::SQL_TYPE, group: Group::Key };
        let lacks_it = self.of(part).all(|column| column.name != SHARD);
        let columns = lacks_it.then_some(&OF_SHARD).into_iter().chain(self.of(part));
        joined(
            columns
                .zip(numbers)
                .map(|(Column { name, sql_type, .. }, n)| format!("unnest(${n}::{sql_type}[]) AS {name}")),
        )
    }
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

/// The final text of a statement.
///
/// A placeholder that names no table stays as it is.
#[must_use]
pub fn compose(text: &str, dialect: Dialect) -> Cow<'_, str> {
    if !text.contains('{') {
        return Cow::Borrowed(text);
    }
    // The first number that the text has not.
    let mut next = 1 + text.split('$').skip(1).filter_map(leading_number).max().unwrap_or_default();
    let mut numbers = from_fn(|| {
        next += 1;
        Some(next - 1)
    });
    let mut composed = String::with_capacity(4 * text.len());
    for (at, piece) in text.split('{').enumerate() {
        let placeholder = piece.split_once('}').filter(|_| at > 0);
        match placeholder.and_then(|(inner, rest)| Some((columns(inner, dialect, &mut numbers)?, rest))) {
            Some((columns, rest)) => composed.extend([columns.as_str(), rest]),
            None if at > 0 => composed.extend(["{", piece]),
            None => composed.push_str(piece),
        }
    }
    Cow::Owned(composed)
}

/// A text without the parts, from the line `-- if a_part` to the line `-- end a_part`, that it shall not have.
#[must_use]
pub fn with_parts(text: &str, has: impl Fn(&str) -> bool) -> String {
    let (mut kept, mut leaves_out) = (String::with_capacity(text.len()), None);
    for line in text.lines() {
        let mark = line.trim_start().strip_prefix("-- ").and_then(|mark| mark.split_once(' '));
        match (mark, leaves_out) {
            (Some(("end", part)), Some(left_out)) if part == left_out => leaves_out = None,
            (Some(("if", part)), None) if !has(part) => leaves_out = Some(part),
            (_, None) => kept.extend([line, "\n"]),
            (_, Some(_)) => {}
        }
    }
    kept
}

/// What a placeholder stands for.
fn columns(inner: &str, dialect: Dialect, numbers: &mut impl Iterator<Item = usize>) -> Option<String> {
    match inner.split_once(' ') {
        Some(("postgres", words)) => return Some(words_of(Dialect::Postgres, dialect, words)),
        Some(("sqlite", words)) => return Some(words_of(Dialect::Sqlite, dialect, words)),
        Some(("in", set)) => {
            return set.split_once(' ').map(|(sql_type, place)| one_of(dialect, sql_type, place));
        }
        _ => {}
    }
    let (name, list) = inner.split_once('.').unwrap_or((inner, ""));
    let table = TABLES.iter().find(|table| table.name == name)?;
    match list.split_once(' ') {
        None if list.is_empty() => Some(table.names()),
        None if list == "key" => Some(table.key()),
        Some(("set", source)) => Some(table.set(source)),
        Some(("rows", first)) => Some(table.rows(dialect, leading_number(first.strip_prefix('$')?)?)),
        Some(("unnest", part)) => Some(table.unnest(Part::named(part)?, numbers)),
        _ => None,
    }
}

/// Words that stand in the statements of one dialect.
fn words_of(theirs: Dialect, dialect: Dialect, words: &str) -> String {
    if theirs == dialect { words.to_owned() } else { String::new() }
}

/// Whether a value is one of a set, which is bound as an array or as JSON text.
fn one_of(dialect: Dialect, sql_type: &str, place: &str) -> String {
    match (dialect, sql_type) {
        (Dialect::Postgres, _) => format!("= ANY({place}::{sql_type}[])"),
        (Dialect::Sqlite, "uuid") => format!("IN (SELECT unhex(value, '-') FROM json_each({place}))"),
        (Dialect::Sqlite, _) => format!("IN (SELECT value FROM json_each({place}))"),
    }
}

fn leading_number(text: &str) -> Option<usize> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    row! {
        /// Such a row.
        Sample of "samples" {
            key { shard_id: i32, run_id: Uuid, }
            fixed { name: Option<String>, }
            changing { state: String, gone: Vec<u8>, }
        }
    }

    #[test]
    fn lists_have_their_columns_in_one_order() {
        let table = Sample::TABLE;
        assert_eq!(table.names(), "shard_id, run_id, name, state, gone");
        assert_eq!(table.set("new"), "state = new.state, gone = new.gone");
        assert_eq!(
            table.rows(Dialect::Postgres, 2),
            "unnest($2::int[], $3::uuid[], $4::text[], $5::text[], $6::bytea[]) AS new (shard_id, run_id, name, state, gone)"
        );
        assert_eq!(
            table.rows(Dialect::Sqlite, 1),
            "(SELECT value ->> 'shard_id' AS shard_id, unhex(value ->> 'run_id', '-') AS run_id, value ->> 'name' AS name, \
             value ->> 'state' AS state, unhex(value ->> 'gone') AS gone FROM json_each($1)) AS new"
        );
        assert_eq!(
            table.unnest(Part::State, &mut (3..)),
            "unnest($3::int[]) AS shard_id, unnest($4::uuid[]) AS run_id, unnest($5::text[]) AS state, \
             unnest($6::bytea[]) AS gone"
        );
        // Where the shard's is one of the part's, it is there once.
        assert!(
            table
                .unnest(Part::All, &mut (1..))
                .starts_with("unnest($1::int[]) AS shard_id, unnest($2::uuid[])")
        );
    }

    #[test]
    fn what_the_two_say_differently_is_said_once() {
        let text = "SELECT uid FROM x {sqlite INDEXED BY y} WHERE uid {in uuid $2} AND n {in int $3} {postgres FOR UPDATE}";
        assert_eq!(
            compose(text, Dialect::Postgres),
            "SELECT uid FROM x  WHERE uid = ANY($2::uuid[]) AND n = ANY($3::int[]) FOR UPDATE"
        );
        assert_eq!(
            compose(text, Dialect::Sqlite),
            "SELECT uid FROM x INDEXED BY y WHERE uid IN (SELECT unhex(value, '-') FROM json_each($2)) \
             AND n IN (SELECT value FROM json_each($3)) "
        );
    }

    #[test]
    fn parts_are_there_or_not() {
        let text = "a\n-- if one\nb\n  -- if two\n  c\n  -- end two\n-- end one\n-- if two\nd\n-- end two\n-- note\n";
        let of = |parts: &[&str]| with_parts(text, |part| parts.contains(&part)).replace('\n', "");
        assert_eq!(of(&[]), "a-- note");
        assert_eq!(of(&["two"]), "a-- if twod-- end two-- note");
        assert_eq!(of(&["one"]), "a-- if oneb-- end one-- note");
        assert_eq!(of(&["one", "two"]), text.replace('\n', ""));
    }

    #[test]
    fn placeholders_that_name_no_table_stay_and_others_do_not() {
        let untouched = "SELECT '{}' FROM {name} WHERE a = $1";
        assert_eq!(compose(untouched, Dialect::Postgres), untouched);
        let composed = compose("{runs.set excluded} {x} {runs}; $2", Dialect::Postgres);
        assert!(composed.contains("state = excluded.state") && composed.contains("{x}"), "{composed}");
        assert!(!composed.contains("{runs"), "{composed}");
    }
}
