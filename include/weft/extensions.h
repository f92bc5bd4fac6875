// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * What Weft's providers can do beyond libfabric, for C99 and C++11 and later, in every way of linking (docs/linking.md). NOT PORTABLE: no other
 * libfabric has it, and a program has to go on without it where a call says -FI_ENOSYS.
 *
 * How it stays compatible: fi_open_ops() gives a table of functions that begins with its size, and every structure that is passed begins with
 * the size that the program knows. Use the inline functions below, never the table's members by themselves: they look at the size first and say
 * -FI_ENOSYS where the library is older than the call. An older program on a newer library, and a newer program on an older one, both work.
 * Members are only ever added, at the end.
 *
 * Threads: like the data calls of the same endpoint (fi_domain(3), threading).
 * Errors: 0 or a negative FI_E*. For each call:
 *   -FI_ENOSYS       the library, or the provider of the endpoint, does not have it
 *   -FI_EINVAL       a null pointer, an endpoint of another provider, a structure without size, a handle that is none (any more), wrong flags
 *   -FI_EOPBADSTATE  the endpoint is not enabled
 *
 * This file includes nothing of Weft.
 */
#ifndef WEFT_EXTENSIONS_H
#define WEFT_EXTENSIONS_H

#ifdef __has_include
#if !__has_include(<rdma/fabric.h>)
#error "libfabric's headers are not there: install libfabric-dev (1.17 to 2.6 are what Weft is tested with)"
#endif
#endif
#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stddef.h>
#include <stdint.h>

/* For feature tests: what this header has. A library has what the size of its table says. */
#ifdef WEFT_EXTENSIONS_NEXT /* by tests/compat alone: the next version, with something that it might add */
#define WEFT_EXTENSIONS_VERSION 4
#else
#define WEFT_EXTENSIONS_VERSION 3
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Shared memory: endpoints of the provider `shm`, and peers on the same host of the provider `weft`. The name for fi_open_ops() on an endpoint.
 */
#define WEFT_SHM_OPS "weft_shm_ops"

/* Bounds; they are the same for the lifetime of an endpoint. */
struct weft_shm_limits {
  size_t size;      /* of this structure; set by the caller */
  size_t write_max; /* longest message that is written in place, bytes */
  size_t
      take_max; /* messages that an endpoint may have taken and not released, and room that it may have reserved: in all */
  size_t entries;    /* of a ring: frames that a sender may have under way to one receiver */
  size_t ring_bytes; /* of a ring, for payloads that do not fit an entry */
#ifdef WEFT_EXTENSIONS_NEXT
  size_t room_alignment; /* of weft_shm_room.data, bytes */
#endif
};

/* How full the two rings between an endpoint and one peer are. A sender learns in steps what its receiver has consumed. */
struct weft_shm_rings {
  size_t size;        /* of this structure; set by the caller */
  size_t out_entries; /* to the peer: sent, and not known to be consumed */
  size_t out_bytes;   /* the same in bytes, with what is reserved */
  size_t in_entries;  /* from the peer: waiting to be looked at */
  size_t in_bytes;    /* the same in bytes */
  size_t
      in_taken; /* messages taken in place from this ring and not released: they keep their room, and that of all behind them */
};

/* What to take. */
struct weft_shm_wanted {
  size_t size;      /* of this structure; set by the caller */
  uint64_t flags;   /* FI_TAGGED or FI_MSG */
  fi_addr_t source; /* as in fi_trecv(3): counts with FI_DIRECTED_RECV only; FI_ADDR_UNSPEC is any */
  uint64_t tag;     /* FI_TAGGED only */
  uint64_t ignore;  /* bits of the tag that do not count */
};

/* WEFT_SHM_IN_RING in weft_shm_message.flags: the bytes lie in the ring. Without it they had been copied once, into memory of the library. */
#define WEFT_SHM_IN_RING (UINT64_C(1) << 0)

/* A message that was taken. */
struct weft_shm_message {
  size_t size;      /* of this structure; set by the caller */
  const void* data; /* read only; at least 8 byte aligned; valid until released */
  size_t length;    /* bytes */
  uint64_t handle;  /* for release */
  uint64_t flags;   /* FI_TAGGED or FI_MSG, FI_REMOTE_CQ_DATA */
  uint64_t place;   /* WEFT_SHM_IN_RING, or 0 */
  uint64_t tag;     /* 0 with FI_MSG */
  uint64_t cq_data; /* with FI_REMOTE_CQ_DATA, else 0 */
  fi_addr_t source; /* FI_ADDR_NOTAVAIL when it is not in the address vector */
};

