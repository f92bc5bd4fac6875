/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * kofi_blk between its files.
 *
 * kblk_dev.config.lock, a mutex: configuration, connect, disconnect. kblk_dev.session,
 * a mutex: connections come and go under it (the work item, disconnect).
 * kblk_queue.rx, a mutex: one reader of the connection's queue. Order as named.
 *
 * Who owns a command: kblk_cmd.state says it. KBLK_SENT is left once, by
 * cmpxchg: to KBLK_ANSWERED by the answer, which ends the request; or to
 * KBLK_IDLE by a cut, when no connection is left, which queues it again.
 */
#ifndef _KOFI_BLK_H
#define _KOFI_BLK_H

#include <linux/blk-mq.h>
#include <linux/mutex.h>
#include <linux/workqueue.h>

#include <kofi/block.h>
#include <kofi/block_config.h>
#include <kofi/compat.h>
#include <kofi/handler.h>

#ifdef KOFI_BLOCK_LAYER_NOT_KNOWN
#error "kofi_blk does not know the block layer of 6.9 and 6.10"
#endif

#define KBLK_SEGMENTS	128
#define KBLK_CONNECT_MS	10000
#define KBLK_RETRY	(HZ / 4)
#define KBLK_MEMORY_MS	20

enum kblk_state {
	KBLK_OFF,		/* no disk */
	KBLK_LIVE,
	KBLK_CUT,		/* a connection is over: the others go, too */
	KBLK_CONNECTING,	/* no connection; requests wait */
	KBLK_FAILED,		/* requests end with an error */
};

enum { KBLK_IDLE, KBLK_SENT, KBLK_ANSWERED };

#define KBLK_FRAME	(sizeof(struct kblk_answer) + KBLK_INLINE_MAX)

struct kblk_dev;

struct kblk_queue {
	struct kblk_dev		*dev;
	u16			index;
	bool			dead;		/* its connection is over */
	struct mutex		rx;
	struct fid_ep		*ep;
	struct fid_eq		*eq;
	struct fid_cq		*cq;
	void			**frames;	/* depth, of KBLK_FRAME bytes: posted */
};

/* Of a request, behind it. */
struct kblk_cmd {
	struct kblk_command	wire;
	struct kblk_queue	*queue;
	atomic_t		state;
	atomic_t		refs;		/* its answer; its send, while it may need pages */
	blk_status_t		status;
	u16			sequence;
	u32			bytes;
	u64			mark;		/* flush: what was acknowledged before */
	struct fid_mr		*mr;
	u32			count;
	struct bio_vec		bvec[1 + KBLK_SEGMENTS];	/* the command, the pages */
};

struct kblk_dev {
	struct kofi_block_config config;	/* in_use: there is a disk */
	char			export[KBLK_EXPORT_MAX];
	u32			queue_count, depth;
	u32			timeout_s;	/* of a command: then the connections are cut */
	u32			give_up_s;	/* 0: never */

	struct mutex		session;
	enum kblk_state		state;
	struct delayed_work	work;
	unsigned long		cut_at;		/* jiffies */
	u32			generation;
	u32			cuts;
	u8			id[16];
	struct fi_info		*info;
	struct fid_fabric	*fabric;
	struct fid_domain	*domain;
	struct kblk_queue	*queues;
	struct kblk_welcome	welcome;	/* of the first connection */
	bool			welcomed;
	atomic64_t		keys;
	atomic64_t		acknowledged;	/* writes */
	atomic64_t		flushed;	/* those that the target has flushed, too */

	struct blk_mq_tag_set	tags;
	struct gendisk		*disk;
	int			index;		/* of the name */
};

/* device.c */
int kblk_disk_add(struct kblk_dev *dev);
void kblk_disk_del(struct kblk_dev *dev);
void kblk_cmd_put(struct kblk_cmd *cmd);
void kblk_requeue_sent(struct kblk_dev *dev);
void kblk_exit_names(void);

/* session.c */
int kblk_session_open(struct kblk_dev *dev);
void kblk_session_live(struct kblk_dev *dev);
void kblk_session_fail(struct kblk_dev *dev);
void kblk_session_close(struct kblk_dev *dev);
void kblk_cut(struct kblk_dev *dev);
void kblk_session_work(struct work_struct *work);

extern struct workqueue_struct *kblk_wq;

#endif
