#!/usr/bin/env bash
# Downloads Debian's Docker and prints the folder with dockerd and docker. Nothing is installed on this machine, and no
# daemon is started. dockerd also needs the packages containerd, runc and libdevmapper1.02.1 (test/tools/deps.sh).
#
# Without a network it uses the newest Docker in the cache.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${TRIMTAB_CACHE:-$here/../../.cache/tools}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
say() { printf 'docker: %s\n' "$*" >&2; }

version() { apt-cache show --no-all-versions docker.io 2>/dev/null | sed -n 's/^Version: //p' | head -1; }

v=$(version)
if [ -z "$v" ]; then
  say "updating apt's package lists"
  if [ "$(id -u)" = 0 ]; then apt-get -qq update; else sudo -n apt-get -qq update; fi >&2 </dev/null || true
  v=$(version)
fi
if [ -z "$v" ]; then
  # shellcheck disable=SC2012 # names of our own
  dir=$(ls -dt "$cache"/docker-*/ 2>/dev/null | head -1)
  [ -n "$dir" ] || { say "apt has no package docker.io, and the cache has none either"; exit 1; }
  echo "${dir%/}/bin"
  exit 0
fi
dir=$cache/docker-$v
if [ ! -e "$dir/done" ]; then
  exec 9>"$cache/docker.lock"
  flock 9
fi
if [ ! -e "$dir/done" ]; then
  say "downloading docker.io $v"
  work=$(mktemp -d "$cache/.docker.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  (cd "$work" && apt-get -qq download docker.io 2>/dev/null >&2) || { say "docker.io $v cannot be downloaded"; exit 1; }
  dpkg-deb -x "$work"/*.deb "$work/root"
  mkdir "$work/bin"
  mv "$work/root/usr/sbin/dockerd" "$work/root/usr/bin/docker" "$work/bin/"
  rm -rf "$work/root" "$work"/*.deb
  touch "$work/done"
  chmod 755 "$work"
  rm -rf "$dir"
  mv "$work" "$dir"
fi
echo "$dir/bin"
