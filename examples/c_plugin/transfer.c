// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What happens on a connection: frames, sends and receives (fi_msg(3)), reads and writes of remote memory (fi_rma(3)).
//
// Each frame is a head and its payload, one after the other. A write is answered by EX_ACK, a read by EX_REPLY. A side has at most
// EX_RMA_MAX of these under way, so the other one needs room for that many answers and never has to stop reading because of them.
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "example.h"

_Static_assert(sizeof(struct ex_head) == 40, "the head has no holes");

static size_t total(const struct iovec* iov, size_t count) {
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) bytes += iov[i].iov_len;
  return bytes;
}

// The part of `iov` that begins after `skip` bytes. How many pieces it has.
static size_t rest(const struct iovec* iov, size_t count, uint64_t skip, struct iovec* out) {
  size_t pieces = 0;
  for (size_t i = 0; i < count; ++i) {
    if (skip >= iov[i].iov_len) {
      skip -= iov[i].iov_len;
      continue;
    }
    out[pieces++] = (struct iovec){(char*)iov[i].iov_base + skip, iov[i].iov_len - skip};
    skip = 0;
  }
  return pieces;
}

// --- out ---

// An operation has left. What waits for an answer stays in `rma`.
static void sent(struct ex_op* op) {
  switch (op->head.kind) {
    case EX_SEND:
      ex_report(op->ep->tx_cq, op);
      return;
    case EX_REPLY:
    case EX_ACK:
      ex_op_free(op);
      return;
    default:
      return;
  }
}

