// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Endpoints, passive endpoints and how two of them come together: fi_endpoint(3), fi_cm(3).
//
// Over the TCP connection each side first says a greeting with the program's parameters; then frames follow (transfer.c).
//   connecting side: EX_NEW -> EX_CONNECTING (TCP) -> EX_GREETING (awaits the answer) -> EX_CONNECTED
//   passive side:    a request reads the greeting -> FI_CONNREQ -> endpoint EX_ACCEPTING -> fi_accept -> EX_CONNECTED
//   either:          -> EX_DOWN
#define _GNU_SOURCE  // accept4
#include <endian.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "example.h"

#define CONTAINER(pointer, type, member) ((type*)((char*)(pointer)-offsetof(type, member)))

// --- greetings ---

static void greeting_fill(struct ex_greeting* greeting, uint32_t answer, const void* param, size_t length) {
  memcpy(greeting->magic, "exa1", 4);
  greeting->answer = htole32(answer);
  greeting->length = htole32((uint32_t)length);
  if (length > 0) memcpy(greeting->data, param, length);
}

// The buffer of a fresh socket is empty, so a greeting goes out whole or not at all.
static bool greeting_send(int fd, uint32_t answer, const void* param, size_t length) {
  struct ex_greeting greeting;
  greeting_fill(&greeting, answer, param, length);
  const ssize_t size = (ssize_t)(EX_GREETING_HEAD + length);
  return send(fd, &greeting, (size_t)size, MSG_NOSIGNAL) == size;
}

