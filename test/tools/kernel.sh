#!/usr/bin/env bash
# Downloads Debian's newest cloud kernel of each series and prints its folder, one per line, in the order of the
# arguments. A folder has vmlinuz, config and the modules below lib/modules. Nothing is installed on this machine.
#
#   test/tools/kernel.sh 6.1 6.12
#   test/tools/kernel.sh --built 6.12-core   builds and downloads nothing, and fails if the kernel is not in the cache
#
# 6.12-core is built from Debian's source of 6.12, once, with kernel-core.config: Debian's own kernels lack core
# scheduling. The build takes four to eight minutes on two processors. All checkouts of a user share it: it is kept in
# ${XDG_CACHE_HOME:-~/.cache}/trimtab.
#
# Without a network it uses the newest kernel in the cache.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${TRIMTAB_CACHE:-$here/../../.cache/tools}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
say() { printf 'kernel: %s\n' "$*" >&2; }

# The package of bookworm's own series has no series in its name.
meta() { if [ "$1" = 6.1 ]; then echo linux-image-cloud-amd64; else echo "linux-image-$1-cloud-amd64"; fi; }

# The kernel package on which the meta package depends now; empty if apt does not have it.
package() {
  apt-cache show --no-all-versions "$(meta "$1")" 2>/dev/null |
    sed -n 's/^Depends:.*\(linux-image-[0-9][^ ,]*-cloud-amd64\).*/\1/p' | head -1
}

refresh() {
  say "updating apt's package lists"
  if [ "$(id -u)" = 0 ]; then apt-get -qq update; else sudo -n apt-get -qq update; fi >&2 </dev/null || true
}

# fetch PACKAGE INTO
fetch() {
  (cd "$2" && apt-get -qq download "$1" 2>/dev/null >&2) || return 1
  dpkg-deb -x "$2"/*.deb "$2/root"
  local version
  version=$(ls "$2/root/lib/modules")
  mkdir -p "$2/kernel/lib"
  mv "$2/root/boot/vmlinuz-$version" "$2/kernel/vmlinuz"
  mv "$2/root/boot/config-$version" "$2/kernel/config"
  mv "$2/root/lib/modules" "$2/kernel/lib/"
  PATH=$PATH:/usr/sbin depmod -b "$2/kernel" "$version" # an extracted package has no modules.dep yet
}

# core SERIES: builds a small kernel with core scheduling and without modules.
core() {
  local series=$1 source name dir shared work release
  source=linux-source-${series%-core}
  version() { apt-cache show --no-all-versions "$source" 2>/dev/null | sed -n 's/^Version: //p'; }
  [ -n "$(version)" ] || refresh
  name=${series%-core}-$(version)-$(sha256sum "$here/kernel-core.config" | cut -c 1-12)
  dir=$cache/kernel-core-$name
  shared=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/trimtab/kernel-core-$name
  if [ ! -e "$dir/vmlinuz" ]; then
    exec 9>"$cache/kernel-$series.lock"
    flock 9
  fi
  if [ ! -e "$dir/vmlinuz" ] && [ -e "$shared/vmlinuz" ]; then
    copy "$shared" "$dir" || say "$series: cannot copy $shared"
  fi
  if [ ! -e "$dir/vmlinuz" ] && [ -n "$built" ]; then
    say "$series is not built"
    exit 1
  fi
  if [ ! -e "$dir/vmlinuz" ]; then
    say "$series: building it of $source"
    work=$(mktemp -d "$cache/.kernel.XXXXXX")
    (
      cd "$work"
      apt-get -qq download "$source" >&2
      dpkg-deb --fsys-tarfile "$source"_*.deb | tar -xO "./usr/src/$source.tar.xz" | tar -xJ
      make -C "$source" KCONFIG_ALLCONFIG="$here/kernel-core.config" allnoconfig
      make -C "$source" -j "$(nproc)" bzImage
      release=$(make -s -C "$source" kernelrelease)
      mkdir -p "kernel/lib/modules/$release"
      touch "kernel/lib/modules/$release/modules.dep" # it has none
      cp "$source/arch/x86/boot/bzImage" kernel/vmlinuz
      cp "$source/.config" kernel/config
      mv -T kernel "$dir"
    ) >"$cache/kernel-$series.log" 2>&1 || { rm -rf "$work"; say "$series: failed, see $cache/kernel-$series.log"; exit 1; }
    rm -rf "$work"
    chmod 755 "$dir"
  fi
  [ -e "$shared/vmlinuz" ] || copy "$dir" "$shared" || say "$series: not kept for other checkouts in $shared"
  echo "$dir"
}

# copy FROM TO copies a folder, which appears complete or not at all.
copy() {
  mkdir -p "$(dirname "$2")" && rm -rf "$2.$$" && cp -a "$1" "$2.$$" || return 1
  mv -T "$2.$$" "$2" 2>/dev/null || rm -rf "$2.$$" # another checkout may have made it meanwhile
}

bring() {
  local series=$1 name dir work newest
  name=$(package "$series")
  if [ -z "$name" ]; then
    refresh
    name=$(package "$series")
  fi
  dir=$cache/kernel-$series-${name#linux-image-}
  if [ -n "$built" ] && { [ -z "$name" ] || [ ! -e "$dir/vmlinuz" ]; }; then
    say "$series is not in the cache"
    exit 1
  fi
  if [ -z "$name" ] || [ ! -e "$dir/vmlinuz" ]; then
    work=$(mktemp -d "$cache/.kernel.XXXXXX")
    if [ -n "$name" ] && { fetch "$name" "$work" || { refresh; name=$(package "$series"); fetch "$name" "$work"; }; }; then
      dir=$cache/kernel-$series-${name#linux-image-}
      say "$series: downloaded $name"
      mv -T "$work/kernel" "$dir" 2>/dev/null || true # another run may have made it meanwhile
      chmod 755 "$dir"
    else
      newest=$(ls -dt "$cache/kernel-$series-"* 2>/dev/null | head -1)
      rm -rf "$work"
      [ -n "$newest" ] || { say "$series: neither apt nor the cache has $(meta "$series")"; exit 1; }
      say "$series: apt does not answer; using $(basename "$newest")"
      dir=$newest
    fi
    rm -rf "$work"
  fi
  echo "$dir"
}

built=""
[ "${1:-}" != --built ] || { built=yes; shift; }
[ $# -gt 0 ] || { sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
for series; do
  case $series in
  *-core) core "$series" ;;
  *) bring "$series" ;;
  esac
done
