#!/bin/sh
# Repeats the tests that kill processes, and says how often they failed.
#   tools/kill_suite.sh [TIMES] [PYTEST ARGUMENTS]
times=${1:-5}
[ $# -gt 0 ] && shift
failed=0
for round in $(seq "$times"); do
    echo "round $round of $times"
    python -m pytest tests/train/test_kill_suite.py -q "$@" || failed=$((failed + 1))
done
echo "$failed of $times rounds failed"
[ "$failed" -eq 0 ]
