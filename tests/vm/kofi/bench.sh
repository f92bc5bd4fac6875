# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# In the guest, sourced by guest.sh: what `./dev vm kofi bench` measures. Lines NAME;WHO;VALUE go to /logs/bench; both sides of
# a comparison take turns. /logs/parts says which: tcp, verbs, blk.
note() { echo "$*" >>/logs/bench; say "$*"; }
# measured FILE: the figure of the first line, behind the colon.
measured() { sed -n 's/^ok [^:]*: \([0-9]*\) .*/\1/p; q' "$1"; }
turn() {  # turn NAME WHO FILE COMMAND: COMMAND is written to FILE, its answer read there
  echo "$4" >"$3"
  note "$1;$2;$(measured "$3")"
}

bench_tcp() {
  load kofi kofi_tcp kofi_test || return 1
  for _ in $(seq "$1"); do
    turn "tcp latency, 8 bytes (ns)" bare $debug/kofi_test/run "socket - socket-latency"
    turn "tcp latency, 8 bytes (ns)" kofi $debug/kofi_test/run "kofi_tcp 127.0.0.1 latency"
    turn "tcp stream, 64 KiB (MB/s)" bare $debug/kofi_test/run "socket - socket-stream"
    turn "tcp stream, 64 KiB (MB/s)" kofi $debug/kofi_test/run "kofi_tcp 127.0.0.1 stream"
  done
  unload kofi_test kofi_tcp kofi
}

bench_verbs() {
  rxe_up && load kofi kofi_verbs kofi_test kofi_bare_verbs || return 1
  for _ in $(seq "$1"); do
    turn "verbs latency, 8 bytes (ns)" bare $debug/kofi_bare_verbs "10.7.0.1 latency"
    turn "verbs latency, 8 bytes (ns)" kofi $debug/kofi_test/run "kofi_verbs 10.7.0.1 latency"
    turn "verbs stream, 64 KiB (MB/s)" bare $debug/kofi_bare_verbs "10.7.0.1 stream"
    turn "verbs stream, 64 KiB (MB/s)" kofi $debug/kofi_test/run "kofi_verbs 10.7.0.1 stream"
  done
  unload kofi_bare_verbs kofi_test kofi_verbs kofi
}

# --- block devices: one file of tmpfs behind three targets, each in the same machine, two connections each ---
nvme_up() {
  local at=/sys/kernel/config/nvmet
  modprobe -a nvmet_tcp nvme_tcp && mkdir $at/subsystems/bench $at/subsystems/bench/namespaces/1 $at/ports/1 || return 1
  echo 1 >$at/subsystems/bench/attr_allow_any_host
  echo $image >$at/subsystems/bench/namespaces/1/device_path
  echo 1 >$at/subsystems/bench/namespaces/1/buffered_io
  echo 1 >$at/subsystems/bench/namespaces/1/enable
  echo tcp >$at/ports/1/addr_trtype; echo ipv4 >$at/ports/1/addr_adrfam
  echo 127.0.0.1 >$at/ports/1/addr_traddr; echo 4420 >$at/ports/1/addr_trsvcid
  ln -s $at/subsystems/bench $at/ports/1/subsystems/bench
  echo "nqn=bench,transport=tcp,traddr=127.0.0.1,trsvcid=4420,nr_io_queues=2,hostnqn=nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000001" >/dev/nvme-fabrics
  for _ in $(seq 100); do [[ -b /dev/nvme0n1 ]] && return 0; sleep 0.1; done
  return 1
}
nbd_up() {
  modprobe nbd nbds_max=1
  printf '[generic]\n[bench]\nexportname = %s\nmultifile = false\n' $image >$folder/nbd.conf
  /weft/bin/nbd-server -C $folder/nbd.conf -p $folder/nbd.pid 127.0.0.1@10809
  sleep 1
  /weft/bin/nbd-client -N bench -C 2 127.0.0.1 10809 /dev/nbd0
}
run_fio() {  # run_fio DEVICE MODE SIZE DEPTH: operations a second
  local field=8
  [[ "$2" != *write ]] || field=49
  /weft/bin/fio --minimal --name=x --filename="$1" --direct=1 --ioengine=libaio --rw="$2" --bs="$3" --iodepth="$4" \
    --time_based --runtime=2 --size=96M --randrepeat=1 | cut -d';' -f$field
}
bench_devices() {  # bench_devices ROUNDS "WHO DEVICE"...
  local rounds="$1" shape mode size depth pair; shift
  for shape in "randread 4k 1" "randread 4k 32" "randwrite 4k 1" "randwrite 4k 32" "read 128k 8" "write 128k 8"; do
    read -r mode size depth <<<"$shape"
    for _ in $(seq "$rounds"); do
      for pair in "$@"; do
        note "fio $mode, $size, depth $depth (IOPS);${pair% *};$(run_fio "${pair#* }" "$mode" "$size" "$depth")"
      done
    done
  done
}
bench_blk() {
  modprobe -a configfs
  mount -t configfs configfs /sys/kernel/config 2>/dev/null
  load kofi kofi_tcp kofi_blk kofi_blk_target || return 1
  dd if=/dev/zero of=$image bs=1M count=128 2>/dev/null
  kernel_target kofi_tcp 127.0.0.1 4711 && blk_connect disk kofi_tcp 127.0.0.1 4711 || return 1
  nvme_up || { say "no NVMe over TCP"; return 1; }
  nbd_up || { say "no nbd"; return 1; }
  bench_devices "$1" "nbd /dev/nbd0" "nvme /dev/nvme0n1" "kofi $(cat $config/disk/device)"
}

case_bench() {
  local part rounds; rounds="$(cat /logs/turns)"
  while read -r part; do
    expect "bench $part" "measured" "bench_$part" "$rounds"
  done </logs/parts
}
