#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# What programs print of Weft when they set nothing: a refused fi_getinfo in one line at the end, a probe that goes on with something else nothing.
set -uo pipefail
compat="${WEFT_BUILD:?}/lib/weft/compat"
[[ -e "$compat/libfabric.so.1" ]] || { echo "the drop-in is not built"; exit 77; }
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "a program that is not sanitized: not tested here"; exit 77; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
unset FI_PROVIDER FI_LOG_LEVEL WEFT_CONFIG
failures=0
# A program that asks for each of its arguments in turn, NAME or NAME/msg, and returns what the last one was answered with.
cat >"$work/ask.c" <<'END'
#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char** names) {
  int status = 0;
  for (int i = 1; i < count; ++i) {
    if (strcmp(names[i], "fork") == 0) {
      if (fork() == 0) exit(0);
      continue;
    }
    struct fi_info *hints = fi_allocinfo(), *found = NULL;
    char* kind = strchr(names[i], '/');
    if (kind != NULL) *kind = 0, hints->ep_attr->type = FI_EP_MSG;
    if (*names[i] != 0) hints->fabric_attr->prov_name = strdup(names[i]);
    status = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &found);
    fi_freeinfo(found);
    fi_freeinfo(hints);
  }
  return status != 0;
}
END
gcc -D_GNU_SOURCE "$work/ask.c" -o "$work/ask" -lfabric || exit 1
# prints LINES WORDS COMMAND...: that many lines of ours on stderr, the first with those words.
prints() {
  local lines="$1" words="$2"; shift 2
  LD_LIBRARY_PATH="$compat" timeout 60 "$@" >/dev/null 2>"$work/err"
  if [[ "$(grep -c '^weft:' "$work/err")" -ne $lines ]] || ! grep -q -- "$words" "$work/err" && [[ -n $words ]]; then
    echo "FAILED: not $lines lines with \"$words\": $*"
    cat "$work/err"
    failures=$((failures + 1))
  fi
}
prints 0 "" "$work/ask" shm
prints 0 "" "$work/ask" efa tcp
prints 0 "" "$work/ask" shm/msg tcp/msg
prints 0 "" "$work/ask" "" efa
prints 1 'weft:[0-9]*:shm:core:<warn> fi_getinfo found nothing: ep_attr->type: FI_EP_MSG was asked, shm offers FI_EP_RDM$' "$work/ask" shm/msg shm/msg
prints 1 'shm offers FI_EP_RDM$' "$work/ask" tcp shm/msg
prints 1 'fi_getinfo found nothing: fabric_attr->prov_name: no provider is named "smh"; there are: weft, shm, tcp' "$work/ask" smh
prints 1 'shm offers FI_EP_RDM$' "$work/ask" shm/msg fork
prints 1 'FI_PROVIDER: no provider is named "smh"; there are: weft, shm, tcp' env FI_PROVIDER=smh "$work/ask" ""
prints 0 "" env FI_PROVIDER=shm,smh "$work/ask" ""
prints 1 'FI_PROVIDER=shm leaves out "tcp", which fabric_attr->prov_name asks for' env FI_PROVIDER=shm "$work/ask" tcp
prints 1 'shm offers FI_EP_RDM$' env FI_PROVIDER=shm "$work/ask" /msg
prints 1 'FI_WEFT_SHM=maybe is not one of 0, 1, on, off, true, false, yes, no; yes is used' env FI_WEFT_SHM=maybe "$work/ask" "" "" ""
prints 1 'FI_WEFT_SMH in the environment is no setting: is FI_WEFT_SHM meant' env FI_WEFT_SMH=0 "$work/ask" "" ""
prints 1 'FI_WEFT_NEAR in the environment: the setting is called FI_WEFT_SHM now' env FI_WEFT_NEAR=0 "$work/ask" "" ""
prints 1 'FI_TCP_ACCEPT_TIMEOUT=never is not a number from 1 to 86400000; 60000 is used' env FI_TCP_ACCEPT_TIMEOUT=never "$work/ask" "" ""
printf 'FI_WEFT_SHM = maybe\n' >"$work/config"
prints 1 'FI_WEFT_SHM=maybe is not' env WEFT_CONFIG="$work/config" "$work/ask" "" ""
prints 0 "" env WEFT_TEST_ANYTHING=1 WEFT_JOBS=2 FI_UNIVERSE_SIZE=8 FI_TCP_IFACE=lo "$work/ask" ""

[[ $failures -eq 0 ]] && echo "quiet_test: ok"
exit $((failures > 0))