// 1: it is there; 0: not yet; -1: the other side is gone or speaks something else.
static int greeting_read(int fd, struct ex_greeting* greeting, size_t* have) {
  while (true) {
    size_t want = EX_GREETING_HEAD;
    if (*have >= EX_GREETING_HEAD) {
      if (memcmp(greeting->magic, "exa1", 4) != 0 || le32toh(greeting->length) > EX_CM_DATA_MAX) return -1;
      want += le32toh(greeting->length);
      if (*have == want) return 1;
    }
    const ssize_t got = recv(fd, (char*)greeting + *have, want - *have, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (got <= 0) return -1;
    *have += (size_t)got;
  }
}

static void no_delay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// --- requests: connections that came to a passive endpoint ---

static void request_free(struct ex_request* request) {
  if (request->pep != NULL) {
    struct ex_request** place = &request->pep->requests;
    while (*place != request) place = &(*place)->next;
    *place = request->next;
  }
  if (request->source.fd >= 0) close(request->source.fd);
  free(request);
}

static void request_ready(struct ex_source* source) {
  struct ex_request* request = CONTAINER(source, struct ex_request, source);
  struct ex_pep* pep = request->pep;
  const int status = greeting_read(source->fd, &request->greeting, &request->have);
  if (status == 0) return;
  struct fi_info* info = status > 0 ? fi_dupinfo(pep->info) : NULL;
  struct sockaddr_in peer, own;
  socklen_t length = sizeof peer;
  if (info == NULL || getpeername(source->fd, (struct sockaddr*)&peer, &length) != 0) goto drop;
  length = sizeof own;
  if (getsockname(source->fd, (struct sockaddr*)&own, &length) != 0) goto drop;
  free(info->src_addr);
  free(info->dest_addr);
  info->src_addr = malloc(sizeof own);
  info->dest_addr = malloc(sizeof peer);
  if (info->src_addr == NULL || info->dest_addr == NULL) goto drop;
  memcpy(info->src_addr, &own, sizeof own);
  memcpy(info->dest_addr, &peer, sizeof peer);
  info->src_addrlen = info->dest_addrlen = sizeof peer;
  info->handle = &request->fid;
  struct ex_event* event = ex_event_add(pep->eq, FI_CONNREQ, &pep->fid.fid);
  if (event == NULL) goto drop;
  event->entry.info = info;
  event->data_length = le32toh(request->greeting.length);
  memcpy(event->data, request->greeting.data, event->data_length);
  ex_watch(pep->eq->epoll, source, 0);  // nothing more is read until somebody accepts
  return;
drop:
  if (info != NULL) fi_freeinfo(info);
  ex_watch(pep->eq->epoll, source, 0);
  request_free(request);
}

// --- passive endpoints ---

static void pep_ready(struct ex_source* source) {
  struct ex_pep* pep = CONTAINER(source, struct ex_pep, source);
  while (true) {
    const int fd = accept4(source->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    struct ex_request* request = calloc(1, sizeof *request);
    if (request == NULL) {
      close(fd);
      return;
    }
    no_delay(fd);
    request->fid.fclass = FI_CLASS_CONNREQ;
    request->source = (struct ex_source){request_ready, fd};
    request->pep = pep;
    request->next = pep->requests;
    pep->requests = request;
    ex_watch(pep->eq->epoll, &request->source, EPOLLIN);
  }
}

static int pep_bind(struct fid* fid, struct fid* other, uint64_t flags) {
  struct ex_pep* pep = (struct ex_pep*)fid;
  if (other->fclass != FI_CLASS_EQ || flags != 0 || pep->eq != NULL) return -FI_EINVAL;
  pthread_mutex_lock(&pep->fabric->lock);
  pep->eq = (struct ex_eq*)other;
  pep->eq->users++;
  pthread_mutex_unlock(&pep->fabric->lock);
  return 0;
}

static int pep_set_address(struct ex_pep* pep, const void* addr, size_t length) {
  if (length < sizeof(struct sockaddr_in) || ((const struct sockaddr_in*)addr)->sin_family != AF_INET)
    return -FI_EINVAL;
  const int on = 1;
  setsockopt(pep->source.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  return bind(pep->source.fd, addr, sizeof(struct sockaddr_in)) == 0 ? 0 : -errno;
}

static int pep_setname(struct fid* fid, void* addr, size_t length) {
  return pep_set_address((struct ex_pep*)fid, addr, length);
}

static int socket_name(int fd, int (*ask)(int, struct sockaddr*, socklen_t*), void* addr, size_t* room) {
  struct sockaddr_in name;
  socklen_t length = sizeof name;
  if (ask(fd, (struct sockaddr*)&name, &length) != 0) return -errno;
  const size_t given = *room;
  *room = sizeof name;
  memcpy(addr, &name, given < sizeof name ? given : sizeof name);
  return given < sizeof name ? -FI_ETOOSMALL : 0;
}

// Whoever listens on every address of the machine is told one that others can reach.
static int pep_getname(struct fid* fid, void* addr, size_t* length) {
  const int status = socket_name(((struct ex_pep*)fid)->source.fd, getsockname, addr, length);
  struct sockaddr_in* name = addr;
  struct sockaddr_in own;
  if (status != 0 || name->sin_addr.s_addr != htonl(INADDR_ANY)) return status;
  if (ex_source_address(NULL, &own) == 0) name->sin_addr = own.sin_addr;
  return 0;
}

static int pep_listen(struct fid_pep* fid) {
  struct ex_pep* pep = (struct ex_pep*)fid;
  if (pep->eq == NULL) return -FI_ENOEQ;
  if (listen(pep->source.fd, SOMAXCONN) != 0) return -errno;
  pthread_mutex_lock(&pep->fabric->lock);
  pep->listening = true;
  ex_watch(pep->eq->epoll, &pep->source, EPOLLIN);
  pthread_mutex_unlock(&pep->fabric->lock);
  return 0;
}

static int pep_reject(struct fid_pep* fid, struct fid* handle, const void* param, size_t length) {
  struct ex_pep* pep = (struct ex_pep*)fid;
  if (handle == NULL || handle->fclass != FI_CLASS_CONNREQ || length > EX_CM_DATA_MAX) return -FI_EINVAL;
  struct ex_request* request = CONTAINER(handle, struct ex_request, fid);
  pthread_mutex_lock(&pep->fabric->lock);
  greeting_send(request->source.fd, EX_ANSWER_NO, param, length);
  request_free(request);
  pthread_mutex_unlock(&pep->fabric->lock);
  return 0;
}

static int pep_close(struct fid* fid) {
  struct ex_pep* pep = (struct ex_pep*)fid;
  pthread_mutex_lock(&pep->fabric->lock);
  while (pep->requests != NULL) request_free(pep->requests);
  ex_event_forget(pep->eq, &pep->fid.fid);
  close(pep->source.fd);
  if (pep->eq != NULL) pep->eq->users--;
  pep->fabric->users--;
  pthread_mutex_unlock(&pep->fabric->lock);
  fi_freeinfo(pep->info);
  free(pep);
  return 0;
}

static int no_connect(struct fid_ep* ep, const void* addr, const void* param, size_t length) {
  (void)ep, (void)addr, (void)param, (void)length;
  return -FI_ENOSYS;
}
static int no_getpeer(struct fid_ep* ep, void* addr, size_t* length) {
  (void)ep, (void)addr, (void)length;
  return -FI_ENOSYS;
}
static int no_listen(struct fid_pep* pep) {
  (void)pep;
  return -FI_ENOSYS;
}
static int no_accept(struct fid_ep* ep, const void* param, size_t length) {
  (void)ep, (void)param, (void)length;
  return -FI_ENOSYS;
}
static int no_reject(struct fid_pep* pep, fid_t handle, const void* param, size_t length) {
  (void)pep, (void)handle, (void)param, (void)length;
  return -FI_ENOSYS;
}
static int no_shutdown(struct fid_ep* ep, uint64_t flags) {
  (void)ep, (void)flags;
  return -FI_ENOSYS;
}
static int no_join(struct fid_ep* ep, const void* addr, uint64_t flags, struct fid_mc** mc, void* context) {
  (void)ep, (void)addr, (void)flags, (void)mc, (void)context;
  return -FI_ENOSYS;
}

static int getopt_cm(fid_t fid, int level, int name, void* value, size_t* length) {
  (void)fid;
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE) return -FI_ENOPROTOOPT;
  if (*length < sizeof(size_t)) return -FI_ETOOSMALL;
  *length = sizeof(size_t);
  *(size_t*)value = EX_CM_DATA_MAX;
  return 0;
}
static int no_setopt(fid_t fid, int level, int name, const void* value, size_t length) {
  (void)fid, (void)level, (void)name, (void)value, (void)length;
  return -FI_ENOPROTOOPT;
}
static ssize_t no_cancel(fid_t fid, void* context) {
  (void)fid, (void)context;
  return -FI_ENOENT;
}
static int no_tx_ctx(struct fid_ep* ep, int index, struct fi_tx_attr* attr, struct fid_ep** tx,
                     void* context) {
  (void)ep, (void)index, (void)attr, (void)tx, (void)context;
  return -FI_ENOSYS;
}
static int no_rx_ctx(struct fid_ep* ep, int index, struct fi_rx_attr* attr, struct fid_ep** rx,
                     void* context) {
  (void)ep, (void)index, (void)attr, (void)rx, (void)context;
  return -FI_ENOSYS;
}
static ssize_t no_size_left(struct fid_ep* ep) {
  (void)ep;
  return -FI_ENOSYS;
}

static struct fi_ops pep_fid_ops = {sizeof(struct fi_ops), pep_close, pep_bind, ex_no_control,
                                    ex_no_ops_open,        NULL,      NULL};
static struct fi_ops_ep pep_ops = {sizeof(struct fi_ops_ep),
                                   no_cancel,
                                   getopt_cm,
                                   no_setopt,
                                   no_tx_ctx,
                                   no_rx_ctx,
                                   no_size_left,
                                   no_size_left};
static struct fi_ops_cm pep_cm_ops = {sizeof(struct fi_ops_cm),
                                      pep_setname,
                                      pep_getname,
                                      no_getpeer,
                                      no_connect,
                                      pep_listen,
                                      no_accept,
                                      pep_reject,
                                      no_shutdown,
                                      no_join};

int ex_passive_ep(struct fid_fabric* fabric, struct fi_info* info, struct fid_pep** out, void* context) {
  struct ex_pep* pep = calloc(1, sizeof *pep);
  if (pep == NULL) return -FI_ENOMEM;
  int status = -FI_ENOMEM;
  pep->fabric = (struct ex_fabric*)fabric;
  pep->info = fi_dupinfo(info);
  if (pep->info == NULL) goto failed;
  pep->source = (struct ex_source){pep_ready, socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (pep->source.fd < 0) {
    status = -errno;
    goto failed;
  }
  if (info->src_addr != NULL) {
    status = pep_set_address(pep, info->src_addr, info->src_addrlen);
    if (status != 0) {
      EX_WARN(FI_LOG_EP_CTRL, "no passive endpoint: bind: %s\n", strerror(-status));
      close(pep->source.fd);
      goto failed;
    }
  }
  pep->fid.fid = (struct fid){.fclass = FI_CLASS_PEP, .context = context, .ops = &pep_fid_ops};
  pep->fid.ops = &pep_ops;
  pep->fid.cm = &pep_cm_ops;
  pthread_mutex_lock(&pep->fabric->lock);
  pep->fabric->users++;
  pthread_mutex_unlock(&pep->fabric->lock);
  *out = &pep->fid;
  return 0;
failed:
  fi_freeinfo(pep->info);
  free(pep);
  return status;
}

// --- endpoints ---

static void set_watch(struct ex_ep* ep, uint32_t events) {
  if (events == ep->watching) return;
  ep->watching = events;
  if (ep->eq != NULL) ex_watch(ep->eq->epoll, &ep->source, events);
  if (ep->tx_cq != NULL) ex_watch(ep->tx_cq->epoll, &ep->source, events);
  if (ep->rx_cq != NULL && ep->rx_cq != ep->tx_cq) ex_watch(ep->rx_cq->epoll, &ep->source, events);
}

void ex_ep_watch(struct ex_ep* ep) {
  switch (ep->state) {
    case EX_CONNECTING:
      set_watch(ep, EPOLLOUT);
      break;
    case EX_GREETING:
      set_watch(ep, EPOLLIN);
      break;
    case EX_CONNECTED:
      // A message that nobody has posted a receive for stays in the socket: that is how the sender learns to wait.
      set_watch(ep, (ep->in_stalled ? (uint32_t)EPOLLPRI : (uint32_t)EPOLLIN) |
                        (ep->sending.first != NULL ? (uint32_t)EPOLLOUT : 0u));
      break;
    default:
      set_watch(ep, 0);
  }
}

static void fail_all(struct ex_cq* cq, struct ex_list* list, int error) {
  for (struct ex_op* op = ex_pop(list); op != NULL; op = ex_pop(list)) {
    if (op->head.kind == EX_REPLY || op->head.kind == EX_ACK) {
      ex_op_free(op);
      continue;
    }
    if ((op->head.kind == EX_WRITE || op->head.kind == EX_READ) && op->done > 0)
      op->ep->rma[le32toh(op->head.id) % EX_RMA_MAX] = NULL;
    op->error = error;
    ex_report(cq, op);
  }
}

// Everything that was posted ends with an error; the socket is closed with the endpoint.
void ex_ep_down(struct ex_ep* ep, bool announce) {
  if (ep->state == EX_DOWN) return;
  ep->state = EX_DOWN;
  set_watch(ep, 0);
  shutdown(ep->source.fd, SHUT_RDWR);
  if (ep->in_op != NULL && ep->in.kind == EX_SEND) {
    ep->in_op->error = FI_ECONNABORTED;
    ex_report(ep->rx_cq, ep->in_op);
  }
  ep->in_op = NULL;
  for (unsigned i = 0; i < EX_RMA_MAX; ++i) {
    struct ex_op* op = ep->rma[i];
    ep->rma[i] = NULL;
    if (op == NULL) continue;
    // One that is still being sent is found in `sending`, too; it ends once.
    bool queued = false;
    for (struct ex_op* other = ep->sending.first; other != NULL; other = other->next) queued |= other == op;
    if (queued) continue;
    op->error = FI_ECONNABORTED;
    ex_report(ep->tx_cq, op);
  }
  fail_all(ep->tx_cq, &ep->sending, FI_ECONNABORTED);
  fail_all(ep->rx_cq, &ep->posted, FI_ECANCELED);
  if (announce) ex_event_add(ep->eq, FI_SHUTDOWN, &ep->fid.fid);
}

static void connect_failed(struct ex_ep* ep, int error, const struct ex_greeting* answer) {
  ex_ep_down(ep, false);
  struct ex_event* event = ex_event_fail(ep->eq, &ep->fid.fid, error);
  if (event == NULL || answer == NULL) return;
  event->data_length = le32toh(answer->length);
  memcpy(event->data, answer->data, event->data_length);
}

static void ep_ready(struct ex_source* source) {
  struct ex_ep* ep = CONTAINER(source, struct ex_ep, source);
  int error = 0;
  socklen_t length = sizeof error;
  switch (ep->state) {
    case EX_CONNECTING:
      getsockopt(source->fd, SOL_SOCKET, SO_ERROR, &error, &length);
      if (error == 0 &&
          send(source->fd, &ep->greeting, EX_GREETING_HEAD + le32toh(ep->greeting.length), MSG_NOSIGNAL) < 0)
        error = errno;
      if (error != 0) {
        connect_failed(ep, error, NULL);
        return;
      }
      ep->state = EX_GREETING;
      ex_ep_watch(ep);
      return;
    case EX_GREETING: {
      const int status = greeting_read(source->fd, &ep->greeting, &ep->greeting_have);
      if (status == 0) return;
      if (status < 0 || ep->greeting.answer != 0) {
        connect_failed(ep, FI_ECONNREFUSED, status > 0 ? &ep->greeting : NULL);
        return;
      }
      ep->state = EX_CONNECTED;
      ex_ep_watch(ep);
      struct ex_event* event = ex_event_add(ep->eq, FI_CONNECTED, &ep->fid.fid);
      if (event == NULL) return;
      event->data_length = le32toh(ep->greeting.length);
      memcpy(event->data, ep->greeting.data, event->data_length);
      return;
    }
    case EX_CONNECTED:
      ex_ep_move(ep);
      return;
    default:
      return;
  }
}

static int ep_connect(struct fid_ep* fid, const void* addr, const void* param, size_t length) {
  struct ex_ep* ep = (struct ex_ep*)fid;
  const struct sockaddr_in* to = addr;
  if (to == NULL || to->sin_family != AF_INET || length > EX_CM_DATA_MAX) return -FI_EINVAL;
  if (ep->eq == NULL) return -FI_ENOEQ;
  if (!ep->enabled || ep->state != EX_NEW) return -FI_EOPBADSTATE;
  pthread_mutex_lock(&ep->domain->fabric->lock);
  int status = 0;
  if (ep->src_addr.sin_family == AF_INET &&
      bind(ep->source.fd, (struct sockaddr*)&ep->src_addr, sizeof ep->src_addr) != 0)
    status = -errno;
  if (status == 0 && connect(ep->source.fd, (const struct sockaddr*)to, sizeof *to) != 0 &&
      errno != EINPROGRESS)
    status = -errno;
  if (status == 0) {
    greeting_fill(&ep->greeting, 0, param, length);
    ep->greeting_have = 0;
    ep->state = EX_CONNECTING;
    ex_ep_watch(ep);
  }
  pthread_mutex_unlock(&ep->domain->fabric->lock);
  return status;
}

static int ep_accept(struct fid_ep* fid, const void* param, size_t length) {
  struct ex_ep* ep = (struct ex_ep*)fid;
  if (ep->state != EX_ACCEPTING || !ep->enabled || length > EX_CM_DATA_MAX) return -FI_EINVAL;
  pthread_mutex_lock(&ep->domain->fabric->lock);
  if (greeting_send(ep->source.fd, 0, param, length)) {
    ep->state = EX_CONNECTED;
    ex_ep_watch(ep);
    ex_event_add(ep->eq, FI_CONNECTED, &ep->fid.fid);
  } else {
    connect_failed(ep, FI_ECONNABORTED, NULL);
  }
  pthread_mutex_unlock(&ep->domain->fabric->lock);
  return 0;
}

static int ep_shutdown(struct fid_ep* fid, uint64_t flags) {
  struct ex_ep* ep = (struct ex_ep*)fid;
  if (flags != 0) return -FI_EINVAL;
  pthread_mutex_lock(&ep->domain->fabric->lock);
  ex_ep_down(ep, false);
  pthread_mutex_unlock(&ep->domain->fabric->lock);
  return 0;
}

static int ep_setname(struct fid* fid, void* addr, size_t length) {
  struct ex_ep* ep = (struct ex_ep*)fid;
  if (length < sizeof ep->src_addr) return -FI_EINVAL;
  memcpy(&ep->src_addr, addr, sizeof ep->src_addr);
  return 0;
}
static int ep_getname(struct fid* fid, void* addr, size_t* length) {
  return socket_name(((struct ex_ep*)fid)->source.fd, getsockname, addr, length);
}
static int ep_getpeer(struct fid_ep* fid, void* addr, size_t* length) {
  return socket_name(((struct ex_ep*)fid)->source.fd, getpeername, addr, length);
}

static int ep_bind(struct fid* fid, struct fid* other, uint64_t flags) {
  struct ex_ep* ep = (struct ex_ep*)fid;
  int status = 0;
  pthread_mutex_lock(&ep->domain->fabric->lock);
  if (other->fclass == FI_CLASS_EQ && ep->eq == NULL) {
    ep->eq = (struct ex_eq*)other;
    ep->eq->users++;
  } else if (other->fclass == FI_CLASS_CQ && (flags & (FI_TRANSMIT | FI_RECV))) {
    struct ex_cq* cq = (struct ex_cq*)other;
    if (flags & FI_TRANSMIT) {
      ep->tx_cq = cq;
      ep->tx_selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
      cq->users++;
    }
    if (flags & FI_RECV) {
      ep->rx_cq = cq;
      ep->rx_selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
      cq->users++;
    }
  } else {
    status = -FI_EINVAL;
  }
  pthread_mutex_unlock(&ep->domain->fabric->lock);
  return status;
}

static int ep_control(struct fid* fid, int command, void* arg) {
  struct ex_ep* ep = (struct ex_ep*)fid;
  (void)arg;
  if (command != FI_ENABLE) return -FI_ENOSYS;
  if (ep->tx_cq == NULL || ep->rx_cq == NULL) return -FI_ENOCQ;
  ep->enabled = true;
  return 0;
}

static ssize_t ep_cancel(fid_t fid, void* context) {
  struct ex_ep* ep = (struct ex_ep*)fid;
  ssize_t status = -FI_ENOENT;
  pthread_mutex_lock(&ep->domain->fabric->lock);
  struct ex_list all = ep->posted;
  ep->posted.first = NULL;
  for (struct ex_op* op = ex_pop(&all); op != NULL; op = ex_pop(&all)) {
    if (status == 0 || op->context != context) {
      ex_push(&ep->posted, op);
      continue;
    }
    op->error = FI_ECANCELED;
    ex_report(ep->rx_cq, op);
    status = 0;
  }
  pthread_mutex_unlock(&ep->domain->fabric->lock);
  return status;
}

static int ep_close(struct fid* fid) {
  struct ex_ep* ep = (struct ex_ep*)fid;
  pthread_mutex_t* lock = &ep->domain->fabric->lock;
  pthread_mutex_lock(lock);
  // What the socket has taken arrives; what it has not is lost, as fi_endpoint(3) allows.
  if (ep->state == EX_CONNECTED) ex_ep_move(ep);
  set_watch(ep, 0);
  ex_forget(ep->tx_cq, ep);
  ex_forget(ep->rx_cq, ep);
  ex_event_forget(ep->eq, &ep->fid.fid);
  close(ep->source.fd);
  if (ep->eq != NULL) ep->eq->users--;
  if (ep->tx_cq != NULL) ep->tx_cq->users--;
  if (ep->rx_cq != NULL) ep->rx_cq->users--;
  ep->domain->users--;
  pthread_mutex_unlock(lock);
  free(ep->ops);
  free(ep);
  return 0;
}

void ex_op_free(struct ex_op* op) {
  struct ex_ep* ep = op->ep;
  if (ep == NULL) {
    free(op);
    return;
  }
  op->error = 0;
  if (op->head.kind == EX_REPLY || op->head.kind == EX_ACK) ex_push(&ep->free_reply, op);
  else if (op->head.kind == 0) ex_push(&ep->free_rx, op);
  else ex_push(&ep->free_tx, op);
}

static struct fi_ops ep_fid_ops = {sizeof(struct fi_ops), ep_close, ep_bind, ep_control,
                                   ex_no_ops_open,        NULL,     NULL};
static struct fi_ops_ep ep_ops = {sizeof(struct fi_ops_ep),
                                  ep_cancel,
                                  getopt_cm,
                                  no_setopt,
                                  no_tx_ctx,
                                  no_rx_ctx,
                                  no_size_left,
                                  no_size_left};
static struct fi_ops_cm ep_cm_ops = {sizeof(struct fi_ops_cm),
                                     ep_setname,
                                     ep_getname,
                                     ep_getpeer,
                                     ep_connect,
                                     no_listen,
                                     ep_accept,
                                     no_reject,
                                     ep_shutdown,
                                     no_join};

static struct ex_op* give_ops(struct ex_ep* ep, struct ex_list* list, struct ex_op* op, size_t count) {
  for (; count > 0; --count, ++op) {
    op->ep = ep;
    ex_push(list, op);
  }
  return op;
}

int ex_endpoint(struct fid_domain* domain, struct fi_info* info, struct fid_ep** out, void* context) {
  if (info->ep_attr != NULL && info->ep_attr->type != FI_EP_UNSPEC && info->ep_attr->type != FI_EP_MSG)
    return -FI_ENOSYS;
  struct ex_request* request = NULL;
  if (info->handle != NULL) {
    if (info->handle->fclass != FI_CLASS_CONNREQ) return -FI_ENOSYS;
    request = CONTAINER(info->handle, struct ex_request, fid);
  }
  const size_t tx = info->tx_attr != NULL && info->tx_attr->size != 0 ? info->tx_attr->size : EX_SIZE_DEFAULT;
  const size_t rx = info->rx_attr != NULL && info->rx_attr->size != 0 ? info->rx_attr->size : EX_SIZE_DEFAULT;
  if (tx > EX_SIZE_MAX || rx > EX_SIZE_MAX) return -FI_EINVAL;
  struct ex_ep* ep = calloc(1, sizeof *ep);
  if (ep == NULL) return -FI_ENOMEM;
  ep->ops = calloc(tx + rx + EX_RMA_MAX, sizeof *ep->ops);
  if (ep->ops == NULL) {
    free(ep);
    return -FI_ENOMEM;
  }
  give_ops(ep, &ep->free_reply, give_ops(ep, &ep->free_rx, give_ops(ep, &ep->free_tx, ep->ops, tx), rx),
           EX_RMA_MAX);
  ep->domain = (struct ex_domain*)domain;
  ep->tx_flags = info->tx_attr != NULL ? info->tx_attr->op_flags : 0;
  ep->rx_flags = info->rx_attr != NULL ? info->rx_attr->op_flags : 0;
  ep->source.ready = ep_ready;
  ep->fid.fid = (struct fid){.fclass = FI_CLASS_EP, .context = context, .ops = &ep_fid_ops};
  ep->fid.ops = &ep_ops;
  ep->fid.cm = &ep_cm_ops;
  ep->fid.msg = &ex_msg_ops;
  ep->fid.rma = &ex_rma_ops;
  pthread_mutex_lock(&ep->domain->fabric->lock);
  if (request != NULL) {
    ep->source.fd = request->source.fd;
    request->source.fd = -1;
    request_free(request);
    ep->state = EX_ACCEPTING;
  } else {
    ep->source.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (ep->source.fd >= 0) no_delay(ep->source.fd);
    // A connection may leave from any port of the address that was asked for.
    if (info->src_addr != NULL && info->src_addrlen >= sizeof ep->src_addr) {
      memcpy(&ep->src_addr, info->src_addr, sizeof ep->src_addr);
      ep->src_addr.sin_port = 0;
    }
  }
  if (ep->source.fd >= 0) ep->domain->users++;
  pthread_mutex_unlock(&ep->domain->fabric->lock);
  if (ep->source.fd < 0) {
    free(ep->ops);
    free(ep);
    return -FI_EMFILE;
  }
  *out = &ep->fid;
  return 0;
}
