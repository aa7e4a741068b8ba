//! The middle of a move: the test holds a policy's row, and the transaction that moves it has to wait. On PostgreSQL.

use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tollgate_harness::resources::{policy, policy_name};
use tollgate_harness::{Cli, Database, Kind, Service, wait_for};
use tollgate_proto::v1::{GetPolicyRequest, Policy};

use super::{QUICK, all_owned, to_move};

/// In which of so many shards a policy lives that has nothing above it.
pub(super) fn belongs(policy: &Policy, shards: u64) -> u64 {
    let digits = policy.uid.replace('-', "");
    let bytes: Vec<u8> =
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect();
    let digest = Sha256::digest(bytes);
    digest.iter().take(7).fold(0_u64, |hash, byte| hash << 8 | u64::from(*byte)) % shards
}

/// Whether a policy will move where so many shards are used.
pub(super) fn is_to_move(policy: &Policy, shards: u64) -> bool {
    belongs(policy, shards) != u64::from(policy.shard)
}

/// A policy as it is stored.
pub(super) async fn stored(service: &Service, id: &str) -> Policy {
    let request = GetPolicyRequest { name: policy_name(id) };
    service.master().get_policy(request).await.unwrap().into_inner()
}

/// The first of these policies that will move where so many shards are used.
pub(super) async fn first_to_move(
    service: &Service,
    ids: impl IntoIterator<Item = String>,
    shards: u64,
) -> Policy {
    for id in ids {
        let found = stored(service, &id).await;
        if is_to_move(&found, shards) {
            return found;
        }
    }
    panic!("none of them belongs elsewhere");
}

/// Makes policies until one will move where so many shards are used: its id.
pub(super) async fn misplaced(service: &Service, name: &str, given: &Policy, shards: u64) -> String {
    for number in 0..100 {
        let id = format!("{name}{number}");
        if is_to_move(&service.create_policy(&id, given.clone()).await.unwrap(), shards) {
            return id;
        }
    }
    panic!("none of a hundred policies belongs elsewhere");
}

/// Holds a policy's row until it lets go.
pub(super) struct Holder(PgConnection);

impl Holder {
    pub(super) async fn of(database: &Database, policy: &str) -> Self {
        let mut connection = PgConnection::connect(&database.url()).await.unwrap();
        let text = format!("BEGIN; SELECT uid FROM policies WHERE id = '{policy}' FOR UPDATE");
        sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut connection).await.unwrap();
        Self(connection)
    }

    /// Waits until so many transactions wait for the row. Each does so for 6 s at most.
    pub(super) async fn is_awaited_by(&mut self, count: i64) {
        // Whoever waits for a row has, or waits for, the lock of its place.
        let waiting = "SELECT count(DISTINCT pid) FROM pg_locks WHERE locktype = 'tuple' AND relation = 'policies'::regclass \
                       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        wait_for(&format!("{count} that wait for the policy"), 90, async || {
            let waiting: i64 = sqlx::query_scalar(waiting).fetch_one(&mut self.0).await.unwrap();
            (waiting >= count).then_some(())
        })
        .await;
    }

    /// Which process owns a queue shard, as the database says.
    pub(super) async fn owner(&mut self, shard: u32) -> String {
        let owner = "SELECT owner FROM queue_shards WHERE shard_id = $1";
        let shard = i32::try_from(shard).unwrap();
        sqlx::query_scalar(owner).bind(shard).fetch_one(&mut self.0).await.unwrap()
    }

    pub(super) async fn lets_go(mut self) {
        sqlx::raw_sql("ROLLBACK").execute(&mut self.0).await.unwrap();
        self.0.close().await.unwrap();
    }
}

/// Whoever makes a policy has read where the one above it lives, and finds that it has moved: it is made where that is by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_is_made_while_its_tree_moves_is_made_where_that_goes() {
    let database = Database::new(Kind::Postgres).await;
    let service = Service::start_with(&database, &QUICK).await;
    let root = misplaced(&service, "root", &policy(5), 256).await;
    let before = stored(&service, &root).await;
    let mut holder = Holder::of(&database, &root).await;
    let (cli, url) = (Cli::new(service.url()), database.url());
    cli.json(&["store", "shards", "--to", "256", "--store", &url]);
    // The move first; then whoever makes a policy, by what it has read before.
    holder.is_awaited_by(1).await;
    let child = Policy { parent: Some(before.name.clone()), ..Policy::default() };
    let made = async { service.create_policy("child", child).await };
    let both = async {
        holder.is_awaited_by(2).await;
        holder.lets_go().await;
    };
    let (made, ()) = tokio::join!(made, both);
    let made = made.unwrap();
    wait_for("the tree to have moved", 120, async || (to_move(&cli, &url) == 0).then_some(())).await;
    let after = stored(&service, &root).await;
    assert_eq!(u64::from(after.shard), belongs(&before, 256), "{after:?}");
    assert_ne!(after.shard, before.shard);
    assert_eq!((made.shard, made.parent.as_ref()), (after.shard, Some(&before.name)), "{made:?}");
    assert_eq!(stored(&service, "child").await.shard, after.shard);
    all_owned(&service, 256, 1).await;
    service.stop().await;
}
