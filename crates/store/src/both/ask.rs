//! A statement with its values, for either database.
//!
//! In: the statement's text, and values one by one or as a set. Out: what the driver of the database carries out. Invariants: SQLite
//! takes a set as one JSON array, PostgreSQL as one array for each column; a set of several columns is bound last. Not here: where it is
//! carried out.

use std::borrow::Cow;
use std::sync::LazyLock;

use sqlx::query::Query;
use sqlx::{Database, Encode, Postgres, Sqlite, Type};
use uuid::Uuid;

use super::Readable;
use crate::StoreError;
use crate::columns::{Part, PostgresQuery, Row, SqliteQuery};
use crate::failure::Failure;
use crate::rows::json;

type Composed = LazyLock<Cow<'static, str>>;

/// A statement's text for each database, composed at its first use.
pub(crate) struct TextPair {
    postgres: Composed,
    sqlite: Composed,
}

impl TextPair {
    pub(crate) const fn new(postgres: fn() -> Cow<'static, str>, sqlite: fn() -> Cow<'static, str>) -> Self {
        Self { postgres: LazyLock::new(postgres), sqlite: LazyLock::new(sqlite) }
    }
}

/// A statement, whichever database it is for.
#[derive(Clone, Copy)]
pub(crate) struct Statement(pub(crate) &'static TextPair);

/// A statement, from its text for PostgreSQL and for SQLite.
macro_rules! statement {
    ($postgres:expr, $sqlite:expr) => {{
        use $crate::columns::{Dialect, compose};
        static TEXTS: $crate::both::TextPair = $crate::both::TextPair::new(
            || compose($postgres, Dialect::Postgres),
            || compose($sqlite, Dialect::Sqlite),
        );
        $crate::both::Statement(&TEXTS)
    }};
}

/// A statement whose text stands once, in `src/queries/`.
macro_rules! sql {
    ($name:literal) => {
        $crate::both::statement!(both_text!($name), both_text!($name))
    };
}

/// A statement of which each database has a text of its own.
macro_rules! own_sql {
    ($name:literal) => {
        $crate::both::statement!(
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/queries/", $name, ".sql")),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/sqlite/queries/", $name, ".sql"))
        )
    };
}

pub(crate) use {own_sql, sql, statement};

/// A value as both databases take it.
pub(crate) trait Value:
    for<'q> Encode<'q, Sqlite> + Type<Sqlite> + for<'q> Encode<'q, Postgres> + Type<Postgres>
{
}

impl<T> Value for T where
    T: for<'q> Encode<'q, Sqlite> + Type<Sqlite> + for<'q> Encode<'q, Postgres> + Type<Postgres>
{
}

/// What sets are made of.
pub(crate) trait Element: serde::Serialize + Sized {
    /// Binds an array for each column.
    fn columns(set: &[Self], query: PostgresQuery) -> PostgresQuery;
}

macro_rules! elements {
    ($($element:ty)+) => { $(
        impl Element for $element {
            fn columns(set: &[Self], query: PostgresQuery) -> PostgresQuery {
                query.bind(set)
            }
        }
    )+ };
}

elements!(Uuid i32 String &str);

impl<T: Row + serde::Serialize> Element for T {
    fn columns(set: &[Self], query: PostgresQuery) -> PostgresQuery {
        T::bind_arrays(query, Part::All, set.iter())
    }
}

/// What the two databases do differently with a statement.
pub(crate) trait Engine: Database {
    /// Its text.
    fn text(statement: Statement) -> &'static str;
    /// Binds a value.
    fn bind<V: Value>(query: EngineQuery<Self>, value: V) -> EngineQuery<Self>;
    /// Binds a set.
    fn bind_set<T: Element>(query: EngineQuery<Self>, set: &[T]) -> Result<EngineQuery<Self>, StoreError>;
    /// Has it planned for its values, where plans are kept.
    fn anew(query: EngineQuery<Self>) -> EngineQuery<Self>;
    /// Carries it out, and answers with its rows.
    fn rows<R: Readable>(
        connection: &mut Self::Connection,
        query: EngineQuery<Self>,
    ) -> impl Future<Output = Result<Vec<R>, sqlx::Error>> + Send;
    /// Carries it out, and answers how many rows it changed.
    fn execute(
        connection: &mut Self::Connection,
        query: EngineQuery<Self>,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;
}

/// A statement as sqlx has it.
pub(crate) type EngineQuery<DB> = Query<'static, DB, <DB as Database>::Arguments>;

impl Engine for Sqlite {
    fn text(statement: Statement) -> &'static str {
        &statement.0.sqlite
    }

