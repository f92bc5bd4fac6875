/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * kofi_blk_target between its files.
 *
 * kbt_dev.config.lock, a mutex: configuration. kbt_dev.cm, a mutex: connections come
 * and go under it. kbt_conn.rx, a mutex: one reader of a connection's queue,
 * and no call down but under it or from the work of a command. kbt_conn.lock:
 * free commands and pages, and that no work is queued once the connection is dead.
 * Order as named.
 *
 * Commands are executed by work items; where the file does not make anybody
 * wait, by the reader of the queue itself.
 */
#ifndef _KOFI_BLK_TARGET_H
#define _KOFI_BLK_TARGET_H

#include <kofi/block.h>
#include <kofi/block_config.h>
#include <kofi/handler.h>
#include <linux/mutex.h>
#include <linux/workqueue.h>

#define KBT_BLOCK	512
#define KBT_FRAME	(sizeof(struct kblk_command) + KBLK_INLINE_MAX)
#define KBT_PAGES	(KBLK_IO_MAX >> PAGE_SHIFT)
#define KBT_BURST	32	/* commands that the reader executes before it leaves */
#define KBT_KEPT	256	/* pages of a connection that wait for their next use */

struct kbt_conn;

enum kbt_kind { KBT_RECEIVE, KBT_SLOT };

/* What completions name. */
struct kbt_receive {
	enum kbt_kind		kind;
	void			*frame;		/* KBT_FRAME bytes */
};

/*
 * A command that is executed. There are twice as many as the initiator may have
 * on the way: one that is answered stays until its send is reported.
 */
struct kbt_slot {
	enum kbt_kind		kind;
	struct kbt_conn		*conn;
	struct list_head	node;		/* kbt_conn.free */
	struct work_struct	work;
	struct kblk_command	command;
	bool			fetched;	/* the bytes of a write are there */
	struct kblk_answer	*answer;	/* in kbt_conn.answers */
	u32			pages;
	struct bio_vec		bvec[1 + KBT_PAGES];	/* the answer, the pages */
};

struct kbt_conn {
	struct list_head	node;
	struct kbt_dev		*dev;
	u16			queue, depth;
	struct mutex		rx;
	u32			burst;		/* executed in this run of the reader */
	struct fid_ep		*ep;
	struct fid_cq		*cq;
	struct kbt_receive	*receives;
	u32			slot_count;
	struct kbt_slot		*slots;
	struct kblk_answer	*answers;	/* a page: of each slot */
	spinlock_t		lock;
	bool			dead;
	struct list_head	free;
	u32			kept;
	struct list_head	pages;		/* kept ones */
};

struct kbt_dev {
	struct kofi_block_config config;	/* in_use: enabled */
	char			path[256];

	struct file		*file;
	u64			bytes, volume;
	bool			in_memory;	/* it does not wait for a device */
	bool			lost;		/* a flush failed: no more writes */
	struct fi_info		*info;
	struct fid_fabric	*fabric;
	struct fid_domain	*domain;
	struct fid_eq		*eq;
	struct fid_pep		*pep;

	struct mutex		cm;
	struct work_struct	reap;
	struct list_head	conns;
	u8			session[16];	/* of the initiator that owns it */
	u32			generation;	/* its newest; 0: nobody's */
};

extern struct workqueue_struct *kbt_wq;
extern u64 kbt_epoch;

/* connection.c */
int kbt_open(struct kbt_dev *dev);
void kbt_close(struct kbt_dev *dev);
void kbt_reap(struct work_struct *work);
void kbt_cut(struct kbt_conn *conn);

/* command.c */
void kbt_poll(struct fid_cq *cq, void *conn);	/* a handler */
int kbt_post(struct kbt_conn *conn, struct kbt_receive *receive);
void kbt_slot_init(struct kbt_conn *conn, struct kbt_slot *slot);
void kbt_slot_free(struct kbt_slot *slot);
void kbt_pages_free(struct kbt_conn *conn);

#endif
