"""The loop of a consumer of Tollgate: it takes events, has a handler work on each once, keeps their tokens by heartbeats, and gives
the tokens back when the work is done.

    from tollgate_worker import Pull, Worker

    Worker(Pull("render"), lambda event, context: render(event.data), concurrency=4).run()
"""

from .client import RefusedError
from .context import Context, TokenLostError
from .event import Event
from .outcome import FailedError, Outcome, Status
from .pull import Pull
from .push import Http
from .sqs import Sqs
from .worker import Handler, Source, Worker

__all__ = [
    "Context",
    "Event",
    "FailedError",
    "Handler",
    "Http",
    "Outcome",
    "Pull",
    "RefusedError",
    "Source",
    "Sqs",
    "Status",
    "TokenLostError",
    "Worker",
]
