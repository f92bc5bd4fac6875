#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Multicast over the drop-in libibverbs.so.1: two processes of one host by GIDs of ours, and (as root) of two network namespaces by
# GIDs of ours and by standard ones, IPv4 and IPv6.
set -euo pipefail
build="${WEFT_BUILD:?}" source="${WEFT_SOURCE:?}"
library="$build/lib/weft/compat"
[[ -e "$library/libibverbs.so.1" ]] || { echo "no libibverbs.so.1 in $library"; exit 77; }
work="$(mktemp -d)" space=
leave() {
  rm -rf "$work"
  [[ -z "$space" ]] || ip netns del "$space" 2>/dev/null || true
}
trap leave EXIT
gcc -std=c11 -D_GNU_SOURCE -O1 ${WEFT_SANITIZE:+-g1 "-fsanitize=$WEFT_SANITIZE"} -Wall -Wextra -Werror "$source/tests/verbs/multicast.c" -o "$work/multicast" -L"$library" -l:libibverbs.so.1 ||
  { echo "the program is not compiled"; exit 1; }
export LD_LIBRARY_PATH="$library"

failed=0
# meets NAME INDEX GROUP: one process of `there` hears, one of `here` says.
here=() there=()
meets() {
  local status=0 device=weft hearer
  "${there[@]}" timeout 40 "$work/multicast" hear "$device" "$2" "$3" >"$work/hear" 2>&1 &
  hearer=$!
  for ((i = 0; i < 500; ++i)); do
    ! grep -q ready "$work/hear" || break
    kill -0 "$hearer" 2>/dev/null || break
    sleep 0.02
  done
  "${here[@]}" timeout 40 "$work/multicast" say "$device" "$2" "$3" >"$work/say" 2>&1 || status=$?
  wait "$hearer" || status=$?
  if [[ $status -ne 0 ]]; then
    failed=$((failed + 1))
    echo "FAILED ($status): $1"
    cat "$work/hear" "$work/say"
  else
    echo "$1: $(cat "$work/say"), $(tail -n 1 "$work/hear")"
  fi
}

outcome="$(WEFT_VERBS_DEVICES=weft=127.0.0.1 timeout 30 "$work/multicast" limits 2>&1)" || true
[[ "$outcome" == works ]] || { failed=$((failed + 1)); echo "FAILED: limits: $outcome"; }
here=(env WEFT_VERBS_DEVICES=weft=127.0.0.1) there=(env WEFT_VERBS_DEVICES=weft=127.0.0.1)
meets "one host, GID 0" 0 ::ffff:239.7.5.3

if [[ $EUID -eq 0 ]] && space="weft-groups-$$" && ip netns add "$space" 2>/dev/null; then
  one=10.251.$((RANDOM % 200)).1 other="${one%.1}.2"
  one6="fd19:${one//./:}::1" other6="fd19:${one//./:}::2"
  ip link add "wg$$a" type veth peer name "wg$$b" netns "$space"
  ip addr add "$one/24" dev "wg$$a" && ip addr add "$one6/64" dev "wg$$a" nodad && ip link set "wg$$a" up
  ip -n "$space" addr add "$other/24" dev "wg$$b" && ip -n "$space" addr add "$other6/64" dev "wg$$b" nodad
  ip -n "$space" link set "wg$$b" up && ip -n "$space" link set lo up
  here=(env "WEFT_VERBS_DEVICES=weft=$one") there=(ip netns exec "$space" env "WEFT_VERBS_DEVICES=weft=$other")
  meets "two namespaces, GID 0" 0 ::ffff:239.7.5.4
  here=(env WEFT_VERBS_STANDARD_GID=1 "WEFT_VERBS_DEVICES=weft=$one")
  there=(ip netns exec "$space" env WEFT_VERBS_STANDARD_GID=1 "WEFT_VERBS_DEVICES=weft=$other")
  meets "two namespaces, GID 1" 1 ::ffff:239.7.5.5
  here=(env "WEFT_VERBS_DEVICES=weft=$one6") there=(ip netns exec "$space" env "WEFT_VERBS_DEVICES=weft=$other6")
  meets "two namespaces, GID 2" 2 ff1e::7:5
fi
[[ $failed -eq 0 ]] && echo "verbs_multicast_test: ok"
