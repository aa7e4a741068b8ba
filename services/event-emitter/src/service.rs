//! Says over gRPC how far the emitters are. Reads the store alone, so that any process gives the same answer.

use std::sync::Arc;

use tollgate_clock::Clock;
use tollgate_proto::convert::{duration_of_ms, duration_of_s, timestamp};
use tollgate_proto::v1::event_emitter_service_server::EventEmitterService;
use tollgate_proto::v1::{
    EmitterStatus, GetEmitterStatusRequest, ListWindowsRequest, ListWindowsResponse, Window, WindowState,
};
use tollgate_proto::{FieldError, page};
use tollgate_service::status::status;
use tollgate_store::emit::{EmitStore, Frontier, WindowRow};
use tollgate_store::{CorruptRow, StoreError};
use tonic::{Request, Response, Status};

use crate::Options;

/// How many open windows a status lists.
const OPEN_MAX: usize = 1_000;

/// `tollgate.v1.EventEmitterService`.
#[derive(Clone)]
pub struct EmitterService {
    store: Arc<dyn EmitStore>,
    clock: Clock,
    options: Options,
}

impl EmitterService {
    pub(crate) fn new(store: Arc<dyn EmitStore>, clock: Clock, options: Options) -> Self {
        Self { store, clock, options }
    }

    async fn status(&self) -> Result<EmitterStatus, StoreError> {
        let incomplete = self.store.windows(0).await?;
        let frontier = self.store.frontier().await?;
        let zones = self.store.zones().await?;
        let lag_us = lag_us(&frontier, &incomplete, self.clock.wall_us());
        Ok(EmitterStatus {
            frontier_time: frontier.completed_until_us.map(timestamp),
            opened_until_time: frontier.opened_until_us.map(timestamp),
            lag: Some(duration_of_ms(lag_us.max(0) / 1_000)),
            window_length: Some(duration_of_s(self.options.window_s)),
            emit_ahead: Some(duration_of_s(self.options.ahead_s)),
            // Intervals and single shots have no zone.
            time_zones: zones.into_iter().filter(|zone| !zone.is_empty()).collect(),
            open_windows: incomplete.iter().take(OPEN_MAX).map(message).collect(),
            open_windows_count: u32::try_from(incomplete.len()).unwrap_or(u32::MAX),
            corrupt_rows: self
                .store
                .corrupt_rows()
                .into_iter()
                .filter(|row| row.shard.is_none())
                .map(corrupt_row)
                .collect(),
        })
    }

    /// The `size` latest windows that start before `before_us`, and whether there are more.
    async fn latest(&self, before_us: i64, size: usize) -> Result<(Vec<WindowRow>, bool), StoreError> {
        let mut asked = u32::try_from(size).unwrap_or(u32::MAX).saturating_add(1);
        loop {
            let mut rows = self.store.windows(asked).await?;
            let complete = rows.iter().filter(|row| row.completed_us.is_some()).count();
            rows.retain(|row| row.window.start_us < before_us);
            rows.sort_by_key(|row| std::cmp::Reverse(row.window.start_us));
            if rows.len() > size || complete < asked as usize || asked == u32::MAX {
                let more = rows.len() > size;
                rows.truncate(size);
                return Ok((rows, more));
            }
            // Too many of them lie after the page: ask for more.
            asked = asked.saturating_mul(4);
        }
    }
}

#[tonic::async_trait]
impl EventEmitterService for EmitterService {
    async fn get_emitter_status(
        &self,
        _request: Request<GetEmitterStatusRequest>,
    ) -> Result<Response<EmitterStatus>, Status> {
        self.status().await.map(Response::new).map_err(status)
    }

    async fn list_windows(
        &self,
        request: Request<ListWindowsRequest>,
    ) -> Result<Response<ListWindowsResponse>, Status> {
        const QUERY: [&str; 1] = ["ListWindows"];
        let request = request.into_inner();
        let size = page::size(request.page_size).map_err(field)?;
        let before_us = page::Token::<i64>::decode(&request.page_token, &QUERY).map_err(field)?;
        let (rows, more) = self.latest(before_us.unwrap_or(i64::MAX), size).await.map_err(status)?;
        let next_page_token = match rows.last() {
            Some(last) if more => page::Token::encode(last.window.start_us, &QUERY),
            _ => String::new(),
        };
        let windows = rows.iter().map(message).collect();
        Ok(Response::new(ListWindowsResponse { windows, next_page_token }))
    }
}

/// How far the first window that is not complete lies behind now; negative while it lies ahead. Zero before there is
/// a window.
pub(crate) fn lag_us(frontier: &Frontier, incomplete: &[WindowRow], now_us: i64) -> i64 {
    let first_open_us = incomplete.first().map(|row| row.window.start_us);
    frontier.completed_until_us.or(first_open_us).map_or(0, |until_us| now_us - until_us)
}

fn message(row: &WindowRow) -> Window {
    let state = if row.completed_us.is_some() { WindowState::Complete } else { WindowState::Open };
    Window {
        start_time: Some(timestamp(row.window.start_us)),
        end_time: Some(timestamp(row.window.end_us)),
        state: state.into(),
        tasks_count: row.tasks,
        tasks_done_count: row.tasks.saturating_sub(row.tasks_left),
        runs_count: row.runs.into(),
        open_time: Some(timestamp(row.opened_us)),
        complete_time: row.completed_us.map(timestamp),
    }
}

fn corrupt_row(row: CorruptRow) -> tollgate_proto::v1::CorruptRow {
    let CorruptRow { table, shard, key, column, message } = row;
    tollgate_proto::v1::CorruptRow {
        table: table.to_owned(),
        shard: shard.map(u32::from),
        key,
        column,
        message,
    }
}

fn field(error: FieldError) -> Status {
    error.into()
}
