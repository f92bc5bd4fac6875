// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Simulator of UC and UD: what is sent may be lost, come twice, late or in another order, but a message is delivered
// unharmed or not at all, to receive requests in the order of their posting. Sends complete in order, whatever became
// of them. A run is its seed.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "proto/roce/sim_world.hpp"

namespace weft::proto::roce::sim {

class UnreliableWorld {
 public:
  explicit UnreliableWorld(uint64_t seed) : random(seed), rules(conditions(seed)) {
    key_engine().seed(seed);
    for (size_t i = 0; i < 2; ++i) {
      nodes_[i] = std::make_unique<Side>(*this, i);
      // Of each side, whether it has windows for UC.
      if (rules.selects[i]) nodes_[i]->adapter.is_weft_peer = [](const Gid&) noexcept { return true; };
    }
  }

  // Empty: all is well.
  std::string run() {
    for (auto& side : nodes_) open(*side);
    const size_t pairs = 1 + random.below(4);
    for (size_t i = 0; i < pairs; ++i) connect(random.chance(0.5) ? QpType::Uc : QpType::Ud);
    for (int round = 0; round < 400 && wrong.empty(); ++round) {
      now += random.below(rules.delay_ns * 2 + 1);
      Side& side = *nodes_[random.below(2)];
      for (auto& end : side.ends) {
        post_receives(*end);
        while (random.chance(0.4)) post_send(*end);
      }
      run_until(random.chance(0.7) ? now : 0);
    }
    for (auto& side : nodes_) side->refuses = false;
    run_until(UINT64_MAX);
    for (auto& side : nodes_) finish(*side);
    return wrong;
  }

  uint64_t delivered = 0;

 private:
  static constexpr uint32_t room = 6000;      // of a receive
  static constexpr uint32_t stride = 6100;    // and its place
  static constexpr uint32_t places = 8;       // receives of an end
  static constexpr uint32_t queue = 16;       // sends of an end
  static constexpr uint32_t target = 12'000;  // bytes that the peer's UC writes
  static constexpr uint32_t right_qkey = 0x1111;

  struct Side;
  struct Sent {
    uint32_t length = 0;
    bool has_data = false;
    bool is_write = false;
    bool is_lost = false;  // it must not arrive: another Q_Key
    uint64_t offset = 0;
    const void* to = nullptr;  // the end that it goes to
  };
  struct End {
    Side* side = nullptr;
    End* peer = nullptr;
    QueuePair* qp = nullptr;
    std::vector<std::byte> incoming;
    Region* incoming_region = nullptr;
    std::vector<std::byte> arena;  // the target between two guards
    Region* target_region = nullptr;
    std::deque<uint32_t> posted;  // receives, by place
    std::vector<uint32_t> free;
    uint64_t first = 0;  // the oldest send without a completion
    uint64_t next = 0;
    bool is_ud() const { return qp->type == QpType::Ud; }
    size_t head() const { return is_ud() ? grh_bytes : 0; }
  };
  struct Side final : PacketOutput, Events {
    Side(UnreliableWorld& w, size_t n) : world(w), number(n), adapter(*this, *this, key_bytes) {}
    bool send(const AddressVector&, const iovec* parts, size_t count) noexcept override {
      if (refuses && world.random.chance(world.rules.refused)) return false;
      world.carry(number, parts, count);
      return true;
    }
    void on_completion(CompletionQueue&) noexcept override {}
    void on_async(const AsyncEvent&) noexcept override {}

