#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Mends faults of Linux 6.1's rdma_rxe in its sources (docs/kofi.md, "Faults of rxe"). usage: mend.sh FOLDER: drivers/infiniband/sw/rxe
set -euo pipefail
cd "$1"
# mend FILE EXPRESSION of sed, which has to change the file.
mend() {
  cp "$1" before
  sed -i "$2" "$1"
  ! cmp -s before "$1" || { echo "vm: the source of rxe is another one: nothing to mend in $1" >&2; exit 1; }
  rm before
}
# A copy that ends with the last page of a full list reads one pointer behind the array of lists (KASAN), and does not use it.
mend rxe_mr.c 's/if (i == RXE_BUF_PER_MAP) {/if (i == RXE_BUF_PER_MAP \&\& length > 0) {/'
# A packet is the responder's from the moment in which it is queued, and was looked at after that (KASAN).
mend rxe_resp.c '/^void rxe_resp_queue_pkt/,/^}/s/^\tstruct rxe_pkt_info \*pkt = .*/\tbool is_read = SKB_TO_PKT(skb)->opcode == IB_OPCODE_RC_RDMA_READ_REQUEST;/'
mend rxe_resp.c '/^void rxe_resp_queue_pkt/,/^}/s/(pkt->opcode == IB_OPCODE_RC_RDMA_READ_REQUEST)/is_read/'
# An ACK is no response of a READ or an atomic. That of a later packet ended an atomic whose response was lost as done; what is missing has to be asked for again.
mend rxe_comp.c '/check_ack(/,/^}/s|^\t/\* Check the sequence only \*/|\tif (pkt->opcode == IB_OPCODE_RC_ACKNOWLEDGE \&\& (aeth_syn(pkt) \& AETH_TYPE_MASK) == AETH_ACK \&\&\n\t    (wqe->mask \& WR_ATOMIC_OR_READ_MASK))\n\t\treturn COMPST_ERROR_RETRY;\n\n&|'
# A NAK may come between the responses of a READ: of a region that has been closed meanwhile, say. It did not fit and ended the READ without a status.
mend rxe_comp.c '/check_ack(/,/^}/s/if (pkt->opcode != IB_OPCODE_RC_RDMA_READ_RESPONSE_MIDDLE \&\&/if (pkt->opcode != IB_OPCODE_RC_ACKNOWLEDGE \&\&\n\t\t    pkt->opcode != IB_OPCODE_RC_RDMA_READ_RESPONSE_MIDDLE \&\&/'
# A first response that could not be sent (no memory, a full queue) counted as sent: the READ, asked for again, was answered by one of its middle.
mend rxe_resp.c '/read_reply(/,/^}/{/^\tres->state = rdatm_res_state_next;/d}'
mend rxe_resp.c '/read_reply(/,/^}/s/^\tres->read.va += payload;/\tres->state = rdatm_res_state_next;\n&/'
# The reply goes on with the next request, and the region, which was let go with the first attempt, has to be found again.
mend rxe_resp.c '/read_reply(/,/^}/s/^\t\tif (!res->replay) {/\t\tif (!res->replay \&\& (qp->resp.mr || !res->read.resid)) {/'
# What came to an end by an error that had no status was completed as successful.
mend rxe_comp.c 's/^\(\t*\)WARN_ON_ONCE(wqe->status == IB_WC_SUCCESS);/\1if (wqe->status == IB_WC_SUCCESS)\n\1\twqe->status = IB_WC_BAD_RESP_ERR;/'
