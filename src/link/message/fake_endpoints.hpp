// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connected endpoints inside one thread's memory, for tests of MessageLink: connections and messages move when they are polled, so a test
// decides what crosses. Checks that no more messages are on their way than there are receive buffers. Must not be used outside tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "link/message/link.hpp"

namespace weft::link::message {

class FakeEndpoints;

// Who listens where.
struct FakeNet {
  std::map<std::string, FakeEndpoints*> listening;
  bool hide_losses = false;  // connections that end are not noticed
};

class FakeEndpoints {
 public:
  static constexpr size_t message_bytes_max = (size_t{1} << 14) + 512;
  static constexpr size_t receive_count = 16;
  static constexpr size_t address_length = 16;

  struct Connection {
    void* owner = nullptr;
    FakeEndpoints* home = nullptr;
    Connection* other = nullptr;
    std::deque<std::vector<std::byte>> inbox;
    std::vector<std::byte> out = std::vector<std::byte>(message_bytes_max);
    uint64_t committed = 0;
    bool incoming = false, reported = false, lost = false, closed = false;
  };

  FakeEndpoints() : FakeEndpoints(message_bytes_max) {}
  ~FakeEndpoints() { close(); }

  void set_context(const void* net) noexcept { net_ = static_cast<FakeNet*>(const_cast<void*>(net)); }

  Result<void> open(std::string_view source) {
    address_.assign(source.data(), source.size());
    address_.resize(address_length);
    net_->listening[address_] = this;
    return {};
  }
  std::span<const std::byte> address() const noexcept { return std::as_bytes(std::span(address_)); }

  Connection* connect(std::span<const std::byte> address, int& error) {
    const std::string key(reinterpret_cast<const char*>(address.data()), address.size());
    const auto found = net_->listening.find(key);
    Connection& mine = add(false);
    if (found == net_->listening.end()) mine.lost = true;
    else join(mine, found->second->add(true));
    error = 0;
    return &mine;
  }
  // The other end of a connection that no link holds: a test says what it likes.
  Connection& raw_connection_to(FakeEndpoints& to) {
    Connection& mine = add(false);
    join(mine, to.add(true));
    return mine;
  }
  static void say(Connection& connection, std::span<const std::byte> message) {
    if (connection.other == nullptr) return;
    EXPECT_LE(message.size(), connection.other->home->taken_bytes_max_)
        << "a message is too long for its receiver";
    connection.other->inbox.emplace_back(message.begin(), message.end());
  }

  std::byte* reserve(Connection& connection) noexcept {
    return refuses_ || connection.closed ? nullptr : connection.out.data();
  }
  void commit(Connection& connection, size_t bytes) noexcept {
    put(connection, std::span(connection.out).first(bytes));
  }

  template <class Handler>
  int poll(Handler& handler) noexcept {
    int taken = 0;
    for (size_t i = 0; i < all_.size(); ++i) taken += show(*all_[i], handler);
    std::erase_if(all_, [](const auto& connection) { return connection->closed; });
    return taken;
  }

  void close(Connection& connection) noexcept {
    if (std::exchange(connection.closed, true)) return;
    if (connection.other == nullptr) return;
    connection.other->other = nullptr;
    if (!net_->hide_losses) connection.other->lost = true;
    connection.other = nullptr;
  }
  void close() noexcept {
    die();
    all_.clear();
  }
  // As when the process is killed: the others see it, the link above does not.
  void die() noexcept {
    for (auto& connection : all_) close(*connection);
    if (net_ == nullptr) return;
    const auto found = net_->listening.find(address_);
    if (found != net_->listening.end() && found->second == this) net_->listening.erase(found);
  }
  int wait_fd() noexcept { return -1; }
  bool arm() noexcept { return false; }
  void disarm() noexcept {}

  size_t connections() const noexcept { return all_.size(); }
  // Of what is committed from now on nothing has left us, in the eyes of who asks, but for the first `count` messages.
  void hold_behind(uint64_t count) noexcept { held_behind_ = count; }
  uint64_t taken(const Connection& connection) const noexcept { return connection.committed; }
  uint64_t completed(const Connection& connection) const noexcept {
    return connection.lost ? 0 : std::min(connection.committed, held_behind_);
  }
  bool delivered(const Connection&) const noexcept { return delivered_; }
  void set_delivered(bool delivered) noexcept { delivered_ = delivered; }
  void set_refuses(bool refuses) noexcept { refuses_ = refuses; }  // no send buffers
  size_t longest() const noexcept { return longest_; }             // message that was committed

 protected:
  explicit FakeEndpoints(size_t taken_bytes_max) : taken_bytes_max_(taken_bytes_max) {}
  void put(Connection& connection, std::span<const std::byte> message) noexcept {
    ++connection.committed;
    longest_ = std::max(longest_, message.size());
    if (connection.other == nullptr) return;
    say(connection, message);
    EXPECT_LE(connection.other->inbox.size(), receive_count) << "a message finds no buffer";
  }
  bool refuses() const noexcept { return refuses_; }

