# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The programs that exchange, for guest.sh: how each is started, and when its result is a good one.

# peers CASE KERNEL_ADDRESS OTHER_ADDRESS WHERE [OPTION...]: verbs_peer on both sides, all scenarios, and a capture
# of the wire. WHERE starts the other side: in_weft or in_kernel.
peers() {
  local name="$1" kernel="$2" other="$3" where="$4" control=$weft_control other_name=weft line
  shift 4
  if [[ $where == in_kernel ]]; then control=$kernel_control other_name=kernel2; fi
  local duplicates retries
  duplicates=$(rxe_counter duplicate_request) retries=$(rxe_counter completer_retry_err)
  [[ $where == in_kernel ]] || capture_start "$name"
  # With the libraries of the kernel's suite, where the guest has them: they have calls that this machine's lack.
  local kernel_peer=(timeout 200 /weft/verbs_peer) other_peer=("$where" timeout 200 /weft/verbs_peer)
  [[ ! -d /suite ]] || kernel_peer=(timeout 200 chroot /suite /weft/verbs_peer)
  [[ $where != in_kernel ]] || other_peer=("${kernel_peer[@]}")
  "${kernel_peer[@]}" connect $control 7000 "$kernel" kernel --only "$(cat /logs/only)" "$@" >"/logs/$name.kernel" 2>&1 &
  local connector=$! status other_status
  "${other_peer[@]}" listen $control 7000 "$other" $other_name --only "$(cat /logs/only)" "$@" 2>&1 |
    tee "/logs/$name.$other_name" | while read -r line; do
    case "$line" in
      "ok "*) result ok "$name: ${line#ok }" ;;
      "FAILED "*) result FAILED "$name: ${line#FAILED }" ;;
      "skipped "*) result skipped "$name: ${line#skipped }" ;;
    esac
  done
  status=${PIPESTATUS[0]}
  wait $connector
  other_status=$?
  [[ $where == in_kernel ]] || capture_stop "$name"
  if [[ $status -gt 1 || $other_status -gt 1 ]]; then
    result FAILED "$name: verbs_peer ended with $status on $other_name and $other_status on the kernel"
  fi
  [[ $where != in_kernel ]] || return
  # What Weft says when the device closes, and what the kernel counts.
  line="$(grep -o 'sent again: .*' "/logs/$name.$other_name")"
  local again twice gaps wrong solved
  again="$(said "$line" 'sent again' 0)" twice="$(said "$line" 'received twice' 0)" gaps="$(said "$line" gaps 0)"
  wrong="$(said "$line" 'wrong ICRC' 1)" solved="$(said "$line" 'by a solved IP identification' 1)"
  duplicates=$(($(rxe_counter duplicate_request) - duplicates)) retries=$(($(rxe_counter completer_retry_err) - retries))
  expect "$name: every ICRC is right" "$wrong" -eq 0
  case "$name" in
    *packet* | *v6*) expect "$name: no ICRC is solved for" "$solved" -eq 0 ;;
  esac
  case "$name" in
    loss*)
      expect "$name: Weft repeats ($again packets, the kernel had $duplicates requests twice)" "$again" -gt 0
      expect "$name: the kernel repeats (Weft had $twice packets twice, saw $gaps gaps, the kernel counts $retries retries)" "$((twice * retries))" -gt 0
      ;;
  esac
}

# said LINE WORDS ELSE: the number behind "WORDS: " in a line of counters; ELSE where there is none.
said() {
  local rest="${1#*"$2: "}"
  [[ $rest != "$1" ]] && echo "${rest%%[!0-9]*}" || echo "$3"
}

# expect WHAT TEST...: a line of the results.
expect() {
  local what="$1"
  shift
  if test "$@"; then result ok "$what"; else result FAILED "$what"; fi
}
rxe_counter() { cat "/sys/class/infiniband/rxe0/ports/1/hw_counters/$1"; }