/* Room for a message that is written in place. */
struct weft_shm_room {
  size_t size;     /* of this structure; set by the caller */
  void* data;      /* write here; 64 byte aligned; valid until committed or abandoned */
  size_t length;   /* bytes, as reserved */
  uint64_t handle; /* for commit and abandon */
};

/* How a message that was written in place is sent. */
struct weft_shm_send {
  size_t size;      /* of this structure; set by the caller */
  uint64_t flags;   /* FI_TAGGED or FI_MSG, and FI_REMOTE_CQ_DATA */
  size_t length;    /* bytes that were written, at most what was reserved */
  uint64_t tag;     /* FI_TAGGED only */
  uint64_t cq_data; /* FI_REMOTE_CQ_DATA only */
};

/* How the bytes of a large message get to its receiver, who chooses (docs/shm.md). Since version 3. */
enum weft_shm_copy_path {
  WEFT_SHM_COPY_RING = 0,     /* both sides copy, through shared memory */
  WEFT_SHM_COPY_RECEIVER = 1, /* the receiver reads the sender's memory */
  WEFT_SHM_COPY_BOTH = 2      /* the receiver reads, the sender writes, until they meet */
};
#define WEFT_SHM_COPY_PATHS 3

/* Why that way. Since version 3. */
enum weft_shm_copy_reason {
  WEFT_SHM_COPY_ONLY = 0,     /* the peer's memory cannot be reached, or nothing came from it yet */
  WEFT_SHM_COPY_PINNED = 1,   /* by the setting WEFT_SHM_COPY */
  WEFT_SHM_COPY_SHORT = 2,    /* messages of that length always go through the ring */
  WEFT_SHM_COPY_PRESUMED = 3, /* no other way was measured yet */
  WEFT_SHM_COPY_MEASURED = 4  /* it took the least time */
};

/* Messages that came by one way. Since version 3. */
struct weft_shm_copy_way {
  uint64_t messages;
  uint64_t bytes;
  uint64_t
      ns; /* of one message of the length that was asked for: median of the last that were measured; 0: none was */
};

/* Messages of one size class (powers of two) that an endpoint received: the ways that they went, and what is known of these. Since version 3. */
struct weft_shm_copies {
  size_t size;         /* of this structure; set by the caller */
  uint64_t length_max; /* of the class, bytes; UINT64_MAX for the last one */
  uint64_t path;       /* enum weft_shm_copy_path: the way of the next message, unless it is a trial */
  uint64_t reason;     /* enum weft_shm_copy_reason */
  struct weft_shm_copy_way ways[WEFT_SHM_COPY_PATHS]; /* by enum weft_shm_copy_path */
  uint64_t measured;                                  /* messages whose copy was timed */
  uint64_t trial_messages; /* of these, by another way than `path` to learn what that takes */
  uint64_t trials;         /* how often another way was tried */
  uint64_t changes;        /* how often `path` changed */
  uint64_t measured_ns;    /* time of all that were timed */
  uint64_t lost_ns;        /* of that, what trials took beyond the way of the moment */
};

/* What fi_open_ops(&ep->fid, WEFT_SHM_OPS, 0, ...) gives. It belongs to the library and stays as long as that is loaded. */
struct weft_shm_ops {
  size_t size;
  /* since version 1 */
  int (*limits)(struct fid_ep* ep, struct weft_shm_limits* limits);
  int (*rings)(struct fid_ep* ep, fi_addr_t peer, struct weft_shm_rings* rings);
  int (*take)(struct fid_ep* ep, const struct weft_shm_wanted* wanted, struct weft_shm_message* message);
  int (*release)(struct fid_ep* ep, uint64_t handle);
  int (*reserve)(struct fid_ep* ep, fi_addr_t dest, size_t length, struct weft_shm_room* room);
  int (*commit)(struct fid_ep* ep, uint64_t handle, const struct weft_shm_send* send);
  int (*abandon)(struct fid_ep* ep, uint64_t handle);
  /* since version 3 */
  int (*copies)(struct fid_ep* ep, fi_addr_t source, size_t length, struct weft_shm_copies* copies);
#ifdef WEFT_EXTENSIONS_NEXT
  /* since version 4 */
  int (*ready)(struct fid_ep* ep);
#endif
};

/* NOLINTBEGIN(modernize-use-nullptr): C, too */

/* Whether the library has a member. `ops` may be null. */
#define WEFT_SHM_HAS(ops, member) \
  ((ops) != NULL && (ops)->size >= offsetof(struct weft_shm_ops, member) + sizeof((ops)->member))

/*
 * The table of an endpoint. -FI_ENOSYS, and *ops null, where there is none; the calls below take that null and say -FI_ENOSYS.
 */
