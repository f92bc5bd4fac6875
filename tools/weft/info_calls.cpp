// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Each call is made once, for nothing.
#include "info_calls.hpp"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include <fmt/format.h>

namespace weft::tool {

namespace {

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

// 0, or the errno of what failed.
int closed(int fd) {
  if (fd < 0) return errno;
  (void)close(fd);
  return 0;
}

int try_memory_file() {
  const int fd = memfd_create("weft-look", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return errno;
  int error = 0;
  if (ftruncate(fd, 4096) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0) error = errno;
  (void)close(fd);
  return error;
}

int try_process_descriptor() {
  constexpr long pidfd_open_call = 434;  // the same on every architecture
  return closed(static_cast<int>(syscall(pidfd_open_call, getpid(), 0)));
}

int try_barrier() {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0 &&
                 syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0
             ? 0
             : errno;
}

int try_datagrams(int option, int value) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int error = setsockopt(fd, IPPROTO_UDP, option, &value, sizeof value) == 0 ? 0 : errno;
  (void)close(fd);
  return error;
}

SystemFact fact_of(const char* name, int error, const std::string& cost) {
  if (error == 0) return {name, "yes", ""};
  return {name, fmt::format("no: {}", std::strerror(error)), cost};
}

}  // namespace

std::vector<SystemFact> tried_calls() {
  return {
      fact_of("memory files (memfd_create)", try_memory_file(),
              "no shm, and none below verbs: weft and verbs go by the network alone; weft top shows nothing"),
      fact_of("events (eventfd)", closed(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
              "no wait objects (fi_cq_sread, FI_WAIT_FD), no progress thread, no verbs devices"),
      fact_of("event polling (epoll)", closed(epoll_create1(EPOLL_CLOEXEC)),
              "no shm, weft or tcp, no wait objects, no verbs devices"),
      fact_of("barriers of other processes (membarrier)", try_barrier(),
              "each frame over shm rings a doorbell: two locked instructions more"),
      fact_of("descriptors of processes (pidfd)", try_process_descriptor(),
              "a pipe tells of the death of a peer over shm instead: a descriptor more for each endpoint, "
              "and children "
              "that were forked without exec delay it (Linux 5.3 has pidfd)"),
      fact_of("joined datagrams, sending (UDP_SEGMENT)", try_datagrams(UDP_SEGMENT, 1400),
              "udp;ofi_rxd and verbs by UDP: the kernel handles each packet by itself (Linux 4.18)"),
      fact_of("joined datagrams, receiving (UDP_GRO)", try_datagrams(UDP_GRO, 1),
              "udp;ofi_rxd and verbs by UDP: the kernel hands over each packet by itself (Linux 5.0)"),
  };
}

}  // namespace weft::tool
