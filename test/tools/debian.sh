#!/usr/bin/env bash
# Makes an archive of a small Debian with systemd, once, and prints its path. It needs root and the mirror of apt. The
# archive's name has a hash of this script; its packages are those of the day on which it was made.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${TRIMTAB_CACHE:-$here/../../.cache/tools}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

suite=bookworm
packages=systemd,systemd-sysv,dbus,kmod,iproute2,procps
archive=$cache/debian-$suite-$(sha256sum <"${BASH_SOURCE[0]}" | cut -c1-12).tar

if [ ! -e "$archive" ]; then
  exec 9>"$cache/debian.lock"
  flock 9
fi
if [ ! -e "$archive" ]; then
  start=$(date +%s)
  echo "debian: making a root file system with systemd (up to 160 s)" >&2
  rm -rf "$archive.new"
  mmdebstrap --quiet --format=tar --variant=minbase --include=$packages --aptopt='Acquire::Languages "none"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    $suite "$archive.new" >&2 9>&-
  mv "$archive.new" "$archive"
  echo "debian: made in $(($(date +%s) - start)) s" >&2
fi
echo "$archive"
