#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# isolated.sh COMMAND [ARGUMENT...]: the command sees a host of its own: no interface but lo, no process, no System V segment, nothing in /dev/shm,
# /run/netns and /tmp but what it makes (and the source, the build and the stage, if they lie in /tmp). So tests that name, count and kill run side by
# side. Its processes end with it. The exit status is the command's; 125 where this machine gives no such namespaces.
set -euo pipefail
[[ $# -gt 0 ]] || { echo "usage: isolated.sh COMMAND [ARGUMENT...]" >&2; exit 2; }
tmp="$(mktemp -d /tmp/isolated.XXXXXX)"
# What is mounted below is seen inside alone; should that ever fail, nothing is removed.
trap 'grep -q " $tmp" /proc/self/mountinfo || rm -rf "$tmp"' EXIT
chmod 1777 "$tmp"
status=0
# The command is not process 1, which ignores signals that it has no handler for (pid_namespaces(7)); the shell that is reaps orphans.
# shellcheck disable=SC2016  # expanded inside
unshare --net --ipc --mount --propagation private --pid --fork --kill-child --mount-proc bash -c '
  host() {
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm && mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && ip link set lo up || return
    local folder
    for folder in "${WEFT_SOURCE:-}" "${WEFT_BUILD:-}" "${WEFT_STAGE:-}"; do
      [[ $folder == /tmp/* && -d $folder ]] || continue
      mkdir -p "$1/${folder#/tmp/}" && mount --rbind "$folder" "$1/${folder#/tmp/}" || return
    done
    mount --rbind "$1" /tmp && cd "$PWD"
  }
  host "$1" || exit 125
  shift
  unset TMPDIR
  "$@"
  exit' isolated "$tmp" "$@" || status=$?
exit "$status"
