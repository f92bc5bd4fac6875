/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The bytes on a connection: docs/wire/stream.md (handshake, heads), and
 * docs/engine.md, "Frames". Little-endian. Stateless.
 */
#ifndef _KTCP_WIRE_H
#define _KTCP_WIRE_H

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/string.h>
#include <linux/types.h>

#include <kofi/compat.h>

enum ktcp_kind {
	KT_BYE = 0, KT_TAGGED = 1, KT_MSG, KT_TAGGED_ACK, KT_MSG_ACK, KT_TAGGED_RTS,
	KT_MSG_RTS, KT_CTS, KT_SEGMENT, KT_DONE, KT_WRITE, KT_WRITE_RTS, KT_READ, KT_ATOMIC,
	KT_REPLY, KT_PAUSE, KT_RESUME, KT_TAGGED_FIRST, KT_MSG_FIRST, KT_MORE,
};

#define KT_HAS_B	1
#define KT_HAS_DATA	2
#define KT_HEAD_MIN	4
#define KT_HEAD_MAX	24
#define KT_FRAME_MAX	262208		/* payload of one frame */
#define KT_FRAGMENTED_MAX 262144	/* of a message of First and More */
#define KT_SEGMENT_MAX	262144
#define KT_EAGER_MAX	8192
#define KT_TARGETS_MAX	4

struct ktcp_head {
	u8	kind;
	u8	flags;
	u8	context;
	u32	length;
	u64	a;
	u64	b;
};

struct ktcp_rts {
	__le64	operation, total, stamp;
	__le32	segments, reserved;
};

struct ktcp_cts {
	__le64	operation, length;
};

struct ktcp_rma {
	__le64	total;
	__le32	targets, flags;
};

struct ktcp_target {
	__le64	address, length, key;
};

enum ktcp_atomic_kind { KT_ATOMIC_WRITE, KT_ATOMIC_FETCH, KT_ATOMIC_COMPARE };

struct ktcp_atomic {
	__le32	datatype, op, kind, targets;
	__le64	bytes;
};

static inline u8 ktcp_put_field(u8 **at, u64 value, u8 four, u8 eight)
{
	if (!value)
		return 0;
	if (value >> 32) {
		put_unaligned_le64(value, *at);
		*at += 8;
		return eight;
	}
	put_unaligned_le32(value, *at);
	*at += 4;
	return four;
}

/* Returns the bytes of the head; @out has room for KT_HEAD_MAX. */
static inline size_t ktcp_pack_head(u8 *out, u8 kind, u8 flags, u32 length, u64 a, u64 b)
{
	u8 shape = flags & (KT_HAS_B | KT_HAS_DATA), *at = out + KT_HEAD_MIN;

	if (length >> 16) {
		shape |= 0x40;
		put_unaligned_le32(length >> 16, at);
		at += 4;
	}
	shape |= ktcp_put_field(&at, a, 0x04, 0x08);
	if (flags & KT_HAS_B)
		shape |= ktcp_put_field(&at, b, 0x10, 0x20);
	out[0] = kind;
	out[1] = shape;
	put_unaligned_le16(length, out + 2);
	return at - out;
}

/* Bytes of the head at @at; 0: not all of it is there; negative: malformed. */
static inline int ktcp_unpack_head(const u8 *at, size_t left, struct ktcp_head *head)
{
	u8 shape;
	size_t size;

	if (left < KT_HEAD_MIN)
		return 0;
	shape = at[1];
	if ((shape & 0x80) || (shape & 0x0c) == 0x0c || (shape & 0x30) == 0x30 ||
	    ((shape & 0x30) && !(shape & KT_HAS_B)))
		return -EPROTO;
	size = KT_HEAD_MIN + (shape & 0x40 ? 4 : 0) + (shape & 0x0c) + ((shape & 0x30) >> 2);
	if (left < size)
		return 0;
	*head = (struct ktcp_head){ .kind = at[0], .flags = shape & 3,
				    .length = get_unaligned_le16(at + 2) };
	at += KT_HEAD_MIN;
	if (shape & 0x40) {
		if (at[3])
			return -EPROTO;
		head->length |= (u32)get_unaligned_le16(at) << 16;
		head->context = at[2];
		at += 4;
	}
	if (shape & 0x08)
		head->a = get_unaligned_le64(at);
	else if (shape & 0x04)
		head->a = get_unaligned_le32(at);
	at += shape & 0x0c;
	if (shape & 0x20)
		head->b = get_unaligned_le64(at);
	else if (shape & 0x10)
		head->b = get_unaligned_le32(at);
	return head->length > KT_FRAME_MAX ? -EPROTO : (int)size;
}

