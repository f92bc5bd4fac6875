/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Cases of kofi_test: functions that return 0, or the negative line that
 * failed. Must not know which provider they run on, but for its name.
 */
#ifndef _KOFI_TEST_H
#define _KOFI_TEST_H

#include <kofi/provider.h>

/* For a completion or an event: the module's parameter wait_ms. */
extern unsigned int test_wait_ms;
#define WAIT_MS test_wait_ms

/* Ends the case with the line of the first thing that is not so. */
#define CHECK(condition)						\
	do {								\
		if (!(condition)) {					\
			pr_err("kofi_test: %s:%d: not so: %s\n",	\
			       kbasename(__FILE__), __LINE__, #condition);	\
			return -__LINE__;				\
		}							\
	} while (0)

#define TRY(call)							\
	do {								\
		int try_status = (call);				\
		if (try_status) {					\
			pr_err("kofi_test: %s:%d: %s: %d\n",		\
			       kbasename(__FILE__), __LINE__, #call, try_status);	\
			return -__LINE__;				\
		}							\
	} while (0)

struct target {
	char	provider[FI_NAME_MAX];
	char	node[64];	/* "" or an address of this machine */
	char	service[16];	/* of serve and drive; how many, of scarce */
	char	note[96];	/* what a case says behind its name */
};

/* One side of a pair. */
struct side {
	struct fid_ep	*ep;
	struct fid_cq	*cq;	/* of both directions */
	struct fid_mr	*mr;
	struct fid_av	*av;	/* RDM: the other side is number 0 */
	u64		data_mask;	/* of remote CQ data */
	bool		brittle;	/* refused operations end the connection: RC */
	u8		*buf;	/* PAIR_BYTES, registered: key_of() */
};

#define PAIR_BYTES	(2u << 20)
#define PAIR_KEY	7	/* asked for */

/* What the other side names this one's memory by. */
static inline u64 key_of(const struct side *side)
{
	return fi_mr_key(side->mr);
}

/* Two connected endpoints, or two RDM ones. All members NULL or open. */
struct pair {
	struct fi_info		*info;
	struct fid_fabric	*fabric;
	struct fid_domain	*domain;
	struct fid_domain	*other_domain;	/* of the passive side */
	struct fid_eq		*eq;
	struct fid_pep		*pep;
	struct side		a, b;		/* b accepted */
};

/* What pair_open() may be told. */
struct pair_options {
	struct fi_cq_attr	cq;
	u64			bind_flags;	/* FI_SELECTIVE_COMPLETION */
	bool			no_pair;	/* only what comes before fi_connect() */
	size_t			tx_size, rx_size;
};

/* An info of the provider for type; NULL: it has none. */
struct fi_info *test_info(const struct target *target, enum fi_ep_type type, bool source);
/* Whether it has connected endpoints; else it is a layer, and pairs are RDM ones. */
bool has_messages(const struct target *target);
int pair_open(const struct target *target, struct pair *pair, const struct pair_options *options);
void pair_close(struct pair *pair);
int side_open(struct pair *pair, struct fid_domain *domain, struct side *side,
	      struct fi_info *info, const struct pair_options *options);
void side_close(struct side *side);
int pair_connect(struct pair *pair, struct side *from, struct fi_info **request,
		 const void *param, size_t len);
/* Waits for an event; false: another one, or none in time. */
bool next_event(struct pair *pair, u32 event, struct fid *fid);
bool next_event_error(struct pair *pair, struct fid *fid, int err, void *data, size_t *len);
/* Waits for one completion; false: an error or none in time. */
bool next_completion(struct fid_cq *cq, struct fi_cq_tagged_entry *entry);
bool next_error(struct fid_cq *cq, struct fi_cq_err_entry *error);
void fill(u8 *buf, size_t len, u32 seed);
bool filled(const u8 *buf, size_t len, u32 seed);

int case_getinfo(struct target *target);
int case_provider(struct target *target);
int case_objects(struct target *target);
int case_connect(struct target *target);
int case_messages(struct target *target);
int case_vectors(struct target *target);
int case_unexpected(struct target *target);
int case_tagged(struct target *target);
int case_rma(struct target *target);
int case_atomics(struct target *target);
int case_queues(struct target *target);
int case_callbacks(struct target *target);
int case_cancel(struct target *target);
int case_rdm(struct target *target);
int case_crowd(struct target *target);
int case_ahead(struct target *target);
int case_intruder(struct target *target);
int case_shutdown(struct target *target);
int case_churn(struct target *target);
int case_pingpong(struct target *target);
int case_bandwidth(struct target *target);
int case_latency(struct target *target);
int case_stream(struct target *target);
int case_socket_latency(struct target *target);
int case_socket_stream(struct target *target);
int case_scarce(struct target *target);
int case_serve(struct target *target);
int case_drive(struct target *target);

#define SKIPPED 1

#endif