static bool send_some(struct ex_ep* ep) {
  while (ep->sending.first != NULL) {
    struct ex_op* op = ep->sending.first;
    struct iovec iov[EX_IOV_MAX + 1];
    size_t count = 0;
    const size_t payload = op->head.kind == EX_READ ? 0 : total(op->iov, op->iov_count);
    if (op->done < sizeof op->head)
      iov[count++] = (struct iovec){(char*)&op->head + op->done, sizeof op->head - op->done};
    if (payload > 0)
      count += rest(op->iov, op->iov_count, op->done > sizeof op->head ? op->done - sizeof op->head : 0,
                    iov + count);
    const struct msghdr message = {.msg_iov = iov, .msg_iovlen = count};
    const ssize_t taken = sendmsg(ep->source.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (taken < 0) return errno == EAGAIN || errno == EINTR;
    op->done += (size_t)taken;
    if (op->done == sizeof op->head + payload) {
      ex_pop(&ep->sending);
      sent(op);
    }
  }
  return true;
}

static void start(struct ex_ep* ep, struct ex_op* op) {
  op->done = 0;
  const bool first = ep->sending.first == NULL;
  ex_push(&ep->sending, op);
  if (first && !send_some(ep)) ex_ep_down(ep, true);
  ex_ep_watch(ep);
}

// --- in ---

static struct ex_op* answer(struct ex_ep* ep, enum ex_kind kind, uint32_t id) {
  struct ex_op* op = ex_pop(&ep->free_reply);
  if (op == NULL) return NULL;  // it asked for more than it may
  memset(&op->head, 0, sizeof op->head);
  op->head.kind = (uint8_t)kind;
  op->head.id = id;
  op->iov_count = 0;
  op->done = 0;
  return op;
}

static bool acknowledge(struct ex_ep* ep, uint32_t id, uint32_t error) {
  struct ex_op* op = answer(ep, EX_ACK, id);
  if (op == NULL) return false;
  op->head.data = htole64(error);
  ex_push(&ep->sending, op);
  return true;
}

static bool begin_send(struct ex_ep* ep) {
  struct ex_op* op = ex_pop(&ep->posted);
  if (op == NULL) {
    ep->in_stalled = true;
    return true;
  }
  const uint64_t length = le64toh(ep->in.length);
  const size_t room = total(op->iov, op->iov_count);
  ep->in_stalled = false;
  op->length = length < room ? length : room;
  op->over = length - op->length;
  op->data = le64toh(ep->in.data);
  if (ep->in.flags & EX_HAS_DATA) op->comp_flags |= FI_REMOTE_CQ_DATA;
  ep->in_op = op;
  memcpy(ep->in_iov, op->iov, sizeof ep->in_iov);
  ep->in_iov_count = op->iov_count;
  ep->in_started = true;
  return true;
}

static bool begin_write(struct ex_ep* ep) {
  const struct ex_mr* mr = ex_mr_find(ep->domain, le64toh(ep->in.key), le64toh(ep->in.addr),
                                      le64toh(ep->in.length), FI_REMOTE_WRITE);
  ep->in_error = mr == NULL ? FI_EACCES : 0;
  ep->in_iov_count = mr == NULL ? 0 : 1;
  if (mr != NULL) ep->in_iov[0] = (struct iovec){mr->base + le64toh(ep->in.addr), le64toh(ep->in.length)};
  ep->in_started = true;
  return true;
}

static bool serve_read(struct ex_ep* ep) {
  const struct ex_mr* mr = ex_mr_find(ep->domain, le64toh(ep->in.key), le64toh(ep->in.addr),
                                      le64toh(ep->in.length), FI_REMOTE_READ);
  if (mr == NULL) return acknowledge(ep, ep->in.id, FI_EACCES);
  struct ex_op* op = answer(ep, EX_REPLY, ep->in.id);
  if (op == NULL) return false;
  op->head.length = ep->in.length;
  op->iov[0] = (struct iovec){mr->base + le64toh(ep->in.addr), le64toh(ep->in.length)};
  op->iov_count = 1;
  ex_push(&ep->sending, op);
  return true;
}

// The read or write that an answer is meant for. It must have left, or the other side makes it up.
static struct ex_op* answered(struct ex_ep* ep) {
  const uint32_t id = le32toh(ep->in.id);
  struct ex_op* op = id < EX_RMA_MAX ? ep->rma[id] : NULL;
  if (op == NULL) return NULL;
  for (const struct ex_op* other = ep->sending.first; other != NULL; other = other->next)
    if (other == op) return NULL;
  return op;
}

static void finish_rma(struct ex_ep* ep, struct ex_op* op, uint64_t error) {
  ep->rma[le32toh(op->head.id)] = NULL;
  ep->rma_count--;
  op->error = error > INT32_MAX ? FI_EIO : (int)error;
  ex_report(ep->tx_cq, op);
}

static bool begin_reply(struct ex_ep* ep) {
  struct ex_op* op = answered(ep);
  if (op == NULL || op->head.kind != EX_READ || le64toh(ep->in.length) != total(op->iov, op->iov_count))
    return false;
  ep->in_op = op;
  memcpy(ep->in_iov, op->iov, sizeof ep->in_iov);
  ep->in_iov_count = op->iov_count;
  ep->in_started = true;
  return true;
}

static bool on_ack(struct ex_ep* ep) {
  struct ex_op* op = answered(ep);
  if (op == NULL || (op->head.kind == EX_READ && ep->in.data == 0)) return false;
  finish_rma(ep, op, le64toh(ep->in.data));
  return true;
}

// The head is complete. False: the other side does not keep to the rules.
static bool begin_frame(struct ex_ep* ep) {
  ep->in_done = 0;
  ep->in_op = NULL;
  ep->in_iov_count = 0;
  bool fits = false;
  switch (ep->in.kind) {
    case EX_SEND:
      return begin_send(ep);
    case EX_WRITE:
      return begin_write(ep);
    case EX_REPLY:
      return begin_reply(ep);
    case EX_READ:
      fits = serve_read(ep);
      break;
    case EX_ACK:
      fits = on_ack(ep);
      break;
    default:
      break;
  }
  ep->in_have = 0;  // these have no payload
  return fits;
}

static bool end_frame(struct ex_ep* ep) {
  struct ex_op* op = ep->in_op;
  bool fits = true;
  switch (ep->in.kind) {
    case EX_SEND:
      if (op->over > 0) op->error = FI_ETRUNC;
      ex_report(ep->rx_cq, op);
      break;
    case EX_WRITE:
      fits = acknowledge(ep, ep->in.id, ep->in_error);
      break;
    case EX_REPLY:
      finish_rma(ep, op, 0);
      break;
    default:
      break;
  }
  ep->in_op = NULL;
  ep->in_have = 0;
  ep->in_started = false;
  return fits;
}

// 1: something came, 0: nothing there, -1: the connection is over.
static int arrived(ssize_t got) {
  if (got > 0) return 1;
  return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

static int receive_payload(struct ex_ep* ep, uint64_t length) {
  struct iovec iov[EX_IOV_MAX + 1];
  char nowhere[4096];
  size_t count = rest(ep->in_iov, ep->in_iov_count, ep->in_done, iov);
  uint64_t left = length - ep->in_done;
  size_t used = 0;
  for (; used < count && left > 0; ++used) {  // the place may be larger than the payload
    if (iov[used].iov_len > left) iov[used].iov_len = left;
    left -= iov[used].iov_len;
  }
  if (used == 0) iov[used++] = (struct iovec){nowhere, left < sizeof nowhere ? left : sizeof nowhere};
  struct msghdr message = {.msg_iov = iov, .msg_iovlen = used};
  const ssize_t got = recvmsg(ep->source.fd, &message, MSG_DONTWAIT);
  if (got > 0) ep->in_done += (uint64_t)got;
  return arrived(got);
}

static bool receive_some(struct ex_ep* ep) {
  for (int rounds = 0; rounds < 256; ++rounds) {  // others want their turn, too
    if (ep->in_have < sizeof ep->in) {
      const ssize_t got =
          recv(ep->source.fd, (char*)&ep->in + ep->in_have, sizeof ep->in - ep->in_have, MSG_DONTWAIT);
      const int status = arrived(got);
      if (status <= 0) return status == 0;
      ep->in_have += (size_t)got;
      continue;
    }
    if (!ep->in_started) {
      if (!begin_frame(ep)) return false;
      if (ep->in_stalled) return true;
      if (!ep->in_started) continue;
    }
    const uint64_t length = le64toh(ep->in.length);
    if (ep->in_done < length) {
      const int status = receive_payload(ep, length);
      if (status <= 0) return status == 0;
    }
    if (ep->in_done == length && !end_frame(ep)) return false;
  }
  return true;
}

void ex_ep_move(struct ex_ep* ep) {
  if (ep->state != EX_CONNECTED) return;
  if (!receive_some(ep) || !send_some(ep)) ex_ep_down(ep, true);
  ex_ep_watch(ep);
}

// --- the program's calls ---

static bool put_iov(struct ex_op* op, const struct iovec* iov, size_t count) {
  if (count > EX_IOV_MAX) return false;
  if (count > 0) memcpy(op->iov, iov, count * sizeof *iov);
  op->iov_count = count;
  return true;
}

static ssize_t post_receive(struct fid_ep* fid, const struct iovec* iov, size_t count, void* context,
                            uint64_t flags) {
  struct ex_ep* ep = (struct ex_ep*)fid;
  if (count > EX_IOV_MAX) return -FI_EINVAL;
  if (!ep->enabled) return -FI_EOPBADSTATE;
  pthread_mutex_lock(&ep->domain->fabric->lock);
  ssize_t status = 0;
  struct ex_op* op = ep->state == EX_DOWN ? NULL : ex_pop(&ep->free_rx);
  if (op == NULL) {
    status = ep->state == EX_DOWN ? -FI_ENOTCONN : -FI_EAGAIN;
  } else {
    memset(&op->head, 0, sizeof op->head);
    put_iov(op, iov, count);
    op->context = context;
    op->comp_flags = FI_RECV | FI_MSG;
    op->report = !ep->rx_selective || (flags & FI_COMPLETION);
    op->length = op->over = 0;
    op->data = 0;
    ex_push(&ep->posted, op);
    if (ep->in_stalled) ex_ep_move(ep);
  }
  pthread_mutex_unlock(&ep->domain->fabric->lock);
  return status;
}

// A send, a write or a read. `report` is false for the inject calls, which have no completion.
static ssize_t post(struct fid_ep* fid, enum ex_kind kind, const struct iovec* iov, size_t count,
                    uint64_t data, const struct fi_rma_iov* target, void* context, uint64_t flags,
                    bool report) {
  struct ex_ep* ep = (struct ex_ep*)fid;
  const size_t length = total(iov, count);
  if (count > EX_IOV_MAX) return -FI_EINVAL;
  if ((flags & FI_INJECT) && length > EX_INJECT_MAX) return -FI_EMSGSIZE;
  if (ep->state != EX_CONNECTED) return ep->state == EX_DOWN ? -FI_ENOTCONN : -FI_EOPBADSTATE;
  pthread_mutex_lock(&ep->domain->fabric->lock);
  const bool rma = kind != EX_SEND;
  struct ex_op* op =
      ep->state != EX_CONNECTED || (rma && ep->rma_count == EX_RMA_MAX) ? NULL : ex_pop(&ep->free_tx);
  if (op == NULL) {
    const bool down = ep->state == EX_DOWN;
    if (!down) ex_ep_move(ep);  // a program that only tries again shall get on, too
    pthread_mutex_unlock(&ep->domain->fabric->lock);
    return down ? -FI_ENOTCONN : -FI_EAGAIN;
  }
  memset(&op->head, 0, sizeof op->head);
  put_iov(op, iov, count);
  if (flags & FI_INJECT) {  // the program may use its buffer again when we return
    char* to = op->inject;
    for (size_t i = 0; i < count; ++i) {
      memcpy(to, iov[i].iov_base, iov[i].iov_len);
      to += iov[i].iov_len;
    }
    op->iov[0] = (struct iovec){op->inject, length};
    op->iov_count = 1;
  }
  op->head.kind = (uint8_t)kind;
  op->head.length = htole64(length);
  op->head.data = htole64(data);
  if (flags & FI_REMOTE_CQ_DATA) op->head.flags |= EX_HAS_DATA;
  op->context = context;
  op->comp_flags = kind == EX_SEND   ? FI_SEND | FI_MSG
                   : kind == EX_READ ? FI_READ | FI_RMA
                                     : FI_WRITE | FI_RMA;
  op->report = report && (!ep->tx_selective || (flags & FI_COMPLETION));
  op->length = length;
  op->over = 0;
  op->data = 0;
  if (rma) {
    uint32_t id = 0;
    while (ep->rma[id] != NULL) ++id;
    ep->rma[id] = op;
    ep->rma_count++;
    op->head.id = htole32(id);
    op->head.addr = htole64(target->addr);
    op->head.key = htole64(target->key);
  }
  start(ep, op);
  pthread_mutex_unlock(&ep->domain->fabric->lock);
  return 0;
}

static ssize_t ex_recv(struct fid_ep* ep, void* buf, size_t len, void* desc, fi_addr_t source,
                       void* context) {
  (void)desc, (void)source;
  const struct iovec iov = {buf, len};
  return post_receive(ep, &iov, 1, context, ((struct ex_ep*)ep)->rx_flags);
}
static ssize_t ex_recvv(struct fid_ep* ep, const struct iovec* iov, void** desc, size_t count,
                        fi_addr_t source, void* context) {
  (void)desc, (void)source;
  return post_receive(ep, iov, count, context, ((struct ex_ep*)ep)->rx_flags);
}
static ssize_t ex_recvmsg(struct fid_ep* ep, const struct fi_msg* msg, uint64_t flags) {
  return post_receive(ep, msg->msg_iov, msg->iov_count, msg->context, flags);
}
static ssize_t ex_sendv(struct fid_ep* ep, const struct iovec* iov, void** desc, size_t count, fi_addr_t dest,
                        void* context) {
  (void)desc, (void)dest;
  return post(ep, EX_SEND, iov, count, 0, NULL, context, ((struct ex_ep*)ep)->tx_flags, true);
}
static ssize_t ex_send(struct fid_ep* ep, const void* buf, size_t len, void* desc, fi_addr_t dest,
                       void* context) {
  const struct iovec iov = {(void*)buf, len};
  return ex_sendv(ep, &iov, &desc, 1, dest, context);
}
static ssize_t ex_sendmsg(struct fid_ep* ep, const struct fi_msg* msg, uint64_t flags) {
  return post(ep, EX_SEND, msg->msg_iov, msg->iov_count, msg->data, NULL, msg->context, flags, true);
}
static ssize_t ex_inject(struct fid_ep* ep, const void* buf, size_t len, fi_addr_t dest) {
  (void)dest;
  const struct iovec iov = {(void*)buf, len};
  return post(ep, EX_SEND, &iov, 1, 0, NULL, NULL, FI_INJECT, false);
}
static ssize_t ex_senddata(struct fid_ep* ep, const void* buf, size_t len, void* desc, uint64_t data,
                           fi_addr_t dest, void* context) {
  (void)desc, (void)dest;
  const struct iovec iov = {(void*)buf, len};
  return post(ep, EX_SEND, &iov, 1, data, NULL, context, ((struct ex_ep*)ep)->tx_flags | FI_REMOTE_CQ_DATA,
              true);
}
static ssize_t ex_injectdata(struct fid_ep* ep, const void* buf, size_t len, uint64_t data, fi_addr_t dest) {
  (void)dest;
  const struct iovec iov = {(void*)buf, len};
  return post(ep, EX_SEND, &iov, 1, data, NULL, NULL, FI_INJECT | FI_REMOTE_CQ_DATA, false);
}

struct fi_ops_msg ex_msg_ops = {sizeof(struct fi_ops_msg),
                                ex_recv,
                                ex_recvv,
                                ex_recvmsg,
                                ex_send,
                                ex_sendv,
                                ex_sendmsg,
                                ex_inject,
                                ex_senddata,
                                ex_injectdata};

static ssize_t post_rma(struct fid_ep* ep, enum ex_kind kind, const struct iovec* iov, size_t count,
                        uint64_t addr, uint64_t key, void* context) {
  const struct fi_rma_iov target = {addr, total(iov, count), key};
  return post(ep, kind, iov, count, 0, &target, context, ((struct ex_ep*)ep)->tx_flags, true);
}
// Remote data with a write would need a receive to report it at the target; that is left out here.
static ssize_t post_rma_msg(struct fid_ep* ep, enum ex_kind kind, const struct fi_msg_rma* msg,
                            uint64_t flags) {
  if (flags & FI_REMOTE_CQ_DATA) return -FI_ENOSYS;
  if (msg->rma_iov_count != 1) return -FI_EINVAL;
  return post(ep, kind, msg->msg_iov, msg->iov_count, 0, msg->rma_iov, msg->context, flags, true);
}

static ssize_t ex_readv(struct fid_ep* ep, const struct iovec* iov, void** desc, size_t count,
                        fi_addr_t source, uint64_t addr, uint64_t key, void* context) {
  (void)desc, (void)source;
  return post_rma(ep, EX_READ, iov, count, addr, key, context);
}
static ssize_t ex_read(struct fid_ep* ep, void* buf, size_t len, void* desc, fi_addr_t source, uint64_t addr,
                       uint64_t key, void* context) {
  const struct iovec iov = {buf, len};
  return ex_readv(ep, &iov, &desc, 1, source, addr, key, context);
}
static ssize_t ex_readmsg(struct fid_ep* ep, const struct fi_msg_rma* msg, uint64_t flags) {
  return post_rma_msg(ep, EX_READ, msg, flags);
}
static ssize_t ex_writev(struct fid_ep* ep, const struct iovec* iov, void** desc, size_t count,
                         fi_addr_t dest, uint64_t addr, uint64_t key, void* context) {
  (void)desc, (void)dest;
  return post_rma(ep, EX_WRITE, iov, count, addr, key, context);
}
static ssize_t ex_write(struct fid_ep* ep, const void* buf, size_t len, void* desc, fi_addr_t dest,
                        uint64_t addr, uint64_t key, void* context) {
  const struct iovec iov = {(void*)buf, len};
  return ex_writev(ep, &iov, &desc, 1, dest, addr, key, context);
}
static ssize_t ex_writemsg(struct fid_ep* ep, const struct fi_msg_rma* msg, uint64_t flags) {
  return post_rma_msg(ep, EX_WRITE, msg, flags);
}
static ssize_t ex_inject_write(struct fid_ep* ep, const void* buf, size_t len, fi_addr_t dest, uint64_t addr,
                               uint64_t key) {
  (void)dest;
  const struct iovec iov = {(void*)buf, len};
  const struct fi_rma_iov target = {addr, len, key};
  return post(ep, EX_WRITE, &iov, 1, 0, &target, NULL, FI_INJECT, false);
}
static ssize_t ex_writedata(struct fid_ep* ep, const void* buf, size_t len, void* desc, uint64_t data,
                            fi_addr_t dest, uint64_t addr, uint64_t key, void* context) {
  (void)ep, (void)buf, (void)len, (void)desc, (void)data, (void)dest, (void)addr, (void)key, (void)context;
  return -FI_ENOSYS;
}
static ssize_t ex_inject_writedata(struct fid_ep* ep, const void* buf, size_t len, uint64_t data,
                                   fi_addr_t dest, uint64_t addr, uint64_t key) {
  (void)ep, (void)buf, (void)len, (void)data, (void)dest, (void)addr, (void)key;
  return -FI_ENOSYS;
}

struct fi_ops_rma ex_rma_ops = {
    sizeof(struct fi_ops_rma), ex_read,      ex_readv,           ex_readmsg, ex_write, ex_writev, ex_writemsg,
    ex_inject_write,           ex_writedata, ex_inject_writedata};
