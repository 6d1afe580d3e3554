#!/bin/bash
# One node's part of a batch job: workers, and on node 0 also the scheduler and the script.
#
#     node.sh RUN RANK
#
# The job scripts in slurm/, pbs/ and lsf/ start it once on each node. RUN is the job's folder on
# shared storage, where they have written its settings (RUN/settings). Node 0 writes the scheduler's
# address there (RUN/scheduler.json), and at the end the job's exit code (RUN/code). Exits with 0 if
# the script has ended, whatever its code, so that no batch system kills nodes about to end.
set -u

run=$1
rank=$2
declare GPUSCHED TLS SCHEDULER_OPTIONS WORKER_OPTIONS
declare -a command
# shellcheck source=/dev/null
source "$run/settings"
read -ra scheduler_options <<<"$SCHEDULER_OPTIONS"
read -ra worker_options <<<"$WORKER_OPTIONS"
file=$run/scheduler.json
children=()

if [ -n "$TLS" ]; then
    export DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=true
    export DASK_DISTRIBUTED__COMM__DEFAULT_SCHEME=tls
    export DASK_DISTRIBUTED__COMM__TLS__CA_FILE=$TLS/ca.pem
    for role in SCHEDULER WORKER CLIENT; do
        export "DASK_DISTRIBUTED__COMM__TLS__${role}__CERT=$TLS/cert.pem"
        export "DASK_DISTRIBUTED__COMM__TLS__${role}__KEY=$TLS/key.pem"
    done
fi

end() {
    trap '' TERM INT
    # Before the scheduler ends, since the other nodes end with it.
    [ -f "$run/code" ] || echo "$1" >"$run/code"
    kill "${children[@]}" 2>/dev/null
    wait
    exit "$1"
}

fail() {
    echo "gpusched job: $1" >&2
    end 1
}

if [ "$rank" = 0 ]; then
    trap 'end 143' TERM
    trap 'end 130' INT
    "$GPUSCHED" scheduler --scheduler-file "$file" "${scheduler_options[@]}" &
    scheduler=$!
    children=("$scheduler")
fi

address=
until [ -n "$address" ]; do
    # The scheduler removes its file when it ends, so a late node may find none, and the code.
    [ -d "$run" ] && [ ! -f "$run/code" ] || exit 0
    [ "$rank" != 0 ] || kill -0 "$scheduler" 2>/dev/null ||
        fail "the scheduler did not start; what it said is above"
    sleep 0.2
    address=$(sed -n 's/^  "address": "\(.*\)",$/\1/p' "$file" 2>/dev/null)
done

worker=("$GPUSCHED" worker "$address" "${worker_options[@]}")
# Workers of other nodes end with the scheduler; signals reach them without a shell between.
[ "$rank" = 0 ] || exec "${worker[@]}"

"${worker[@]}" &
children+=("$!")
"$GPUSCHED" run --scheduler "$address" "${command[@]}" &
script=$!
children+=("$script")

# What ends well before the script was ended by it (client.shutdown()), and the script may go on.
while wait -n && kill -0 "$script" 2>/dev/null; do :; done
kill -0 "$script" 2>/dev/null && fail "the scheduler or node 0's workers failed before the script ended"
wait "$script"
echo "$?" >"$run/code"
# All workers end with the scheduler; to be told twice would make theirs a hurried end.
children=("$scheduler")
end 0
