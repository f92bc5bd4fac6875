# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Of guest.sh: fio as the writer. Jobs of ext4 on kofi_blk write files, read them back and compare checksums, while connections are
# cut or the target goes and comes.
# shellcheck shell=bash

# fio_once SEED [OPTION...]: five jobs; each writes its file whole, then reads all of it. Two of them read back while they write.
fio_once() {
  local seed="$1"; shift
  timeout 900 /weft/bin/fio --output=/logs/fio.log --directory=$folder/mnt --ioengine=libaio --direct=1 --thread --size=6m --end_fsync=1 \
    --verify=crc32c --verify_fatal=1 --randseed="$seed" "$@" \
    --name=random --rw=randwrite --bs=4k --iodepth=8 --numjobs=2 --verify_backlog=64 \
    --name=sizes --rw=randwrite --bsrange=4k-64k --blockalign=4k --iodepth=4 --numjobs=1 \
    --name=sequential --rw=write --bs=128k --iodepth=4 --numjobs=2
}
fio_bytes() { sed -n 's/^ *\(READ\|WRITE\): .*io=\([^ ]*\) .*/\1 \2/p' /logs/fio.log | tr '\n' ' '; }

# Rounds of fio until what disturbs them has ended.
fio_rounds() {
  local seed=0
  until [[ -e $folder/enough ]]; do
    seed=$((seed + 1))
    fio_once $seed || return 1
    echo $seed >$folder/rounds
  done
}
fio_under() {  # fio_under NAME WHAT COMMAND...: COMMAND disturbs
  local name="$1" what="$2" rounds cuts status; shift 2
  rm -f $folder/enough $folder/rounds
  cuts=$(cuts_of)
  fio_rounds &
  rounds=$!
  "$@" || status=1
  touch $folder/enough
  wait $rounds || status=1
  cat /logs/fio.log $config/disk/state
  expect "$name" "$what; $(cat $folder/rounds) rounds, each $(fio_bytes); $(($(cuts_of) - cuts)) cuts" test -z "${status:-}"
}
# A cut counts when there was a connection.
cut_often() {
  local until=$(($(cuts_of) + $1))
  while [[ $(cuts_of) -lt $until ]]; do
    ! grep -q '^live ' $config/disk/state || cut_disk
    sleep 0.1
  done
}
fio_again() { umount $folder/mnt && /weft/bin/e2fsck -fn "$1" && mount -t ext4 "$1" $folder/mnt; }

fio_cases() {  # fio_cases NAME WHAT COMMAND...: of the device of config/disk; COMMAND takes the target away and brings it back
  local name="$1" what="$2" dev; dev="$(cat $config/disk/device)"; shift 2
  expect "$name mkfs" "ext4" /weft/bin/mke2fs -q -F -t ext4 "$dev"
  mkdir -p $folder/mnt
  expect "$name mount" "" mount -t ext4 "$dev" $folder/mnt
  fio_under "$name cut" "100 cuts under fio" cut_often 100
  expect "$name fsck" "clean; mounted again" fio_again "$dev"
  expect "$name kept" "what the last round had written" fio_once "$(cat $folder/rounds)" --verify_only
  fio_under "$name killed" "$what under fio" "$@"
  expect "$name fsck" "clean; mounted again" fio_again "$dev"
  expect "$name kept" "what the last round had written" fio_once "$(cat $folder/rounds)" --verify_only
  expect "$name umount" "" umount $folder/mnt
  expect "$name disconnect" "" blk_disconnect disk
  expect "$name image" "is clean" /weft/bin/e2fsck -fn $image
}

case_fio() {
  if [[ ! -x /weft/bin/block_target ]]; then result "skipped kofi_blk fio: no staged Weft"; return; fi
  modprobe -a configfs crc32c_generic ext4
  mount -t configfs configfs /sys/kernel/config 2>/dev/null
  load kofi kofi_tcp kofi_blk || { result "FAILED kofi_blk load: insmod"; return; }
  truncate -s 160M $image
  expect "fio-tcp target" "examples/block_target over Weft's tcp" start_target
  expect "fio-tcp connect" "to it" blk_connect disk kofi_tcp 127.0.0.1 4710
  fio_cases fio-tcp "the target killed 8 times" disturb 8 1.5 kill_target
  stop_target
  rm -f $image
  expect "kofi objects" "none is left" test "$(wc -l <$debug/kofi/objects)" = 0
  unload kofi_blk kofi_tcp kofi || result "FAILED kofi_blk unload: rmmod"
}

case_fio_verbs() {
  modprobe -a configfs crc32c_generic ext4
  mount -t configfs configfs /sys/kernel/config 2>/dev/null
  expect "kofi_verbs rxe" "a device" rxe_up
  load kofi kofi_verbs kofi_blk kofi_blk_target || { result "FAILED kofi_blk load: insmod"; return; }
  truncate -s 160M $image
  expect "fio-verbs target" "kofi_blk_target" kernel_target kofi_verbs 10.7.0.1 4711
  expect "fio-verbs connect" "to it" blk_connect disk kofi_verbs 10.7.0.1 4711
  fio_cases fio-verbs "the target disabled and enabled 8 times" disturb 8 1.5 toggle_target
  expect "fio-verbs end" "of the target" end_kernel_target
  rmdir /sys/kernel/config/kofi_blk_target/served
  rm -f $image
  expect "kofi objects" "none is left" test "$(wc -l <$debug/kofi/objects)" = 0
  unload kofi_blk kofi_blk_target kofi_verbs kofi || result "FAILED kofi_blk unload: rmmod"
}
