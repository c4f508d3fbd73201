#!/usr/bin/env bash
# Runs the tests of a module with the race detector. In the main module, some packages run without it, and some both
# with it and without it.
#
#   test/tools/gotest.sh MODULE_FOLDER "PACKAGE_WITHOUT..." "PACKAGE_WITH_AND_WITHOUT..." [ARGUMENT_OF_GO_TEST...]
set -uo pipefail
module=$1
read -r -a without <<<"$2"
read -r -a both <<<"$3"
shift 3
cd "$module" || exit 1
[ "$module" = . ] || exec go test -race -shuffle=on -timeout 40m "$@" ./...
status=0
mapfile -t raced < <(go list ./... | grep -vxFf <(go list "${without[@]}"))
[ ${#raced[@]} -gt 0 ] || exit 1
go test -race -shuffle=on -timeout 20m "$@" "${raced[@]}" || status=1
go test -shuffle=on -timeout 20m "$@" "${without[@]}" "${both[@]}" || status=1
exit $status
