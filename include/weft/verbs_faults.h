// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Why a work request ended with an error: what struct ibv_wc::vendor_err is on a device of Weft (docs/verbs.md, "When it
 * fails"). 0 where a completion is good. Numbers stay what they are; new causes get new ones. C99 and C++; includes nothing
 * of Weft.
 *
 * A completion that was flushed (IBV_WC_WR_FLUSH_ERR) has the cause for which its queue pair went to the state ERR. So the
 * receives of a responder tell what it refused. */
#ifndef WEFT_VERBS_FAULTS_H
#define WEFT_VERBS_FAULTS_H

#include <stdint.h>

/* number, name, what it says */
#define WEFT_VERBS_FAULTS(X)                                                                                 \
  X(0x00, NONE, "no fault")                                                                                  \
  /* This side's own requests: what the program gave. */                                                     \
  X(0x01, LKEY_UNKNOWN, "no memory region has this lkey")                                                    \
  X(0x02, LKEY_DOMAIN, "the region of this lkey is of another protection domain")                            \
  X(0x03, LKEY_RIGHTS, "the region was not registered with IBV_ACCESS_LOCAL_WRITE")                          \
  X(0x04, LKEY_BOUNDS, "the element reaches beyond its memory region")                                       \
  X(0x05, LKEY_UNMAPPED, "memory of an on-demand region is not mapped")                                      \
  X(0x06, WINDOW_BIND, "a memory window cannot be bound so")                                                 \
  X(0x07, WINDOW_INVALIDATE, "no bound memory window of type 2 of this queue pair has the rkey")             \
  X(0x08, NO_READS, "READs and atomics are posted, and max_rd_atomic is 0")                                  \
  X(0x09, MESSAGE_LENGTH, "the message is longer than the path MTU allows")                                  \
  /* The peer does not answer. */                                                                            \
  X(0x10, NO_ANSWER, "the peer did not answer in retry_cnt + 1 attempts")                                    \
  X(0x11, ANSWERS_OTHER_PSN, "the peer answers other PSNs than were sent: sq_psn here, rq_psn there")        \
  X(0x12, NO_RECEIVE_THERE, "the peer had no receive posted in rnr_retry + 1 attempts")                      \
  /* The peer refused. Which check refused it is told at the peer. */                                        \
  X(0x18, PEER_REQUEST, "the peer refuses the request: NAK invalid request")                                 \
  X(0x19, PEER_ACCESS, "the peer refuses the access to its memory: NAK remote access error")                 \
  X(0x1a, PEER_OPERATION, "the peer cannot do it: NAK remote operational error")                             \
  X(0x1b, PEER_RESPONSE, "a response of the peer does not fit the request")                                  \
  /* The peer's requests: what this side refused. */                                                         \
  X(0x20, RKEY_UNKNOWN, "no memory region or bound window here has this rkey")                               \
  X(0x21, RKEY_DOMAIN, "the region of this rkey is of another protection domain than the queue pair")        \
  X(0x22, RKEY_RIGHTS, "the region or window was not given this remote right")                               \
  X(0x23, RKEY_BOUNDS, "the access reaches beyond the region or window")                                     \
  X(0x24, RKEY_UNMAPPED, "memory of an on-demand region is not mapped")                                      \
  X(0x25, RKEY_QUEUE_PAIR, "the window of this rkey is bound to another queue pair")                         \
  X(0x26, QP_RIGHTS, "the queue pair was not given this remote right (qp_access_flags)")                     \
  X(0x27, FLUSH_KIND, "the placement type or selectivity level of the peer's FLUSH is none that IBTA names") \
  X(0x28, RECEIVE_SHORT, "the message is longer than the posted receive")                                    \
  X(0x29, NO_RECEIVE, "no receive is posted")                                                                \
  X(0x2a, REQUEST_ORDER, "first, middle and last packets of the peer are not in order")                      \
  X(0x2b, REQUEST_LENGTH, "payload and path MTU, or payload and length of the peer's request, contradict")   \
  X(0x2c, TOO_MANY_READS, "the peer has more READs and atomics under way than max_dest_rd_atomic")           \
  X(0x2d, ATOMIC_ALIGNMENT, "an atomic's address is no multiple of 8")                                       \
  X(0x2e, SRQ_UNKNOWN, "no XRC receive queue of this domain has the number")                                 \
  X(0x2f, REMOTE_INVALIDATE, "no bound memory window of type 2 has the rkey that the peer invalidates")      \
  /* The queue pair itself. */                                                                               \
  X(0x30, CQ_OVERRUN, "a completion queue was full")                                                         \
  X(0x31, MODIFIED, "the program moved the queue pair to the state ERR")                                     \
  /* Dropped packets and refused calls: in lines of the log alone. */                                        \
  X(0x40, QPN_UNKNOWN, "no queue pair here has this number")                                                 \
  X(0x41, QP_STATE, "the queue pair takes no such packet in its state, or by its type")                      \
  X(0x42, QP_SOURCE, "the packet is not from the queue pair's peer")                                         \
  X(0x43, PKEY, "the packet has another P_Key")                                                              \
  X(0x44, QKEY, "the datagram has another Q_Key")                                                            \
  X(0x45, FIRST_PSN, "the first packet has another PSN: rq_psn here, sq_psn there")                          \
  X(0x50, POST_STATE, "requests are not taken in the state of the queue pair")                               \
  X(0x51, POST_OPCODE, "queue pairs of this type do not have the opcode")                                    \
  X(0x52, POST_ELEMENTS, "more elements than the queue was made with")                                       \
  X(0x53, POST_LENGTH, "the message is longer than the queue pair takes, or of a wrong length")              \
  X(0x54, POST_INLINE, "more inline data than the queue was made with")                                      \
  X(0x55, QUEUE_FULL, "the queue is full")

enum weft_verbs_fault {
#define WEFT_VERBS_FAULT_NUMBER(number, name, text) WEFT_FAULT_##name = (number),
  WEFT_VERBS_FAULTS(WEFT_VERBS_FAULT_NUMBER)
#undef WEFT_VERBS_FAULT_NUMBER
};

/* The sentence of a vendor_err; null: it is none of these. */
static inline const char* weft_verbs_fault_text(uint32_t vendor_err) {
  switch (vendor_err) {
#define WEFT_VERBS_FAULT_TEXT(number, name, text) \
  case number:                                    \
    return text;
    WEFT_VERBS_FAULTS(WEFT_VERBS_FAULT_TEXT)
#undef WEFT_VERBS_FAULT_TEXT
    default:
      return 0; /* NOLINT(modernize-use-nullptr): C, too */
  }
}

#endif
