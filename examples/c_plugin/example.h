// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The parts of the example provider: connected endpoints (FI_EP_MSG) over TCP sockets. Written against libfabric's public headers
// alone. README.md says in what order to read it.
//
// Rules that hold in all files:
//   - One lock for each fabric, taken by every call that a program makes. Functions below that line expect it held.
//   - No thread: reading a completion queue or an event queue drives the sockets behind it (FI_PROGRESS_MANUAL).
//   - An object's structure begins with its fid, so the pointer that a program holds is the pointer to our structure.
//   - Whatever comes from the other side is checked before it is used.
#pragma once

#include <netinet/in.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

enum {
  EX_IOV_MAX = 4,         // pieces of an operation
  EX_INJECT_MAX = 256,    // bytes of an injected message
  EX_SIZE_DEFAULT = 256,  // operations of an endpoint in each direction, when the program does not say
  EX_SIZE_MAX = 4096,
  EX_RMA_MAX = 64,       // reads and writes of an endpoint on their way, so also answers that it may owe
  EX_CM_DATA_MAX = 256,  // parameters of fi_connect, fi_accept and fi_reject
  EX_EVENTS_MAX = 16,    // sockets looked at by one read of a queue
};

extern struct fi_provider ex_provider;

#define EX_WARN(subsystem, ...) FI_WARN(&ex_provider, subsystem, __VA_ARGS__)

// --- what goes over a connection (transfer.c; connect.c has what is said before) ---

enum ex_kind {
  EX_SEND = 1,   // data if EX_HAS_DATA; payload: the message
  EX_WRITE = 2,  // id, addr, key; payload: the bytes. Answered by EX_ACK
  EX_READ = 3,   // id, addr, key; length: how much is wanted, no payload. Answered by EX_REPLY or EX_ACK
  EX_REPLY = 4,  // id; payload: what was read
  EX_ACK = 5,    // id; data: 0 or the positive FI_E* value of what went wrong
};
enum { EX_HAS_DATA = 1 };

struct ex_head {  // numbers are little-endian
  uint8_t kind, flags;
  uint16_t reserved;
  uint32_t id;
  uint64_t length, data, addr, key;
};

// --- objects ---

// Whatever has a socket: an epoll set calls ready() when something happened to it.
struct ex_source {
  void (*ready)(struct ex_source* source);
  int fd;
};

struct ex_fabric {
  struct fid_fabric fid;
  pthread_mutex_t lock;
  int users;
};

struct ex_domain {
  struct fid_domain fid;
  struct ex_fabric* fabric;
  struct ex_mr* regions;
  uint64_t next_key;
  int users;
};

struct ex_mr {
  struct fid_mr fid;
  struct ex_domain* domain;
  struct ex_mr* next;
  char* base;
  size_t length;
  uint64_t access;
};

// An operation, and also its entry in the completion queue: it is free again when the program has read that. So no queue can overflow.
struct ex_op {
  struct ex_op* next;
  struct ex_ep* ep;
  void* context;
  uint64_t comp_flags;  // what a completion says: FI_SEND | FI_MSG ...
  bool report;          // the program wants the completion
  uint64_t data;
  size_t length;  // of the message; of a receive what has come
  size_t over;    // bytes that found no room
  int error;
  struct ex_head head;
  size_t done;  // bytes of head and payload that the socket has taken
  struct iovec iov[EX_IOV_MAX];
  size_t iov_count;
  char inject[EX_INJECT_MAX];
};

struct ex_list {
  struct ex_op* first;
  struct ex_op* last;
};

struct ex_cq {
  struct fid_cq fid;
  struct ex_domain* domain;
  int epoll;
  enum fi_cq_format format;
  struct ex_list done;
  int users;
};

struct ex_event {
  struct ex_event* next;
  uint32_t event;
  bool failed;
  struct fi_eq_err_entry error;  // when it failed, else
  struct fi_eq_cm_entry entry;
  size_t data_length;
  unsigned char data[EX_CM_DATA_MAX];
};

struct ex_eq {
  struct fid_eq fid;
  struct ex_fabric* fabric;
  int epoll;
  struct ex_event *first, *last;
  unsigned char err_data[EX_CM_DATA_MAX];  // of the error that was read last
  int users;
};

// What is said when a connection begins: by the side that connects, then by the other one.
struct ex_greeting {
  char magic[4];  // "exa1"
  uint32_t answer;
  uint32_t length;  // of the program's parameters
  unsigned char data[EX_CM_DATA_MAX];
};
enum { EX_GREETING_HEAD = 12, EX_ANSWER_NO = 1 };

