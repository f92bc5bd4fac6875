// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The numbers of kernel/kofi_tcp/wire.h, <kofi/types.h> and <kofi/block.h>, compiled in user space over include/.
#include <kofi/block.h>
#include <kofi/types.h>

#include "kofi_tcp/wire.h"
#include "wire_values.h"

#define VALUE(name) \
  { #name, (uint64_t)(name) }
#define PLACE(type, field) \
  { #type "." #field, offsetof(struct type, field) }
#define SIZE(type) \
  { "sizeof " #type, sizeof(struct type) }

const struct wire_value kernel_values[] = {
    // Frames.
    VALUE(KT_BYE),
    VALUE(KT_TAGGED),
    VALUE(KT_MSG),
    VALUE(KT_TAGGED_ACK),
    VALUE(KT_MSG_ACK),
    VALUE(KT_TAGGED_RTS),
    VALUE(KT_MSG_RTS),
    VALUE(KT_CTS),
    VALUE(KT_SEGMENT),
    VALUE(KT_DONE),
    VALUE(KT_WRITE),
    VALUE(KT_WRITE_RTS),
    VALUE(KT_READ),
    VALUE(KT_ATOMIC),
    VALUE(KT_REPLY),
    VALUE(KT_PAUSE),
    VALUE(KT_RESUME),
    VALUE(KT_TAGGED_FIRST),
    VALUE(KT_MSG_FIRST),
    VALUE(KT_MORE),
    VALUE(KT_HAS_B),
    VALUE(KT_HAS_DATA),
    VALUE(KT_HEAD_MIN),
    VALUE(KT_HEAD_MAX),
    VALUE(KT_FRAME_MAX),
    VALUE(KT_FRAGMENTED_MAX),
    VALUE(KT_SEGMENT_MAX),
    VALUE(KT_EAGER_MAX),
    VALUE(KT_TARGETS_MAX),
    SIZE(ktcp_rts),
    PLACE(ktcp_rts, operation),
    PLACE(ktcp_rts, total),
    PLACE(ktcp_rts, stamp),
    PLACE(ktcp_rts, segments),
    PLACE(ktcp_rts, reserved),
    SIZE(ktcp_cts),
    PLACE(ktcp_cts, operation),
    PLACE(ktcp_cts, length),
    SIZE(ktcp_rma),
    PLACE(ktcp_rma, total),
    PLACE(ktcp_rma, targets),
    PLACE(ktcp_rma, flags),
    SIZE(ktcp_target),
    PLACE(ktcp_target, address),
    PLACE(ktcp_target, length),
    PLACE(ktcp_target, key),
    SIZE(ktcp_atomic),
    PLACE(ktcp_atomic, datatype),
    PLACE(ktcp_atomic, op),
    PLACE(ktcp_atomic, kind),
    PLACE(ktcp_atomic, targets),
    PLACE(ktcp_atomic, bytes),
    VALUE(KT_ATOMIC_WRITE),
    VALUE(KT_ATOMIC_FETCH),
    VALUE(KT_ATOMIC_COMPARE),
    // Handshakes.
    VALUE(KT_SHAKE_MIN),
    VALUE(KT_SHAKE_DATA),
    VALUE(KT_SHAKE_MAX),
    VALUE(KT_VERSION),
    VALUE(KT_ENDPOINT_MSG),
    VALUE(KT_HELLO),
    VALUE(KT_WELCOME),
    VALUE(KT_REFUSAL),
    VALUE(KT_WHY_VERSION),
    VALUE(KT_WHY_KIND),
    VALUE(KT_WHY_MALFORMED),
    VALUE(KT_WHY_PROGRAM),
    VALUE(KT_WHY_RESOURCES),
    // Statuses of Done, and what an Atomic names.
    VALUE(FI_EOTHER),
    VALUE(FI_ETOOSMALL),
    VALUE(FI_EOPBADSTATE),
    VALUE(FI_EAVAIL),
    VALUE(FI_EBADFLAGS),
    VALUE(FI_ENOEQ),
    VALUE(FI_EDOMAIN),
    VALUE(FI_ENOCQ),
    VALUE(FI_ECRC),
    VALUE(FI_ETRUNC),
    VALUE(FI_ENOKEY),
    VALUE(FI_ENOAV),
    VALUE(FI_EOVERRUN),
    VALUE(FI_INT8),
    VALUE(FI_UINT8),
    VALUE(FI_INT16),
    VALUE(FI_UINT16),
    VALUE(FI_INT32),
    VALUE(FI_UINT32),
    VALUE(FI_INT64),
    VALUE(FI_UINT64),
    VALUE(FI_MIN),
    VALUE(FI_MAX),
    VALUE(FI_SUM),
    VALUE(FI_PROD),
    VALUE(FI_LOR),
    VALUE(FI_LAND),
    VALUE(FI_BOR),
    VALUE(FI_BAND),
    VALUE(FI_LXOR),
    VALUE(FI_BXOR),
    VALUE(FI_ATOMIC_READ),
    VALUE(FI_ATOMIC_WRITE),
    VALUE(FI_CSWAP),
    VALUE(FI_CSWAP_NE),
    VALUE(FI_CSWAP_LE),
    VALUE(FI_CSWAP_LT),
    VALUE(FI_CSWAP_GE),
    VALUE(FI_CSWAP_GT),
    VALUE(FI_MSWAP),
    // Block devices.
    VALUE(KBLK_MAGIC),
    VALUE(KBLK_VERSION),
    VALUE(KBLK_QUEUES_MAX),
    VALUE(KBLK_DEPTH_MAX),
    VALUE(KBLK_INLINE_MAX),
    VALUE(KBLK_IO_MAX),
    VALUE(KBLK_READ),
    VALUE(KBLK_WRITE),
    VALUE(KBLK_FLUSH),
    VALUE(KBLK_DISCARD_OP),
    VALUE(KBLK_ZERO),
    VALUE(KBLK_FUA),
    VALUE(KBLK_INLINE),
    VALUE(KBLK_DISCARD),
    VALUE(KBLK_ZEROES),
    VALUE(KBLK_INLINE_READS),
    SIZE(kblk_hello),
    PLACE(kblk_hello, magic),
    PLACE(kblk_hello, version),
    PLACE(kblk_hello, queue),
    PLACE(kblk_hello, queues),
    PLACE(kblk_hello, depth),
    PLACE(kblk_hello, generation),
    PLACE(kblk_hello, session),
    PLACE(kblk_hello, export),
    SIZE(kblk_welcome),
    PLACE(kblk_welcome, magic),
    PLACE(kblk_welcome, version),
    PLACE(kblk_welcome, flags),
    PLACE(kblk_welcome, block_bytes),
    PLACE(kblk_welcome, bytes),
    PLACE(kblk_welcome, volume),
    PLACE(kblk_welcome, epoch),
    SIZE(kblk_refusal),
    PLACE(kblk_refusal, magic),
    PLACE(kblk_refusal, err),
    SIZE(kblk_command),
    PLACE(kblk_command, op),
    PLACE(kblk_command, flags),
    PLACE(kblk_command, tag),
    PLACE(kblk_command, sequence),
    PLACE(kblk_command, bytes),
    PLACE(kblk_command, offset),
    PLACE(kblk_command, key),
    SIZE(kblk_answer),
    PLACE(kblk_answer, tag),
    PLACE(kblk_answer, sequence),
    PLACE(kblk_answer, err),
    {NULL, 0},
};

size_t kernel_pack_head(uint8_t* out, const struct kernel_head* head) {
  return ktcp_pack_head(out, head->kind, head->flags, head->length, head->a, head->b);
}

int kernel_unpack_head(const uint8_t* at, size_t left, struct kernel_head* head) {
  struct ktcp_head read = {0};
  const int size = ktcp_unpack_head(at, left, &read);
  *head = (struct kernel_head){read.kind, read.flags, read.context, read.length, read.a, read.b};
  return size;
}

size_t kernel_pack_shake(uint8_t* out, uint8_t type, uint16_t reason, const void* target, const void* data,
                         size_t bytes) {
  return ktcp_pack_shake(out, type, reason, target, data, bytes);
}

int kernel_shake_missing(const uint8_t* bytes, size_t got) {
  struct ktcp_shake shake = {.got = got};
  memcpy(shake.bytes, bytes, got);
  return ktcp_shake_missing(&shake);
}
