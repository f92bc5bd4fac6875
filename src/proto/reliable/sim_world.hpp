// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A world for the reliable core: endpoints over a network in memory that loses, doubles, delays, reorders and alters packets, cuts itself in two and
// has small queues; endpoints that poll when they like, refuse bytes for a while, and restart. One seed says all of it. Serves tests only.
//
// What is checked: every stream names itself at its start and is a function of its name, so that each byte that comes out is known;
// a name comes out of one connection of one receiver only; nothing comes out of streams whose receiver restarted. In worlds without
// restart no connection is lost and every byte arrives; at the end no timer runs.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "proto/reliable/core.hpp"

namespace weft::proto::reliable::sim {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t below(uint64_t bound) { return bound == 0 ? 0 : engine_() % bound; }
  bool chance(double p) { return static_cast<double>(engine_() >> 11) * 0x1.0p-53 < p; }
  template <class T, size_t n>
  T pick(const T (&choices)[n]) {
    return choices[below(n)];
  }

 private:
  std::mt19937_64 engine_;
};

struct Conditions {
  double loss = 0;
  double twice = 0;
  double late = 0;     // delayed by up to late_ns
  double altered = 0;  // one byte
  uint64_t late_ns = 0;
  uint64_t delay_ns = 0;
  size_t packet_bytes = 1472;      // what the packet link says
  size_t vanish_bytes = SIZE_MAX;  // packets above it never arrive
  size_t queue_packets = 1000;
  double refuses = 0;  // share of on_bytes() calls that take less
  uint64_t poll_ns = 0;
  double sleeps = 0;  // share of polls that come late, by up to 50 ms
  bool cut = false;
  bool restart = false;
  bool deaths = false;  // connections may be lost
  int nodes = 2;
  uint64_t bytes = 0;      // of each stream
  uint64_t packet_ns = 0;  // of a packet in the narrowest place; 0: all of them pass at once
  size_t room = SIZE_MAX;  // packets that wait there at most
  bool in_place =
      false;  // long pieces are sent from the owner's memory, which it overwrites as soon as it is its own again
};