# pair NAME SERVER CLIENT COMMAND...: a server without an address and a client with that of the server's side. The
# words %gid and %device become those of a side; SERVER and CLIENT are in_weft or in_kernel.
pair() {
  local name="$1" server="$2" client="$3" started control
  shift 3
  control=$weft_control
  [[ $server == in_weft ]] || control=$kernel_control
  started="$(uptime_s)"
  local file="/logs/${name// /-}"
  $server timeout 30 $(words $server "$@") >"$file.server" 2>&1 &
  local pid=$!
  await_listener $server
  $client timeout 30 $(words $client "$@") $control >"$file.client" 2>&1
  local client_status=$?
  wait $pid
  local server_status=$?
  if [[ $client_status -eq 0 && $server_status -eq 0 ]]; then
    result ok "$name ($(busybox awk "BEGIN { printf \"%.2f\", $(uptime_s) - $started }") s)"
  else
    result FAILED "$name: the server ended with $server_status ($(tail -n 1 "$file.server")), the client with $client_status ($(tail -n 1 "$file.client"))"
  fi
}

# The command of a side: its device and GID index in place of the words that stand for them.
words() {
  local side="$1" device=rxe0 index
  shift
  if [[ $side == in_weft ]]; then
    device=weft_weft0 index=$weft_index
  else
    index=$kernel_index
  fi
  local word out=()
  for word in "$@"; do
    word="${word//%gid/$index}"
    out+=("${word//%device/$device}")
  done
  echo "${out[@]}"
}

# Until somebody listens at the port of these programs.
await_listener() {
  local namespace=()
  [[ $1 == in_kernel ]] || namespace=(ip netns exec weft)
  for _ in $(seq 100); do
    "${namespace[@]}" busybox netstat -ltn 2>/dev/null | busybox grep -q ':18515 ' && return
    sleep 0.05
  done
}

# Both roles of a command.
both() {
  local name="$1"
  shift
  pair "$name, Weft serves" in_weft in_kernel "$@"
  pair "$name, the kernel serves" in_kernel in_weft "$@"
}

over() {
  if [[ $1 == v4 ]]; then
    kernel_index="$(gid_index $kernel_v4)" weft_index=1
  else
    kernel_index="$(gid_index $kernel_v6)" weft_index=2
  fi
}

pingpongs() {
  local version program
  for version in v4 v6; do
    over $version
    for program in rc uc ud srq; do
      both "ibv_${program}_pingpong $version" ibv_${program}_pingpong -d %device -g %gid -n 200
    done
    both "ibv_rc_pingpong -e $version" ibv_rc_pingpong -d %device -g %gid -n 100 -e
  done
}

perftests() {
  local common=(-d %device -x %gid -F -n 100) kind
  over v4
  for kind in RC UC UD; do
    both "ib_send_lat $kind" ib_send_lat "${common[@]}" -c $kind -s 64
    both "ib_send_bw $kind" ib_send_bw "${common[@]}" -c $kind -s 1000
  done
  for kind in RC UC; do
    both "ib_write_lat $kind" ib_write_lat "${common[@]}" -c $kind -s 64
    both "ib_write_bw $kind" ib_write_bw "${common[@]}" -c $kind -s 16384
  done
  both "ib_read_lat" ib_read_lat "${common[@]}" -s 64
  both "ib_read_bw" ib_read_bw "${common[@]}" -s 16384
  both "ib_atomic_lat FAA" ib_atomic_lat "${common[@]}" -A FETCH_AND_ADD
  both "ib_atomic_lat CAS" ib_atomic_lat "${common[@]}" -A CMP_AND_SWAP
  both "ib_atomic_bw" ib_atomic_bw "${common[@]}"
  both "ib_send_bw -q 8" ib_send_bw "${common[@]}" -s 4096 -q 8
  both "ib_send_bw -b" ib_send_bw "${common[@]}" -s 4096 -b
  both "ib_send_lat -e" ib_send_lat "${common[@]}" -s 64 -e
  both "ib_write_bw -q 4 -b" ib_write_bw "${common[@]}" -s 4096 -q 4 -b
}