static inline int weft_shm_open(struct fid_ep* ep, const struct weft_shm_ops** ops) {
  void* found = NULL;
  int status;
  *ops = NULL;
  if (ep == NULL) return -FI_EINVAL;
  status = fi_open_ops(&ep->fid, WEFT_SHM_OPS, 0, &found, NULL);
  if (status != 0) return status;
  *ops = (const struct weft_shm_ops*)found;
  return 0;
}

/* Fills in the bounds. */
static inline int weft_shm_query_limits(const struct weft_shm_ops* ops, struct fid_ep* ep,
                                        struct weft_shm_limits* limits) {
  return WEFT_SHM_HAS(ops, limits) ? ops->limits(ep, limits) : -FI_ENOSYS;
}

/* Looks at the rings between `ep` and a peer of its address vector; all zeros before the first contact. Drives nothing. */
static inline int weft_shm_query_rings(const struct weft_shm_ops* ops, struct fid_ep* ep, fi_addr_t peer,
                                       struct weft_shm_rings* rings) {
  return WEFT_SHM_HAS(ops, rings) ? ops->rings(ep, peer, rings) : -FI_ENOSYS;
}

/*
 * Takes the oldest message that no posted receive wants and that a receive of these fields would take, as FI_PEEK with FI_CLAIM does, without a
 * copy where it still lies in the ring. Drives the endpoint. No completion and no counter tells of it.
 *
 * The message is the program's until released; releases may come in any order. Until then it keeps its room in the ring, and that of what came
 * behind it from the same peer: a sender goes on until its ring is full, and then waits. When the sender dies or closes, a taken message stays.
 * fi_close of the endpoint ends all. The sender's process can still write there: a program that does not trust its peers copies before it checks.
 * What asks for delivery complete is acknowledged at the release.
 *
 *   -FI_EAGAIN    no such message is here as a whole, or take_max are out
 *   -FI_EMSGSIZE  there is one, but its bytes are still with the sender (docs/shm.md: above 256 KiB): length, tag, source and flags are filled
 *                 in, data is null, nothing is taken. A posted receive gets it
 */
static inline int weft_shm_take(const struct weft_shm_ops* ops, struct fid_ep* ep,
                                const struct weft_shm_wanted* wanted, struct weft_shm_message* message) {
  return WEFT_SHM_HAS(ops, take) ? ops->take(ep, wanted, message) : -FI_ENOSYS;
}

/* Gives a taken message back. */
static inline int weft_shm_release(const struct weft_shm_ops* ops, struct fid_ep* ep, uint64_t handle) {
  return WEFT_SHM_HAS(ops, release) ? ops->release(ep, handle) : -FI_ENOSYS;
}

/*
 * Reserves room for one message of at most `length` bytes to `dest` (as in fi_tsend(3), with a receive context in it or not). One reservation
 * for each peer at a time. The message has its place in the order now: what is sent to the same peer later waits for commit or abandon.
 *
 *   -FI_EAGAIN      no room, or something else waits to be sent to this peer: the endpoint has been driven, try again
 *   -FI_EBUSY       there is a reservation for this peer
 *   -FI_EMSGSIZE    longer than write_max
 *   -FI_EOPNOTSUPP  this peer is not reached through shared memory
 *   others          as fi_tsend(3) says for a peer that cannot be reached
 */
static inline int weft_shm_reserve(const struct weft_shm_ops* ops, struct fid_ep* ep, fi_addr_t dest,
                                   size_t length, struct weft_shm_room* room) {
  return WEFT_SHM_HAS(ops, reserve) ? ops->reserve(ep, dest, length, room) : -FI_ENOSYS;
}

/*
 * Sends what was written, like fi_tinject: it is complete, there is no completion, a counter bound with FI_SEND counts it. The receiver cannot
 * tell it from another message. Always ends the reservation, except with -FI_EINVAL and -FI_EMSGSIZE (more than was reserved).
 *
 *   -FI_EIO   the peer has gone; writing there was harmless
 */
static inline int weft_shm_commit(const struct weft_shm_ops* ops, struct fid_ep* ep, uint64_t handle,
                                  const struct weft_shm_send* send) {
  return WEFT_SHM_HAS(ops, commit) ? ops->commit(ep, handle, send) : -FI_ENOSYS;
}

/* Gives the room back; nothing is sent. So does fi_close of the endpoint. */
static inline int weft_shm_abandon(const struct weft_shm_ops* ops, struct fid_ep* ep, uint64_t handle) {
  return WEFT_SHM_HAS(ops, abandon) ? ops->abandon(ep, handle) : -FI_ENOSYS;
}

