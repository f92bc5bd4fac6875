// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the tests of the shared memory link share: an owner of a link, payloads, children. Must not know tags or completions.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "link/shm/handshake.hpp"
#include "link/shm/link.hpp"
#include "os/clock.hpp"
#include "os/unix_socket.hpp"

namespace weft::link::shm {

inline constexpr uint64_t ms = 1'000'000;

struct Received {
  Peer* from = nullptr;
  wire::FrameHead head{};
  std::vector<std::byte> payload;
};

struct LostPeer {
  std::string name;
  core::ProviderError why;
};

inline std::string name_of(std::span<const std::byte> address) {
  const auto* text = reinterpret_cast<const char*>(address.data());
  return {text, ::strnlen(text, address.size())};
}

// A name that no look at /proc can resolve: the two sides must meet by datagrams alone.
inline std::string plain_name(const char* what) {
  static std::atomic<int> next{0};
  return "fi_ns://test-" + std::string(what) + "-" + std::to_string(::getpid()) + "-" +
         std::to_string(next++);
}

// An owner of a link: keeps the peers, writes down what comes.
class Node final : public Events {
 public:
  explicit Node(const std::string& name = "") {
    auto opened = link.open(name, *this);
    if (!opened) ADD_FAILURE() << opened.error().why;
  }

  Peer* make_peer(std::span<const std::byte>) override {
    peers.push_back(std::make_unique<Peer>());
    return peers.back().get();
  }
  void peer_lost(Peer& peer, core::ProviderError why) noexcept override {
    lost.push_back({name_of(std::as_bytes(std::span(peer.address))), why});
    std::erase_if(peers, [&](const auto& entry) { return entry.get() == &peer; });
  }
  bool on_frame(Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
    if (refusals > 0) {
      --refusals;
      return false;
    }
    frames.push_back({&peer, head, std::vector<std::byte>(payload, payload + head.length)});
    return true;
  }

  Peer* connect(const Node& other) {
    int error = 0;
    Peer* peer = link.connect(other.link.address(), error);
    EXPECT_NE(peer, nullptr) << error;
    return peer;
  }
  bool send(Peer& peer, uint64_t a, std::span<const std::byte> bytes, bool with_b = false) {
    const wire::FrameHead head{wire::FrameKind::Tagged,
                               static_cast<uint8_t>(with_b ? wire::has_b : 0),
                               3,
                               static_cast<uint32_t>(bytes.size()),
                               a,
                               ~a};
    const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    return link.send(peer, head, {}, &part, 1);
  }
  std::string name() const { return name_of(link.address()); }
  // Polls until `done` holds or the time is over.
  bool poll_until(const std::function<bool()>& done, uint64_t timeout_ms = 2000) {
    const uint64_t until = os::monotonic_ns() + timeout_ms * ms;
    while (!done()) {
      if (os::monotonic_ns() > until) return false;
      (void)link.poll(*this);
    }
    return true;
  }
  bool poll_for_frames(size_t count, uint64_t timeout_ms = 2000) {
    return poll_until([&] { return frames.size() >= count; }, timeout_ms);
  }

  std::deque<std::unique_ptr<Peer>> peers;
  std::deque<Received> frames;
  std::vector<LostPeer> lost;
  int refusals = 0;
  Link link;  // last: closes before the peers go
};

inline std::vector<std::byte> pattern(uint64_t seed, size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>((seed * 131 + i * 7 + (i >> 8)) & 0xff);
  return out;
}

inline void expect_frame(const Received& frame, uint64_t a, size_t bytes, bool with_b) {
  EXPECT_EQ(frame.head.a, a);
  EXPECT_EQ(frame.head.kind, wire::FrameKind::Tagged);
  EXPECT_EQ(frame.head.context, 3);
  ASSERT_EQ(frame.head.length, bytes);
  if (with_b) {
    EXPECT_EQ(frame.head.b, ~a);
    EXPECT_NE(frame.head.flags & wire::has_b, 0);
  }
  EXPECT_TRUE(frame.payload == pattern(a, bytes)) << "frame " << a << " of " << bytes << " bytes";
}

// Runs `body` in a child, which leaves without the parent's exit handlers. `body` returns the exit status.
template <class Body>
pid_t spawn(Body&& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  return pid;
}

inline int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

class Meeting : public testing::TestWithParam<bool> {
 protected:
  static std::string name(const char* what) { return GetParam() ? plain_name(what) : ""; }
};

// Whether a descriptor becomes readable in time.
inline bool readable(int fd, int timeout_ms) {
  pollfd probe{fd, POLLIN, 0};
  return ::poll(&probe, 1, timeout_ms) == 1;
}

}  // namespace weft::link::shm
