/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What an initiator (kofi_blk) and a target of a block device say to each
 * other: docs/wire/block.md. Bytes only. All numbers are little-endian.
 */
#ifndef _KOFI_BLOCK_H
#define _KOFI_BLOCK_H

#include <linux/build_bug.h>
#include <linux/types.h>

#define KBLK_MAGIC		0x4b4c424b	/* "KBLK" */
#define KBLK_VERSION		1
#define KBLK_EXPORT_MAX		20
#define KBLK_QUEUES_MAX		16
#define KBLK_DEPTH_MAX		256
#define KBLK_INLINE_MAX		8192	/* bytes behind a command, or an answer */
#define KBLK_IO_MAX		(512u << 10)	/* bytes of a read or write */

/* Data of fi_connect(): 52 bytes. RDMA connection managers carry 56. */
struct kblk_hello {
	__le32	magic;
	__le16	version;
	__le16	queue;
	__le16	queues;
	__le16	depth;			/* commands of this queue at a time */
	__le32	generation;		/* from 1; one more after each cut */
	u8	session[16];		/* of the device, random */
	u8	export[KBLK_EXPORT_MAX];/* name, padded with zeros; "": any */
};

#define KBLK_READ_ONLY		1
#define KBLK_DISCARD		2
#define KBLK_ZEROES		4
#define KBLK_INLINE_READS	8	/* the target brings bytes behind answers */

/* Data of fi_accept(). */
struct kblk_welcome {
	__le32	magic;
	__le16	version;
	__le16	flags;
	__le32	block_bytes;
	__le32	zero;
	__le64	bytes;			/* of the device */
	__le64	volume;	/* what it stands on: the same for a session */
	__le64	epoch;	/* another one: unflushed writes may be lost */
};

/* Data of fi_reject(). */
struct kblk_refusal {
	__le32	magic;
	__le32	err;
};

enum kblk_op { KBLK_READ, KBLK_WRITE, KBLK_FLUSH, KBLK_DISCARD_OP, KBLK_ZERO };

#define KBLK_FUA	1
#define KBLK_INLINE	2

/* One message; the bytes of an inline write follow, those of an inline read its answer. */
struct kblk_command {
	u8	op;
	u8	flags;
	__le16	tag;
	__le16	sequence;
	__le16	zero;
	__le32	bytes;
	__le32	zero2;
	__le64	offset;
	__le64	key;			/* of the initiator's memory, from offset 0 */
};

/*
 * One message; the bytes of an inline read that went well follow. Another read
 * that went well has none: its answer is the data of the RMA write that brings
 * the last byte, kblk_answer_data().
 */
struct kblk_answer {
	__le16	tag;
	__le16	sequence;
	__le16	err;			/* 0 or an errno of Linux */
	__le16	zero;
};

static inline u32 kblk_answer_data(u16 tag, u16 sequence)
{
	return tag | (u32)sequence << 16;
}

static_assert(sizeof(struct kblk_hello) == 52);
static_assert(sizeof(struct kblk_welcome) == 40);
static_assert(sizeof(struct kblk_command) == 32);
static_assert(sizeof(struct kblk_answer) == 8);

#endif
