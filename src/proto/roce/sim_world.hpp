// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Simulator: two adapters, queue pairs between them, and a network that loses, doubles, delays and alters packets.
// Each queue pair runs a random program of work requests (sim_program.hpp) against a model: every completion in order,
// every byte as the model has it, no byte outside of what was registered. Types: RC and XRC; sim_unreliable.hpp has
// UC and UD. A run is its seed.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "proto/roce/adapter.hpp"
#include "proto/roce/sim_times.hpp"
#include "wire/bytes.hpp"
#include "wire/roce/icrc.hpp"

namespace weft::proto::roce::sim {

inline constexpr uint64_t second = 1000 * ms;

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

// The adapters' source of numbers: reset for each world, so that a seed repeats.
inline std::mt19937_64& key_engine() {
  static std::mt19937_64 engine;
  return engine;
}
inline bool key_bytes(void* bytes, size_t count) {
  for (size_t i = 0; i < count; ++i)
    static_cast<unsigned char*>(bytes)[i] = static_cast<unsigned char>(key_engine()());
  return true;
}

struct Conditions {
  double loss = 0;
  double twice = 0;
  double late = 0;
  double altered = 0;
  double refused = 0;  // no room in the link
  double marked = 0;   // by ECN
  uint64_t late_ns = 0;
  uint64_t delay_ns = 0;
  bool selects[2] = {};  // the node repeats selectively
  bool aggregates = false;
  bool may_fail = false;  // so much is lost that retries may run out
};

inline Conditions conditions(uint64_t seed) {
  Random random(seed * 6364136223846793005u + 11);
  Conditions c;
  for (bool& one : c.selects) one = random.chance(0.7);
  c.aggregates = Random(seed * 2862933555777941757u + 3).chance(0.4);
  if (random.chance(0.15)) return c;
  c.loss = random.pick({0.0, 0.0, 0.005, 0.02, 0.05});
  c.twice = random.pick({0.0, 0.0, 0.01, 0.1});
  c.late = random.pick({0.0, 0.0, 0.01, 0.1});
  c.altered = random.pick({0.0, 0.0, 0.01});
  c.refused = random.pick({0.0, 0.0, 0.05});
  c.late_ns = random.pick<uint64_t>({5 * us, 200 * us, 5 * ms});
  c.delay_ns = random.pick<uint64_t>({1 * us, 20 * us, 300 * us});
  c.marked = random.pick({0.0, 0.0, 0.02, 0.5});
  if (random.chance(0.05)) {
    c.loss = 0.4;
    c.may_fail = true;
  }
  return c;
}

inline constexpr size_t slot_bytes = 24'000;
inline constexpr uint32_t sends = 24;
inline constexpr uint32_t receives = 6;
inline constexpr size_t target_bytes = 30'000;
inline constexpr uint32_t xrcd = 7;
inline constexpr size_t guard_bytes = 64;
inline constexpr auto guard = std::byte{0xee};

class World;
struct Node;

// Where SENDs go, a slot for each receive; of one queue pair, or of all that share a queue.
struct Incoming {
  std::vector<std::byte> bytes;
  Region* region = nullptr;
  SharedReceiveQueue* srq = nullptr;
  std::vector<uint32_t> free_slots;
};

// One end of a connected pair.
struct End {
  struct Op {
    SendRequest request;
    bool signals = false;
    bool by_window = false;       // it names the peer's window
    std::vector<std::byte> read;  // what a READ has to bring
    uint64_t original = 0;        // or an atomic
  };
  struct Message {
    std::vector<std::byte> bytes;  // of a SEND
    uint32_t length = 0;
    bool is_write = false;
    bool has_data = false;
    bool invalidates = false;
    uint32_t data = 0;  // immediate, or the key that is invalidated
  };
  // Of the window over the target. What the end has posted to change it is not complete in Binding and Leaving.
  enum class WindowState : uint8_t { None, Free, Binding, Bound, Leaving };

