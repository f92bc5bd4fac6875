#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# A device in software knows why: each mistake of tests/verbs/mistakes.c gives its documented vendor_err, and a line at WEFT_VERBS_LOG=info
# on each side that can know of it. With an argument, prints what is in the table of docs/verbs.md.
set -euo pipefail
build="${WEFT_BUILD:?}" source="${WEFT_SOURCE:?}"
library="$build/lib/weft/compat"
[[ -e "$library/libibverbs.so.1" ]] || { echo "no libibverbs.so.1 in $library"; exit 77; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
gcc -std=c11 -D_GNU_SOURCE -O1 ${WEFT_SANITIZE:+-g1 "-fsanitize=$WEFT_SANITIZE"} -Wall -Wextra -Werror "$source/tests/verbs/mistakes.c" -o "$work/mistakes" -L"$library" -l:libibverbs.so.1 -pthread ||
  { echo "the program is not compiled"; exit 1; }
export LD_LIBRARY_PATH="$library" WEFT_VERBS_LOG=info WEFT_VERBS_DEVICES=asker=127.0.0.1,owner=127.0.0.1

failed=0 tried=0
# mistake NAME HEARD ASKER OWNER: what the program hears, lines separated by "; ", and a piece of the line of each device; "-": none.
mistake() {
  local name="$1" heard="$2" status=0 side wanted
  tried=$((tried + 1))
  timeout 60 "$work/mistakes" "$name" >"$work/heard" 2>"$work/said" || status=$?
  if [[ $status -ne 0 || "$(paste -sd';' "$work/heard" | sed 's/;/; /g')" != "$heard" ]]; then
    failed=1
    echo "FAILED ($status): $name: the program hears"
    cat "$work/heard"
    echo "and not: $heard"
  fi
  for side in asker owner; do
    [[ $side == asker ]] && wanted="$3" || wanted="$4"
    [[ "$wanted" != - ]] || continue
    if ! grep -E -q "information: (ibv_|a queue pair|$side: ).*$wanted|warning: .*$wanted" "$work/said"; then
      failed=1
      echo "FAILED: $name: no line of $side has: $wanted"
      cat "$work/said"
    fi
  done
  [[ ${#table} -eq 0 ]] || { echo "== $name"; cat "$work/heard"; grep -v 'packets by shared memory' "$work/said" || true; }
}
table="${1:-}"

remote='RDMA WRITE \(wr_id 42, PSN 16777200\) of 4096 bytes at 0x[0-9a-f]+ with rkey 0x[0-9a-f]+ failed: the peer refuses the access'
refused='RDMA WRITE of the peer, PSN 16777200, of 4096 bytes at 0x[0-9a-f]+ with rkey 0x[0-9a-f]+ refused:'
flushed='owner receive: status 5 vendor_err'
mistake unknown_rkey "asker RDMA WRITE: status 10 vendor_err 0x19; $flushed 0x20" "$remote" "$refused no memory region or bound window here has this rkey"
mistake own_rkey "asker RDMA WRITE: status 10 vendor_err 0x19; $flushed 0x20" "$remote" "$refused no memory region or bound window here has this rkey"
mistake other_domain "asker RDMA WRITE: status 10 vendor_err 0x19; $flushed 0x21" "$remote" "$refused .*another protection domain"
mistake region_without_right "asker RDMA WRITE: status 10 vendor_err 0x19; $flushed 0x22" "$remote" "$refused .*wanted remote write, given local write"
mistake beyond_region "asker RDMA WRITE: status 10 vendor_err 0x19; $flushed 0x23" "$remote" "$refused .*wanted \[0x[0-9a-f]+, 0x[0-9a-f]+\), the region has \[0x[0-9a-f]+, 0x[0-9a-f]+\)"
mistake pair_without_right "asker RDMA WRITE: status 10 vendor_err 0x19; $flushed 0x26" "$remote" "$refused the queue pair .*wanted remote write, given local write"
mistake no_receive "asker SEND: status 13 vendor_err 0x12" "SEND .*no receive posted.*rnr_retry 2" "SEND of the peer, PSN 16777200, refused: no receive is posted"
mistake short_receive "asker SEND: status 9 vendor_err 0x18; owner receive: status 1 vendor_err 0x28" "SEND .*NAK invalid request" "receive \(wr_id 7\) .*longer than the posted receive: 1024 bytes have come, the receive has room for 16"
mistake bad_receive_lkey "asker SEND: status 11 vendor_err 0x1a; owner receive: status 4 vendor_err 0x01" "SEND .*NAK remote operational error" "receive \(wr_id 7\) .*with lkey 0x0000dead failed: no memory region has this lkey"
mistake bad_lkey "asker RDMA WRITE: status 4 vendor_err 0x01; owner receive: nothing" "RDMA WRITE .*with lkey 0x0000dead failed: no memory region has this lkey" -
mistake beyond_own_region "asker RDMA WRITE: status 4 vendor_err 0x04; owner receive: nothing" "RDMA WRITE .*reaches beyond its memory region: wanted \[0x[0-9a-f]+, 0x[0-9a-f]+\), the region has" -
mistake wrong_qpn "asker SEND: status 12 vendor_err 0x10; owner receive: nothing" "SEND .*did not answer.*4 attempts, timeout 12.*nothing was ever heard" "SEND of 127.0.0.1:[0-9]+ to queue pair 0x[0-9a-f]+, PSN 16777200, dropped: no queue pair here has this number"
mistake wrong_psn "asker SEND: status 12 vendor_err 0x11; owner receive: nothing" "SEND .*the peer answers other PSNs than were sent" "dropped: the first packet has another PSN.*wanted 5000, given 16777200"
mistake wrong_qkey "asker SEND: status 0 vendor_err 0x00; owner receive: nothing" - "SEND of 127.0.0.1:[0-9]+ .*another Q_Key: wanted 0x11, given 0x12"
mistake dead_peer "asker SEND: status 12 vendor_err 0x10" "SEND .*did not answer" "dropped: no queue pair here has this number"
mistake mtu_differs "asker RDMA WRITE: status 9 vendor_err 0x18; $flushed 0x2b" "RDMA WRITE .*NAK invalid request" "RDMA WRITE of the peer.*contradict: 2048 bytes where 1024 were due; the path MTU here is 1024"
mistake reads_not_allowed "asker RDMA READ: status 2 vendor_err 0x08; owner receive: nothing" "RDMA READ .*max_rd_atomic is 0" -
mistake odd_atomic "asker FETCH AND ADD: status 9 vendor_err 0x18; $flushed 0x2d" "FETCH AND ADD .*NAK invalid request" "FETCH AND ADD of the peer.*no multiple of 8"
mistake moved_to_error "asker RDMA WRITE: status 5 vendor_err 0x31; owner receive: nothing" - -
mistake small_cq "asker: CQ error" "a completion queue was full: it has 2 entries" -
mistake post_early "ibv_post_send: Invalid argument" "\(RC, RTR, .*ibv_post_send of SEND \(wr_id 42\) refused: requests are not taken in the state of the queue pair: they are taken in RTS" -
mistake many_elements "ibv_post_send: Invalid argument" "ibv_post_send of RDMA WRITE .*more elements.*wanted 2, given 1" -
mistake full_queue "ibv_post_send: Cannot allocate memory" "ibv_post_send of SEND .*the queue is full: it has 16 entries" -
mistake large_pair "ibv_create_qp: Invalid argument" "max_send_wr 1048576 is above the limit of 32768" -
mistake remote_without_local "ibv_reg_mr: Invalid argument" "need IBV_ACCESS_LOCAL_WRITE" -
mistake port_2 "ibv_modify_qp: Invalid argument" "there is only port 1" -
mistake no_mtu "ibv_modify_qp: Invalid argument" "path MTU is 1 to 5" -
mistake missing_attribute "ibv_modify_qp: Invalid argument" "INIT to RTR needs min RNR timer" -
mistake not_global "ibv_modify_qp: Invalid argument" "RoCE names peers by GID: is_global is 0" -
mistake no_gid "ibv_modify_qp: Invalid argument" "the peer's GID is all zeros" -
mistake gid_9 "ibv_query_gid: Invalid argument" "no GID of this index" -
mistake domain_in_use "ibv_dealloc_pd: Device or resource busy" "2 objects .*use the domain" -
mistake queue_in_use "ibv_destroy_cq: Device or resource busy" "use the completion queue" -
[[ $tried -eq $("$work/mistakes" list | wc -l) ]] || { failed=1; echo "FAILED: $tried mistakes are tried, and there are $("$work/mistakes" list | wc -l)"; }
[[ $failed -eq 0 ]] && echo "$tried mistakes"
exit $failed
