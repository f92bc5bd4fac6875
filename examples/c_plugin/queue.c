// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Completion queues and event queues: fi_cq(3), fi_eq(3). Each has an epoll set with the sockets that are bound to it; reading the queue
// lets those move that are ready. The same set is the wait object.
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "example.h"

void ex_push(struct ex_list* list, struct ex_op* op) {
  op->next = NULL;
  if (list->first == NULL) list->first = op;
  else list->last->next = op;
  list->last = op;
}

struct ex_op* ex_pop(struct ex_list* list) {
  struct ex_op* op = list->first;
  if (op != NULL) list->first = op->next;
  return op;
}

void ex_watch(int epoll, struct ex_source* source, uint32_t events) {
  struct epoll_event event = {.events = events, .data.ptr = source};
  if (events == 0) epoll_ctl(epoll, EPOLL_CTL_DEL, source->fd, NULL);
  else if (epoll_ctl(epoll, EPOLL_CTL_MOD, source->fd, &event) != 0)
    epoll_ctl(epoll, EPOLL_CTL_ADD, source->fd, &event);
}

// A source that is ready may close itself, but no other one: so what stands in `events` stays valid.
static void move_sources(int epoll) {
  struct epoll_event events[EX_EVENTS_MAX];
  const int count = epoll_wait(epoll, events, EX_EVENTS_MAX, 0);
  for (int i = 0; i < count; ++i) {
    struct ex_source* source = events[i].data.ptr;
    source->ready(source);
  }
}

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// Sleeps on the set until `until` (negative: for ever), in slices, since another thread may have taken what there was. False: time is up.
static bool sleep_on(int epoll, int64_t until) {
  int64_t left = 100;
  if (until >= 0) {
    left = until - now_ms();
    if (left <= 0) return false;
    if (left > 100) left = 100;
  }
  struct pollfd fd = {.fd = epoll, .events = POLLIN};
  poll(&fd, 1, (int)left);
  return true;
}

static int get_wait(int epoll, int command, void* arg) {
  if (command != FI_GETWAIT) return -FI_ENOSYS;
  *(int*)arg = epoll;
  return 0;
}

static bool wait_kind_known(enum fi_wait_obj kind) {
  return kind == FI_WAIT_NONE || kind == FI_WAIT_UNSPEC || kind == FI_WAIT_FD;
}

// --- completion queues ---

void ex_report(struct ex_cq* cq, struct ex_op* op) {
  if (cq == NULL || (!op->report && op->error == 0)) ex_op_free(op);
  else ex_push(&cq->done, op);
}

// The endpoint goes, and its operations with it. What ended well is still news: it stays as a copy that belongs to nobody.
void ex_forget(struct ex_cq* cq, struct ex_ep* ep) {
  if (cq == NULL) return;
  struct ex_list all = cq->done;
  cq->done.first = NULL;
  for (struct ex_op *op = ex_pop(&all), *next; op != NULL; op = next) {
    next = ex_pop(&all);
    struct ex_op* kept = op;
    if (op->ep == ep) {
      kept = op->error == 0 ? malloc(sizeof *op) : NULL;
      if (kept == NULL) continue;
      *kept = *op;
      kept->ep = NULL;
    }
    ex_push(&cq->done, kept);
  }
}

static size_t entry_bytes(enum fi_cq_format format) {
  switch (format) {
    case FI_CQ_FORMAT_CONTEXT:
      return sizeof(struct fi_cq_entry);
    case FI_CQ_FORMAT_MSG:
      return sizeof(struct fi_cq_msg_entry);
    case FI_CQ_FORMAT_DATA:
      return sizeof(struct fi_cq_data_entry);
    default:
      return sizeof(struct fi_cq_tagged_entry);
  }
}

static ssize_t take_done(struct ex_cq* cq, char* out, size_t count) {
  size_t taken = 0;
  while (taken < count && cq->done.first != NULL) {
    if (cq->done.first->error != 0) {
      if (taken == 0) return -FI_EAVAIL;
      break;
    }
    struct ex_op* op = ex_pop(&cq->done);
    // Every smaller format is the beginning of this one.
    const struct fi_cq_tagged_entry entry = {.op_context = op->context,
                                             .flags = op->comp_flags,
                                             .len = op->length,
                                             .buf = NULL,
                                             .data = op->data,
                                             .tag = 0};
    memcpy(out, &entry, entry_bytes(cq->format));
    out += entry_bytes(cq->format);
    taken++;
    ex_op_free(op);
  }
  return taken > 0 ? (ssize_t)taken : -FI_EAGAIN;
}

