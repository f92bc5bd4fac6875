#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Builds a kernel that checks itself, of the distribution's source package and kernel.config; kept until one of these changes.
# usage: kernel.sh FOLDER -> FOLDER/root/boot/vmlinuz-VERSION, FOLDER/root/lib/modules/VERSION, FOLDER/version, FOLDER/build for `make -C`
# A folder may be shared by several work trees; building takes 15 minutes of two processors and 3 GB.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
folder="$1"
package=(/usr/src/linux-source-6.1.tar.*)
stamp="$(cat "$here/kernel.config" "$here/kernel.sh" | sha256sum | cut -c1-16) $(stat -L -c '%s' "${package[0]}" 2>/dev/null || echo none)"
if [[ "$(cat "$folder/stamp" 2>/dev/null)" == "$stamp" && -f "$folder/version" ]]; then exit 0; fi
[[ -f "${package[0]}" ]] || { echo "vm: there is no linux-source-6.1 in /usr/src" >&2; exit 1; }
mkdir -p "$folder"
cd "$folder"
exec 9>lock
flock 9
[[ "$(cat stamp 2>/dev/null)" != "$stamp" || ! -f version ]] || exit 0
rm -rf source build root version stamp
mkdir -p source build root/boot
echo "vm: building the debug kernel (once; log in $PWD/build.log)"
tar -xf "${package[0]}" -C source --strip-components=1
# What is mended before it is built (docs/kofi.md, "The debug kernel"): mend FILE EXPRESSION of sed, which has to change the file.
mend() {
  cp "source/$1" before
  sed -i "$2" "source/$1"
  ! cmp -s before "source/$1" || { echo "vm: the source of the debug kernel is another one: nothing to mend in $1" >&2; exit 1; }
}
rxe=drivers/infiniband/sw/rxe
# Which calls of an allocation may fail is told by their stack. 6.1 keeps this from x86-64; frame pointers make its stacks reliable.
mend lib/Kconfig.debug '/^config FAULT_INJECTION_STACKTRACE_FILTER/,/^config /{/depends on !X86_64/d}'
# A copy that ends with the last page of a full list reads one pointer behind the array of lists (KASAN), and does not use it.
mend $rxe/rxe_mr.c 's/if (i == RXE_BUF_PER_MAP) {/if (i == RXE_BUF_PER_MAP \&\& length > 0) {/'
# A packet is the responder's from the moment in which it is queued, and was looked at after that (KASAN).
mend $rxe/rxe_resp.c '/^void rxe_resp_queue_pkt/,/^}/s/^\tstruct rxe_pkt_info \*pkt = .*/\tbool is_read = SKB_TO_PKT(skb)->opcode == IB_OPCODE_RC_RDMA_READ_REQUEST;/'
mend $rxe/rxe_resp.c '/^void rxe_resp_queue_pkt/,/^}/s/(pkt->opcode == IB_OPCODE_RC_RDMA_READ_REQUEST)/is_read/'
# An ACK is no response of a READ or an atomic. That of a later packet ended an atomic whose response was lost as done; it has to be asked for again.
mend $rxe/rxe_comp.c '/check_ack(/,/^}/s|^\t/\* Check the sequence only \*/|\tif (pkt->opcode == IB_OPCODE_RC_ACKNOWLEDGE \&\& (aeth_syn(pkt) \& AETH_TYPE_MASK) == AETH_ACK \&\&\n\t    (wqe->mask \& WR_ATOMIC_OR_READ_MASK))\n\t\treturn COMPST_ERROR_RETRY;\n\n&|'
# A first response that could not be sent (no memory, a full queue) counted as sent: the READ, asked for again, was answered by one of its middle.
mend $rxe/rxe_resp.c '/read_reply(/,/^}/{/^\tres->state = rdatm_res_state_next;/d}'
mend $rxe/rxe_resp.c '/read_reply(/,/^}/s/^\tres->read.va += payload;/\tres->state = rdatm_res_state_next;\n&/'
# What came to an end by an error that had no status was completed as successful.
mend $rxe/rxe_comp.c 's/^\(\t*\)WARN_ON_ONCE(wqe->status == IB_WC_SUCCESS);/\1if (wqe->status == IB_WC_SUCCESS)\n\1\twqe->status = IB_WC_BAD_RESP_ERR;/'
rm before
compile() { make -s -C source O="$PWD/build" "$@" >>build.log 2>&1 || { tail -n 30 build.log >&2; exit 1; }; }
: >build.log
compile KCONFIG_ALLCONFIG="$here/kernel.config" allnoconfig
while read -r line; do
  grep -qxF "$line" build/.config || { echo "vm: kernel.config asks for $line, which the kernel does not have" >&2; exit 1; }
done < <(grep '^CONFIG' "$here/kernel.config")
compile -j"${WEFT_VM_JOBS:-$(nproc)}" bzImage modules
compile INSTALL_MOD_PATH="$PWD/root" modules_install
version="$(make -s -C build kernelrelease)"
cp build/arch/x86/boot/bzImage "root/boot/vmlinuz-$version"
# What modules are not built with.
find build -name '*.o' ! -path 'build/scripts/*' ! -path 'build/tools/*' -delete
find build -name '*.a' -delete
rm -f build/vmlinux build/arch/x86/boot/compressed/vmlinux*
echo "$version" >version
echo "$stamp" >stamp
