/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What differs between kernels 6.1 and newer ones, and the only file that asks
 * for the kernel's version (scripts/check/kernel_versions.py). The sources are
 * written for the newest kernel; what it has and an older one lacks is here,
 * under the newer kernel's name and with its meaning. It replaces some names by
 * macros and includes the headers that declare them first.
 */
#ifndef _KOFI_COMPAT_H
#define _KOFI_COMPAT_H

#include <linux/blk-mq.h>
#include <linux/mm.h>
#include <linux/net.h>
#include <linux/socket.h>
#include <linux/version.h>
#include <linux/workqueue.h>

/* 6.12 moved it. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
#include <linux/unaligned.h>
#else
#include <asm/unaligned.h>
#endif

/* --- memory --- */

/* From 6.18 the struct pages of one allocation follow each other: page + n. */
#ifndef nth_page
#define nth_page(page, n) ((page) + (n))
#endif

/* --- sockets --- */

/* The type of an address whose length is another argument, in kernel_bind and kernel_connect. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 19, 0)
#define sockaddr_unsized sockaddr
#endif

/* sock_sendmsg refers to the pages of a message of one bio_vec instead of copying them. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)
#define MSG_SPLICE_PAGES 0x8000000

static inline int kofi_sock_sendmsg(struct socket *sock, struct msghdr *msg)
{
	const struct bio_vec *bvec = msg->msg_iter.bvec;

	if (!(msg->msg_flags & MSG_SPLICE_PAGES))
		return sock_sendmsg(sock, msg);
	return kernel_sendpage(sock, bvec->bv_page, bvec->bv_offset, bvec->bv_len,
			       msg->msg_flags & ~MSG_SPLICE_PAGES);
}
#define sock_sendmsg kofi_sock_sendmsg
#endif

/* --- workqueues --- */

/* The newest kernels warn at a workqueue that says neither this nor WQ_UNBOUND. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 18, 0)
#define WQ_PERCPU 0
#endif

/* --- block devices --- */

/* The last argument of blk_mq_ops.init_request, signed since NUMA_NO_NODE may be passed. */
typedef typeof(__builtin_choose_expr(
	__builtin_types_compatible_p(typeof(((struct blk_mq_ops *)NULL)->init_request),
				     int (*)(struct blk_mq_tag_set *, struct request *,
					     unsigned int, unsigned int)),
	0U, 0)) kofi_numa_node_t;

/* From 6.14 requests are merged without asking for it. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 14, 0)
static inline int kofi_alloc_tag_set(struct blk_mq_tag_set *set)
{
	set->flags |= BLK_MQ_F_SHOULD_MERGE;
	return blk_mq_alloc_tag_set(set);
}
#define blk_mq_alloc_tag_set kofi_alloc_tag_set
#endif

/*
 * The limits and features of a disk are given when it is allocated. Before 6.11
 * the features were flags of the queue and before 6.9 the limits were set one by
 * one; 6.9 and 6.10 have half of this and are not supported.
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 9, 0)
#define BLK_FEAT_WRITE_CACHE	BIT(0)
#define BLK_FEAT_FUA		BIT(1)
#define BLK_FEAT_ROTATIONAL	BIT(2)
#define BLK_FEAT_ADD_RANDOM	BIT(3)

struct kofi_queue_limits {
	unsigned int	features;
	unsigned long	virt_boundary_mask;	/* without max_segment_size */
	unsigned int	max_hw_sectors;
	unsigned int	max_segment_size;
	unsigned int	physical_block_size;
	unsigned int	logical_block_size;
	unsigned int	io_min;
	unsigned int	io_opt;
	unsigned int	max_hw_discard_sectors;
	unsigned int	max_write_zeroes_sectors;
	unsigned int	discard_granularity;
	unsigned short	max_segments;
};

static inline struct gendisk *kofi_alloc_disk(struct blk_mq_tag_set *set,
					      const struct kofi_queue_limits *limits, void *data)
{
	struct gendisk *disk = blk_mq_alloc_disk(set, data);
	struct request_queue *q;

	if (IS_ERR(disk))
		return disk;
	q = disk->queue;
	blk_queue_logical_block_size(q, limits->logical_block_size);
	blk_queue_physical_block_size(q, limits->physical_block_size);
	blk_queue_io_min(q, limits->io_min);
	blk_queue_io_opt(q, limits->io_opt);
	blk_queue_max_hw_sectors(q, limits->max_hw_sectors);
	blk_queue_max_segments(q, limits->max_segments);
	if (limits->max_segment_size)
		blk_queue_max_segment_size(q, limits->max_segment_size);
	if (limits->virt_boundary_mask)
		blk_queue_virt_boundary(q, limits->virt_boundary_mask);
	q->limits.discard_granularity = limits->discard_granularity;
	blk_queue_max_discard_sectors(q, limits->max_hw_discard_sectors);
	blk_queue_max_write_zeroes_sectors(q, limits->max_write_zeroes_sectors);
	blk_queue_write_cache(q, limits->features & BLK_FEAT_WRITE_CACHE,
			      limits->features & BLK_FEAT_FUA);
	if (!(limits->features & BLK_FEAT_ROTATIONAL))
		blk_queue_flag_set(QUEUE_FLAG_NONROT, q);
	if (!(limits->features & BLK_FEAT_ADD_RANDOM))
		blk_queue_flag_clear(QUEUE_FLAG_ADD_RANDOM, q);
	return disk;
}
#define queue_limits kofi_queue_limits
#undef blk_mq_alloc_disk
#define blk_mq_alloc_disk kofi_alloc_disk
#elif LINUX_VERSION_CODE < KERNEL_VERSION(6, 11, 0)
#define KOFI_BLOCK_LAYER_NOT_KNOWN /* limits are arguments there, features are not */
#endif

#endif
