#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# In the fresh root: run.sh starts it.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
cd /packages
work="$(mktemp -d)"
chmod 777 "$work"
fail() { echo "packages: FAILED: $*"; exit 1; }
step() { echo "packages: $*"; }
quietly() { "$@" >"$work/log" 2>&1 || { tail -n 30 "$work/log"; fail "$*"; }; }
# As an ordinary user, over Weft.
as_user() { timeout 300 setpriv --reuid=1000 --regid=1000 --clear-groups env HOME="$work" "$@"; }
# pair NAME COMMAND...: a server and a client on this host.
pair() {
  local name="$1"; shift
  step "$name"
  as_user "$@" >"$work/server" 2>&1 & local server=$!
  local tries
  for ((tries = 0; tries < 20; ++tries)); do
    sleep 1
    if as_user "$@" 127.0.0.1 >"$work/client" 2>&1; then
      wait "$server" || { cat "$work/server"; fail "the server of $name"; }
      return 0
    fi
    kill -0 "$server" 2>/dev/null || { cat "$work/server"; fail "the server of $name ended"; }
  done
  cat "$work/client"
  fail "$name"
}

dpkg-query -W -f '${Package}\n' | sort >"$work/packages.before"
find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /var -o -path /packages \) -prune -o -print | sort >"$work/files.before"

step "installing"
quietly apt-get update
quietly apt-get install -y --no-install-recommends ./libweft1_*.deb ./libweft-dev_*.deb ./libweft-direct-dev_*.deb ./weft-tools_*.deb ./weft-compat_*.deb ./weft-verbs_*.deb ./weft-doc_*.deb
weft --version | grep -q '^weft [0-9.]* (revision ' || fail "weft --version"
! ldconfig -p | grep -q 'weft/compat' || fail "the loader finds the drop-ins unasked"
fi_info -p shm | grep -q 'version: 117' || true
as_user weft run -- fi_info -p shm | grep -q '^provider: shm' || fail "weft run -- fi_info"
as_user weft run -- ibv_devices | grep -q weft_lo || fail "weft run -- ibv_devices"
as_user weft info >"$work/info" || fail "weft info"
as_user weft check --only FI_TAGGED loopback >"$work/check" || { cat "$work/check"; fail "weft check"; }
as_user weft trace -o "$work/trace.json" -- fi_info -p shm >"$work/log" 2>&1 && grep -q '"name":"fi_getinfo"' "$work/trace.json" || fail "weft trace"
man -w weft >/dev/null 2>&1 || [[ -e /usr/share/man/man1/weft.1.gz ]] || fail "no manual page"

pair "fi_pingpong, shm" weft run -- fi_pingpong -p shm -e rdm -I 100
pair "ib_write_bw" weft run -- ib_write_bw -s 65536 -n 200
pair "ib_write_bw -R" weft run -- ib_write_bw -R -s 65536 -n 200
step "mpirun"
as_user weft run -- mpirun --oversubscribe -np 2 --mca pml cm --mca mtl ofi NPopenmpi -u 512 -p 0 -o "$work/np.out" >"$work/log" 2>&1 || { tail -n 20 "$work/log"; fail "mpirun"; }

step "a program by pkg-config, and one by find_package"
cp -r /packages/consumer "$work/consumer"
cd "$work/consumer"
# shellcheck disable=SC2046
quietly gcc main.c -o by-mux $(pkg-config --cflags --libs weft-mux)
# shellcheck disable=SC2046
quietly g++ -std=c++20 -O2 main.c -x none -o by-direct $(pkg-config --cflags weft-direct-shm) $(pkg-config --libs weft-direct-shm)
# Calls of the data path in C come from the code for the linker's optimiser, which stripping must not have broken.
# shellcheck disable=SC2046
quietly gcc -O2 /usr/share/doc/weft/examples/same_source/pingpong.c -o by-direct-c $(pkg-config --cflags --libs weft-direct-shm)
as_user ./by-direct-c shm | grep -q ' rounds over shm, ' || fail "a C program linked directly"
quietly cmake -S . -B build
quietly cmake --build build
for program in ./by-mux ./by-direct build/by_mux build/by_direct; do
  [[ "$(as_user "$program" shm)" == "shm" ]] || fail "$program"
done
! ldd ./by-direct | grep -q libfabric || fail "the direct program needs libfabric"

step "kernel modules by DKMS"
quietly apt-get install -y --no-install-recommends /packages/weft-kofi-dkms_*.deb
dkms status >"$work/dkms"
grep -q '^weft-kofi/.*: installed' "$work/dkms" || { cat "$work/dkms"; fail "DKMS has not installed the modules"; }
kernel="$(basename "$(dirname "$(echo /lib/modules/*/build)")")"
[[ "$(modinfo -k "$kernel" -F depends kofi_tcp)" == kofi ]] || fail "modinfo kofi_tcp"

# The same files as the next version: what an upgrade runs is run.
step "upgrading"
mkdir "$work/next"
for package in /packages/*.deb; do
  [[ "$package" != *-dbgsym_* ]] || continue
  version="$(dpkg-deb -f "$package" Version)"
  dpkg-deb -R "$package" "$work/next/tree"
  sed -i "s/^Version: .*/&+next/; s/(= $version)/(= $version+next)/g" "$work/next/tree/DEBIAN/control"
  quietly dpkg-deb -Znone -b "$work/next/tree" "$work/next"
  rm -rf "$work/next/tree"
done
quietly apt-get install -y --no-install-recommends "$work"/next/*.deb
[[ "$(dpkg-query -W -f '${Version}\n' 'libweft*' 'weft-*' | grep -c '+next$')" -eq 8 ]] || fail "not all packages were upgraded"
dkms status >"$work/dkms"
grep -q '^weft-kofi/.*: installed' "$work/dkms" || { cat "$work/dkms"; fail "the upgrade lost the kernel modules"; }
as_user weft run -- fi_info -p shm | grep -q '^provider: shm' || fail "weft run after the upgrade"
step "purging"
quietly apt-get purge -y libweft1 libweft-dev libweft-direct-dev weft-tools weft-compat weft-verbs weft-doc weft-kofi-dkms
quietly apt-get autoremove -y --purge
find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /var -o -path /packages \) -prune -o -print | sort >"$work/files.after"
comm -13 "$work/files.before" "$work/files.after" | grep -v '/__pycache__\|^/etc/ld.so.cache' >"$work/left" || true
! grep -qiE 'weft|kofi' "$work/left" || { cat "$work/left"; fail "left after a purge"; }
[[ -z "$(find /var/lib /etc -iname '*weft*' -not -path '/var/lib/apt/*' 2>/dev/null)" ]] || fail "left in /var/lib or /etc"
echo "packages: ok"
