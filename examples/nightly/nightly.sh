#!/usr/bin/env bash
# A nightly job over a list of tenants: one run, each of whose events carries a row of the list, two of a tenant at once and fifty in
# all, and at the end what became of each. Any consumer beside this folder does the work.
#
#   tollgate apply -f http.yaml; ./nightly.sh [tenants.csv] [results.ndjson]
#
# TOLLGATE_SERVER, TOLLGATE_NAMESPACE and TOLLGATE_API_KEY as for any command. The exit code is 0 where all went well.
set -euo pipefail
cd "$(dirname "$0")"

tenants=${1:-tenants.csv}
results=${2:-results.ndjson}
# Named by its night: started again, it goes on with the same run, and makes no second one.
night=${NIGHT:-$(date -u +%F)}

run=$(tollgate submit nightly "$tenants" --key-field tenant --units-field units --request-id "nightly-$night" -o name)
status=0
tollgate wait "$run" -o name >/dev/null || status=$?
tollgate results "$run" >"$results" || status=$?
tollgate results "$run" --failed >&2 || true
exit "$status"
