// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connections and listeners over real sockets of this machine: who answers, who does not, who says rubbish, who dies.
#include "link/tcp/connection.hpp"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <poll.h>
#include <rdma/fabric.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "os/socket_address.hpp"

namespace weft::link::tcp {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
constexpr milliseconds limit{10'000};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// A connection with its owner.
struct Side final : ConnectionEvents, proto::ConnectionObserver {
  explicit Side(std::string_view name = {}) {
    link.set_address_format(FI_SOCKADDR_IN);
    const auto ok = link.open(name, *this, *this);
    EXPECT_TRUE(ok) << ok.error().why;
  }
  Other* make_peer(std::span<const std::byte>) override { return &peer; }
  void peer_lost(Other&, core::ProviderError) noexcept override { happened += "lost "; }
  void connected(std::span<const std::byte> data) noexcept override {
    happened += "connected(" + std::string(text_of(data)) + ") ";
  }
  void refused(int error, core::ProviderError why, std::span<const std::byte> data) noexcept override {
    happened += "refused(" + std::string(strerrorname_np(error)) + ' ' +
                std::to_string(static_cast<int>(why)) + ' ' + std::string(text_of(data)) + ") ";
  }
  void disconnected(core::ProviderError why) noexcept override {
    happened += "disconnected(" + std::to_string(static_cast<int>(why)) + ") ";
  }
  bool on_frame(Other&, const wire::FrameHead& head, const std::byte* payload) noexcept {
    happened += "frame(" + std::string(reinterpret_cast<const char*>(payload), head.length) + ") ";
    return true;
  }
  bool say(std::string_view text) {
    const wire::FrameHead head{wire::FrameKind::Msg, 0, 0, static_cast<uint32_t>(text.size()), 0, 0};
    const iovec part{const_cast<char*>(text.data()), text.size()};
    return link.send(peer, head, {}, &part, 1);
  }

  Other peer;
  std::string happened;
  Connection link;
};

struct TcpConnection : testing::Test {
  void SetUp() override {
    listener.set_address_format(FI_SOCKADDR_IN);
    const os::SocketAddress here = os::SocketAddress::loopback(AF_INET);
    const auto ok = listener.open(text_of(here.bytes()));
    ASSERT_TRUE(ok) << ok.error().why;
  }
  void listen(int backlog = 16) { ASSERT_TRUE(listener.listen(backlog)); }
  os::SocketAddress place() const {
    return *os::SocketAddress::from(listener.address().data(), listener.address().size());
  }
  // Sleeps on the control descriptors only, as the reader of an event queue does.
  bool until(const std::function<bool()>& done, const std::vector<Side*>& sides, milliseconds most = limit) {
    const auto end = Clock::now() + most;
    while (!done()) {
      if (Clock::now() >= end) return false;
      std::vector<pollfd> fds;
      fds.reserve(sides.size() + 1);
      for (Side* side : sides) fds.push_back({side->link.control_fd(), POLLIN, 0});
      if (listener.control_fd() >= 0) fds.push_back({listener.control_fd(), POLLIN, 0});
      (void)::poll(fds.data(), fds.size(), 1000);
      for (Side* side : sides) {
        side->link.advance();
        side->link.poll(*side);
      }
      listener.poll();
      if (request == nullptr) request = listener.next();
    }
    return true;
  }
  void connect(Side& active, Side& passive) {
    listen();
    ASSERT_TRUE(active.link.start(text_of(place().bytes()), bytes_of("hi")));
    ASSERT_TRUE(until([&] { return request != nullptr; }, {&active}));
    EXPECT_EQ(text_of(request->data()), "hi");
    ASSERT_TRUE(passive.link.accept(std::move(request), bytes_of("ho")));
    EXPECT_EQ(passive.happened, "connected() ");
    ASSERT_TRUE(until([&] { return !active.happened.empty(); }, {&active}));
    EXPECT_EQ(active.happened, "connected(ho) ");
    active.happened.clear();
    passive.happened.clear();
  }
  int raw() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const os::SocketAddress to = place();
    EXPECT_EQ(::connect(fd, to.get(), to.size()), 0);
    return fd;
  }

  Listener listener;
  std::unique_ptr<Request> request;
};

TEST_F(TcpConnection, AddressesAreEachOthers) {
  Side active;
  Side passive;
  connect(active, passive);
  EXPECT_EQ(text_of(active.link.address()), text_of(passive.link.peer_address()));
  EXPECT_EQ(text_of(passive.link.address()), text_of(active.link.peer_address()));
  EXPECT_EQ(text_of(active.link.peer_address()), text_of(listener.address()));
}

TEST_F(TcpConnection, FramesThenGoodBye) {
  Side active;
  Side passive;
  connect(active, passive);
  ASSERT_TRUE(passive.say("one"));
  ASSERT_TRUE(passive.say("two"));
  passive.link.shut_down();
  ASSERT_TRUE(until([&] { return active.happened.ends_with("disconnected(2) "); }, {&active}));
  EXPECT_EQ(active.happened, "frame(one) frame(two) lost disconnected(2) ");
  ASSERT_TRUE(until([&] { return passive.happened == "disconnected(2) "; }, {&passive}));
}

// The control descriptor is quiet while frames come in: whoever sleeps on an event queue is not woken by data.
TEST_F(TcpConnection, DataDoesNotRingTheControlDescriptor) {
  Side active;
  Side passive;
  connect(active, passive);
  ASSERT_TRUE(passive.say("one"));
  pollfd control{active.link.control_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&control, 1, 50), 0);
  pollfd data{active.link.wait_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&data, 1, 1000), 1);
  passive.link.close();
  EXPECT_EQ(::poll(&control, 1, 1000), 1);
}

