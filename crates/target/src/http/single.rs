//! A connection that carries one request at a time (HTTP/1.1).
//!
//! It has no task of its own: the delivery that uses it drives it, so that an answer wakes one task and not two. While it is idle
//! nobody does; that its other side has closed it is found when it is used next, before anything is written.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use ::http::{Request, Response};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::{TrySendError, http1};

use super::answer::HttpAnswer;
use super::connector::{BoxError, Stream};
use super::exchange::{Body, ExchangeError};

/// One connection.
pub(super) struct Connection {
    sender: http1::SendRequest<Body>,
    driver: http1::Connection<Stream, Body>,
    /// The driver has ended.
    is_over: bool,
}

impl Connection {
    /// Begins to speak HTTP/1.1.
    pub(super) async fn begin(stream: Stream) -> Result<Box<Self>, BoxError> {
        let (sender, driver) = http1::handshake(stream).await?;
        Ok(Box::new(Self { sender, driver, is_over: false }))
    }

    /// Writes a request and waits for the head of the answer.
    pub(super) async fn send(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Body>>> {
        let Self { sender, driver, is_over } = self;
        let mut answer = pin!(sender.try_send_request(request));
        poll_fn(|cx| {
            drive(driver, is_over, cx);
            answer.as_mut().poll(cx)
        })
        .await
    }

    /// Reads the body of an answer. Whether it was read to its end: so much of it may be left that it is not worth it.
    pub(super) async fn read(
        &mut self,
        body: &mut Incoming,
        answer: &mut HttpAnswer,
        max_bytes: usize,
    ) -> Result<bool, ExchangeError> {
        while !body.is_end_stream() {
            let frame = poll_fn(|cx| {
                if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
                    return Poll::Ready(Ok(frame));
                }
                drive(&mut self.driver, &mut self.is_over, cx);
                match Pin::new(&mut *body).poll_frame(cx) {
                    Poll::Ready(frame) => Poll::Ready(Ok(frame)),
                    Poll::Pending if self.is_over => Poll::Ready(Err("the connection ended".to_owned())),
                    Poll::Pending => Poll::Pending,
                }
            });
            let broken = |why: String| ExchangeError::NoBody(answer.status.as_u16(), why);
            let Some(frame) = frame.await.map_err(broken)? else { break };
            let data = frame.map_err(|error| broken(crate::chain(&error)))?.into_data().unwrap_or_default();
            let room = max_bytes.saturating_sub(answer.body.len());
            answer.body.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() > room {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Nobody waits for this connection any more. Whether it can take another request.
    pub(super) fn rests(&mut self) -> bool {
        // So that it holds on to no task, and has taken notice of the answer's end.
        drive(&mut self.driver, &mut self.is_over, &mut Context::from_waker(Waker::noop()));
        !self.is_over && self.sender.is_ready()
    }
}

/// Lets a connection write and read. The request that waits for its answer hears what ended it.
fn drive(driver: &mut http1::Connection<Stream, Body>, is_over: &mut bool, cx: &mut Context<'_>) {
    if !*is_over {
        *is_over = Pin::new(driver).poll(cx).is_ready();
    }
}
