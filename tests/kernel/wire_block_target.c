// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The numbers of examples/block_target, which is compiled in as it is, by their names in <kofi/block.h>.
#define main block_target_main
int block_target_main(int argc, char** argv);
#include "block_target/block_target.c"
#undef main

#include "wire_values.h"

#define VALUE(name, here) \
  { #name, (uint64_t)(here) }
#define PLACE(type, field) \
  { "kblk_" #type "." #field, offsetof(struct type, field) }
#define SIZE(type) \
  { "sizeof kblk_" #type, sizeof(struct type) }

const struct wire_value block_target_values[] = {
    VALUE(KBLK_MAGIC, MAGIC),
    VALUE(KBLK_VERSION, VERSION),
    VALUE(KBLK_QUEUES_MAX, QUEUES_MAX),
    VALUE(KBLK_DEPTH_MAX, DEPTH_MAX),
    VALUE(KBLK_INLINE_MAX, INLINE_MAX),
    VALUE(KBLK_IO_MAX, IO_MAX),
    VALUE(KBLK_READ, OP_READ),
    VALUE(KBLK_WRITE, OP_WRITE),
    VALUE(KBLK_FLUSH, OP_FLUSH),
    VALUE(KBLK_DISCARD_OP, OP_DISCARD),
    VALUE(KBLK_ZERO, OP_ZERO),
    VALUE(KBLK_FUA, FLAG_FUA),
    VALUE(KBLK_INLINE, FLAG_INLINE),
    VALUE(KBLK_DISCARD, WELCOME_DISCARD),
    VALUE(KBLK_ZEROES, WELCOME_ZEROES),
    VALUE(KBLK_INLINE_READS, WELCOME_INLINE_READS),
    SIZE(hello),
    PLACE(hello, magic),
    PLACE(hello, version),
    PLACE(hello, queue),
    PLACE(hello, queues),
    PLACE(hello, depth),
    PLACE(hello, generation),
    PLACE(hello, session),
    PLACE(hello, export),
    SIZE(welcome),
    PLACE(welcome, magic),
    PLACE(welcome, version),
    PLACE(welcome, flags),
    PLACE(welcome, block_bytes),
    PLACE(welcome, bytes),
    PLACE(welcome, volume),
    PLACE(welcome, epoch),
    SIZE(refusal),
    PLACE(refusal, magic),
    PLACE(refusal, err),
    SIZE(command),
    PLACE(command, op),
    PLACE(command, flags),
    PLACE(command, tag),
    PLACE(command, sequence),
    PLACE(command, bytes),
    PLACE(command, offset),
    PLACE(command, key),
    SIZE(answer),
    PLACE(answer, tag),
    PLACE(answer, sequence),
    PLACE(answer, err),
    {NULL, 0},
};
