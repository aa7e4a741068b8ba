#!/usr/bin/env bash
# Sends some commands to the queue whose URL is given: a schedule, a run of it now, and a change of it.
#
#   AWS_REGION=eu-central-1 ./send.sh https://sqs.eu-central-1.amazonaws.com/123456789012/tollgate-commands
set -euo pipefail

queue=${1:?the URL of the queue}

send() { # MESSAGE
    aws sqs send-message --queue-url "$queue" --message-body "$1" --output text --query MessageId
}

send '{"version": 1, "op": "apply", "id": "hello:1", "revision": 1, "reply": "made",
       "resource": {"schedule": {"id": "hello", "triggers": [{"cron": "0 3 * * *"}], "timeZone": "Europe/Berlin",
                                 "target": {"http": {"url": "https://jobs.example/hello"}}}}}'
# It may overtake the first one: then it waits for it.
send '{"version": 1, "op": "trigger", "id": "hello:now", "resource": "schedules/hello", "reply": "started"}'
# In whatever order they come, revision 2 is the last word.
send '{"version": 1, "op": "apply", "id": "hello:2", "revision": 2, "reply": "changed",
       "resource": {"schedule": {"id": "hello", "triggers": [{"cron": "0 4 * * *"}], "timeZone": "Europe/Berlin",
                                 "target": {"http": {"url": "https://jobs.example/hello"}}}}}'
