#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Hosts that do not pass descriptors over Unix sockets: a library that is loaded first loses them at the sender, refuses to send them, or drops them at
# the receiver, at both sides or one. Debian's fi_pingpong over shm and weft must meet through /proc, and say so at level info.
# shellcheck disable=SC2034,SC2154  # pair.sh has them
set -uo pipefail
library="${WEFT_TEST_LIBRARY:-${WEFT_BUILD:?}/lib/weft/compat}"
[[ -e "$library/libfabric.so.1" ]] && command -v fi_pingpong >/dev/null || { echo "fi_pingpong or the drop-in is not there"; exit 77; }
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "a sanitizer has such functions itself: not tested here"; exit 77; }
source "$(dirname "${BASH_SOURCE[0]}")/../pair.sh"
cat >"$pair_folder/not_passed.c" <<'END'
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
static int is(const char* way) { const char* set = getenv("NOT_PASSED"); return set != NULL && strcmp(set, way) == 0; }
ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  struct msghdr less = *message;
  struct cmsghdr* first = CMSG_FIRSTHDR(message);
  if (first != NULL && first->cmsg_type == SCM_RIGHTS) {
    if (is("refused")) return errno = EPERM, -1;
    if (is("lost")) less.msg_control = NULL, less.msg_controllen = 0;
  }
  return syscall(SYS_sendmsg, fd, &less, flags);
}
// As after security_file_receive() has refused: what follows is cut.
ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
  ssize_t got = syscall(SYS_recvmsg, fd, message, flags);
  struct cmsghdr* at;
  if (got < 0 || !is("dropped") || (flags & MSG_PEEK) != 0) return got;
  for (at = CMSG_FIRSTHDR(message); at != NULL; at = CMSG_NXTHDR(message, at)) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; i < (at->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) close(((int*)CMSG_DATA(at))[i]);
    message->msg_controllen = (size_t)((char*)at - (char*)message->msg_control);
    message->msg_flags |= MSG_CTRUNC;
    break;
  }
  return got;
}
END
gcc -shared -fPIC "$pair_folder/not_passed.c" -o "$pair_folder/not_passed.so" || exit 1
run=(env "LD_LIBRARY_PATH=$library" FI_LOG_LEVEL=info) pair_limit=60
failures=0
for provider in shm weft; do
  for way in lost refused dropped; do
    for sides in client server both; do
      shim=(env "NOT_PASSED=$way" "LD_PRELOAD=$pair_folder/not_passed.so")
      here=() there=()
      [[ $sides == server ]] || here=("${shim[@]}")
      [[ $sides == client ]] || there=("${shim[@]}")
      # shellcheck disable=SC2310
      if ! pair_reaches 64k 127.0.0.1 -p "$provider" -e rdm -c -S 65536 -I 10 >"$pair_folder/failure"; then
        grep -v '<info>' "$pair_folder/failure"
      elif ! grep -q 'met through /proc' "$pair_folder"/{server,client}.err; then
        echo "descriptors were passed"
      elif grep '<warn>' "$pair_folder"/{server,client}.err; then
        echo "warnings"
      else
        continue
      fi
      echo "FAILED: $provider, descriptors $way, $sides"
      failures=$((failures + 1))
    done
  done
done
[[ $failures == 0 ]] || { echo "$failures failed"; exit 1; }
