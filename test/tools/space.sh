#!/usr/bin/env bash
# Fails, with advice, when a file system that a run writes to has too little free space. A disk that fills up during a
# run fails many tests, and none of them names the cause.
#
#   test/tools/space.sh GIB           checks the checkout, Go's build cache and the folder of temporary files
#   test/tools/space.sh GIB --clean   first deletes from Go's build cache, if its file system is short: what was not used
#                                     for some hours, and all of it if that is not enough
set -euo pipefail

want=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=$(go env GOCACHE)
mkdir -p "$cache"

free() { df -BM --output=avail "$1" | tail -1 | tr -dc 0-9; } # MiB

short() { [ "$(free "$1")" -lt $((want * 1024)) ]; }

if [ "${2:-}" = --clean ] && short "$cache"; then
  # Go updates the time of an entry that it uses, at most once an hour.
  echo "space: $(($(free "$cache") / 1024)) GiB free at $cache, of $want: deleting old entries of Go's build cache" >&2
  find "$cache" -mindepth 2 -ignore_readdir_race -not -path "$cache/fuzz/*" -type f -mmin +240 -delete
  if short "$cache"; then
    echo "space: $(($(free "$cache") / 1024)) GiB free at $cache, of $want: emptying Go's build cache" >&2
    go clean -cache
  fi
fi
for dir in "$root" "$cache" "${TMPDIR:-/tmp}"; do
  if short "$dir"; then
    echo "space: $(($(free "$dir") / 1024)) GiB free at $dir, and this needs $want. Free some space: \`go clean -cache\`" \
      "empties Go's build cache, \`make clean\` removes the tools and machines in .cache" >&2
    exit 1
  fi
done
echo "space: $(($(free "$root") / 1024)) GiB free at $root" >&2
