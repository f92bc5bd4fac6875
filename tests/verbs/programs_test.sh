#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The examples of rdma-core and perftest, as Debian ships them, over the drop-in libibverbs.so.1 and its built-in device: as an ordinary user, two
# processes of one host, and (as root) of two network namespaces.
set -euo pipefail
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "runs the system's programs: not under a sanitizer"; exit 77; }
built="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
[[ -e "$built/libibverbs.so.1" ]] || { echo "no libibverbs.so.1 in $built"; exit 77; }
command -v ibv_rc_pingpong >/dev/null && command -v ib_send_lat >/dev/null || { echo "ibverbs-utils or perftest is not there"; exit 77; }
source "$(dirname "${BASH_SOURCE[0]}")/../pair.sh"
source "$(dirname "${BASH_SOURCE[0]}")/pairs.sh"
library="$(mktemp -d)" # an ordinary user need not be able to read the build tree
space=
leave() {
  end_pair
  rm -rf "$library"
  [[ -z "$space" ]] || ip netns del "$space" 2>/dev/null || true
}
trap leave EXIT
cp -L "$built/libibverbs.so.1" "$library/"
chmod -R a+rX "$library"
user=()
if [[ $EUID -eq 0 ]]; then user=(setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all); fi
pair_limit=60

"${user[@]}" env "LD_LIBRARY_PATH=$library" ibv_devices | grep -q weft_ || { echo "ibv_devices lists no device"; exit 1; }
"${user[@]}" env "LD_LIBRARY_PATH=$library" ibv_devinfo -v >"$pair_folder/devinfo"
grep -q 'PORT_ACTIVE' "$pair_folder/devinfo" || { echo "ibv_devinfo shows no active port"; exit 1; }

for program in rc uc ud srq xsrq; do
  passes 127.0.0.1 "ibv_${program}_pingpong" -g 0 -n 500
  passes 127.0.0.1 "ibv_${program}_pingpong" -g 0 -n 500 -e
done
passes 127.0.0.1 ibv_rc_pingpong -g 0 -n 500 -c
passes 127.0.0.1 ibv_rc_pingpong -g 0 -n 500 -c -t
passes 127.0.0.1 ibv_rc_pingpong -g 0 -n 500 -c -N
passes 127.0.0.1 ibv_rc_pingpong -g 0 -n 500 -c -o
echo "$passed pairs of the examples passed"

for kind in RC UC UD; do
  tests=(ib_send_lat ib_send_bw)
  [[ $kind == UD ]] || tests+=(ib_write_lat ib_write_bw)
  [[ $kind != RC ]] || tests+=(ib_read_lat ib_read_bw ib_atomic_lat ib_atomic_bw)
  # UD may lose messages, and these programs wait for each: so few bytes that they fit the socket's buffer of an ordinary user.
  options=(-F -c "$kind" -n 200)
  [[ $kind != UD ]] || options=(-F -c "$kind" -n 20 -s 256)
  for program in "${tests[@]}"; do
    passes 127.0.0.1 "$program" "${options[@]}"
    [[ $program != *_bw ]] || passes 127.0.0.1 "$program" "${options[@]}" -q 8
    [[ $program != *_bw ]] || passes 127.0.0.1 "$program" "${options[@]}" -b
    [[ $program == ib_write* ]] || passes 127.0.0.1 "$program" "${options[@]}" -e
  done
done
# perftest opens its XRC domains by these names, whatever TMPDIR says, and only their owner may.
shared=/tmp
domains=("$shared/xrc_domain_server" "$shared/xrc_domain_client")
if rm -f "${domains[@]}" 2>/dev/null; then
  for program in ib_send_lat ib_send_bw ib_write_lat ib_write_bw; do passes 127.0.0.1 "$program" -F -c XRC -n 200; done
  rm -f "${domains[@]}" 2>/dev/null || true
else
  echo "another user has ${domains[*]}: no perftest over XRC"
fi
echo "$passed pairs passed, perftest among them"

# Processes of one user meet in shared memory, and where that is forbidden they take UDP; the log line of the client says which.
for near in 1 0; do
  here=(env WEFT_VERBS_LOG=info "WEFT_VERBS_SHM=$near")
  passes 127.0.0.1 ib_send_lat -F -n 200 -s 8
  passes 127.0.0.1 ib_write_bw -F -n 50
  grep -q "shared memory: $([[ $near == 1 ]] && echo '[1-9]' || echo '0 out, 0 in')" "$pair_folder/client.err" ||
    { failed=$((failed + 1)); echo "FAILED: another way than WEFT_VERBS_SHM=$near says"; cat "$pair_folder/client.err"; }
done
here=()

# Every size from 2 bytes to 8 MiB.
passes 127.0.0.1 ib_write_bw -F -a -n 20
passes 127.0.0.1 ib_send_lat -F -a -n 20

if [[ $EUID -eq 0 ]] && space="weft-verbs-$$" && ip netns add "$space" 2>/dev/null; then
  one=10.250.$((RANDOM % 200)).1 other="${one%.1}.2"
  ip link add "wv$$a" type veth peer name "wv$$b" netns "$space"
  ip addr add "$one/24" dev "wv$$a" && ip link set "wv$$a" up
  ip -n "$space" addr add "$other/24" dev "wv$$b" && ip -n "$space" link set "wv$$b" up && ip -n "$space" link set lo up
  there=(ip netns exec "$space")
  here=(env "WEFT_VERBS_DEVICES=weft=$one") there+=(env "WEFT_VERBS_DEVICES=weft=$other")
  for program in rc uc ud srq xsrq; do passes "$other" "ibv_${program}_pingpong" -g 0 -n 200; done
  passes "$other" ib_write_bw -F -n 200
  passes "$other" ib_read_lat -F -n 200
  passes "$other" ib_send_bw -F -n 200 -b
  # UC has a window: more bytes at once than an ordinary user's socket takes.
  for option in "-b" "-e" "-q8"; do passes "$other" ib_send_bw -F -c UC -n 500 "$option"; done
  # Loss: what the faults of the packet middleware take away is sent again.
  here+=("WEFT_PACKET_FAULTS=loss=2,reorder=2,seed=5")
  passes "$other" ibv_rc_pingpong -g 0 -n 200 -c
  passes "$other" ib_read_bw -F -n 50
  echo "$passed pairs passed, two network namespaces among them"
fi
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
