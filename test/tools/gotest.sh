#!/usr/bin/env bash
# Runs the tests of a module with the race detector, but for the packages of the main module that are named.
#
#   test/tools/gotest.sh MODULE_FOLDER "PACKAGE_WITHOUT_RACE..." [ARGUMENT_OF_GO_TEST...]
set -uo pipefail
module=$1
read -r -a without <<<"$2"
shift 2
cd "$module" || exit 1
[ "$module" = . ] || exec go test -race -shuffle=on -timeout 40m "$@" ./...
status=0
mapfile -t raced < <(go list ./... | grep -vxFf <(go list "${without[@]}"))
[ ${#raced[@]} -gt 0 ] || exit 1
go test -race -shuffle=on -timeout 20m "$@" "${raced[@]}" || status=1
go test -shuffle=on -timeout 20m "$@" "${without[@]}" || status=1
exit $status