struct ex_pep {
  struct fid_pep fid;
  struct ex_source source;
  struct ex_fabric* fabric;
  struct ex_eq* eq;
  struct fi_info* info;
  bool listening;
  struct ex_request* requests;
};

// A connection that came to a passive endpoint, and the handle in the fi_info of its FI_CONNREQ.
struct ex_request {
  struct fid fid;
  struct ex_source source;
  struct ex_pep* pep;  // null when that one is closed
  struct ex_request* next;
  struct ex_greeting greeting;
  size_t have;
};

enum ex_state { EX_NEW, EX_CONNECTING, EX_GREETING, EX_ACCEPTING, EX_CONNECTED, EX_DOWN };

struct ex_ep {
  struct fid_ep fid;
  struct ex_source source;
  struct ex_domain* domain;
  struct ex_eq* eq;
  struct ex_cq *tx_cq, *rx_cq;
  bool tx_selective, rx_selective, enabled;
  uint64_t tx_flags, rx_flags;
  enum ex_state state;
  uint32_t watching;            // the epoll events that are asked for now
  struct sockaddr_in src_addr;  // what to bind to, if any

  struct ex_op* ops;  // all of them
  struct ex_list free_tx, free_rx, free_reply;
  struct ex_list sending;  // in the order in which they go out
  struct ex_list posted;   // receives, oldest first
  struct ex_op* rma[EX_RMA_MAX];
  unsigned rma_count;

  struct ex_greeting greeting;
  size_t greeting_have;

  // The frame that is coming in.
  struct ex_head in;
  size_t in_have;       // bytes of the head
  bool in_started;      // the place for the payload is known
  bool in_stalled;      // it waits for a receive
  struct ex_op* in_op;  // the receive or read that it belongs to
  struct iovec in_iov[EX_IOV_MAX];
  size_t in_iov_count;
  uint64_t in_done;   // bytes of the payload
  uint32_t in_error;  // of a write: what the answer says
};

// provider.c
int ex_source_address(const struct sockaddr_in* destination, struct sockaddr_in* source);

// objects.c
int ex_fabric_open(struct fi_fabric_attr* attr, struct fid_fabric** fabric, void* context);
struct ex_mr* ex_mr_find(struct ex_domain* domain, uint64_t key, uint64_t addr, uint64_t length,
                         uint64_t access);
int ex_no_bind(struct fid* fid, struct fid* other, uint64_t flags);
int ex_no_control(struct fid* fid, int command, void* arg);
int ex_no_ops_open(struct fid* fid, const char* name, uint64_t flags, void** ops, void* context);

// queue.c
int ex_cq_open(struct fid_domain* domain, struct fi_cq_attr* attr, struct fid_cq** cq, void* context);
int ex_eq_open(struct fid_fabric* fabric, struct fi_eq_attr* attr, struct fid_eq** eq, void* context);
int ex_trywait(struct fid_fabric* fabric, struct fid** fids, int count);
void ex_report(struct ex_cq* cq,
               struct ex_op* op);  // a completion for the program, or the end of the operation
struct ex_event* ex_event_add(struct ex_eq* eq, uint32_t event, struct fid* fid);  // null: no memory
struct ex_event* ex_event_fail(struct ex_eq* eq, struct fid* fid, int error);
void ex_event_forget(struct ex_eq* eq, struct fid* fid);              // drops what the queue has to say of it
void ex_watch(int epoll, struct ex_source* source, uint32_t events);  // 0: no longer
void ex_push(struct ex_list* list, struct ex_op* op);
struct ex_op* ex_pop(struct ex_list* list);
void ex_forget(struct ex_cq* cq, struct ex_ep* ep);  // the endpoint goes

// connect.c
int ex_passive_ep(struct fid_fabric* fabric, struct fi_info* info, struct fid_pep** pep, void* context);
int ex_endpoint(struct fid_domain* domain, struct fi_info* info, struct fid_ep** ep, void* context);
void ex_ep_watch(struct ex_ep* ep);                // in all queues of the endpoint, for what it waits for now
void ex_ep_down(struct ex_ep* ep, bool announce);  // the connection is gone
void ex_op_free(struct ex_op* op);

// transfer.c
extern struct fi_ops_msg ex_msg_ops;
extern struct fi_ops_rma ex_rma_ops;
void ex_ep_move(struct ex_ep* ep);  // sends and receives what the socket allows
