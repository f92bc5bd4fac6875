#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# What the guest boots from: FOLDER/base.cpio (kernel modules and programs of this machine, kept until one of them
# changes) and FOLDER/run.cpio (Weft and the tests), together FOLDER/initramfs. usage: initramfs.sh base FOLDER
# KERNEL_VERSION | run FOLDER STAGE PEER TESTS | nic FOLDER TESTS COMPAT PROGRAM...
set -euo pipefail

modules=(
  virtio_pci 9pnet_virtio 9p
  rdma_rxe ib_uverbs rdma_ucm crc32_generic crc32_pclmul crc32c_generic
  veth sch_netem af_packet
  configfs ext4 nbd nvme_tcp nvmet_tcp
  vfio_pci vfio_iommu_type1 e1000e virtio_net
)
programs=(
  /usr/sbin/ip /usr/sbin/tc /usr/bin/rdma /usr/bin/tcpdump /usr/bin/ping
  /bin/bash /usr/bin/timeout /usr/bin/stdbuf
  /usr/bin/ibv_devinfo /usr/bin/ibv_devices /usr/bin/ibv_rc_pingpong /usr/bin/ibv_uc_pingpong /usr/bin/ibv_ud_pingpong /usr/bin/ibv_srq_pingpong
  /usr/bin/ib_send_lat /usr/bin/ib_send_bw /usr/bin/ib_write_lat /usr/bin/ib_write_bw /usr/bin/ib_read_lat /usr/bin/ib_read_bw
  /usr/bin/ib_atomic_lat /usr/bin/ib_atomic_bw
)
# Found at run time: the verbs provider of rxe, and what the end of a thread wants.
extras=(/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so /etc/libibverbs.d/rxe.driver /lib/x86_64-linux-gnu/libgcc_s.so.1
        /lib/x86_64-linux-gnu/libstdc++.so.6)

kind="$1" folder="$2"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
root="$work/root"

pack() { (cd "$root" && find . -print0 | LC_ALL=C sort -z | cpio --null -o -H newc --quiet); }