    UnreliableWorld& world;
    size_t number;
    bool refuses = true;
    std::vector<std::byte> source;  // never changes: byte i is pattern(i)
    Region* source_region = nullptr;
    std::vector<std::unique_ptr<End>> ends;
    CompletionQueue* cq = nullptr;
    Adapter adapter;
  };
  struct Flight {
    uint64_t at;
    uint64_t order;
    size_t to;
    std::shared_ptr<std::vector<std::byte>> bytes;
    bool operator<(const Flight& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  static std::byte pattern(uint64_t i) { return static_cast<std::byte>((i * 0x9e3779b97f4a7c15u) >> 57); }
  static Gid gid(size_t side) {
    Gid g{};
    g[15] = static_cast<std::byte>(side + 1);
    return g;
  }
  static std::span<const std::byte> headers() {
    static const std::array<std::byte, 28> fixed{};
    return fixed;
  }
  void complain(const std::string& what) {
    if (wrong.empty()) wrong = what + " at " + std::to_string(now) + " ns";
  }

  void carry(size_t from, const iovec* parts, size_t count) {
    auto bytes = std::make_shared<std::vector<std::byte>>();
    for (size_t i = 0; i < count; ++i) {
      const auto* part = static_cast<const std::byte*>(parts[i].iov_base);
      bytes->insert(bytes->end(), part, part + parts[i].iov_len);
    }
    const uint32_t crc = wire::roce::icrc(headers(), *bytes);
    bytes->resize(bytes->size() + 4);
    wire::store_big(bytes->data() + bytes->size() - 4, wire::swap_bytes(crc));
    if (random.chance(rules.loss)) return;
    if (random.chance(rules.altered)) (*bytes)[random.below(bytes->size())] ^= std::byte{0x10};
    for (int copies = random.chance(rules.twice) ? 2 : 1; copies > 0; --copies) {
      const uint64_t late = random.chance(rules.late) ? random.below(rules.late_ns) : 0;
      flights_.push({now + rules.delay_ns + late, ++order_, 1 - from, bytes});
    }
  }

  // What arrives until then, and what the adapters have to send.
  void run_until(uint64_t until) {
    for (int rounds = 0; rounds < 100'000; ++rounds) {
      for (auto& side : nodes_) {
        side->adapter.flush(now);
        poll(*side);
      }
      const bool is_ready = nodes_[0]->adapter.has_ready() || nodes_[1]->adapter.has_ready();
      if (!flights_.empty() && flights_.top().at <= until) {
        const Flight flight = flights_.top();
        flights_.pop();
        now = std::max(now, flight.at);
        if (!wire::roce::icrc_is_right(headers(), *flight.bytes)) continue;
        Arrival arrival;
        arrival.source = gid(1 - flight.to);
        arrival.bytes = std::span(*flight.bytes).first(flight.bytes->size() - 4);
        arrival.is_marked = random.chance(rules.marked);
        nodes_[flight.to]->adapter.on_packet(arrival, now);
        continue;
      }
      if (until != UINT64_MAX) return;
      if (is_ready) continue;
      const uint64_t due = std::min(nodes_[0]->adapter.next_due(), nodes_[1]->adapter.next_due());
      if (due == UINT64_MAX) return;
      now = std::max(now, due);
    }
    complain("does not come to rest");
  }

  void open(Side& side) {
    side.cq = *side.adapter.create_cq(1024);
    side.source.resize(40'000);
    for (size_t i = 0; i < side.source.size(); ++i) side.source[i] = pattern(i);
    side.source_region = add(side, side.source.data(), side.source.size(), 0);
  }
  Region* add(Side& side, std::byte* at, size_t count, uint32_t access) {
    return *side.adapter.memory().add(1, at, reinterpret_cast<uint64_t>(at), count, access);
  }

  void connect(QpType type) {
    std::array<End*, 2> both{};
    for (size_t i = 0; i < 2; ++i) {
      Side& side = *nodes_[i];
      End& end = *side.ends.emplace_back(std::make_unique<End>());
      both[i] = &end;
      end.side = &side;
      end.incoming.assign(places * stride, guard);
      end.incoming_region = add(side, end.incoming.data(), end.incoming.size(), local_write);
      end.arena.assign(target + 2 * guard_bytes, guard);
      end.target_region = add(side, end.arena.data() + guard_bytes, target, local_write | remote_write);
      for (uint32_t place = 0; place < places; ++place) end.free.push_back(place);
      QueuePairRequest request;
      request.type = type;
      request.pd = 1;
      request.send_cq = request.receive_cq = side.cq;
      request.capacities = {queue, places, 2, 2, 64};
      request.signal_all = true;
      end.qp = *side.adapter.create_qp(request);
    }
    Attributes a;
    a.access = remote_write;
    a.path_mtu = random.pick<uint8_t>({1, 2, 3, 5});
    a.qkey = right_qkey;
    a.sq_psn = a.rq_psn = random.chance(0.3) ? 0xfffff0 : static_cast<uint32_t>(random.below(1 << 24));
    for (size_t i = 0; i < 2; ++i) {
      both[i]->peer = both[1 - i];
      a.path.destination = gid(1 - i);
      a.destination = both[1 - i]->qp->number;
      const bool ud = type == QpType::Ud;
      const auto step = [&](QpState to, uint32_t mask) {
        a.state = to;
        if (auto ok = nodes_[i]->adapter.modify(*both[i]->qp, a, mask | attr_state, now); !ok)
          complain(ok.error().why);
      };
      step(QpState::Init, attr_pkey_index | attr_port | (ud ? attr_qkey : attr_access));
      step(QpState::ReadyToReceive, ud ? 0u : attr_path | attr_path_mtu | attr_destination | attr_rq_psn);
      step(QpState::ReadyToSend, attr_sq_psn);
    }
  }

  void post_receives(End& end) {
    while (!end.free.empty() && random.chance(0.6)) {
      const uint32_t place = end.free.back();
      end.free.pop_back();
      const uint64_t at = reinterpret_cast<uint64_t>(end.incoming.data()) + uint64_t{place} * stride;
      const auto cut = static_cast<uint32_t>(random.below(room));
      const std::array<Element, 2> elements{Element{at, cut, end.incoming_region->key},
                                            Element{at + cut, room - cut, end.incoming_region->key}};
      if (end.side->adapter.post_receive(*end.qp, {uint64_t{1} << 32 | place, elements}, now) != 0)
        complain("a receive is refused");
      end.posted.push_back(place);
    }
  }

  // Its immediate data, or its first 8 bytes, name the message: its number in sent_.
  void post_send(End& end) {
    if (end.next - end.first == queue) return;
    End* peer = end.peer;
    Sent m;
    SendRequest q;
    if (end.is_ud()) {
      // To any of them.
      do peer = end.peer->side->ends[random.below(end.peer->side->ends.size())].get();
      while (!peer->is_ud());
      m.length = random.pick<uint32_t>({0, 1, 8, 63, 64, 255, 1000, 4096});
      m.is_lost = random.chance(0.1);
      q.to.destination = gid(peer->side->number);
      q.remote_qpn = peer->qp->number;
      q.remote_qkey = m.is_lost ? right_qkey + 1 : random.chance(0.3) ? 0x80000000u : right_qkey;
    } else {
      m.length = random.pick<uint32_t>({0, 1, 8, 63, 64, 255, 256, 257, 1000, 4096, 5000, room});
      m.is_write = random.chance(0.5);
    }
    m.to = peer;
    m.has_data = random.chance(0.7);
    m.offset = random.below(target - m.length);
    q.id = end.next;
    q.immediate = static_cast<uint32_t>(sent_.size());
    q.opcode = m.is_write ? (m.has_data ? SendOpcode::WriteImmediate : SendOpcode::Write)
                          : (m.has_data ? SendOpcode::SendImmediate : SendOpcode::Send);
    q.remote_address = reinterpret_cast<uint64_t>(peer->arena.data()) + guard_bytes + m.offset;
    q.remote_key = peer->target_region->key;
    // A SEND without a number is known by its length and place alone: all carry the source's bytes from there on.
    const Element element{reinterpret_cast<uint64_t>(end.side->source.data()) + m.offset, m.length,
                          end.side->source_region->key};
    q.elements = {&element, 1};
    if (m.length <= 64 && random.chance(0.5)) q.flags |= inline_data;
    sent_.push_back(m);
    ++end.next;
    if (end.side->adapter.post_send(*end.qp, q, now) != 0) complain("a send is refused");
  }

  void poll(Side& side) {
    std::array<Completion, 16> found;
    for (int n; (n = side.cq->poll(found)) != 0;) {
      if (n < 0) return complain("the completion queue has overrun");
      for (const Completion& c : std::span(found).first(static_cast<size_t>(n))) {
        End* end = nullptr;
        for (auto& one : side.ends)
          if (one->qp->number == c.qpn) end = one.get();
        if (end == nullptr) return complain("a completion of nobody");
        c.id >> 32 == 0 ? on_sent(*end, c) : on_received(*end, c);
      }
    }
  }

  void on_sent(End& end, const Completion& c) {
    if (c.id != end.first++) complain("a send completes out of order");
    if (c.status != Status::Success) complain("a send fails");
  }

  void on_received(End& end, const Completion& c) {
    const auto place = static_cast<uint32_t>(c.id);
    if (end.posted.empty() || end.posted.front() != place) return complain("receives are not taken in order");
    end.posted.pop_front();
    end.free.push_back(place);
    if (finishing_) {
      if (c.status != Status::Flushed) complain("a receive is not flushed");
      return;
    }
    if (c.status != Status::Success) return complain("a receive fails");
    ++delivered;
    std::byte* const at = end.incoming.data() + size_t{place} * stride;
    const bool has_data = (c.flags & with_immediate) != 0;
    const bool is_write = c.opcode == CompletionOpcode::ReceiveWriteImmediate;
    const size_t head = is_write ? 0 : end.head();
    const uint32_t length = c.bytes - static_cast<uint32_t>(head);
    if (has_data) {
      if (c.immediate >= sent_.size()) return complain("a message that nobody sent");
      const Sent& m = sent_[c.immediate];
      if (m.to != &end || m.is_lost || !m.has_data || m.is_write != is_write || m.length != length)
        return complain("a message differs from what was sent");
      for (size_t i = 0; i < length; ++i)
        if ((is_write ? end.arena[guard_bytes + m.offset + i] : at[head + i]) != pattern(m.offset + i))
          return complain("a message has other bytes");
    } else if (!std::ranges::any_of(sent_, [&](const Sent& m) {
                 if (m.to != &end || m.is_lost || m.has_data || m.is_write || m.length != length)
                   return false;
                 for (size_t i = 0; i < length; ++i)
                   if (at[head + i] != pattern(m.offset + i)) return false;
                 return true;
               })) {
      return complain("a message that nobody sent");
    }
    // A message that lost its end may have left bytes up to where a receive ends, and no further.
    for (size_t i = room; i < stride; ++i)
      if (at[i] != guard) return complain("bytes behind a receive have changed");
    std::fill_n(at, room, guard);
  }

  void finish(Side& side) {
    finishing_ = true;
    for (auto& end : side.ends) {
      if (end->first != end->next) complain("a send is unfinished");
      Attributes a;
      a.state = QpState::Error;
      if (!side.adapter.modify(*end->qp, a, attr_state, now)) complain("no way to ERR");
      poll(side);
      if (!end->posted.empty()) complain("a receive is not flushed");
      // A byte of the target is as at first, or what every message has there.
      for (size_t i = 0; i < end->arena.size(); ++i) {
        const bool is_inside = i >= guard_bytes && i < guard_bytes + target;
        if (end->arena[i] != guard && !(is_inside && end->arena[i] == pattern(i - guard_bytes)))
          complain("memory has bytes that nobody wrote");
      }
    }
    finishing_ = false;
  }

 public:
  Random random;
  Conditions rules;
  uint64_t now = 1;
  std::string wrong;

 private:
  std::array<std::unique_ptr<Side>, 2> nodes_;
  std::priority_queue<Flight> flights_;
  std::vector<Sent> sent_;
  uint64_t order_ = 0;
  bool finishing_ = false;
};

}  // namespace weft::proto::roce::sim
