#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# ucx_files.sh COMMAND...: runs it where /dev/infiniband has a file for each verbs device. UCX opens a device only when there is a character
# device of its name; nothing is read from it. A mount namespace with a /dev of its own, for root and, by a user namespace, for ordinary users.
set -euo pipefail
names="${WEFT_UCX_DEVICES:-weft_lo}"
way=(unshare --mount)
[[ $EUID -eq 0 ]] || way=(unshare --user --map-current-user --mount --keep-caps)
# shellcheck disable=SC2016  # for the shell inside
exec "${way[@]}" bash -euc '
  dev="$(mktemp -d)"
  mount -t tmpfs -o mode=755 tmpfs "$dev"
  for name in null zero full random urandom tty; do touch "$dev/$name"; mount --bind "/dev/$name" "$dev/$name"; done
  mkdir "$dev/shm" "$dev/infiniband"
  mount --rbind /dev/shm "$dev/shm"
  ln -s /proc/self/fd "$dev/fd"
  for name in $1; do touch "$dev/infiniband/$name"; mount --bind /dev/null "$dev/infiniband/$name"; done
  mount --no-mtab --move "$dev" /dev
  rmdir "$dev"
  shift
  exec "$@"' ucx_files "$names" "$@"
