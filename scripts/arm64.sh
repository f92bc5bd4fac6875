#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# A root of Debian 12 for arm64, which the preset arm64 is compiled against and its tests run in, by qemu-user. `./dev build arm64` and `./dev test arm64` call it.
# usage: arm64.sh                      makes the root, if it is not there, and makes the kernel start arm64 programs. Root, mmdebstrap, a mirror (WEFT_MIRROR).
#        arm64.sh --run ROOT COMMAND...  runs the command in the root, on this source tree: what ctest starts a test with
# The root is build/arm64/root (WEFT_ARM64: another folder for build/arm64). Its packages are unpacked and not configured: no program of theirs runs before the first test.
set -euo pipefail
source="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

# The command sees this machine's devices, processes and temporary files, the source tree where it is here, and the cross compiler under the names of the
# root's own, which an emulator would take too long for. What is mounted for it is seen by it alone and ends with it.
if [[ "${1:-}" == --run ]]; then
  # shellcheck disable=SC2016  # expanded inside
  exec unshare --mount --propagation private bash -c '
    root="$1" source="$2"
    mount --bind "$root" "$root" || exit 125  # a mount point, as programs expect of /
    for folder in dev proc sys tmp run; do mount --rbind "/$folder" "$root/$folder" || exit 125; done
    mount --bind /usr "$root/opt/cross" && mount -o remount,bind,ro "$root/opt/cross" || exit 125
    if [[ $source != /tmp/* ]]; then mkdir -p "$root$source" && mount --rbind "$source" "$root$source" || exit 125; fi
    exec unshare --root="$root" --wd="$PWD" "${@:3}"' arm64 "$2" "$source" "${@:3}"
fi

suite=bookworm
mirror="${WEFT_MIRROR:-http://deb.debian.org/debian}"
folder="$(realpath -m "${WEFT_ARM64:-$source/build/arm64}")"
packages=(
  # a shell and what scripts use
  base-files base-passwd bash coreutils dash debianutils diffutils findutils grep gzip hostname libc-bin mawk mount ncurses-base ncurses-bin procps sed tar util-linux
  iproute2 iputils-ping python3 xz-utils
  # what Weft is compiled against
  libc6-dev libstdc++-12-dev libfabric-dev libibverbs-dev librdmacm-dev libdeflate-dev libgtest-dev libgmock-dev libbenchmark-dev libcli11-dev libfmt-dev nlohmann-json3-dev
  # programs that run over it
  libfabric-bin ibverbs-utils rdmacm-utils perftest python3-pyverbs
)
die() { printf 'arm64: %s\n' "$*" >&2; exit 1; }

[[ $EUID -eq 0 ]] || die "the root needs root rights (chroot and mount): run it as root"

# The package qemu-user-static registers qemu where a service manager runs; elsewhere this does. F: the interpreter is opened now, so the root needs none; P: a program keeps its name.
binfmt=/proc/sys/fs/binfmt_misc
if [[ ! -e $binfmt/qemu-aarch64 ]]; then
  qemu="$(command -v qemu-aarch64-static)" || die "qemu-user-static is not installed"
  [[ -e $binfmt/register ]] || mount -t binfmt_misc none "$binfmt" || die "this kernel has no binfmt_misc: arm64 programs cannot run here"
  magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
  mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
  printf ':qemu-aarch64:M::%s:%s:%s:PF' "$magic" "$mask" "$qemu" >$binfmt/register || die "qemu-user cannot be registered with the kernel ($binfmt)"
fi

mkdir -p "$folder"
# A root with other packages is made anew.
if [[ "$(cat "$folder/root.done" 2>/dev/null)" != "${packages[*]}" ]]; then
  command -v mmdebstrap >/dev/null || die "mmdebstrap is not installed"
  echo "arm64: making a root of $suite from $mirror"
  ! grep -qF " $folder/root/" /proc/self/mountinfo || die "something is mounted below $folder/root: unmount it first"
  rm -rf --one-file-system "$folder/root"
  include="$(IFS=,; echo "${packages[*]}")"
  # In a mount namespace of its own: what it mounts into the root goes with it, however it ends.
  unshare --mount mmdebstrap --architectures=arm64 --variant=extract --skip=check/qemu --aptopt='APT::Install-Recommends false' \
    --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr --include="$include" "$suite" "$folder/root" "$mirror" >"$folder/root.log" 2>&1 ||
    { tail -n 20 "$folder/root.log" >&2; die "no root of $suite could be made; the log is $folder/root.log"; }
  # What the packages' scripts would have done, as far as a test sees it.
  for name in passwd group; do cp "$folder/root/usr/share/base-passwd/$name.master" "$folder/root/etc/$name"; done
  ln -sf dash "$folder/root/usr/bin/sh"
  ln -sf mawk "$folder/root/usr/bin/awk"
  echo localhost >"$folder/root/etc/hostname"
  printf '127.0.0.1 localhost\n::1 localhost ip6-localhost\n' >"$folder/root/etc/hosts"
  # Programs of this machine: /opt/cross is its /usr while a command runs (--run).
  mkdir -p "$folder/root/opt/cross" "$folder/root/usr/local/bin"
  [[ -e "$folder/root/lib64" ]] || ln -s opt/cross/lib64 "$folder/root/lib64"
  ln -s ../../opt/cross/lib/x86_64-linux-gnu "$folder/root/usr/lib/x86_64-linux-gnu"
  ln -s ../opt/cross/aarch64-linux-gnu "$folder/root/usr/aarch64-linux-gnu"  # libc.so there is a text with paths
  for name in gcc g++ ar as ld nm objcopy objdump ranlib readelf size strip strings; do
    ln -s "/opt/cross/bin/aarch64-linux-gnu-$name" "$folder/root/usr/local/bin/$name"
  done
  ln -s gcc "$folder/root/usr/local/bin/cc"
  ln -s g++ "$folder/root/usr/local/bin/c++"
  # Links of development packages to /lib, which the linker would take for this machine's.
  find "$folder/root/usr/lib/aarch64-linux-gnu" -maxdepth 1 -type l -lname '/lib/aarch64-linux-gnu/*' -printf '%p %l\n' |
    while read -r link target; do ln -sf "${target##*/}" "$link"; done
  echo "${packages[*]}" >"$folder/root.done"
fi
