#!/usr/bin/env bash
# Runs go generate and fails if that changes a file. It compares the working tree, so uncommitted changes do not matter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

state() {
  git ls-files -co --exclude-standard -z | sort -z | while IFS= read -r -d '' file; do
    [ ! -f "$file" ] || printf '%s\0' "$file"
  done | xargs -0 sha256sum
}
before=$(state)
go generate ./...
if ! changed=$(diff <(echo "$before") <(state)); then
  echo "generated files were out of date and have been written again; commit them:" >&2
  sed -n 's/^[<>] [0-9a-f]*  /  /p' <<<"$changed" | sort -u >&2
  exit 1
fi