static ssize_t cq_sread(struct fid_cq* fid, void* buf, size_t count, const void* condition, int timeout) {
  struct ex_cq* cq = (struct ex_cq*)fid;
  const int64_t until = timeout < 0 ? -1 : now_ms() + timeout;
  (void)condition;
  while (true) {
    pthread_mutex_lock(&cq->domain->fabric->lock);
    ssize_t taken = cq->done.first != NULL ? take_done(cq, buf, count) : -FI_EAGAIN;
    if (taken == -FI_EAGAIN) {
      move_sources(cq->epoll);
      taken = take_done(cq, buf, count);
    }
    pthread_mutex_unlock(&cq->domain->fabric->lock);
    if (taken != -FI_EAGAIN || timeout == 0 || !sleep_on(cq->epoll, until)) return taken;
  }
}
static ssize_t cq_read(struct fid_cq* cq, void* buf, size_t count) {
  return cq_sread(cq, buf, count, NULL, 0);
}
static ssize_t cq_sreadfrom(struct fid_cq* cq, void* buf, size_t count, fi_addr_t* source,
                            const void* condition, int timeout) {
  const ssize_t taken = cq_sread(cq, buf, count, condition, timeout);
  for (ssize_t i = 0; source != NULL && i < taken; ++i) source[i] = FI_ADDR_NOTAVAIL;
  return taken;
}
static ssize_t cq_readfrom(struct fid_cq* cq, void* buf, size_t count, fi_addr_t* source) {
  return cq_sreadfrom(cq, buf, count, source, NULL, 0);
}

static ssize_t cq_readerr(struct fid_cq* fid, struct fi_cq_err_entry* entry, uint64_t flags) {
  struct ex_cq* cq = (struct ex_cq*)fid;
  (void)flags;
  pthread_mutex_lock(&cq->domain->fabric->lock);
  struct ex_op* op = cq->done.first;
  if (op != NULL && op->error == 0) op = NULL;
  if (op != NULL) {
    ex_pop(&cq->done);
    entry->op_context = op->context;
    entry->flags = op->comp_flags;
    entry->len = op->length;
    entry->buf = NULL;
    entry->data = op->data;
    entry->tag = 0;
    entry->olen = op->over;
    entry->err = op->error;
    entry->prov_errno = op->error;
    entry->err_data_size = 0;
    ex_op_free(op);
  }
  pthread_mutex_unlock(&cq->domain->fabric->lock);
  return op != NULL ? 1 : -FI_EAGAIN;
}

static int cq_signal(struct fid_cq* cq) {
  (void)cq;
  return -FI_ENOSYS;
}
static const char* cq_strerror(struct fid_cq* cq, int prov_errno, const void* err_data, char* buf,
                               size_t len) {
  (void)cq, (void)err_data;
  const char* text = fi_strerror(prov_errno);
  if (buf != NULL && len > 0) {
    strncpy(buf, text, len - 1);
    buf[len - 1] = 0;
  }
  return text;
}

static int cq_control(struct fid* fid, int command, void* arg) {
  return get_wait(((struct ex_cq*)fid)->epoll, command, arg);
}

static int cq_close(struct fid* fid) {
  struct ex_cq* cq = (struct ex_cq*)fid;
  pthread_mutex_lock(&cq->domain->fabric->lock);
  const bool busy = cq->users != 0;
  if (!busy) cq->domain->users--;
  pthread_mutex_unlock(&cq->domain->fabric->lock);
  if (busy) return -FI_EBUSY;
  for (struct ex_op* op = ex_pop(&cq->done); op != NULL; op = ex_pop(&cq->done)) ex_op_free(op);
  close(cq->epoll);
  free(cq);
  return 0;
}

static struct fi_ops cq_fid_ops = {sizeof(struct fi_ops), cq_close, ex_no_bind, cq_control,
                                   ex_no_ops_open,        NULL,     NULL};
static struct fi_ops_cq cq_ops = {sizeof(struct fi_ops_cq),
                                  cq_read,
                                  cq_readfrom,
                                  cq_readerr,
                                  cq_sread,
                                  cq_sreadfrom,
                                  cq_signal,
                                  cq_strerror};