  Node* node = nullptr;
  Incoming* incoming = nullptr;
  End* peer = nullptr;
  QueuePair* qp = nullptr;
  QueuePair* takes = nullptr;  // who receives: another one in XRC
  uint64_t first_id = 0;       // number of the oldest of ops
  std::deque<Op> ops;          // posted, without a completion
  std::deque<Message> awaited;
  size_t left = 0;            // requests to post
  bool sends_failed = false;  // with a queue pair for both, both
  bool receives_failed = false;
  // The last request of some programs is one that cannot succeed.
  Status last = Status::Success;         // how it has to end
  Status first_error = Status::Success;  // of a send, or none yet
  // [guard][target][guard], the peer writes the target; its model is beside it. The last 8 bytes are for atomics,
  // the quarter before them is only read.
  std::vector<std::byte> arena;
  std::vector<std::byte> model;
  std::vector<std::byte> landing;  // of READs and atomics, a slot for each place of the send queue
  Region* target_region = nullptr;
  Region* landing_region = nullptr;

  Region* window = nullptr;
  WindowState window_state = WindowState::None;
  uint32_t window_key = 0;
  size_t window_uses = 0;  // requests by the peer's window that are not complete

  bool failed() const { return sends_failed || receives_failed; }
  bool is_xrc() const { return takes != qp; }
  std::byte* target() { return arena.data() + guard_bytes; }
  uint64_t target_address() { return reinterpret_cast<uint64_t>(target()); }
};

struct Node final : PacketOutput, Events {
  Node(World& w, size_t n)
      : world(w), number(n), adapter(std::make_unique<Adapter>(*this, *this, key_bytes)) {}
  bool send(const AddressVector& to, const iovec* parts, size_t count) noexcept override;
  size_t payload_max(const AddressVector&) noexcept override;
  bool send_aggregate(const AddressVector& to, const iovec* parts, size_t count,
                      uint32_t psns) noexcept override;
  void on_completion(CompletionQueue&) noexcept override {}
  void on_async(const AsyncEvent&) noexcept override {}
  void poll();
  void drive();

  World& world;
  size_t number;
  std::unique_ptr<Adapter> adapter;
  CompletionQueue* cq = nullptr;
  bool polls = true;              // an event for that is there
  std::vector<std::byte> source;  // never changes
  Region* source_region = nullptr;
  std::vector<std::unique_ptr<End>> ends;
  std::vector<std::unique_ptr<Incoming>> incomings;
  Incoming* shared = nullptr;  // of all ends
};

class World {
 public:
  // Without its common cases an adapter goes the general path for everything (common_case.cpp).
  explicit World(uint64_t seed, bool has_common_case = true, congestion::Make algorithm = nullptr)
      : random(seed), rules(conditions(seed)) {
    key_engine().seed(seed);
    for (size_t i = 0; i < 2; ++i) {
      nodes[i] = std::make_unique<Node>(*this, i);
      nodes[i]->adapter->has_common_case = has_common_case;
      nodes[i]->adapter->algorithm = algorithm;
      if (rules.selects[i]) nodes[i]->adapter->is_weft_peer = [](const Gid&) noexcept { return true; };
    }
  }

  // Empty: all is well.
  std::string run() {
    for (auto& node : nodes) open(*node);
    const size_t pairs = 1 + random.below(3);
    for (size_t i = 0; i < pairs; ++i) connect();
    for (size_t i = 0; i < 2; ++i) at(0, nullptr, i);
    uint64_t steps = 0;
    while (!events.empty() && wrong.empty()) {
      const Event event = events.top();
      events.pop();
      if (event.at > 600 * second) return complain("does not end");
      if (++steps > 3'000'000) return complain("takes too many steps");
      now = event.at;
      Node& node = *nodes[event.node];
      if (event.bytes != nullptr) arrive(node, *event.bytes, event.psns);
      if (event.bytes == nullptr || random.chance(0.7)) {
        node.adapter->flush(now);
        node.drive();
      }
      if (event.bytes == nullptr) node.polls = false;
      for (const auto& end : node.ends) count_responses(*end->qp);
      // A late packet may wake who has come to rest.
      if (!node.polls && !quiet()) again(node);
    }
    if (wrong.empty()) judge();
    return wrong;
  }

