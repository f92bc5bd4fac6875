// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A packet link over a packet socket with a ring, at the end of a veth in a network namespace of a child.
#include "link/ethernet/packet_socket.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "link/ethernet/packets.hpp"

namespace weft::link::ethernet {
namespace {

struct Nobody {
  void on_packet(const proto::ReceivedPacket&) noexcept {}
};

bool is_readable(int fd) {
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, 0) == 1;
}

enum Outcome : int { Good, NoNamespace, NotOpen, NotReadable, StillReadable };

// In a namespace of its own, which ends with the process.
Outcome go_down_asleep() {
  const bool is_root = ::geteuid() == 0;
  if (::unshare(is_root ? CLONE_NEWNET : CLONE_NEWNET | CLONE_NEWUSER) != 0) return NoNamespace;
  if (std::system("{ ip link add wire0 type veth peer name wire1 && ip link set wire0 addrgenmode none up && "
                  "ip link set wire1 addrgenmode none up; } 2>/dev/null") != 0)
    return NoNamespace;
  EthernetPackets<SocketFrames> link;
  link.frames().set_interface("wire0");
  link.frames().set_ring_bytes(size_t{1} << 20);
  if (!link.open(os::SocketAddress::from_text("10.0.0.1:4791")->bytes()) ||
      !link.frames().socket().has_ring())
    return NotOpen;
  Nobody nobody;
  (void)link.poll(nobody);
  (void)link.arm();
  if (std::system("ip link set wire0 down 2>/dev/null") != 0) return NoNamespace;
  if (!is_readable(link.wait_fd())) return NotReadable;
  link.disarm();
  // With what came before the end.
  for (int i = 0; i < 3; ++i) (void)link.poll(nobody);
  return is_readable(link.wait_fd()) ? StillReadable : Good;
}

// Who sleeps on the descriptor would wake again and again.
TEST(EthernetSocket, AnInterfaceThatGoesDownWakesASleeperOnce) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(go_down_asleep());
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == NoNamespace) GTEST_SKIP() << "no network namespace with a veth here";
  EXPECT_EQ(WEXITSTATUS(status), Good);
}

}  // namespace
}  // namespace weft::link::ethernet
