#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The extension scheme of verbs: programs of five generations (programs.c), on today's library and the next one, with a provider of today and one of the
# next version (toy.c). "Next" is what WEFT_VERBS_NEXT makes of the same sources: one member more at the end of each struct. All work; a call that the
# program's header, the library or the provider does not have is EOPNOTSUPP.
set -euo pipefail
build="${WEFT_BUILD:?}" source="${WEFT_SOURCE:?}"
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "the program would need the sanitizer's runtime: not tested here"; exit 77; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

library_today="$build/lib/weft/compat"
library_next="$build/tests/verbs/next"
provider_today="$build/tests/verbs/libtoy.so"
provider_next="$build/tests/verbs/libtoy-next.so"
gcc -std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra -Werror "$source/tests/verbs/programs.c" -o "$work/programs" -L"$library_today" -l:libibverbs.so.1 ||
  fail "the programs are not compiled"
printf '%-8s %-8s %-8s %s\n' program library provider outcome
for program in legacy first today next cut; do
  for library in today next; do
    for provider in today next; do
      declare -n folder="library_$library" object="provider_$provider"
      case "$program $library $provider" in
        "today next next") wanted="works; rate limit: works" ;;
        today*) wanted="works; rate limit: EOPNOTSUPP" ;;
        next*) wanted="works; new call: EOPNOTSUPP" ;;
        cut*) wanted="works; new calls: EOPNOTSUPP" ;;
        *) wanted="works" ;;
      esac
      outcome="$(LD_LIBRARY_PATH="$folder" WEFT_VERBS_PROVIDERS="$object" timeout 30 "$work/programs" "$program" 2>&1)" || true
      printf '%-8s %-8s %-8s %s\n' "$program" "$library" "$provider" "$outcome"
      [[ "$outcome" == "$wanted" ]] || fail "expected: $wanted"
    done
  done
done
# A provider that cannot be loaded is a warning and nothing else; the setting's other providers are there.
outcome="$(LD_LIBRARY_PATH="$library_today" WEFT_VERBS_PROVIDERS="/nowhere.so::$provider_today" timeout 30 "$work/programs" today 2>"$work/err")"
[[ "$outcome" == "works; rate limit: EOPNOTSUPP" ]] || fail "beside a provider that is not there: $outcome"
grep -q "warning: WEFT_VERBS_PROVIDERS: /nowhere.so" "$work/err" || fail "no warning about a provider that is not there: $(cat "$work/err")"
echo "verbs_matrix_test: ok"