# A program with the libraries that it is linked with, each under the path that it has here (/lib is /usr/lib in the
# guest too).
add_file() {
  local target="$root$1"
  case "$1" in /bin/* | /sbin/* | /lib/* | /lib64/*) target="$root/usr$1" ;; esac
  [[ -e "$target" ]] || { mkdir -p "$(dirname "$target")"; cp -L "$1" "$target"; }
}
add_program() {
  local library
  add_file "$1"
  while read -r library; do add_file "$library"; done < <(ldd "$1" 2>/dev/null | grep -oE '/[^ ]+' || true)
}

# /suite in the guest: verbs_peer with libibverbs and rxe's provider of the suite whose kernel it is (suite.sh), and the C library that these want.
add_suite() {
  local provider runtime=/usr/lib/x86_64-linux-gnu/libstdc++.so.6 file target
  provider="$(cd "$folder/root" && compgen -G "usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so")" || { echo "vm: $folder/root has no libibverbs: rxe's side runs with this machine's"; return 0; }
  provider="/$provider"
  for file in "$provider" "$runtime" /etc/libibverbs.d/rxe.driver $(chroot "$folder/root" ldd "$provider" "$runtime" | grep -oE '/[^ :]+ ' | sort -u); do
    target="$root/suite${file/#\/lib/\/usr\/lib}"
    mkdir -p "$(dirname "$target")"
    cp -L "$folder/root$file" "$target"
  done
  ln -s usr/lib "$root/suite/lib"
  ln -s usr/lib64 "$root/suite/lib64"
  mkdir -p "$root/suite/weft"
  cp "$1" "$root/suite/weft/verbs_peer"
}

# Modules with all that they depend on, in one folder.
add_modules() {
  local version="$1" source="$folder/kernel/root/lib/modules/$1" target="$root/usr/lib/modules/$1" todo=("${modules[@]}") name file
  [[ -d "$source" ]] || source="$folder/kernel/root/usr/lib/modules/$1"  # Debian 13 and newer
  declare -A seen=()
  mkdir -p "$target/kernel"
  find "$source/kernel" \( -name '*.ko' -o -name '*.ko.xz' \) >"$work/all"
  while [[ ${#todo[@]} -gt 0 ]]; do
    name="${todo[0]//-/_}"; todo=("${todo[@]:1}")
    [[ -z "${seen[$name]:-}" ]] || continue
    seen[$name]=1
    file="$(grep -m1 -E "/${name//_/[-_]}\.ko(\.xz)?\$" "$work/all" || true)"
    [[ -n "$file" ]] || continue  # built in
    if [[ "$file" == *.xz ]]; then xz -dc "$file" >"$target/kernel/$(basename "$file" .xz)"; else cp "$file" "$target/kernel/"; fi
    mapfile -t -O "${#todo[@]}" todo < <(modinfo -F depends "$file" | tr , '\n' | sed '/^$/d')
  done
  cp "$source"/modules.builtin* "$source/modules.order" "$target/"
  depmod -b "$root/usr" "$version" 2>/dev/null || depmod -b "$root" "$version"
}

base() {
  local version="$1" stamp
  stamp="$(stat -L -c '%n %s %Y' "${programs[@]}" "${extras[@]}" /usr/bin/busybox "${BASH_SOURCE[0]}" | sha256sum) $version"
  if [[ -f "$folder/base.cpio" && "$(cat "$folder/base.stamp" 2>/dev/null)" == "$stamp" ]]; then return 0; fi
  echo "vm: packing the guest's programs"
  mkdir -p "$root"/{proc,sys,dev,tmp,run,etc,logs,weft,var} "$root"/usr/{bin,sbin,lib,lib64}
  local name
  for name in bin sbin lib lib64; do ln -s "usr/$name" "$root/$name"; done
  ln -s ../run "$root/var/run"
  add_modules "$version"
  cp /usr/bin/busybox "$root/usr/bin/busybox"
  for name in "${programs[@]}"; do add_program "$name"; done
  for name in "${extras[@]}"; do add_program "$name"; done
  printf 'root:x:0:0:root:/:/bin/sh\ntcpdump:x:106:111::/:/bin/false\n' >"$root/etc/passwd"
  printf 'root:x:0:\ntcpdump:x:111:\n' >"$root/etc/group"
  printf '127.0.0.1 localhost\n' >"$root/etc/hosts"
  pack >"$folder/base.cpio"
  echo "$stamp" >"$folder/base.stamp"
}

run() {
  local stage="$1" peer="$2" tests="$3"
  mkdir -p "$root/weft/tests"
  cp "$tests"/*.sh "$tests"/cases.txt "$root/weft/tests/"
  cp "$tests/init" "$root/init"
  chmod 755 "$root/init"
  add_program "$peer"
  cp "$peer" "$root/weft/verbs_peer"
  if [[ -e "$stage/lib/weft/compat/libibverbs.so.1" ]]; then
    mkdir -p "$root/weft/compat"
    add_program "$stage/lib/weft/compat/libibverbs.so.1"
    rm -rf "${root:?}/${stage#/}"
    cp -L "$stage/lib/weft/compat/libibverbs.so.1" "$root/weft/compat/"
  fi
  if [[ -d "$folder/root" ]]; then add_suite "$peer"; fi
  pack >"$folder/run.cpio"
  cat "$folder/base.cpio" "$folder/run.cpio" >"$folder/initramfs"
}

# For run_nic.sh: the programs, and the drop-in libraries of a folder.
nic() {
  local tests="$1" compat="$2" program library
  mkdir -p "$root/weft/tests"
  cp "$tests"/*.sh "$root/weft/tests/"
  cp "$tests/init" "$root/init"
  chmod 755 "$root/init"
  for program in "${@:3}"; do
    add_program "$program"
    rm -f "$root$program" "$root/usr$program"
    cp "$program" "$root/weft/"
  done
  mkdir -p "$root/weft/compat"
  for library in libfabric.so.1 libibverbs.so.1; do
    [[ -e "$compat/$library" ]] || continue
    add_program "$compat/$library"
    rm -rf "${root:?}/${compat#/}"
    cp -L "$compat/$library" "$root/weft/compat/"
  done
  pack >"$folder/nic.cpio"
  cat "$folder/base.cpio" "$folder/nic.cpio" >"$folder/nic_initramfs"
}

"$kind" "${@:3}"
