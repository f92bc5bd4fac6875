#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Programs that connect by librdmacm, as Debian ships them, over the drop-ins librdmacm.so.1 and libibverbs.so.1: as an ordinary user, two processes of one
# host, and (as root) of two network namespaces.
set -euo pipefail
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "runs the system's programs: not under a sanitizer"; exit 77; }
built="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
[[ -e "$built/librdmacm.so.1" ]] || { echo "no librdmacm.so.1 in $built"; exit 77; }
command -v rping >/dev/null || { echo "rdmacm-utils is not there"; exit 77; }
source "$(dirname "${BASH_SOURCE[0]}")/../pair.sh"
library="$(mktemp -d)" # an ordinary user need not be able to read the build tree
space=
leave() {
  end_pair
  rm -rf "$library"
  [[ -z "$space" ]] || ip netns del "$space" 2>/dev/null || true
}
trap leave EXIT
cp -L "$built/libibverbs.so.1" "$built/librdmacm.so.1" "$library/"
chmod -R a+rX "$library" && chmod a+rx "$library"
user=()
if [[ $EUID -eq 0 ]]; then user=(setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all); fi
pair_limit=60
passed=0 failed=0

# A listener of ours has a UDP socket at the port that the program asked for.
is_bound() {
  { "${@:2}" cat /proc/self/net/udp /proc/self/net/udp6 2>/dev/null || true; } |
    awk -v port="$(printf ':%04X' "$1")" 'substr($2, length($2) - 4) == port { found = 1 } END { exit !found }'
}
is_bound_or_gone() { is_bound "${@:2}" || ! is_alive "$1"; }

# passes PORT "SERVER" "CLIENT": words of each command; both have to end with 0. "-PORT": the server goes on, and is ended.
passes() {
  local port="${1#-}" goes_on="" status=0 server_status=0
  [[ "$1" == "$port" ]] || goes_on=1
  local server client
  read -ra server <<<"$2"
  read -ra client <<<"$3"
  : >"$pair_folder/client.out"
  timeout -k 2 "$pair_limit" "${there[@]}" "${user[@]}" env "LD_LIBRARY_PATH=$library" "${server[@]}" >"$pair_folder/server.out" 2>"$pair_folder/server.err" &
  pair_server=$!
  eventually 30 is_bound_or_gone "$pair_server" "$port" "${there[@]}" || true
  sleep 0.1 # rdma_listen(3) follows rdma_bind_addr(3)
  timeout -k 2 "$pair_limit" "${here[@]}" "${user[@]}" env "LD_LIBRARY_PATH=$library" "${client[@]}" >"$pair_folder/client.out" 2>"$pair_folder/client.err" ||
    status=$?
  if [[ $status -ne 0 || -n $goes_on ]]; then
    [[ -n $goes_on ]] || eventually 5 is_gone "$pair_server" || true
    kill "$pair_server" 2>/dev/null || true
  fi
  wait "$pair_server" || server_status=$?
  pair_server=
  [[ -n $goes_on || $status -ne 0 ]] || status=$server_status
  if [[ $status -eq 0 ]]; then
    passed=$((passed + 1))
    return
  fi
  failed=$((failed + 1))
  echo "FAILED ($status): $3"
  tell_pair
}

all() {  # all ADDRESS GROUP_INTERFACE_OF_SERVER GROUP_INTERFACE_OF_CLIENT
  passes 7174 "rping -s -a $1 -v -V -C 20" "rping -c -a $1 -v -V -C 20"
  passes 7174 "rping -s -q -a $1 -C 20" "rping -c -q -a $1 -C 20"
  passes -7174 "rping -s -P -a $1" "rping -c -a $1 -C 20 -S 1000"
  passes 7471 "ucmatose -c 10" "ucmatose -s $1 -c 10"
  passes 7471 "ucmatose -c 3 -C 20 -S 4000 -t 8" "ucmatose -s $1 -c 3 -C 20 -S 4000 -t 8"
  passes 7174 "udaddy" "udaddy -s $1"
  passes 7471 "rdma_server" "rdma_client -s $1"
  passes 7471 "rdma_xserver" "rdma_xclient -s $1"
  passes -7471 "cmtime" "cmtime -s $1 -c 50"
  passes 7174 "mckey -m 239.1.2.3 -b $2" "mckey -m 239.1.2.3 -b $3 -s"
}

all 127.0.0.1 127.0.0.1 127.0.0.1
if has_ipv6; then
  passes 7471 "ucmatose -b ::1" "ucmatose -s ::1"
  passes 7471 "ucmatose -b ::" "ucmatose -s 127.0.0.1"
fi
if command -v ib_send_lat >/dev/null; then
  # Client and server agree over one connection, and then connect again at the same time: the listener may be the second.
  for program in ib_send_lat ib_write_bw ib_read_lat; do passes 18515 "$program -R -F -n 200" "$program -R -F -n 200 127.0.0.1"; done
  passes 18515 "ib_send_lat -R -F -c UD -n 20 -s 256" "ib_send_lat -R -F -c UD -n 20 -s 256 127.0.0.1"
fi

space="weft-cm-$$"
if [[ $EUID -eq 0 ]] && ip netns add "$space" 2>/dev/null; then
  ip link add "cma$$" type veth peer name "cmb$$" netns "$space"
  ip addr add 10.91.7.1/24 dev "cma$$"
  ip link set "cma$$" up
  ip -n "$space" addr add 10.91.7.2/24 dev "cmb$$"
  ip -n "$space" link set "cmb$$" up
  ip -n "$space" link set lo up
  there=(ip netns exec "$space")
  all 10.91.7.2 10.91.7.2 10.91.7.1
else
  space=
  echo "no network namespaces: between hosts it is not tried"
fi
echo "$passed pairs passed, $failed failed"
[[ $failed -eq 0 ]]