    fn bind<V: Value>(query: SqliteQuery, value: V) -> SqliteQuery {
        query.bind(value)
    }

    fn bind_set<T: Element>(query: SqliteQuery, set: &[T]) -> Result<SqliteQuery, StoreError> {
        Ok(query.bind(json(set)?))
    }

    /// Its plans do not hang on values.
    fn anew(query: SqliteQuery) -> SqliteQuery {
        query
    }

    async fn rows<R: Readable>(
        connection: &mut Self::Connection,
        query: SqliteQuery,
    ) -> Result<Vec<R>, sqlx::Error> {
        query.fetch_all(connection).await?.iter().map(R::from_row).collect()
    }

    async fn execute(connection: &mut Self::Connection, query: SqliteQuery) -> Result<u64, sqlx::Error> {
        Ok(query.execute(connection).await?.rows_affected())
    }
}

impl Engine for Postgres {
    fn text(statement: Statement) -> &'static str {
        &statement.0.postgres
    }

    fn bind<V: Value>(query: PostgresQuery, value: V) -> PostgresQuery {
        query.bind(value)
    }

    fn bind_set<T: Element>(query: PostgresQuery, set: &[T]) -> Result<PostgresQuery, StoreError> {
        Ok(T::columns(set, query))
    }

    fn anew(query: PostgresQuery) -> PostgresQuery {
        query.persistent(false)
    }

    async fn rows<R: Readable>(
        connection: &mut Self::Connection,
        query: PostgresQuery,
    ) -> Result<Vec<R>, sqlx::Error> {
        query.fetch_all(connection).await?.iter().map(R::from_row).collect()
    }

    async fn execute(connection: &mut Self::Connection, query: PostgresQuery) -> Result<u64, sqlx::Error> {
        Ok(query.execute(connection).await?.rows_affected())
    }
}

/// A statement with its values.
pub(crate) struct Ask<DB: Engine>(EngineQuery<DB>);

impl<DB: Engine> Ask<DB> {
    /// The statement, without values as yet.
    pub(crate) fn new(statement: Statement) -> Self {
        Self(sqlx::query(DB::text(statement)))
    }

    /// With its next value.
    pub(crate) fn bind<V: Value>(self, value: V) -> Self {
        Self(DB::bind(self.0, value))
    }

    /// With a set.
    pub(crate) fn set<T: Element>(self, set: &[T]) -> Result<Self, StoreError> {
        Ok(Self(DB::bind_set(self.0, set)?))
    }

    /// Planned at every call: a plan that is right for some values is wrong for others.
    pub(crate) fn anew(self) -> Self {
        Self(DB::anew(self.0))
    }

    /// For a driver.
    pub(crate) fn into_query(self) -> EngineQuery<DB> {
        self.0
    }
}

/// A transaction that is under way.
pub(crate) struct Tx<'c, DB: Engine>(pub(crate) &'c mut DB::Connection);

impl<DB: Engine> Tx<'_, DB> {
    /// The rows of a statement.
    pub(crate) async fn rows<R: Readable>(&mut self, ask: Ask<DB>) -> Result<Vec<R>, Failure> {
        Ok(DB::rows(self.0, ask.0).await?)
    }

    /// Carries out a statement. Answers how many rows it changed.
    pub(crate) async fn execute(&mut self, ask: Ask<DB>) -> Result<u64, Failure> {
        Ok(DB::execute(self.0, ask.0).await?)
    }
}