 private:
  Connection& add(bool incoming) {
    all_.push_back(std::make_unique<Connection>());
    all_.back()->home = this;
    all_.back()->incoming = incoming;
    return *all_.back();
  }
  static void join(Connection& a, Connection& b) noexcept {
    a.other = &b;
    b.other = &a;
  }
  template <class Handler>
  int show(Connection& c, Handler& handler) noexcept {
    int taken = 0;
    if (!c.reported && !c.closed && (c.other != nullptr || c.incoming)) {
      c.reported = true;
      if (c.incoming) handler.on_incoming(c);
      else handler.on_connected(c);
    }
    while (c.reported && !c.closed && !c.inbox.empty()) {
      if (!handler.on_message(c, c.inbox.front())) return taken;
      c.inbox.pop_front();
      ++taken;
    }
    if (c.lost && !c.closed) {
      c.closed = true;
      handler.on_lost(c);
    }
    return taken;
  }

  FakeNet* net_ = nullptr;
  std::string address_;
  std::vector<std::unique_ptr<Connection>> all_;
  bool refuses_ = false;
  bool delivered_ = true;
  uint64_t held_behind_ = UINT64_MAX;
  size_t taken_bytes_max_;  // of a message to us
  size_t longest_ = 0;
};

// The same that send and take large messages, among each other and with those that do not.
class FakeLargeEndpoints : public FakeEndpoints {
 public:
  static constexpr size_t large_message_bytes_max = (size_t{1} << 18) + 512;

  FakeLargeEndpoints() : FakeEndpoints(large_message_bytes_max) {}
  bool commit_parts(Connection& connection, std::span<const std::byte> front, const iovec* parts,
                    size_t part_count) noexcept {
    if (refuses() || connection.closed) return false;
    std::vector<std::byte> message(front.begin(), front.end());
    for (size_t i = 0; i < part_count; ++i) {
      const auto* first = static_cast<const std::byte*>(parts[i].iov_base);
      message.insert(message.end(), first, first + parts[i].iov_len);
    }
    put(connection, message);
    return true;
  }
  bool commit_in_place(Connection& connection, std::span<const std::byte> front, const iovec* parts,
                       size_t part_count) noexcept {
    return commit_parts(connection, front, parts, part_count);
  }
  void retain_parts(Connection&) noexcept {}
};
static_assert(HasLargeMessages<FakeLargeEndpoints> && !HasLargeMessages<FakeEndpoints>);

using FakeLink = MessageLink<FakeEndpoints>;
using FakeLargeLink = MessageLink<FakeLargeEndpoints>;

// A link and what it said: frames by the address of their peer.
struct FakeNode final : FakeLink::Events {
  FakeNode(FakeNet& net, const std::string& name) : address(name) {
    address.resize(FakeEndpoints::address_length);
    link.set_context(&net);
    link.set_warning(
        [](const void* who, const char* text) {
          const_cast<FakeNode*>(static_cast<const FakeNode*>(who))->warnings.emplace_back(text);
        },
        this);
    EXPECT_TRUE(link.open(name, *this));
  }
  ~FakeNode() { link.close(); }

  FakeLink::Peer* make_peer(std::span<const std::byte> bytes) override {
    peers.push_back(std::make_unique<FakeLink::Peer>());
    last_address.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return peers.back().get();
  }
  void peer_lost(FakeLink::Peer& peer, core::ProviderError why) noexcept override {
    losses.push_back(why);
    proven.push_back(link.delivered_sequence(peer));
    std::erase_if(peers, [&](const auto& entry) { return entry.get() == &peer; });
  }
  bool on_frame(FakeLink::Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
    if (refusing) return false;
    frames[peer.address].emplace_back(reinterpret_cast<const char*>(payload), head.length);
    tags.push_back(head.a);
    return true;
  }

  FakeLink::Peer* connect(const FakeNode& to) {
    int error = 0;
    return link.connect(std::as_bytes(std::span(to.address)), error);
  }
  bool send(FakeLink::Peer& peer, std::string text, uint64_t tag = 0) {
    wire::FrameHead head{wire::FrameKind::Tagged, 0, 0, static_cast<uint32_t>(text.size()), tag, 0};
    const iovec part{text.data(), text.size()};
    return link.send(peer, head, {}, &part, 1);
  }
  void poll() { link.poll(*this); }

  std::string address;
  FakeLink link;
  std::vector<std::unique_ptr<FakeLink::Peer>> peers;
  std::string last_address;
  std::vector<core::ProviderError> losses;
  std::vector<uint64_t> proven;  // when they were lost
  std::map<std::string, std::vector<std::string>> frames;
  std::vector<uint64_t> tags;
  std::vector<std::string> warnings;
  bool refusing = false;
};

}  // namespace weft::link::message