  void carry(size_t from, const iovec* parts, size_t count, uint32_t psns) {
    auto bytes = std::make_shared<std::vector<std::byte>>();
    for (size_t i = 0; i < count; ++i) {
      const auto* part = static_cast<const std::byte*>(parts[i].iov_base);
      bytes->insert(bytes->end(), part, part + parts[i].iov_len);
    }
    if (bytes->size() % 4 != 0) complain("a packet is not padded");
    note(now);
    note(from);
    note(bytes->size());
    for (size_t i = 0; i < wire::roce::bth_bytes; ++i) note(std::to_integer<uint64_t>((*bytes)[i]));
    const uint32_t crc = wire::roce::icrc(headers(), *bytes);
    bytes->resize(bytes->size() + 4);
    wire::store_big(bytes->data() + bytes->size() - 4, wire::swap_bytes(crc));
    if (random.chance(rules.loss)) return;
    if (random.chance(rules.altered)) {
      const size_t where = random.below(bytes->size());
      if (where != 4) (*bytes)[where] ^= static_cast<std::byte>(1 + random.below(255));
    }
    for (int copies = random.chance(rules.twice) ? 2 : 1; copies > 0; --copies) {
      uint64_t delay = rules.delay_ns;
      if (random.chance(rules.late)) delay += random.below(rules.late_ns);
      at(delay, bytes, 1 - from, static_cast<uint8_t>(psns));
    }
  }

  // What happened, as one number: when which packets left, and the completions. Addresses are of the process, and not in it.
  void note(uint64_t value) noexcept { trace = (trace ^ value) * 0x100000001b3; }
  uint64_t trace = 0xcbf29ce484222325;

  std::string complain(const std::string& what) {
    if (wrong.empty()) wrong = what + " at " + std::to_string(now) + " ns";
    return wrong;
  }

  Random random;
  Conditions rules;
  uint64_t now = 1;
  std::array<std::unique_ptr<Node>, 2> nodes;
  std::string wrong;

 private:
  struct Event {
    uint64_t at;
    uint64_t order;
    std::shared_ptr<std::vector<std::byte>> bytes;  // null: the node looks around
    size_t node;
    uint8_t psns;
    bool operator<(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };
  void at(uint64_t delay, std::shared_ptr<std::vector<std::byte>> bytes, size_t node, uint8_t psns = 1) {
    events.push({now + delay, ++order_, std::move(bytes), node, psns});
  }

  static std::span<const std::byte> headers() {
    static const std::array<std::byte, 28> fixed{};
    return fixed;
  }

  static Gid gid(size_t node) {
    Gid g{};
    g[15] = static_cast<std::byte>(node + 1);
    return g;
  }

  void arrive(Node& node, const std::vector<std::byte>& bytes, uint8_t psns) {
    if (!wire::roce::icrc_is_right(headers(), bytes)) return;
    Arrival arrival;
    arrival.source = gid(1 - node.number);
    arrival.bytes = std::span(bytes).first(bytes.size() - 4);
    arrival.is_marked = random.chance(rules.marked);
    arrival.psns = psns;
    node.adapter->on_packet(arrival, now);
  }

  // When the node has something to do next: a timer, or what the link did not take.
  void again(Node& node) {
    node.polls = true;
    uint64_t delay = 20 * us + random.below(100 * us);
    if (node.adapter->has_ready()) delay = 1 * us;
    else if (node.adapter->next_due() < now + delay) delay = std::max(node.adapter->next_due(), now) - now;
    at(delay, nullptr, node.number);
  }

  bool quiet() const {
    for (const auto& node : nodes) {
      if (node->adapter->has_ready() || node->adapter->next_due() != UINT64_MAX) return false;
      for (const auto& end : node->ends)
        if (!end->failed() && !end->peer->failed() &&
            (end->left != 0 || !end->ops.empty() || !end->awaited.empty()))
          return false;
    }
    return true;
  }