/*
 * How messages of `length` bytes from `source`, a peer of the address vector, are copied: counts of the size class that this length is in, of messages
 * above 8 KiB. One that came in fragments before there was a receive for it is not counted. FI_ADDR_UNSPEC: counts of all peers together, those that are gone included; `path` and all that was measured are 0 then. Drives nothing.
 * All zeros but length_max before the first contact, and for peers of `weft` that are not reached through shared memory.
 */
static inline int weft_shm_query_copies(const struct weft_shm_ops* ops, struct fid_ep* ep, fi_addr_t source,
                                        size_t length, struct weft_shm_copies* copies) {
  return WEFT_SHM_HAS(ops, copies) ? ops->copies(ep, source, length, copies) : -FI_ENOSYS;
}

#ifdef WEFT_EXTENSIONS_NEXT
/* Whether the calls above may be used on `ep` now: 0, or what they would say. */
static inline int weft_shm_query_ready(const struct weft_shm_ops* ops, struct fid_ep* ep) {
  return WEFT_SHM_HAS(ops, ready) ? ops->ready(ep) : -FI_ENOSYS;
}
#endif

/*
 * Reliable endpoints over packets that may be lost: `udp;ofi_rxd`, `PLUGIN;ofi_rxd`, and providers made from an author's packets
 * (docs/provider-guide.md). The name for fi_open_ops() on an endpoint. Since version 2.
 */
#define WEFT_RELIABLE_OPS "weft_reliable_ops"

/* What became of the packets of an endpoint since it was opened. Counters only grow, but for the last three members. */
struct weft_reliable_statistics {
  size_t size;         /* of this structure; set by the caller */
  uint64_t sent;       /* packets that the packet link took: all of them */
  uint64_t sent_again; /* of these: with bytes that had been sent before, after a loss or a timeout */
  uint64_t copies;     /* of these: sent twice on purpose, see docs/reliable.md */
  uint64_t acks_sent;  /* of these: with nothing but an acknowledgement */
  uint64_t
      received; /* packets that came whole, also those that were dropped for another reason than damage */
  uint64_t acks_received; /* of these: with nothing but an acknowledgement */
  uint64_t duplicates;    /* of these, dropped: all of their bytes had come before */
  uint64_t out_of_order;  /* of these: kept until the bytes before them came */
  uint64_t
      not_taken; /* of these, dropped: beyond the window, without memory, or from too many new peers at once */
  uint64_t stale;             /* of these, dropped: of a connection that is over, or not known */
  uint64_t damaged;           /* came, and were dropped: wrong checksum, length or head; not in `received` */
  uint64_t lost;              /* packets sent that were found lost; some may only have been late */
  uint64_t timeouts;          /* how often nothing came back in time */
  uint64_t peers;             /* connections now */
  uint64_t round_trip_ns;     /* smoothed, of the peer that was heard last; 0: not measured */
  uint64_t round_trip_ns_min; /* the shortest of the last 10 to 20 s, of the same peer */
};

/* What fi_open_ops(&ep->fid, WEFT_RELIABLE_OPS, 0, ...) gives. It belongs to the library and stays as long as that is loaded. */
struct weft_reliable_ops {
  size_t size;
  /* since version 2 */
  int (*statistics)(struct fid_ep* ep, struct weft_reliable_statistics* statistics);
};

/* Whether the library has a member. `ops` may be null. */
#define WEFT_RELIABLE_HAS(ops, member) \
  ((ops) != NULL && (ops)->size >= offsetof(struct weft_reliable_ops, member) + sizeof((ops)->member))

/* The table of an endpoint. -FI_ENOSYS, and *ops null, where there is none; the call below takes that null and says -FI_ENOSYS. */
static inline int weft_reliable_open(struct fid_ep* ep, const struct weft_reliable_ops** ops) {
  void* found = NULL;
  int status;
  *ops = NULL;
  if (ep == NULL) return -FI_EINVAL;
  status = fi_open_ops(&ep->fid, WEFT_RELIABLE_OPS, 0, &found, NULL);
  if (status != 0) return status;
  *ops = (const struct weft_reliable_ops*)found;
  return 0;
}

/* Reads the counters. Drives nothing, and looks at every peer: not for each message. */
static inline int weft_reliable_query_statistics(const struct weft_reliable_ops* ops, struct fid_ep* ep,
                                                 struct weft_reliable_statistics* statistics) {
  return WEFT_RELIABLE_HAS(ops, statistics) ? ops->statistics(ep, statistics) : -FI_ENOSYS;
}

/* NOLINTEND(modernize-use-nullptr) */

#ifdef __cplusplus
}
#endif

#endif