TEST_F(TcpConnection, NobodyListens) {
  Side active;
  ASSERT_TRUE(active.link.start(text_of(place().bytes()), {}));  // bound, not listening
  ASSERT_TRUE(until([&] { return !active.happened.empty(); }, {&active}));
  EXPECT_EQ(active.happened, "refused(ECONNREFUSED 11 ) ");
}

TEST_F(TcpConnection, RejectedWithData) {
  Side active;
  listen();
  ASSERT_TRUE(active.link.start(text_of(place().bytes()), {}));
  ASSERT_TRUE(until([&] { return request != nullptr; }, {&active}));
  request->reject(bytes_of("no"));
  ASSERT_TRUE(until([&] { return !active.happened.empty(); }, {&active}));
  EXPECT_EQ(active.happened, "refused(ECONNREFUSED 12 no) ");
}

// Something accepts and closes at once, with a reset or in good order; or sends what is no handshake.
TEST_F(TcpConnection, AnAnswerOfAnotherProtocolFails) {
  const os::Fd other(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const os::SocketAddress here = os::SocketAddress::loopback(AF_INET);
  ASSERT_EQ(::bind(other.get(), here.get(), here.size()), 0);
  ASSERT_EQ(::listen(other.get(), 8), 0);
  const os::SocketAddress at = os::local_address(other.get());
  for (const char* what : {"reset", "close", "rubbish"}) {
    Side active;
    ASSERT_TRUE(active.link.start(text_of(at.bytes()), {}));
    os::Fd accepted(::accept(other.get(), nullptr, nullptr));
    ASSERT_TRUE(accepted);
    std::string expected = "refused(ECONNRESET 14 ) ";
    if (*what == 'r' && what[1] == 'e') {
      const linger hard{1, 0};
      (void)::setsockopt(accepted.get(), SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    } else if (*what == 'r') {
      ASSERT_EQ(::send(accepted.get(), "HTTP/1.1 400 Bad Request\r\n\r\n", 28, MSG_NOSIGNAL), 28);
      expected = "refused(ECONNREFUSED 15 ) ";
      ASSERT_TRUE(until([&] { return !active.happened.empty(); }, {&active})) << what;
    }
    accepted.reset();
    ASSERT_TRUE(until([&] { return !active.happened.empty(); }, {&active})) << what;
    EXPECT_EQ(active.happened, expected) << what;
  }
}

// The host answers, the program does not: bounded by the accept timeout, and the control descriptor tells.
TEST_F(TcpConnection, NobodyAccepts) {
  const os::Fd other(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const os::SocketAddress here = os::SocketAddress::loopback(AF_INET);
  ASSERT_EQ(::bind(other.get(), here.get(), here.size()), 0);
  ASSERT_EQ(::listen(other.get(), 8), 0);
  Side active;
  active.link.set_accept_timeout_ms(100);
  const auto began = Clock::now();
  ASSERT_TRUE(active.link.start(text_of(os::local_address(other.get()).bytes()), {}));
  ASSERT_TRUE(until([&] { return !active.happened.empty(); }, {&active}));
  EXPECT_EQ(active.happened, "refused(ETIMEDOUT 13 ) ");
  EXPECT_GE(Clock::now() - began, milliseconds(90));
  EXPECT_LT(Clock::now() - began, limit);
}

// A host that answers nothing: a listener whose queue is full drops what comes.
TEST_F(TcpConnection, BlackHole) {
  const os::Fd other(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const os::SocketAddress here = os::SocketAddress::loopback(AF_INET);
  ASSERT_EQ(::bind(other.get(), here.get(), here.size()), 0);
  ASSERT_EQ(::listen(other.get(), 0), 0);
  const os::SocketAddress at = os::local_address(other.get());
  std::vector<os::Fd> filling;
  for (int i = 0; i < 4; ++i) {
    filling.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)::connect(filling.back().get(), at.get(), at.size());
  }
  Side active;
  active.link.set_connect_timeout_ms(100);
  ASSERT_TRUE(active.link.start(text_of(at.bytes()), {}));
  ASSERT_TRUE(until([&] { return !active.happened.empty(); }, {&active}));
  EXPECT_EQ(active.happened, "refused(ETIMEDOUT 13 ) ");
}

// Pending connections that say nothing, rubbish, or half a handshake do not delay others, and are closed after a time.
TEST_F(TcpConnection, SilentPendingConnections) {
  listener.set_connect_timeout_ms(200);
  listen(4096);
  std::vector<os::Fd> pending;
  pending.reserve(50);
  for (int i = 0; i < 50; ++i) pending.emplace_back(raw());
  ASSERT_EQ(::send(pending[0].get(), "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
  ASSERT_EQ(::send(pending[1].get(), "WEFT", 4, MSG_NOSIGNAL), 4);
  Side active;
  ASSERT_TRUE(active.link.start(text_of(place().bytes()), bytes_of("me")));
  ASSERT_TRUE(until([&] { return request != nullptr; }, {&active}));
  EXPECT_EQ(text_of(request->data()), "me");
  EXPECT_GT(listener.pending_count(), 40u);
  ASSERT_TRUE(until([&] { return listener.pending_count() == 0; }, {&active}));
  char byte = 0;
  pollfd closed{pending[7].get(), POLLIN, 0};
  EXPECT_EQ(::poll(&closed, 1, 1000), 1);
  EXPECT_LE(::recv(pending[7].get(), &byte, 1, MSG_DONTWAIT), 0);
}

// No more pending connections than the bound, and the newest are kept.
TEST_F(TcpConnection, GuestsAreBounded) {
  listen(4096);
  std::vector<os::Fd> pending;
  for (size_t i = 0; i < Listener::pending_max + 20; ++i) {
    pending.emplace_back(raw());
    if (!pending.back()) GTEST_SKIP() << "not enough descriptors";
    listener.poll();
  }
  for (int i = 0; i < 20; ++i) listener.poll();
  EXPECT_EQ(listener.pending_count(), Listener::pending_max);
  Side active;
  ASSERT_TRUE(active.link.start(text_of(place().bytes()), {}));
  EXPECT_TRUE(until([&] { return request != nullptr; }, {&active}));
}

// An RDM endpoint that connects to a passive endpoint by mistake is told so.
TEST_F(TcpConnection, AnotherKindIsRefused) {
  listen();
  Channel channel(connection_frame_bytes_max);
  ASSERT_EQ(channel.connect(place(), {}), 0);
  Handshake handshake;
  handshake.kind = ConnectionKind::Rdm;
  channel.send_hello(handshake);
  const auto end = Clock::now() + limit;
  while (channel.theirs() == nullptr && Clock::now() < end) {
    channel.advance();
    listener.poll();
    ASSERT_EQ(listener.next(), nullptr);
  }
  ASSERT_NE(channel.theirs(), nullptr);
  EXPECT_EQ(channel.theirs()->type, HandshakeType::Refusal);
  EXPECT_EQ(channel.theirs()->reason, RefusalReason::Kind);
}

// Features that we do not know are those that the other side can do without (docs/wire/stream.md).
TEST_F(TcpConnection, FeaturesOfTheFuture) {
  listen();
  Channel channel(connection_frame_bytes_max);
  ASSERT_EQ(channel.connect(place(), {}), 0);
  Handshake handshake;
  handshake.kind = ConnectionKind::Msg;
  handshake.features = 0x80000001;
  channel.send_hello(handshake);
  ASSERT_TRUE(until(
      [&] {
        (void)channel.advance();
        return request != nullptr || channel.theirs() != nullptr;
      },
      {}));
  EXPECT_NE(request, nullptr);
}

// The other machine vanishes while bytes are under way and we sleep on frames: the kernel alone would wait for a quarter of an hour.
TEST_F(TcpConnection, ASleeperNoticesThatTheMachineIsGone) {
  Side active;
  Side passive;
  connect(active, passive);
  const int fd = [&] {
    for (int at = 3; at < 4096; ++at) {
      const os::SocketAddress remote = os::remote_address(at);
      if (remote && text_of(remote.bytes()) == text_of(active.link.address())) return at;
    }
    return -1;
  }();
  ASSERT_GE(fd, 0);
  sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog program{1, nothing};
  const int off = 0;  // or its keepalive would tell us
  ASSERT_EQ(::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &off, sizeof off), 0);
  ASSERT_EQ(::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), 0);
  ASSERT_TRUE(active.say("into the void"));
  const auto end = Clock::now() + 3 * limit;
  while (active.happened.empty() && Clock::now() < end) {
    active.link.poll(active);
    if (!active.link.arm()) continue;
    pollfd data{active.link.wait_fd(), POLLIN, 0};
    (void)::poll(&data, 1, 100);
    active.link.disarm();
  }
  EXPECT_EQ(active.happened, "lost disconnected(3) ");
}

// The backlog bounds requests that nobody takes.
TEST_F(TcpConnection, BacklogBoundsRequests) {
  listen(2);
  Side sides[3];
  for (Side& side : sides) ASSERT_TRUE(side.link.start(text_of(place().bytes()), {}));
  for (int i = 0; i < 200; ++i) {
    for (Side& side : sides) side.link.advance();
    listener.poll();
    std::this_thread::sleep_for(milliseconds(1));
  }
  auto first = listener.next();
  auto second = listener.next();
  EXPECT_NE(first, nullptr);
  EXPECT_NE(second, nullptr);
  EXPECT_EQ(listener.next(), nullptr);
  std::vector<Side*> all{&sides[0], &sides[1], &sides[2]};
  EXPECT_TRUE(until([&] { return request != nullptr; }, all));
}

// Without descriptors who knocks waits, quietly; with them again he is heard.
TEST_F(TcpConnection, NoDescriptorIsLeft) {
  listen();
  Side active;
  ASSERT_TRUE(active.link.start(text_of(place().bytes()), bytes_of("me")));
  std::vector<os::Fd> all;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{256, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  while (true) {
    const int fd = ::dup(0);
    if (fd < 0) break;
    all.emplace_back(fd);
  }
  pollfd control{listener.control_fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&control, 1, 1000), 1);
  listener.poll();
  EXPECT_EQ(listener.next(), nullptr);
  EXPECT_EQ(::poll(&control, 1, 20), 0);
  all.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(until([&] { return request != nullptr; }, {&active}));
}

// A peer that dies without a word: what it had sent is shown first.
TEST_F(TcpConnection, PeerDies) {
  Side active;
  Side passive;
  connect(active, passive);
  ASSERT_TRUE(active.say("last"));
  active.link.poll(active);
  // What a kill leaves behind: the socket closes, nothing is said.
  const int fd = [&] {
    for (int at = 3; at < 4096; ++at) {
      const os::SocketAddress local = os::local_address(at);
      if (local && text_of(local.bytes()) == text_of(active.link.address()) &&
          os::remote_address(at) == place())
        return at;
    }
    return -1;
  }();
  ASSERT_GE(fd, 0);
  (void)::shutdown(fd, SHUT_RDWR);
  ASSERT_TRUE(until([&] { return passive.happened.ends_with("disconnected(1) "); }, {&passive}));
  EXPECT_EQ(passive.happened, "frame(last) lost disconnected(1) ");
}

}  // namespace
}  // namespace weft::link::tcp
