#!/usr/bin/env bash
# Runs all static checks of CI. All checks run; the exit status is 1 if one failed.
#
#   test/tools/lint.sh MODULE_FOLDER...
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root" || exit 1
modules=("${@:-.}")
failed=()

step() { # NAME COMMAND...
  local name=$1 start=$SECONDS
  shift
  skipped=""
  if "$@"; then
    echo "lint: $name: ${skipped:-ok} ($((SECONDS - start)) s)"
  else
    echo "lint: $name: FAILED ($((SECONDS - start)) s)"
    failed+=("$name")
  fi
}

formatted() {
  local bad
  bad=$(git ls-files -co --exclude-standard '*.go' | sort -u | while IFS= read -r f; do
    [ ! -f "$f" ] || printf '%s\0' "$f"
  done | xargs -0 -r gofmt -s -l) || return 1
  [ -z "$bad" ] || { echo "gofmt -s would change:"; sed 's/^/  /' <<<"$bad"; return 1; }
}

vet() { (cd "$1" && go vet ./...); }

# Another checkout may run the linter at the same time.
linters() { (cd "$1" && "$golangci" run --allow-parallel-runners --config "$root/.golangci.yml" ./...); }

# The vulnerability database is on the network. If it is unreachable, the check is skipped and reports that.
vulnerable() {
  local output status
  output=$(cd "$1" && "$govulncheck" ./... 2>&1)
  status=$?
  if [ $status -ne 0 ] && grep -q 'fetching vulnerabilities' <<<"$output"; then
    skipped="SKIPPED, the vulnerability database is unreachable"
    return 0
  fi
  [ $status -eq 0 ] || echo "$output"
  return $status
}

step gofmt formatted
for m in "${modules[@]}"; do step "vet $m" vet "$m"; done
if tools=$(test/tools/build.sh golangci-lint govulncheck); then
  { read -r lint_dir; read -r vuln_dir; } <<<"$tools"
  golangci=$lint_dir/golangci-lint govulncheck=$vuln_dir/govulncheck
  for m in "${modules[@]}"; do step "golangci-lint $m" linters "$m"; done
  for m in "${modules[@]}"; do step "govulncheck $m" vulnerable "$m"; done
else
  failed+=("tools")
fi
step "generated files" test/tools/stale.sh

if [ ${#failed[@]} -gt 0 ]; then
  echo "== make lint: FAILED: $(IFS=,; echo "${failed[*]}") in $SECONDS s"
  exit 1
fi
echo "== make lint: passed in $SECONDS s"
