#!/usr/bin/env bash
# Fuzzes every target of packages of the main module, one after the other, for a total number of seconds. Go writes a
# failing input to the package's testdata/fuzz, where `go test` runs it from then on: commit it with the fix.
#
#   test/tools/fuzz.sh 3600 ./internal/attach/relay
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
[ $# -ge 2 ] || { sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
seconds=$1
shift

targets=()
for package; do
  while read -r target; do targets+=("$package $target"); done < <(go test -list '^Fuzz' "$package" | grep '^Fuzz')
done
[ ${#targets[@]} -gt 0 ] || { echo "fuzz: no target in $*" >&2; exit 1; }
each=$((seconds / ${#targets[@]}))

failed=()
for target in "${targets[@]}"; do
  read -r package name <<<"$target"
  echo "fuzz: $package $name for $each s"
  go test "$package" -run '^$' -fuzz "^$name\$" -fuzztime "${each}s" || failed+=("$package $name")
done
[ ${#failed[@]} -eq 0 ] || { printf 'fuzz: FAILED: %s\n' "${failed[@]}"; exit 1; }
