#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The Debian packages in a fresh root that has nothing else of ours: installed, used, upgraded, purged without a trace.
# usage: run.sh FOLDER    the packages. Root, and a mirror of Debian (WEFT_MIRROR, http://deb.debian.org/debian).
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
folder="$(cd "${1:?the folder with the packages}" && pwd)"
mirror="${WEFT_MIRROR:-http://deb.debian.org/debian}"
[[ $EUID -eq 0 ]] || { echo "packages: skipped: a fresh root needs root"; exit 0; }
command -v mmdebstrap >/dev/null || { echo "packages: mmdebstrap is not there"; exit 1; }
work="$(mktemp -d)"
root="$work/root"
# In a mount namespace of its own: what is mounted below the root goes with it.
exec unshare --mount --pid --fork --kill-child bash -euo pipefail -c '
  here="$1" folder="$2" mirror="$3" work="$4" root="$4/root"
  mount -t tmpfs -o size=4g tmpfs "$work"
  echo "packages: a fresh root"
  # What the packages and the programs that try them come with; --force-unsafe-io, since the root does not outlive the test.
  wanted=passwd,iproute2,libfabric-bin,openmpi-bin,netpipe-openmpi,ibverbs-utils,perftest,g++,make,cmake,pkg-config,libibverbs-dev,dkms,kmod,linux-headers-amd64
  mmdebstrap --variant=minbase --aptopt="APT::Install-Recommends false" --dpkgopt=force-unsafe-io --include="$wanted" bookworm "$root" "$mirror" >"$work/root.log" 2>&1 ||
    { tail -n 20 "$work/root.log"; echo "packages: no root could be made"; exit 1; }
  mkdir "$root/packages"
  cp "$folder"/*.deb "$root/packages/"
  cp -r "$here/inside.sh" "$here/consumer" "$root/packages/"
  for name in proc dev sys; do mount --rbind "/$name" "$root/$name"; done
  mount -t tmpfs tmpfs "$root/dev/shm" 2>/dev/null || true
  cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
  chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LC_ALL=C.UTF-8 bash /packages/inside.sh
' packages "$here" "$folder" "$mirror" "$work"
