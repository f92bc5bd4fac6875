// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// rsockets (rsocket(7)): exported, because programs are bound at once, and refused. docs/roadmap.md
#include <rdma/rsocket.h>

#include <cerrno>

#include "api/rdmacm/library/log.hpp"

#define WEFT_EXPORT __attribute__((visibility("default"), used))

namespace {

int refuse(const char* call) noexcept {
  return weft::rdmacm::refuse(EOPNOTSUPP, "%s: rsockets are not there yet", call);
}

}  // namespace

extern "C" {

WEFT_EXPORT int rsocket(int, int, int) { return refuse("rsocket"); }
WEFT_EXPORT int rbind(int, const sockaddr*, socklen_t) { return refuse("rbind"); }
WEFT_EXPORT int rlisten(int, int) { return refuse("rlisten"); }
WEFT_EXPORT int raccept(int, sockaddr*, socklen_t*) { return refuse("raccept"); }
WEFT_EXPORT int rconnect(int, const sockaddr*, socklen_t) { return refuse("rconnect"); }
WEFT_EXPORT int rshutdown(int, int) { return refuse("rshutdown"); }
WEFT_EXPORT int rclose(int) { return refuse("rclose"); }
WEFT_EXPORT ssize_t rrecv(int, void*, size_t, int) { return refuse("rrecv"); }
WEFT_EXPORT ssize_t rrecvfrom(int, void*, size_t, int, sockaddr*, socklen_t*) { return refuse("rrecvfrom"); }
WEFT_EXPORT ssize_t rrecvmsg(int, msghdr*, int) { return refuse("rrecvmsg"); }
WEFT_EXPORT ssize_t rsend(int, const void*, size_t, int) { return refuse("rsend"); }
WEFT_EXPORT ssize_t rsendto(int, const void*, size_t, int, const sockaddr*, socklen_t) {
  return refuse("rsendto");
}
WEFT_EXPORT ssize_t rsendmsg(int, const msghdr*, int) { return refuse("rsendmsg"); }
WEFT_EXPORT ssize_t rread(int, void*, size_t) { return refuse("rread"); }
WEFT_EXPORT ssize_t rreadv(int, const iovec*, int) { return refuse("rreadv"); }
WEFT_EXPORT ssize_t rwrite(int, const void*, size_t) { return refuse("rwrite"); }
WEFT_EXPORT ssize_t rwritev(int, const iovec*, int) { return refuse("rwritev"); }
// Programs with ordinary descriptors alone use these, too.
WEFT_EXPORT int rpoll(pollfd* descriptors, nfds_t count, int timeout) {
  return ::poll(descriptors, count, timeout);
}
WEFT_EXPORT int rselect(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
                        timeval* timeout) {
  return ::select(count, readable, writable, exceptional, timeout);
}
WEFT_EXPORT int rgetpeername(int, sockaddr*, socklen_t*) { return refuse("rgetpeername"); }
WEFT_EXPORT int rgetsockname(int, sockaddr*, socklen_t*) { return refuse("rgetsockname"); }
WEFT_EXPORT int rsetsockopt(int, int, int, const void*, socklen_t) { return refuse("rsetsockopt"); }
WEFT_EXPORT int rgetsockopt(int, int, int, void*, socklen_t*) { return refuse("rgetsockopt"); }
WEFT_EXPORT int rfcntl(int, int, ...) { return refuse("rfcntl"); }
WEFT_EXPORT off_t riomap(int, void*, size_t, int, int, off_t) { return refuse("riomap"); }
WEFT_EXPORT int riounmap(int, void*, size_t) { return refuse("riounmap"); }
WEFT_EXPORT size_t riowrite(int, const void*, size_t, off_t, int) {
  refuse("riowrite");
  return static_cast<size_t>(-1);
}

}  // extern "C"
