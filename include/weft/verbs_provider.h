// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* The interface between libibverbs.so.1 of Weft and providers of verbs devices: the one inside of it (RoCEv2 in
 * software) and any other. C, so that a provider may be a shared object of another compiler.
 *
 * The library has what every device needs alike: the device list, contexts with their tables (struct verbs_context of
 * <infiniband/verbs.h>), symbol versions, completion channels, asynchronous events, and the checks of extended calls.
 * A provider has the objects and the data path.
 *
 * Every struct here begins with its size as the side that fills it was compiled, grows at its end only, and is zero
 * beyond what is filled. So old and new providers and libraries mix: a call that one side lacks is EOPNOTSUPP. Who
 * copies a struct of the other side takes the smaller of both sizes.
 *
 * How a provider gets in: weft_verbs_register() from a constructor of its shared object, which the program links or
 * which the setting WEFT_VERBS_PROVIDERS names (paths, separated by colons).
 *
 * Conventions are those of libibverbs: who returns a pointer returns null and sets errno, who returns an int returns 0
 * or an errno. Calls may come from any thread. An object is allocated and freed by the provider; it begins with the
 * standard struct, in which the provider fills what it alone knows (named below); the library fills the rest after the
 * call has returned. The library has checked before each call: sizes and comp_mask of extended structs (unknown bits
 * are refused), null pointers, that the objects are of one context.
 */
#ifndef WEFT_VERBS_PROVIDER_H
#define WEFT_VERBS_PROVIDER_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a provider calls. Valid for the life of the process. */
struct weft_verbs_services {
  size_t size;
  /* A completion came for which the program had armed the queue. It does not sleep and calls nothing of the provider,
   * so it may be called under the provider's locks. No effect on a queue without a channel. */
  void (*completion_event)(struct ibv_cq* cq);
  /* An asynchronous event of the context; element names the object. As above. */
  void (*async_event)(struct ibv_context* context, const struct ibv_async_event* event);
  /* What open() gave for this context. */
  void* (*state)(struct ibv_context* context);
  /* A line of the log; level 0: an error, 1: a warning, 2: information. */
  void (*log)(int level, const char* text);
#ifdef WEFT_VERBS_NEXT /* by tests/verbs alone: the next version, with something that it might add */
  const char* (*library_name)(void); /* NOLINT(modernize-redundant-void-arg): C, too */
#endif
};

/* A device that can be opened. */
struct weft_verbs_device {
  size_t size;
  char name[IBV_SYSFS_NAME_MAX];
  enum ibv_node_type node_type;
  enum ibv_transport_type transport_type;
  uint64_t guid; /* big-endian, as ibv_get_device_guid() returns it */
  uint64_t data; /* the provider's own */
#ifdef WEFT_VERBS_NEXT
  int numa_node;
#endif
};

/* The calls of an open context. `size` is how much the library has; a provider fills what it has and knows, and leaves
 * the rest null. */
struct weft_verbs_ops {
  size_t size;

  /* The data path: called by programs directly. poll_cq: how many, or negative. */
  int (*poll_cq)(struct ibv_cq* cq, int count, struct ibv_wc* wc);
  int (*req_notify_cq)(struct ibv_cq* cq, int solicited_only);
  int (*post_send)(struct ibv_qp* qp, struct ibv_send_wr* wr, struct ibv_send_wr** bad);
  int (*post_recv)(struct ibv_qp* qp, struct ibv_recv_wr* wr, struct ibv_recv_wr** bad);
  int (*post_srq_recv)(struct ibv_srq* srq, struct ibv_recv_wr* wr, struct ibv_recv_wr** bad);

  /* Context. All get structs of zeros; the library copies to the caller as much as its struct holds. query_gid and
   * query_pkey: ENODATA for an empty entry. What query_port gets is longer than struct ibv_port_attr of any header. */
  int (*query_device)(struct ibv_context* context, struct ibv_device_attr_ex* attr);
  int (*query_port)(struct ibv_context* context, uint8_t port, struct ibv_port_attr* attr);
  int (*query_gid)(struct ibv_context* context, uint8_t port, uint32_t index, struct ibv_gid_entry* entry);
  int (*query_pkey)(struct ibv_context* context, uint8_t port, int index, __be16* pkey);
  int (*query_values)(struct ibv_context* context, struct ibv_values_ex* values);

  /* Protection domains and memory. alloc_*, reg_*: the provider fills handle, lkey and rkey. A parent domain and a
   * thread domain stand for locks that a program does without. access: bits of IBV_ACCESS_OPTIONAL_RANGE may be
   * ignored; with IBV_ACCESS_ZERO_BASED iova is 0. mr->addr, length and pd are the library's, also after rereg_mr. */
  struct ibv_pd* (*alloc_pd)(struct ibv_context* context);
  int (*dealloc_pd)(struct ibv_pd* pd);
  struct ibv_td* (*alloc_td)(struct ibv_context* context);
  int (*dealloc_td)(struct ibv_td* td);
  struct ibv_pd* (*alloc_parent_domain)(struct ibv_pd* pd, struct ibv_td* td);
  struct ibv_mr* (*reg_mr)(struct ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned access);
  int (*rereg_mr)(struct ibv_mr* mr, int flags, struct ibv_pd* pd, void* address, size_t length,
                  unsigned access);
  int (*dereg_mr)(struct ibv_mr* mr);
  struct ibv_mr* (*alloc_null_mr)(struct ibv_pd* pd);
  int (*advise_mr)(struct ibv_pd* pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge* list,
                   uint32_t count);
  struct ibv_mw* (*alloc_mw)(struct ibv_pd* pd, enum ibv_mw_type type);
  int (*dealloc_mw)(struct ibv_mw* mw);
  int (*bind_mw)(struct ibv_qp* qp, struct ibv_mw* mw, struct ibv_mw_bind* bind);

