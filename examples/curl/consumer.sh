#!/usr/bin/env bash
# A consumer with curl only: reads an SQS queue, works on each event once, and gives its token back by REST.
#
#   QUEUE_URL=… SQS_ENDPOINT=http://127.0.0.1:5000 TOLLGATE=http://127.0.0.1:7411 ./consumer.sh
#
# AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY as usual; WORKERS at once, 4 by default. A consumer of an HTTP target
# needs even less: `release` below is all of it.
# SIGTERM: takes nothing new, ends the work under way, gives its tokens back.
set -euo pipefail

: "${QUEUE_URL:?the URL of the queue}"
tollgate=${TOLLGATE:-http://127.0.0.1:7411}
region=${AWS_REGION:-eu-central-1}
endpoint=${SQS_ENDPOINT:-https://sqs.$region.amazonaws.com}
poll_s=${POLL_S:-20}
# One folder for each event that has come: what makes it has the event. A real one is where all consumers see it.
state=${STATE:-$(mktemp -d)}
stopping=
trap 'stopping=1' TERM INT

sqs() { # OPERATION BODY
    curl -sS --fail-with-body --aws-sigv4 "aws:amz:$region:sqs" -u "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
        -H 'Content-Type: application/x-amz-json-1.0' -H "X-Amz-Target: AmazonSQS.$1" -d "$2" "$endpoint/"
}

# What this consumer is for.
work() { # EVENT
    echo "begin $1"
    sleep 0.1
    echo "done $1"
}

# The token comes back when the work is done. Harmless when repeated, so curl may try again.
release() { # EVENT ATTEMPT [OUTCOME]
    curl -sS --fail-with-body --retry 20 --retry-connrefused --max-time 30 -o /dev/null \
        --json "{\"attempt\": $2, \"outcome\": \"${3:-SUCCEEDED}\"}" "$tollgate/v1/events/$1:release"
}

attribute() { # NAME: of the message on standard input
    sed -n "s/.*\"$1\": *{[^}]*\"StringValue\": *\"\([^\"]*\)\".*/\1/p"
}

worker() {
    trap 'stopping=1' TERM
    local message receipt event attempt outcome
    while [ -z "$stopping" ]; do
        message=$(sqs ReceiveMessage "{\"QueueUrl\": \"$QUEUE_URL\", \"WaitTimeSeconds\": $poll_s, \"MessageAttributeNames\": [\"All\"]}") ||
            { sleep 1; continue; }
        receipt=$(sed -n 's/.*"ReceiptHandle": *"\([^"]*\)".*/\1/p' <<<"$message")
        [ -n "$receipt" ] || continue
        event=$(attribute tollgate-event-id <<<"$message")
        attempt=$(attribute tollgate-attempt <<<"$message")
        outcome=SUCCEEDED
        if mkdir "$state/$event" 2>/dev/null; then
            if work "$event"; then
                touch "$state/$event/done"
            else
                rmdir "$state/$event" # its next attempt is worked on
                outcome=RETRY
            fi
        elif [ ! -e "$state/$event/done" ]; then
            continue # another worker has it; the message comes again, should that one fail
        fi
        # Done now, or before and its release was not heard. A message whose release fails comes again.
        if release "$event" "$attempt" "$outcome"; then
            sqs DeleteMessage "{\"QueueUrl\": \"$QUEUE_URL\", \"ReceiptHandle\": \"$receipt\"}" >/dev/null || true
        fi
    done
}

echo "listening on $QUEUE_URL"
workers=()
for _ in $(seq "${WORKERS:-4}"); do
    worker &
    workers+=($!)
done
wait || true # a signal ends it
kill -TERM "${workers[@]}" 2>/dev/null || true
wait
echo "stopped"
