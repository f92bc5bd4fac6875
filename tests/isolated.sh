#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# isolated.sh COMMAND [ARGUMENT...]: the command sees a host of its own: lo and an Ethernet interface with an address and a default route, no process,
# no System V segment, nothing in /dev/shm, /run/netns and /tmp but what it makes (and the source, the build and the stage, if they lie in /tmp). So
# tests that name, count and kill run side by side. Its processes end with it. The exit status is the command's; 125 where this machine gives no such
# namespaces.
set -euo pipefail
[[ $# -gt 0 ]] || { echo "usage: isolated.sh COMMAND [ARGUMENT...]" >&2; exit 2; }
base=/tmp
# Of launchers that were killed, by a time limit of the test for example.
find "$base" -maxdepth 1 -name 'isolated.??????' -user "$EUID" -mmin +240 -exec rm -rf {} + 2>/dev/null || true
tmp="$(mktemp -d "$base/isolated.XXXXXX")"
leave() {
  # What is mounted below is seen inside alone; should that ever fail, nothing is removed.
  if [[ -r /proc/self/mountinfo ]] && ! grep -q " $tmp" /proc/self/mountinfo; then rm -rf "$tmp"; fi
}
trap leave EXIT
chmod 1777 "$tmp"
status=0
# The command is not process 1, which ignores signals that it has no handler for (pid_namespaces(7)); the shell that is reaps orphans.
# shellcheck disable=SC2016  # expanded inside
setpriv --pdeathsig KILL unshare --net --ipc --mount --propagation private --pid --fork --kill-child --mount-proc bash -c '
  host() {
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm && mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && ip link set lo up || return
    # 198.18.0.0/15 is for tests (RFC 2544).
    if ip link add host0 type veth peer name wire0 2>/dev/null; then
      # No IPv6 there: an address of its own would not be usable before others had the time to object (RFC 4862, 5.4).
      ip link set host0 addrgenmode none && ip link set wire0 addrgenmode none && ip address add 198.18.79.1/24 dev host0 &&
        ip link set host0 up && ip link set wire0 up && ip route add default via 198.18.79.2 || return
    fi
    local folder
    for folder in "${WEFT_SOURCE:-}" "${WEFT_BUILD:-}" "${WEFT_STAGE:-}"; do
      [[ $folder == /tmp/* && -d $folder ]] || continue
      (umask 022 && mkdir -p "$1/${folder#/tmp/}") && mount --rbind "$folder" "$1/${folder#/tmp/}" || return
    done
    mount --rbind "$1" /tmp && cd "$PWD"
  }
  host "$1" || exit 125
  shift
  unset TMPDIR
  "$@"
  exit' isolated "$tmp" "$@" || status=$?
exit "$status"