/* --- the handshake --- */

#define KT_SHAKE_MIN	80
#define KT_SHAKE_DATA	256
#define KT_SHAKE_MAX	(KT_SHAKE_MIN + KT_SHAKE_DATA)

enum { KT_HELLO = 1, KT_WELCOME = 2, KT_REFUSAL = 3 };
enum {
	KT_WHY_VERSION = 1, KT_WHY_KIND = 2, KT_WHY_MALFORMED = 4, KT_WHY_PROGRAM = 6,
	KT_WHY_RESOURCES = 7
};

#define KT_VERSION	1
#define KT_ENDPOINT_MSG	2

struct ktcp_shake {
	u8	bytes[KT_SHAKE_MAX];
	u32	got;
};

static inline u8 ktcp_shake_type(const struct ktcp_shake *s) { return s->bytes[8]; }
static inline u8 ktcp_shake_kind(const struct ktcp_shake *s) { return s->bytes[9]; }
static inline u16 ktcp_shake_reason(const struct ktcp_shake *s)
{
	return get_unaligned_le16(s->bytes + 74);
}

static inline u16 ktcp_shake_data(const struct ktcp_shake *s)
{
	return get_unaligned_le16(s->bytes + 72);
}

static inline void ktcp_put_address(u8 *out, const struct sockaddr *addr)
{
	if (addr->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)addr;

		put_unaligned_le16(4, out);
		put_unaligned_le16(ntohs(in->sin_port), out + 2);
		memcpy(out + 8, &in->sin_addr, 4);
	} else if (addr->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const void *)addr;

		put_unaligned_le16(6, out);
		put_unaligned_le16(ntohs(in6->sin6_port), out + 2);
		put_unaligned_le32(in6->sin6_scope_id, out + 4);
		memcpy(out + 8, &in6->sin6_addr, 16);
	}
}

/* Returns the bytes; @data_len is at most KT_SHAKE_DATA. @target: of a Hello, or NULL. */
static inline size_t ktcp_pack_shake(u8 *out, u8 type, u16 reason, const struct sockaddr *target,
				     const void *data, size_t data_len)
{
	memset(out, 0, KT_SHAKE_MIN);
	memcpy(out, "WEFT", 4);
	put_unaligned_le16(KT_VERSION, out + 4);
	put_unaligned_le16(KT_SHAKE_MIN + data_len, out + 6);
	out[8] = type;
	out[9] = KT_ENDPOINT_MSG;
	if (target)
		ktcp_put_address(out + 48, target);
	put_unaligned_le16(data_len, out + 72);
	put_unaligned_le16(reason, out + 74);
	if (data_len)
		memcpy(out + KT_SHAKE_MIN, data, data_len);
	return KT_SHAKE_MIN + data_len;
}

/*
 * Bytes that are still to be read; 0: it is there and sound; negative: minus
 * the reason of a refusal.
 */
static inline int ktcp_shake_missing(const struct ktcp_shake *s)
{
	u16 size;

	if (s->got < 8)
		return 8 - s->got;
	size = get_unaligned_le16(s->bytes + 6);
	if (memcmp(s->bytes, "WEFT", 4) || size < KT_SHAKE_MIN || size > KT_SHAKE_MAX)
		return -KT_WHY_MALFORMED;
	if (s->got < size)
		return size - s->got;
	if (get_unaligned_le16(s->bytes + 4) != KT_VERSION && ktcp_shake_type(s) != KT_REFUSAL)
		return -KT_WHY_VERSION;
	if (ktcp_shake_type(s) < KT_HELLO || ktcp_shake_type(s) > KT_REFUSAL ||
	    get_unaligned_le16(s->bytes + 10) || ktcp_shake_data(s) != size - KT_SHAKE_MIN)
		return -KT_WHY_MALFORMED;
	return 0;
}

#endif
