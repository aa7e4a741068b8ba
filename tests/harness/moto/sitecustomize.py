"""Python reads this when moto starts. A deletion builds the list of messages anew, and would lose what is added meanwhile."""

import threading

from moto.sqs.models import Queue

_LOCK = threading.RLock()


def _alone(method):
    def call(*args, **kwargs):
        with _LOCK:
            return method(*args, **kwargs)

    return call


Queue.add_message = _alone(Queue.add_message)
Queue.delete_message = _alone(Queue.delete_message)