int ex_cq_open(struct fid_domain* domain, struct fi_cq_attr* attr, struct fid_cq** out, void* context) {
  if (!wait_kind_known(attr->wait_obj)) {
    EX_WARN(FI_LOG_CQ, "wait objects are descriptors here\n");
    return -FI_ENOSYS;
  }
  struct ex_cq* cq = calloc(1, sizeof *cq);
  if (cq == NULL) return -FI_ENOMEM;
  cq->domain = (struct ex_domain*)domain;
  cq->format = attr->format == FI_CQ_FORMAT_UNSPEC ? FI_CQ_FORMAT_CONTEXT : attr->format;
  cq->epoll = epoll_create1(EPOLL_CLOEXEC);
  if (cq->epoll < 0) {
    free(cq);
    return -errno;
  }
  cq->fid.fid = (struct fid){.fclass = FI_CLASS_CQ, .context = context, .ops = &cq_fid_ops};
  cq->fid.ops = &cq_ops;
  pthread_mutex_lock(&cq->domain->fabric->lock);
  cq->domain->users++;
  pthread_mutex_unlock(&cq->domain->fabric->lock);
  *out = &cq->fid;
  return 0;
}

// --- event queues ---

static struct ex_event* event_new(struct ex_eq* eq) {
  struct ex_event* event = eq != NULL ? calloc(1, sizeof *event) : NULL;
  if (event == NULL) return NULL;
  if (eq->first == NULL) eq->first = event;
  else eq->last->next = event;
  eq->last = event;
  return event;
}

struct ex_event* ex_event_add(struct ex_eq* eq, uint32_t kind, struct fid* fid) {
  struct ex_event* event = event_new(eq);
  if (event == NULL) return NULL;
  event->event = kind;
  event->entry.fid = fid;
  return event;
}

struct ex_event* ex_event_fail(struct ex_eq* eq, struct fid* fid, int error) {
  struct ex_event* event = event_new(eq);
  if (event == NULL) return NULL;
  event->failed = true;
  event->error.fid = fid;
  event->error.context = fid->context;
  event->error.err = error;
  event->error.prov_errno = error;
  return event;
}

static void drop_first(struct ex_eq* eq) {
  struct ex_event* event = eq->first;
  eq->first = event->next;
  free(event);
}

void ex_event_forget(struct ex_eq* eq, struct fid* fid) {
  if (eq == NULL) return;
  struct ex_event* event = eq->first;
  eq->first = NULL;
  while (event != NULL) {
    struct ex_event* next = event->next;
    event->next = NULL;
    if ((event->failed ? event->error.fid : event->entry.fid) == fid) {
      if (event->event == FI_CONNREQ) fi_freeinfo(event->entry.info);
      free(event);
    } else {
      if (eq->first == NULL) eq->first = event;
      else eq->last->next = event;
      eq->last = event;
    }
    event = next;
  }
}

static ssize_t take_event(struct ex_eq* eq, uint32_t* kind, void* buf, size_t room, uint64_t flags) {
  struct ex_event* event = eq->first;
  if (event == NULL) return -FI_EAGAIN;
  if (event->failed) return -FI_EAVAIL;
  const size_t size = sizeof(struct fi_eq_cm_entry) + event->data_length;
  if (room < sizeof(struct fi_eq_cm_entry)) return -FI_ETOOSMALL;
  *kind = event->event;
  memcpy(buf, &event->entry, sizeof(struct fi_eq_cm_entry));
  const size_t data = size <= room ? event->data_length : room - sizeof(struct fi_eq_cm_entry);
  memcpy((char*)buf + sizeof(struct fi_eq_cm_entry), event->data, data);
  if (!(flags & FI_PEEK)) drop_first(eq);
  return (ssize_t)(sizeof(struct fi_eq_cm_entry) + data);
}

static ssize_t eq_sread(struct fid_eq* fid, uint32_t* event, void* buf, size_t len, int timeout,
                        uint64_t flags) {
  struct ex_eq* eq = (struct ex_eq*)fid;
  const int64_t until = timeout < 0 ? -1 : now_ms() + timeout;
  while (true) {
    pthread_mutex_lock(&eq->fabric->lock);
    move_sources(eq->epoll);
    const ssize_t size = take_event(eq, event, buf, len, flags);
    pthread_mutex_unlock(&eq->fabric->lock);
    if (size != -FI_EAGAIN || timeout == 0 || !sleep_on(eq->epoll, until)) return size;
  }
}
static ssize_t eq_read(struct fid_eq* eq, uint32_t* event, void* buf, size_t len, uint64_t flags) {
  return eq_sread(eq, event, buf, len, 0, flags);
}