  void open(Node& node) {
    node.cq = *node.adapter->create_cq(4096);
    node.source.resize(100'000);
    for (std::byte& b : node.source) b = static_cast<std::byte>(random.below(256));
    node.source_region = *node.adapter->memory().add(
        1, node.source.data(), reinterpret_cast<uint64_t>(node.source.data()), node.source.size(), 0);
    if (!random.chance(0.3)) return;
    node.shared = &make_incoming(node);
    node.shared->srq = *node.adapter->create_srq(1, receives, 2);
  }

  Region* add(Node& node, std::byte* bytes, size_t count, uint32_t access) {
    return *node.adapter->memory().add(1, bytes, reinterpret_cast<uint64_t>(bytes), count, access);
  }

  Incoming& make_incoming(Node& node) {
    Incoming& made = *node.incomings.emplace_back(std::make_unique<Incoming>());
    made.bytes.assign(slot_bytes * receives, guard);
    made.region = add(node, made.bytes.data(), made.bytes.size(), local_write);
    for (uint32_t slot = 0; slot < receives; ++slot) made.free_slots.push_back(slot);
    return made;
  }

  End& make_end(Node& node, QpType kind, const Attributes& common, uint32_t sq_psn, uint32_t rq_psn) {
    End& end = *node.ends.emplace_back(std::make_unique<End>());
    end.node = &node;
    end.arena.assign(target_bytes + 2 * guard_bytes, guard);
    for (size_t i = 0; i < target_bytes; ++i) end.target()[i] = static_cast<std::byte>(random.below(256));
    end.model = end.arena;
    end.landing.assign(slot_bytes * sends, guard);
    end.target_region =
        add(node, end.target(), target_bytes,
            local_write | remote_write | remote_read | remote_atomic | window_bind | flush_global);
    if (random.chance(0.4)) {
      // A window of type 2 is of one queue pair, which in XRC is not the one that the peer sends to.
      const bool plain = kind == QpType::XrcSend || random.chance(0.3);
      end.window = *node.adapter->memory().add_window(1, plain ? WindowType::One : WindowType::Two);
      end.window_state = End::WindowState::Free;
      end.window_key = end.window->key;
    }
    end.landing_region = add(node, end.landing.data(), end.landing.size(), local_write);
    QueuePairRequest request;
    request.type = kind;
    request.pd = 1;
    request.send_cq = node.cq;
    request.capacities = {sends, receives, 4, 2, 256};
    if (kind == QpType::XrcSend) {
      end.incoming = &xrc_incoming(node);
      QueuePairRequest target;
      target.type = QpType::XrcReceive;
      target.xrcd = xrcd;
      end.takes = *node.adapter->create_qp(target);
    } else {
      end.incoming = node.shared != nullptr ? node.shared : &make_incoming(node);
      request.srq = end.incoming->srq;
      request.receive_cq = node.cq;
    }
    end.qp = *node.adapter->create_qp(request);
    if (end.takes == nullptr) end.takes = end.qp;
    end.qp->attributes.window_packets = random.pick<uint32_t>({8, 32, 128});
    Attributes a = common;
    a.path.destination = gid(1 - node.number);
    a.rq_psn = rq_psn;
    a.sq_psn = sq_psn;
    end.left = 1 + random.below(60);
    if (random.chance(0.15))
      end.last = random.pick({Status::RemoteAccess, Status::RemoteInvalidRequest, Status::LocalProtection});
    pending_ = a;
    return end;
  }

  // From RESET to RTS.
  void raise(Node& node, QueuePair& qp, Attributes a, uint32_t peer) {
    const auto step = [&](QpState to, uint32_t mask) {
      a.state = to;
      if (auto ok = node.adapter->modify(qp, a, mask | attr_state, now); !ok) complain(ok.error().why);
    };
    a.destination = peer;
    step(QpState::Init, attr_pkey_index | attr_port | attr_access);
    step(QpState::ReadyToReceive,
         attr_path | attr_path_mtu | attr_destination | attr_rq_psn |
             (qp.type == QpType::XrcSend ? 0u : attr_max_dest_reads | attr_min_rnr_timer));
    step(QpState::ReadyToSend,
         attr_sq_psn | attr_timeout |
             (qp.type == QpType::XrcReceive ? 0u : attr_retry_count | attr_rnr_retry | attr_max_reads));
  }
  // In XRC some ends of a node share a queue, others have one of their own.
  Incoming& xrc_incoming(Node& node) {
    for (auto& one : node.ends)
      if (one->incoming != nullptr && one->is_xrc() && random.chance(0.5)) return *one->incoming;
    Incoming& made = make_incoming(node);
    made.srq = *node.adapter->create_srq(1, receives, 2, xrcd, node.cq);
    return made;
  }

  void connect() {
    const QpType kind = random.chance(0.25) ? QpType::XrcSend : QpType::Rc;
    Attributes a;
    a.access = remote_write | remote_read | remote_atomic | flush_global;
    a.path_mtu = random.pick<uint8_t>({1, 2, 3, 5});
    a.timeout = random.pick<uint8_t>({8, 11, 13});  // 1, 8, 33 ms
    a.min_rnr_timer = random.pick<uint8_t>({1, 6, 12});
    a.rnr_retry = 7;
    a.max_reads = static_cast<uint8_t>(1 + random.below(4));
    a.max_dest_reads = 4;
    const auto psn = [&] {
      return static_cast<uint32_t>(random.chance(0.3) ? 0x1000000 - random.below(40)
                                                      : random.below(1 << 24)) &
             psn_mask;
    };
    const uint32_t psns[2] = {psn(), psn()};
    std::array<End*, 2> both{};
    std::array<Attributes, 2> attributes;
    for (size_t i = 0; i < 2; ++i) {
      both[i] = &make_end(*nodes[i], kind, a, psns[i], psns[1 - i]);
      attributes[i] = pending_;
    }
    for (size_t i = 0; i < 2; ++i) {
      both[i]->peer = both[1 - i];
      raise(*nodes[i], *both[i]->qp, attributes[i], both[1 - i]->takes->number);
      if (both[i]->is_xrc()) raise(*nodes[i], *both[i]->takes, attributes[i], both[1 - i]->qp->number);
    }
  }

  // Of the READs before the cursor.
  void count_responses(const QueuePair& qp) {
    const RequesterState& r = qp.requester;
    uint32_t awaited = 0;
    for (uint32_t i = qp.sends.head; static_cast<int32_t>(i - r.cursor) < 0; ++i) {
      const SendEntry& e = qp.sends.at(i);
      if (e.opcode != SendOpcode::Read) continue;
      awaited += e.packets - static_cast<uint32_t>(std::max(0, psn_diff(r.oldest, e.first_psn)));
    }
    if (r.responses != awaited) complain("responses are miscounted");
  }

  // All is over: memory is as the model has it.
  void judge() {
    for (const auto& node : nodes)
      for (const auto& end : node->ends) {
        if (end->failed() || end->peer->failed()) {
          judge_failed(*end);
          continue;
        }
        if (end->left != 0 || !end->ops.empty() || !end->awaited.empty()) complain("something is unfinished");
        const RequesterState& r = end->qp->requester;
        // What the peer kept last is forgotten when there is more to send.
        const auto& repeater = end->qp->repeater;
        if (r.apart != (repeater != nullptr ? repeater->counted : 0) || r.open_reads != 0 ||
            r.responses != 0 || r.oldest != r.next)
          complain("the requester does not come to rest");
        if (end->arena != end->model) complain("memory differs from the model");
      }
  }

  // One of a pair has failed: for a reason, and completely.
  void judge_failed(const End& end) {
    if (!rules.may_fail && end.last == Status::Success && end.peer->last == Status::Success)
      complain("a queue pair has failed");
    const Incoming& incoming = *end.incoming;
    // Without a signal some may have succeeded before, and nothing came that tells.
    const bool has_signaled = std::ranges::any_of(end.ops, [](const End::Op& op) { return op.signals; });
    if ((end.sends_failed && (has_signaled || !end.qp->sends.empty())) ||
        (end.receives_failed && incoming.srq == nullptr && incoming.free_slots.size() != receives))
      complain("a request is not flushed");
    if (!std::equal(end.arena.begin(), end.arena.begin() + guard_bytes, end.model.begin()) ||
        !std::equal(end.arena.end() - guard_bytes, end.arena.end(), end.model.end() - guard_bytes))
      complain("bytes outside of the region have changed");
    // The peer came to its last request, so all before it were executed here.
    const Status error = end.peer->first_error;
    if (end.peer->last != Status::Success && error == end.peer->last && end.arena != end.model)
      complain("memory differs from the model where the last request failed");
    // Else it ended because the queue pair had failed here, or was not answered any more.
    if (error != Status::Success && error != end.peer->last && error != Status::Flushed &&
        error != Status::RetryExceeded)
      complain("a request fails with status " + std::to_string(static_cast<int>(error)));
  }

  std::priority_queue<Event> events;
  uint64_t order_ = 0;
  Attributes pending_;
};

// --- nodes ---

inline bool Node::send(const AddressVector&, const iovec* parts, size_t count) noexcept {
  return send_aggregate({}, parts, count, 1);
}

inline bool Node::send_aggregate(const AddressVector&, const iovec* parts, size_t count,
                                 uint32_t psns) noexcept {
  if (world.random.chance(world.rules.refused)) return false;
  world.carry(number, parts, count, psns);
  return true;
}

inline size_t Node::payload_max(const AddressVector&) noexcept {
  return world.rules.aggregates ? mtu_bytes_max : 0;
}

}  // namespace weft::proto::roce::sim