# Sleeping on completions, many times: what is lost between arming and sleeping shows now and then only. A capture of the
# run that failed stays.
events() {
  local round failed_before
  over v4
  for round in $(seq "$(cat /logs/rounds)"); do
    failed_before=$(grep -c '^FAILED' /logs/results)
    capture_start events
    both "ib_send_lat -e, round $round" ib_send_lat -d %device -x %gid -F -n 100 -s 64 -e
    both "ib_send_bw -e, round $round" ib_send_bw -d %device -x %gid -F -n 200 -s 1000 -e
    both "ibv_rc_pingpong -e, round $round" ibv_rc_pingpong -d %device -g %gid -n 100 -e
    capture_stop events
    [[ $(grep -c '^FAILED' /logs/results) -eq $failed_before ]] || mv /logs/events.pcap "/logs/events-$round.pcap"
  done
}

# measure FIELD NAME SIDE SERVER CLIENT ADDRESS COMMAND...: one figure of perftest's last line, to /logs/bench.
measure() {
  local field="$1" name="$2" side="$3" server="$4" client="$5" address="$6" value
  shift 6
  grep -qE -- "$(cat /logs/only)" <<<"$name, $side" || return
  $server timeout 60 "${@//%device/$server_device}" >/logs/bench.server 2>&1 &
  local pid=$!
  for _ in $(seq 100); do
    $server busybox netstat -ltn 2>/dev/null | busybox grep -q ':18515 ' && break
    sleep 0.05
  done
  $client timeout 60 "${@//%device/$client_device}" "$address" >/logs/bench.client 2>&1
  wait $pid
  value="$(busybox awk -v field="$field" '/^ *[0-9]+ +[0-9]+ / { value = $field } END { print value }' /logs/bench.client)"
  echo "$side;$name;${value:-failed}" >>/logs/bench
  say "bench: $name, $side: ${value:-failed: $(tail -n 1 /logs/bench.client)}"
}

# The same programs in turn, each through a pair of veth: over rxe, over Weft by UDP sockets, over Weft by packet sockets.
bench() {
  local round
  for round in $(seq "$(cat /logs/rounds)"); do
    local side
    for side in rxe weft packet; do
      local at=() index=0
      if [[ $side == rxe ]]; then
        at=(in_kernel in_kernel $server_v4) index=1 server_device=rxe2 client_device=rxe1
      elif [[ $side == packet ]]; then
        at=(in_packet_server in_packet_client $server_v4) index=1 server_device=weft_wire1 client_device=weft_wire0
      else
        at=(in_weft_server in_weft_client $server_v4) index=0 server_device=weft_wire1 client_device=weft_wire0
      fi
      local common=(-d %device -x $index -F)
      measure 5 "RC SEND 8 B, latency, us" $side "${at[@]}" ib_send_lat "${common[@]}" -s 8 -n 2000
      measure 5 "RC WRITE 8 B, latency, us" $side "${at[@]}" ib_write_lat "${common[@]}" -s 8 -n 2000
      measure 5 "RC SEND 8 B, million messages/s" $side "${at[@]}" ib_send_bw "${common[@]}" -s 8 -n 10000
      measure 4 "RC SEND 64 KiB, MB/s" $side "${at[@]}" ib_send_bw "${common[@]}" -s 65536 -n 300
      measure 4 "RC WRITE 64 KiB, MB/s" $side "${at[@]}" ib_write_bw "${common[@]}" -s 65536 -n 300
      measure 5 "UD SEND 1,024 B, million messages/s" $side "${at[@]}" ib_send_bw "${common[@]}" -c UD -s 1024 -n 2000
    done
  done
}