static ssize_t eq_readerr(struct fid_eq* fid, struct fi_eq_err_entry* out, uint64_t flags) {
  struct ex_eq* eq = (struct ex_eq*)fid;
  ssize_t size = -FI_EAGAIN;
  pthread_mutex_lock(&eq->fabric->lock);
  const struct ex_event* event = eq->first;
  if (event != NULL && event->failed) {
    void* room = out->err_data;
    const size_t room_size = out->err_data_size;
    *out = event->error;
    memcpy(eq->err_data, event->data, event->data_length);
    out->err_data_size = event->data_length;
    // fi_eq(3): a caller without room of its own sees ours, until it reads again.
    if (room_size == 0) {
      out->err_data = eq->err_data;
    } else {
      out->err_data = room;
      if (out->err_data_size > room_size) out->err_data_size = room_size;
      memcpy(room, eq->err_data, out->err_data_size);
    }
    if (!(flags & FI_PEEK)) drop_first(eq);
    size = sizeof *out;
  }
  pthread_mutex_unlock(&eq->fabric->lock);
  return size;
}

static ssize_t eq_write(struct fid_eq* eq, uint32_t event, const void* buf, size_t len, uint64_t flags) {
  (void)eq, (void)event, (void)buf, (void)len, (void)flags;
  return -FI_ENOSYS;
}
static const char* eq_strerror(struct fid_eq* eq, int prov_errno, const void* err_data, char* buf,
                               size_t len) {
  (void)eq;
  return cq_strerror(NULL, prov_errno, err_data, buf, len);
}

static int eq_control(struct fid* fid, int command, void* arg) {
  return get_wait(((struct ex_eq*)fid)->epoll, command, arg);
}

static int eq_close(struct fid* fid) {
  struct ex_eq* eq = (struct ex_eq*)fid;
  pthread_mutex_lock(&eq->fabric->lock);
  const bool busy = eq->users != 0;
  if (!busy) eq->fabric->users--;
  pthread_mutex_unlock(&eq->fabric->lock);
  if (busy) return -FI_EBUSY;
  while (eq->first != NULL) {
    if (eq->first->entry.info != NULL && eq->first->event == FI_CONNREQ) fi_freeinfo(eq->first->entry.info);
    drop_first(eq);
  }
  close(eq->epoll);
  free(eq);
  return 0;
}

static struct fi_ops eq_fid_ops = {sizeof(struct fi_ops), eq_close, ex_no_bind, eq_control,
                                   ex_no_ops_open,        NULL,     NULL};
static struct fi_ops_eq eq_ops = {
    sizeof(struct fi_ops_eq), eq_read, eq_readerr, eq_write, eq_sread, eq_strerror};

int ex_eq_open(struct fid_fabric* fabric, struct fi_eq_attr* attr, struct fid_eq** out, void* context) {
  if (!wait_kind_known(attr->wait_obj)) {
    EX_WARN(FI_LOG_EQ, "wait objects are descriptors here\n");
    return -FI_ENOSYS;
  }
  struct ex_eq* eq = calloc(1, sizeof *eq);
  if (eq == NULL) return -FI_ENOMEM;
  eq->fabric = (struct ex_fabric*)fabric;
  eq->epoll = epoll_create1(EPOLL_CLOEXEC);
  if (eq->epoll < 0) {
    free(eq);
    return -errno;
  }
  eq->fid.fid = (struct fid){.fclass = FI_CLASS_EQ, .context = context, .ops = &eq_fid_ops};
  eq->fid.ops = &eq_ops;
  pthread_mutex_lock(&eq->fabric->lock);
  eq->fabric->users++;
  pthread_mutex_unlock(&eq->fabric->lock);
  *out = &eq->fid;
  return 0;
}

// fi_poll(3): 0 when it is safe to sleep on the descriptors. They are level-triggered, so only what is in the queues already counts.
int ex_trywait(struct fid_fabric* fid, struct fid** fids, int count) {
  struct ex_fabric* fabric = (struct ex_fabric*)fid;
  int status = 0;
  pthread_mutex_lock(&fabric->lock);
  for (int i = 0; i < count && status == 0; ++i) {
    if (fids[i]->fclass == FI_CLASS_CQ)
      status = ((struct ex_cq*)fids[i])->done.first != NULL ? -FI_EAGAIN : 0;
    else if (fids[i]->fclass == FI_CLASS_EQ)
      status = ((struct ex_eq*)fids[i])->first != NULL ? -FI_EAGAIN : 0;
    else status = -FI_ENOSYS;
  }
  pthread_mutex_unlock(&fabric->lock);
  return status;
}