inline Conditions conditions(uint64_t seed) {
  Random random(seed * 7919 + 1);
  Conditions c;
  c.loss = random.pick({0.0, 0.0, 0.01, 0.05, 0.2});
  c.twice = random.pick({0.0, 0.0, 0.01, 0.1});
  c.late = random.pick({0.0, 0.0, 0.02, 0.2});
  c.altered = random.pick({0.0, 0.0, 0.0, 0.02});
  c.late_ns = random.pick<uint64_t>({10 * us, 500 * us, 20 * ms});
  c.delay_ns = random.pick<uint64_t>({2 * us, 50 * us, 1 * ms, 30 * ms});
  c.packet_bytes = random.pick<size_t>({400, 1472, 1472, 8972, 65507});
  if (random.chance(0.15)) c.vanish_bytes = random.pick<size_t>({1200, 1450});
  c.queue_packets = random.pick<size_t>({8, 64, 1000});
  c.refuses = random.pick({0.0, 0.0, 0.1, 0.6});
  c.poll_ns = random.pick<uint64_t>({1 * us, 20 * us, 1 * ms});
  c.sleeps = random.pick({0.0, 0.001, 0.05});
  c.cut = random.chance(0.25);
  c.restart = random.chance(0.25);
  c.nodes = random.chance(0.7) ? 2 : 3;
  c.bytes = random.pick<uint64_t>({0, 200, 20'000, 300'000, 2'000'000});
  if (c.delay_ns >= ms || c.packet_bytes < 1000 || c.loss > 0.1)
    c.bytes = std::min<uint64_t>(c.bytes, 300'000);
  return c;
}

// The byte of stream `name` at `offset`; the first eight are the name itself.
inline std::byte stream_byte(uint64_t name, uint64_t offset) {
  if (offset < 8) return static_cast<std::byte>(name >> (8 * offset));
  const uint64_t word = (name * 0x9e3779b97f4a7c15u + offset / 8) * 0xd6e8feb86659fd93u;
  return static_cast<std::byte>((word ^ (word >> 29)) >> (8 * (offset % 8)));
}

class World;

struct Peer : Connection {
  uint64_t sending = 0;  // name of our stream
  uint64_t sent = 0;
  uint64_t goal = 0;
  uint64_t hearing = 0;  // name of theirs, once 8 bytes have come
  uint64_t heard = 0;
  // Memory that the core has bytes in, and the end of these in the stream.
  struct Lent {
    uint64_t end;
    std::vector<std::byte> bytes;
  };
  std::deque<Lent> lent;
  void take_back(uint64_t before) {
    for (; !lent.empty() && lent.front().end <= before; lent.pop_front())
      std::ranges::fill(lent.front().bytes, std::byte{0xee});
  }
};

class Node final : public PacketOutput, public Upper {
 public:
  Node(World& world, int number) : world_(world), number_(number) {}
  void begin(uint64_t first_incarnation, uint64_t seed);
  void connect(int to, uint64_t bytes);
  void poll();
  Core& core() { return *core_; }
  bool idle() const;  // all its streams have gone and all that it was sent is here

  size_t packet_bytes_max(std::span<const std::byte>) noexcept override;
  bool send(std::span<const std::byte> to, const iovec* parts, size_t count) noexcept override;
  bool send_segmented(std::span<const std::byte> to, const iovec* parts, size_t count,
                      size_t packet_bytes) noexcept override;
  Connection* accept(std::span<const std::byte> address) noexcept override;
  size_t on_bytes(Connection& connection, std::span<const std::byte> bytes) noexcept override;
  void lost(Connection& connection, core::ProviderError why) noexcept override;

  struct Arrived {
    int from;
    std::vector<std::byte> bytes;
  };
  std::vector<Arrived> inbox;
  std::map<int, std::unique_ptr<Peer>> peers;
  uint64_t incarnation = 0;
  int losses = 0;

 private:
  static std::array<std::byte, 4> address_of(int number) {
    return {std::byte{'n'}, std::byte{'o'}, std::byte{'d'}, static_cast<std::byte>(number)};
  }
  World& world_;
  int number_;
  std::unique_ptr<Core> core_;
};

class World {
 public:
  explicit World(uint64_t seed) : random(seed), rules(conditions(seed)) {}

  // Empty: all is well.
  std::string run() {
    for (int i = 0; i < rules.nodes; ++i) {
      nodes.push_back(std::make_unique<Node>(*this, i));
      nodes.back()->begin(1000, random.below(UINT64_MAX));
      at(random.below(10 * us), Kind::Poll, i);
    }
    for (int i = 0; i < rules.nodes; ++i)
      for (int j = 0; j < rules.nodes; ++j)
        if (random.chance(0.8) || (i == 0 && j == 1)) nodes[static_cast<size_t>(i)]->connect(j, rules.bytes);
    if (rules.cut) {
      cut_from = random.below(20 * ms);
      cut_to = cut_from + random.below(3 * second);
    }
    if (rules.restart)
      at(random.below(20 * ms), Kind::Restart,
         static_cast<int>(random.below(static_cast<uint64_t>(rules.nodes))));
    const uint64_t limit = 900 * second;
    uint64_t steps = 0;
    while (!events.empty() && wrong.empty()) {
      const Event event = events.top();
      events.pop();
      if (event.at > limit) return complain("does not end");
      if (++steps > 20'000'000) return complain("takes too many steps");
      now = event.at;
      happen(event);
      if (finished() && wrong.empty()) break;
    }
    if (!wrong.empty()) return wrong;
    finished_at = now;
    return after();
  }

  enum class Kind : uint8_t { Packet, Poll, Restart };
  struct Event {
    uint64_t at;
    uint64_t order;
    Kind kind;
    int node;
    int from;
    std::shared_ptr<std::vector<std::byte>> bytes;
    bool operator<(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  void at(uint64_t delay, Kind kind, int node) {
    events.push({now + delay, ++order, kind, node, 0, nullptr});
  }

  void carry(int from, int to, std::vector<std::byte> bytes) {
    if (bytes.size() > rules.packet_bytes) complain("a packet is too large");
    if (lossless) {
      events.push({now + rules.delay_ns, ++order, Kind::Packet, to, from,
                   std::make_shared<std::vector<std::byte>>(std::move(bytes))});
      return;
    }
    if (random.chance(rules.loss) || bytes.size() > rules.vanish_bytes) return;
    if (now >= cut_from && now < cut_to) return;
    if (random.chance(rules.altered) && !bytes.empty())
      bytes[random.below(bytes.size())] ^= static_cast<std::byte>(1 + random.below(255));
    const auto shared = std::make_shared<std::vector<std::byte>>(std::move(bytes));
    uint64_t queued = 0;
    if (rules.packet_ns != 0) {  // the narrowest place of the path
      uint64_t& free_at = free_at_[{from, to}];
      free_at = std::max(free_at, now);
      const size_t waiting = (free_at - now) / rules.packet_ns;
      waited += waiting;
      ++carried;
      if (waiting >= rules.room) return;
      free_at += rules.packet_ns;
      queued = free_at - now;
    }
    for (int copies = random.chance(rules.twice) ? 2 : 1; copies > 0; --copies) {
      uint64_t delay = rules.delay_ns + queued;
      if (random.chance(rules.late)) delay += random.below(rules.late_ns);
      // A path is a line: packets that are not late keep their order.
      events.push({now + delay, ++order, Kind::Packet, to, from, shared});
    }
  }

  // By hand, after run(): what is under way arrives, and nobody polls.
  void deliver() {
    for (; !events.empty(); events.pop())
      if (const Event& event = events.top(); event.kind == Kind::Packet)
        nodes[static_cast<size_t>(event.node)]->inbox.push_back({event.from, *event.bytes});
  }

  std::string complain(const std::string& what) {
    if (wrong.empty()) wrong = what + " at " + std::to_string(now) + " ns";
    return wrong;
  }

  Random random;
  Random choices{1};  // of what does not change the world
  congestion::Make algorithm = nullptr;
  uint64_t waited = 0;   // packets in the narrowest place, their sum for each that came,
  uint64_t carried = 0;  // and how many came
  Conditions rules;
  uint64_t now = 1;
  bool lossless = false;  // the network is perfect from here on
  std::string wrong;
  std::vector<std::unique_ptr<Node>> nodes;
  uint64_t names = 0;
  std::set<std::pair<uint64_t, uint64_t>> heard_names;  // and by which receiver (number and incarnation)

 private:
  void happen(const Event& event) {
    Node& node = *nodes[static_cast<size_t>(event.node)];
    switch (event.kind) {
      case Kind::Packet:
        if (node.inbox.size() < rules.queue_packets || lossless)
          node.inbox.push_back({event.from, *event.bytes});
        break;
      case Kind::Poll: {
        node.poll();
        uint64_t delay = 1 + random.below(2 * rules.poll_ns);
        if (!lossless && random.chance(rules.sleeps)) delay += random.below(50 * ms);
        // Nothing is there: as a sleeper would, it wakes for a packet or for a timer. Polls stand for both.
        if (node.inbox.empty() && !node.core().has_ready()) delay += std::min(rules.delay_ns / 4, 100 * us);
        at(delay, Kind::Poll, event.node);
        break;
      }
      case Kind::Restart:
        node.begin(1000 + now, random.below(UINT64_MAX));
        restarted = true;
        break;
    }
  }

  bool finished() const {
    return std::all_of(nodes.begin(), nodes.end(), [](const auto& node) { return node->idle(); });
  }

  // All streams are through, or broken off by a restart. Now everybody can talk to everybody, and then silence is complete.
  std::string after() {
    lossless = true;
    for (auto& from : nodes)
      for (int to = 0; to < rules.nodes; ++to) from->connect(to, 5000);
    const uint64_t end = now + 300 * second;
    bool quiet = false;
    while (!events.empty() && wrong.empty() && !quiet) {
      const Event event = events.top();
      events.pop();
      now = event.at;
      if (now > end) return complain("is not quiet afterwards");
      happen(event);
      quiet =
          finished() && std::all_of(nodes.begin(), nodes.end(), [](const auto& node) {
            return node->inbox.empty() && node->core().next_due() == UINT64_MAX && !node->core().has_ready();
          });
    }
    return wrong;
  }

  std::priority_queue<Event> events;
  uint64_t order = 0;
  uint64_t cut_from = 0;
  uint64_t cut_to = 0;
  std::map<std::pair<int, int>, uint64_t> free_at_;

 public:
  bool restarted = false;
  uint64_t finished_at = 0;  // when all streams were through
};

// --- nodes ---

inline void Node::begin(uint64_t first_incarnation, uint64_t seed) {
  core_.reset();  // a process that dies says nothing
  peers.clear();
  inbox.clear();
  ++incarnation;
  core_ = std::make_unique<Core>(*this, *this);
  Config config;
  config.incarnation = first_incarnation;
  config.seed = seed;
  config.check = true;
  config.segments_max = 16;
  config.algorithm = world_.algorithm;
  (void)core_->open(address_of(number_), config);
}

inline void Node::connect(int to, uint64_t bytes) {
  auto& peer = peers[to];
  if (!peer) {
    peer = std::make_unique<Peer>();
    if (!core_->add(*peer, address_of(to))) world_.complain("cannot connect");
  }
  if (peer->sending == 0) peer->sending = ++world_.names;
  peer->goal += bytes + 8;
}

inline bool Node::idle() const {
  return std::all_of(peers.begin(), peers.end(), [&](const auto& entry) {
    const Peer& peer = *entry.second;
    return peer.sent == peer.goal && peer.out.acked() == peer.goal && Core::completed(peer) == peer.goal &&
           !peer.in.blocked();
  });
}

inline void Node::poll() {
  std::vector<Arrived> batch;
  batch.swap(inbox);
  for (const Arrived& packet : batch) core_->on_packet(address_of(packet.from), packet.bytes, world_.now);
  core_->end_poll(world_.now);
  for (auto& [number, peer] : peers) {
    if (world_.rules.in_place) {
      peer->take_back(Core::completed(*peer));
      if (world_.choices.chance(0.002)) {
        if (!core_->copy_out(*peer)) world_.complain("no memory");
        peer->take_back(UINT64_MAX);
      }
    }
    if (!world_.lossless && world_.random.chance(0.3)) continue;
    for (int frames = static_cast<int>(1 + world_.random.below(20)); frames > 0 && peer->sent < peer->goal;
         --frames) {
      size_t bytes = 1 + world_.random.below(world_.random.chance(0.2) ? 70'000 : 300);
      bytes = std::min<uint64_t>(bytes, peer->goal - peer->sent);
      const bool in_place = world_.rules.in_place && world_.choices.chance(0.7);
      std::vector<std::byte> frame(bytes);
      // A head, which is copied, and the rest in two parts.
      const size_t head = world_.rules.in_place ? world_.choices.below(std::min<size_t>(bytes, 40) + 1) : 0;
      const size_t first = world_.rules.in_place ? world_.choices.below(bytes - head + 1) : 0;
      const iovec parts[] = {{frame.data() + head, first},
                             {frame.data() + head + first, bytes - head - first}};
      if (in_place ? !core_->reserve_in_place(*peer, head, parts, 2) : !core_->reserve(*peer, bytes)) break;
      for (size_t i = 0; i < bytes; ++i) frame[i] = stream_byte(peer->sending, peer->sent + i);
      if (in_place) {
        core_->append(*peer, frame.data(), head);
        for (const iovec& part : parts) core_->append_in_place(*peer, part);
        peer->lent.push_back({peer->out.end(), std::move(frame)});
      } else {
        core_->append(*peer, frame.data(), bytes);
      }
      peer->sent += bytes;
      if (world_.random.chance(0.5)) Core::expect(*peer);
      core_->push(*peer, [&] { return world_.now; });
    }
  }
}

inline size_t Node::packet_bytes_max(std::span<const std::byte>) noexcept {
  return world_.rules.packet_bytes;
}

inline bool Node::send(std::span<const std::byte> to, const iovec* parts, size_t count) noexcept {
  if (!world_.lossless && world_.random.chance(0.01)) return false;
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < count; ++i) {
    const auto* from = static_cast<const std::byte*>(parts[i].iov_base);
    bytes.insert(bytes.end(), from, from + parts[i].iov_len);
  }
  world_.carry(number_, std::to_integer<int>(to[3]), std::move(bytes));
  return true;
}

inline bool Node::send_segmented(std::span<const std::byte> to, const iovec* parts, size_t count,
                                 size_t packet_bytes) noexcept {
  if (!world_.lossless && world_.random.chance(0.01)) return false;
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < count; ++i) {
    const auto* from = static_cast<const std::byte*>(parts[i].iov_base);
    bytes.insert(bytes.end(), from, from + parts[i].iov_len);
  }
  for (size_t at = 0; at < bytes.size(); at += packet_bytes) {
    const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    world_.carry(number_, std::to_integer<int>(to[3]),
                 {from, from + static_cast<std::ptrdiff_t>(std::min(packet_bytes, bytes.size() - at))});
  }
  return true;
}

inline Connection* Node::accept(std::span<const std::byte> address) noexcept {
  const int from = std::to_integer<int>(address[3]);
  auto& peer = peers[from];
  if (peer) world_.complain("a peer is accepted twice");
  peer = std::make_unique<Peer>();
  return core_->add(*peer, address) ? peer.get() : nullptr;
}

inline size_t Node::on_bytes(Connection& connection, std::span<const std::byte> bytes) noexcept {
  Peer& peer = static_cast<Peer&>(connection);
  size_t take = bytes.size();
  if (!world_.lossless && world_.random.chance(world_.rules.refuses)) take = world_.random.below(take + 1);
  for (size_t i = 0; i < take; ++i, ++peer.heard) {
    if (peer.heard < 8) {
      peer.hearing |= std::to_integer<uint64_t>(bytes[i]) << (8 * peer.heard);
      if (peer.heard < 7) continue;
      if (peer.hearing == 0 || peer.hearing > world_.names)
        world_.complain("a stream without a name comes out");
      const uint64_t receiver = static_cast<uint64_t>(number_) << 32 | incarnation;
      if (!world_.heard_names.insert({peer.hearing, receiver}).second)
        world_.complain("a stream comes out twice");
    } else if (bytes[i] != stream_byte(peer.hearing, peer.heard)) {
      world_.complain("a wrong byte at " + std::to_string(peer.heard) + " comes out");
    }
  }
  return take;
}

inline void Node::lost(Connection& connection, core::ProviderError) noexcept {
  ++losses;
  if (!world_.restarted && !world_.rules.deaths) world_.complain("a connection is lost without reason");
  for (auto it = peers.begin(); it != peers.end(); ++it)
    if (it->second.get() == &connection) {
      peers.erase(it);
      return;
    }
  world_.complain("an unknown connection is lost");
}

}  // namespace weft::proto::reliable::sim
