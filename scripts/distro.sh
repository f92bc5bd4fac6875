#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The last commit set up, built, shown and tested in a root of another Debian. `./dev distro` calls it.
# usage: distro.sh [--no-test] SUITE [NAME]    trixie, sid or bookworm. Root, mmdebstrap, a mirror (WEFT_MIRROR).
# NAME selects tests as for ./dev test, and leaves out the demonstration; --no-test leaves out both. Status 1: a step failed.
# WEFT_MIRROR_EXPIRED=1 accepts the lists of a mirror that is not renewed, as a snapshot's. The root stays in build/distro/SUITE (WEFT_DISTRO: another folder for SUITE), and the next run goes on there.
set -euo pipefail

# in_root FOLDER SUITE NAME TESTS: the steps, in namespaces of their own, so that mounts and processes end with them.
in_root() {
  local root="$1/root" suite="$2" select="$3" tests="$4" name versions built=1 status=0 result=()
  mount --rbind "$root" "$root"
  for name in dev sys; do mount --rbind "/$name" "$root/$name"; done
  mount -t proc proc "$root/proc"
  cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
  local clean=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LC_ALL=C.UTF-8 ${WEFT_JOBS:+WEFT_JOBS="$WEFT_JOBS"})
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do [[ -z "${!name:-}" ]] || clean+=("$name=${!name}"); done
  # As its own root, not by chroot(2): a process in that may make no user namespace (user_namespaces(7)), and tests would be skipped.
  # shellcheck disable=SC2016  # the inner shell has them
  within() { unshare --mount bash -c 'cd "$1" && pivot_root . . && umount -l . && shift && exec "$@"' within "$root" "${clean[@]}" "$@"; }
  step() {  # step ARGUMENT...: of ./dev
    local what="$*" began=$SECONDS how=passed counts=""
    if [[ $built -eq 0 ]]; then result+=("$what|not run||"); return 0; fi
    echo "distro: $suite: ./dev $what"
    # shellcheck disable=SC2016
    within bash -c 'cd /weft && ./dev "$@"' dev "$@" 2>&1 | tee "$root/weft/build/distro.$1.log" || { how=FAILED; status=1; }
    [[ $1 != test ]] || counts="$(tail -n 1 "$root/weft/build/distro.test.log")"
    [[ $how == passed || ($1 != setup && $1 != build) ]] || built=0
    result+=("$what|$how|$((SECONDS - began)) s|$counts")
  }
  mkdir -p "$root/weft/build"
  step setup
  step build
  if [[ $tests -eq 1 ]]; then
    [[ -n $select ]] || step demo
    step test ${select:+"$select"}
  fi
  # shellcheck disable=SC2016  # dpkg-query has them
  versions="$(within dpkg-query -W -f '${Package} ${Version}, ' g++ libfabric-dev libibverbs-dev 2>/dev/null || true)"
  echo "distro: $suite with ${versions}Linux $(uname -r)"
  printf '%s\n' "${result[@]}" | awk -F '|' '{ printf "%-10s  %-7s  %7s  %s\n", $1, $2, $3, $4 }'
  return "$status"
}
if [[ "${1:-}" == --in-root ]]; then
  in_root "${@:2}"
  exit
fi

tests=1
if [[ "${1:-}" == --no-test ]]; then tests=0; shift; fi
suite="${1:?the suite}" select="${2:-}"
source="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
mirror="${WEFT_MIRROR:-http://deb.debian.org/debian}"
folder="$(realpath -m "${WEFT_DISTRO:-$source/build/distro}")/$suite"
die() { printf 'distro: %s\n' "$*" >&2; exit 1; }

case "$suite" in
  bookworm | trixie | sid) ;;
  *) die "no suite named '$suite' (trixie, sid, bookworm)" ;;
esac
[[ $EUID -eq 0 ]] || die "a root of another distribution needs root rights (chroot and mount): run it as root"
command -v mmdebstrap >/dev/null || die "mmdebstrap is not installed"
git -C "$source" rev-parse -q --verify HEAD >/dev/null || die "$source is no git repository with a commit"

mkdir -p "$folder"
if [[ ! -e "$folder/root.done" ]]; then
  echo "distro: making a root of $suite from $mirror"
  /usr/lib/apt/apt-helper -o Acquire::Retries=0 -o Acquire::http::Timeout=20 download-file "$mirror/dists/$suite/InRelease" "$folder/InRelease" \
    >"$folder/mirror.log" 2>&1 || { tail -n 3 "$folder/mirror.log" >&2; die "$mirror/dists/$suite cannot be read: is a network here, is WEFT_MIRROR right?"; }
  # A root that was not finished may still have /sys of this machine in it.
  ! grep -qF " $folder/root/" /proc/self/mountinfo || die "something is mounted below $folder/root: unmount it first"
  rm -rf --one-file-system "$folder/root"
  # mmdebstrap leaves these to the root's own apt.
  aptopts=(--aptopt='APT::Install-Recommends false')
  [[ -z "${WEFT_MIRROR_EXPIRED:-}" ]] || aptopts+=(--aptopt='Acquire::Check-Valid-Until false')
  # --force-unsafe-io: a root that is lost is made again.
  # In a mount namespace of its own: what it mounts into the root goes with it, however it ends.
  unshare --mount mmdebstrap --variant=minbase "${aptopts[@]}" --dpkgopt=force-unsafe-io --include=ca-certificates,bash,util-linux \
    "$suite" "$folder/root" "$mirror" >"$folder/root.log" 2>&1 ||
    { tail -n 20 "$folder/root.log" >&2; die "no root of $suite could be made; the log is $folder/root.log"; }
  touch "$folder/root.done"
fi

# Files that did not change since the last run keep their times, so that ninja builds what changed. An index of its own knows them.
mkdir -p "$folder/root/weft"
GIT_INDEX_FILE="$folder/index" git -C "$source" --work-tree="$folder/root/weft" read-tree --reset -u HEAD
git -C "$source" describe --always --abbrev=12 --exclude='*' >"$folder/root/weft/REVISION"

exec unshare --mount --pid --fork --kill-child bash "${BASH_SOURCE[0]}" --in-root "$folder" "$suite" "$select" "$tests"
