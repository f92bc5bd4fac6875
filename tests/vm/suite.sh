#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The kernel of another Debian suite, and a root directory of that suite to build modules in: the programs of its linux-kbuild package need
# the suite's C library, and its headers expect the suite's compiler. Made once by mmdebstrap; nothing is installed on this machine.
# usage: suite.sh make FOLDER SUITE -> FOLDER/kernel (as kernel.sh makes it), FOLDER/root
#        suite.sh verbs FOLDER -> libibverbs of the suite in FOLDER/root
#        suite.sh run FOLDER SHARED COMMAND...   runs COMMAND in that root, where SHARED, a folder of this machine, has the path that it has here
# WEFT_MIRROR: a mirror of Debian (http://deb.debian.org/debian); WEFT_MIRROR_EXPIRED=1 accepts one that is not renewed. Root only.
set -euo pipefail
umask 022

make_root() {
  local folder="$1" suite="$2" kernel package
  if [[ -f "$folder/made" && -f "$folder/kernel/root/boot/vmlinuz-$(cat "$folder/kernel/version" 2>/dev/null)" ]]; then return 0; fi
  [[ $EUID -eq 0 ]] || { echo "vm: a root directory of $suite is made by root only" >&2; exit 1; }
  # A root that was not finished may still have /sys of this machine in it.
  if grep -qF " $(realpath -m "$folder")/root/" /proc/self/mountinfo; then echo "vm: something is mounted below $folder/root: unmount it first" >&2; exit 1; fi
  rm -rf --one-file-system "$folder/root" "$folder/kernel" "$folder/made"
  mkdir -p "$folder/kernel"
  echo "vm: downloading $suite's kernel, its headers and its compiler"
  local expired=()
  [[ -z "${WEFT_MIRROR_EXPIRED:-}" ]] || expired=(--aptopt='Acquire::Check-Valid-Until "false"')
  # The Release file of a snapshot mirror has expired (WEFT_MIRROR_EXPIRED=1 accepts it); its signature is checked all the same. The hook
  # downloads the kernel, which newer suites split into several packages. No initrd is made. A mount namespace of its own: what is mounted
  # into the root goes with it, however mmdebstrap ends.
  # shellcheck disable=SC2016  # the hook's own variables
  unshare --mount mmdebstrap --variant=minbase --aptopt='APT::Install-Recommends "false"' "${expired[@]}" --aptopt='Acquire::Retries "3"' \
    --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/etc/kernel/postinst.d/*' --include=linux-headers-amd64,make,gcc,sparse,kmod \
    --customize-hook='chroot "$1" sh -euc "mkdir /kernel; cd /kernel; image=linux-image-\$(ls /lib/modules | head -n 1)
      apt-get -o APT::Sandbox::User=root download \$image \$(apt-cache depends \$image | sed -n \"s/.*Depends: \\(linux-\\(base\\|binary\\|modules\\)-.*\\)/\\1/p\")"' \
    "$suite" "$folder/root" "${WEFT_MIRROR:-http://deb.debian.org/debian}" >"$folder/root.log" 2>&1 ||
    { tail -n 20 "$folder/root.log" >&2; echo "vm: no root directory of $suite could be made" >&2; exit 1; }
  kernel="$(ls "$folder/root/lib/modules" | head -n 1)"
  for package in "$folder/root/kernel"/*.deb; do dpkg-deb -x "$package" "$folder/kernel/root"; done
  rm -rf "$folder/root/kernel"
  rm -rf "$folder/kernel/root/usr/share/doc"
  if [[ ! -e "$folder/kernel/root/boot" ]]; then  # newer suites install it beside the modules
    mkdir "$folder/kernel/root/boot"
    ln "$folder/kernel/root/usr/lib/modules/$kernel/vmlinuz" "$folder/kernel/root/boot/vmlinuz-$kernel"
  fi
  echo "$kernel" >"$folder/kernel/version"
  date -u +%F >"$folder/made"
}

# The suite's libibverbs, for rxe's side of `./dev vm`: installed into the root with what it wants.
add_verbs() {
  local folder="$1" options=(-q -o APT::Sandbox::User=root -o Acquire::Retries=3)
  [[ ! -e "$folder/root/etc/libibverbs.d/rxe.driver" ]] || return 0
  [[ -z "${WEFT_MIRROR_EXPIRED:-}" ]] || options+=(-o Acquire::Check-Valid-Until=false)
  echo "vm: installing libibverbs of the suite into $folder/root"
  cp --remove-destination /etc/resolv.conf "$folder/root/etc/resolv.conf"
  (run_in_root "$folder" "$folder" env DEBIAN_FRONTEND=noninteractive sh -c "apt-get ${options[*]} update &&
    apt-get ${options[*]} install -y --no-install-recommends libibverbs1 ibverbs-providers") >>"$folder/root.log" 2>&1 ||
    { tail -n 20 "$folder/root.log" >&2; echo "vm: libibverbs cannot be installed into $folder/root" >&2; exit 1; }
}

run_in_root() {
  # In a mount namespace of its own: what is mounted below the root goes with it.
  # shellcheck disable=SC2016
  exec unshare --mount bash -euo pipefail -c '
    root="$(cd "$1/root" && pwd -P)" shared="$2"
    mkdir -p "$root$shared"
    mount --bind "$shared" "$root$shared"
    mount -t proc proc "$root/proc"
    mount --bind /dev "$root/dev"
    exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LC_ALL=C.UTF-8 "${@:3}"' run "$@"
}

case "${1:-}" in
  make) make_root "$2" "$3" ;;
  verbs) add_verbs "$2" ;;
  run) run_in_root "${@:2}" ;;
  *) echo "usage: suite.sh make FOLDER SUITE | verbs FOLDER | run FOLDER SHARED COMMAND..." >&2; exit 2 ;;
esac