  /* Completion queues. The provider fills cqe and handle, of struct ibv_cq_ex always start_poll, next_poll, end_poll,
   * read_opcode, read_vendor_err and read_wc_flags (wc_flags may be 0), and the functions that wc_flags ask for; the
   * library has checked wc_flags against cq_flags below.
   *
   * destroy_* of CQs, SRQs and QPs: no QP or SRQ of the library uses the object, the program has acknowledged all events
   * that it got of it. Events that are reported meanwhile have no effect. Not 0: the object is as it was. */
  struct ibv_cq_ex* (*create_cq)(struct ibv_context* context, struct ibv_cq_init_attr_ex* attr);
  int (*resize_cq)(struct ibv_cq* cq, int cqe);
  int (*modify_cq)(struct ibv_cq* cq, struct ibv_modify_cq_attr* attr);
  int (*destroy_cq)(struct ibv_cq* cq);

  /* Shared receive queues and XRC. attr is in and out: what was granted. The provider fills handle. */
  struct ibv_srq* (*create_srq)(struct ibv_context* context, struct ibv_srq_init_attr_ex* attr);
  int (*modify_srq)(struct ibv_srq* srq, struct ibv_srq_attr* attr, int mask);
  int (*query_srq)(struct ibv_srq* srq, struct ibv_srq_attr* attr);
  int (*get_srq_num)(struct ibv_srq* srq, uint32_t* number);
  int (*destroy_srq)(struct ibv_srq* srq);
  struct ibv_xrcd* (*open_xrcd)(struct ibv_context* context, struct ibv_xrcd_init_attr* attr);
  int (*close_xrcd)(struct ibv_xrcd* xrcd);

  /* Queue pairs. attr is a copy of the program's: what comp_mask leaves out is zero. attr->cap is in and out. The
   * provider fills qp_num, state and handle. qp_to_qp_ex: null where the QP was made without send_ops_flags. */
  struct ibv_qp* (*create_qp)(struct ibv_context* context, struct ibv_qp_init_attr_ex* attr);
  struct ibv_qp* (*open_qp)(struct ibv_context* context, struct ibv_qp_open_attr* attr);
  struct ibv_qp_ex* (*qp_to_qp_ex)(struct ibv_qp* qp);
  int (*query_qp)(struct ibv_qp* qp, struct ibv_qp_attr* attr, int mask, struct ibv_qp_init_attr* init);
  int (*modify_qp)(struct ibv_qp* qp, struct ibv_qp_attr* attr, int mask);
  int (*destroy_qp)(struct ibv_qp* qp);
  struct ibv_ah* (*create_ah)(struct ibv_pd* pd, struct ibv_ah_attr* attr);
  int (*destroy_ah)(struct ibv_ah* ah);
  int (*attach_mcast)(struct ibv_qp* qp, const union ibv_gid* gid, uint16_t lid);
  int (*detach_mcast)(struct ibv_qp* qp, const union ibv_gid* gid, uint16_t lid);

  /* What the extended calls of this context take; everything else is refused by the library. */
  uint64_t cq_flags;        /* of ibv_cq_init_attr_ex::wc_flags */
  uint64_t send_ops_flags;  /* of ibv_qp_init_attr_ex::send_ops_flags */
  uint32_t qp_create_flags; /* of ibv_qp_init_attr_ex::create_flags */
  int comp_vectors;         /* of the context; at least 1 */

  /* ibv_get_cq_event(3) of a channel without an event, for providers that make progress in the program's threads; may be
   * null. Sleeps until has_event(of) is not 0, or until `fd` is readable (poll(2)); has_event() may be called under the
   * provider's locks, and has to be called after each completion_event() of this thread, which does not make `fd` readable.
   * `mask`: the thread's signals while it sleeps, a sigset_t for ppoll(2), or null: as they are. Not null where the program has
   * signal handlers: the library has blocked the signals, so that handlers run in ppoll(2) alone, without the provider's locks.
   * 0: look again; EINTR: a signal handler has run; EAGAIN: the library sleeps on `fd` itself. */
  int (*wait_event)(struct ibv_context* context, int fd, int (*has_event)(void* of), void* of,
                    const void* mask);
#ifdef WEFT_VERBS_NEXT
  int (*modify_qp_rate_limit)(struct ibv_qp* qp, struct ibv_qp_rate_limit_attr* attr);
#endif
};

struct weft_verbs_provider {
  size_t size;
  const char* name;
  /* Once, before everything else; may be null. Not 0: the provider is left out. */
  int (*start)(const struct weft_verbs_services* services);
  /* The devices there are now: calls add() for each. */
  int (*list_devices)(void (*add)(void* list, const struct weft_verbs_device* device), void* list);
  /* Opens a context of a device: fills `ops`, of which ops->size bytes are there, and *state, which is the provider's
   * own. 0 or an errno. `context` has no calls yet. */
  int (*open)(const struct weft_verbs_device* device, struct ibv_context* context, struct weft_verbs_ops* ops,
              void** state);
  /* Objects that the program left are freed with it. */
  void (*close)(struct ibv_context* context, void* state);
};

/* Exported by Weft's libibverbs.so.1 (version WEFT_1.0). `provider` lives as long as the process. 0, EEXIST: there is
 * one of this name, EINVAL: incomplete. */
int weft_verbs_register(const struct weft_verbs_provider* provider);

#ifdef __cplusplus
}
#endif

#endif
