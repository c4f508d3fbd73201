#!/usr/bin/env bash
# Installs what building and testing need and this machine lacks. With nothing missing it does nothing at all.
set -euo pipefail

missing=()
need() { # COMMAND PACKAGE
  command -v "$1" >/dev/null || missing+=("$2")
}
need gcc gcc # the race detector and runc are built with cgo
need pkg-config pkg-config
need flock util-linux
[ -e /usr/include/stdlib.h ] || missing+=(libc6-dev)
pkg-config --exists libseccomp 2>/dev/null || missing+=(libseccomp-dev)

[ ${#missing[@]} -gt 0 ] || exit 0
if ! command -v apt-get >/dev/null; then
  echo "deps: please install (names as in Debian): ${missing[*]}" >&2
  exit 1
fi
sudo=()
if [ "$(id -u)" != 0 ]; then
  if ! sudo -n true 2>/dev/null; then
    echo "deps: please run: sudo apt-get install ${missing[*]}" >&2
    exit 1
  fi
  sudo=(sudo -n)
fi
echo "deps: installing ${missing[*]}" >&2
apt() { "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" </dev/null >/dev/null; }
apt update
apt install -y --no-install-recommends "${missing[@]}"
