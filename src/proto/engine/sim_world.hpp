// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Random programs over a few engines, and a simple model of what has to come of them: messages match in order, every byte arrives, every
// operation completes exactly once, nothing is left at the end. For the property test. Must not know how the engine works inside.
//
// The model hears from the link when the first frame of a message was taken and matches the message at that moment, with plain vectors. Which
// message it is follows from FI_ORDER_SAS: the n-th message that one engine sent to another is the n-th that arrives there.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/engine/sim_engines.hpp"
#include "proto/engine/sim_records.hpp"

namespace weft::proto::sim {

template <class L>
class World final : public Watcher {
 public:
  World(uint64_t seed, void (*starver)(bool)) : net_(seed), starve_(starver) {
    net_.watcher = this;
    set_up();
  }
  ~World() {
    for (auto& node : nodes_) node->engine.reset();
  }

  // Runs `steps` random calls, then waits for the end of everything. Empty, or what went wrong.
  std::string run(int steps) {
    for (int i = 0; i < steps && wrong_.empty(); ++i) step();
    if (wrong_.empty()) run_to_the_end();
    return wrong_;
  }
  const Shortcuts& shortcuts() const { return net_.shortcuts; }

 private:
  using Eng = Engine<L>;
  struct Side {  // one receive context
    size_t node = 0, index = 0;
    std::unique_ptr<RxContext> context;
    core::Counter receives, writes, reads;
    std::vector<Posted*> posted;
    std::vector<Sent*> unexpected;
    std::vector<Posted*> claimed;
    Posted* taking = nullptr;  // what the program asks for in place, during the call
    Sent* lent = nullptr;      // what it got
    size_t good = 0, bad = 0;  // receives that completed
  };
  struct Node {
    Node(int bits, size_t cq_size)
        : av(bits), regions({false, false, false}, nullptr), tx_cq(cq_size), rx_cq(cq_size) {}
    core::AddressVector av;
    core::MemoryRegionTable regions;
    core::CompletionQueue tx_cq, rx_cq;
    core::Counter sends, reads, writes;
    TxContext tx;
    std::vector<std::unique_ptr<Side>> sides;
    Bytes memory = Bytes(memory_bytes);
    std::array<bool, slot_count> busy{};
    std::array<fi_addr_t, engines_max> addresses{FI_ADDR_NOTAVAIL, FI_ADDR_NOTAVAIL, FI_ADDR_NOTAVAIL};
    std::map<int, std::vector<Sent*>> atomics;  // by initiator, in order of posting
    std::multiset<uint64_t> expected_data, seen_data;
    std::vector<Taken> taken;
    std::vector<Reserved> reserved;
    bool one_queue = false;  // for all completions, as direct linking needs it
    core::CompletionQueue& receive_queue() { return one_queue ? tx_cq : rx_cq; }
    std::unique_ptr<Eng> engine;
    bool alive = true;
    bool closed_context = false;  // what was under way then is not counted
  };

  // --- chances ---
  uint64_t pick(uint64_t n) { return net_.random() % n; }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return *(list.begin() + pick(list.size()));
  }
  size_t some_length() {
    switch (pick(6)) {
      case 0:
        return pick(3) * pick(30);
      case 1:
        return pick(49);
      case 2:
        return pick(L::eager_bytes_max + 2);
      case 3:
        return pick(L::fragmented_eager_bytes_max + 2);
      default:
        return pick(6000);
    }
  }
  Bytes some_bytes(size_t n) {
    Bytes out(n);
    for (auto& byte : out) byte = static_cast<std::byte>(net_.random());
    return out;
  }
  void wrong(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }
  bool check(bool good, const char* what) {
    if (!good) wrong(what);
    return good;
  }

  // --- set-up ---
  void set_up() {
    net_.refusal = one_of({0U, 10U, 50U});
    net_.delay = one_of({10U, 50U, 80U});
    net_.starving = one_of({0U, 0U, 20U});
    net_.unseen = one_of({0U, 30U});
    net_.parting = one_of({0U, 40U});
    net_.unreadable = one_of({0U, 50U});
    net_.fast_paths = one_of({0U, 50U, 100U});
    net_.frames_max = one_of<size_t>({1, 3, 20, 200});
    EngineLimits limits;
    limits.transmit_size = one_of<size_t>({2, 5, 64});
    limits.receive_size = one_of<size_t>({4, 16, 64, 200});
    limits.inject_bytes = one_of<size_t>({64, 1000});
    limits.inject_errors = inject_errors_ = pick(2) == 0;
    limits.driven = pick(4) == 0;
    limits.unexpected_bytes = one_of<size_t>({1, 700, 3000, 1 << 20});
    directed_ = pick(3) == 0;
    if constexpr (HasRemoteMemory<L>) exposing_ = pick(3) == 0;
    bits_ = static_cast<int>(pick(2));
    const size_t count = 2 + pick(2);
    for (size_t i = 0; i < count; ++i) add_node(static_cast<int>(i), limits);
    for (auto& node : nodes_)
      for (size_t i = 0; i < count; ++i)
        if (directed_ || pick(2) == 0) know(*node, i);
  }
  void add_node(int id, const EngineLimits& limits) {
    nodes_.push_back(std::make_unique<Node>(bits_, one_of<size_t>({2, 16, 128})));
    Node& node = *nodes_.back();
    node.engine = std::make_unique<Eng>(limits);
    node.engine->link().join(net_, id);
    check(static_cast<bool>(node.engine->open("")), "a link cannot be opened");
    node.engine->set_address_vector(&node.av);
    node.engine->set_regions(&node.regions);
    if constexpr (HasFastPoll<L>) node.one_queue = pick(4) != 0;
    node.engine->add_queue(&node.tx_cq);
    node.engine->add_queue(&node.receive_queue());
    const size_t half = memory_bytes / 2;
    const iovec parts[] = {{node.memory.data(), exposing_ ? memory_bytes : half},
                           {node.memory.data() + half, memory_bytes - half}};
    for (const auto& [key, access] :
         {std::pair{open_key, FI_REMOTE_READ | FI_REMOTE_WRITE}, std::pair{read_only_key, FI_REMOTE_READ}}) {
      core::RegionRequest request;
      request.iov = parts;
      request.iov_count = exposing_ ? 1 : 2;
      request.access = access;
      request.requested_key = key;
      auto region = node.regions.add(request);
      if (check(static_cast<bool>(region), "no region")) regions_.push_back({*region, size_t(id)});
    }
    node.tx.cq = &node.tx_cq;
    node.tx.sends = pick(2) == 0 ? &node.sends : nullptr;
    if (node.tx.sends != nullptr) node.engine->count_sends();
    node.tx.reads = &node.reads;
    node.tx.writes = &node.writes;
    node.tx.apply_bindings();
    for (size_t i = 0; i < (bits_ == 0 ? 1 : contexts_max); ++i) {
      node.sides.push_back(std::make_unique<Side>());
      Side& side = *node.sides.back();
      side.node = size_t(id);
      side.index = static_cast<uint8_t>(i);
      side.context = std::make_unique<RxContext>(i, limits.receive_size, net_.random());
      side.context->cq = &node.receive_queue();
      side.context->directed = directed_;
      side.context->unexpected_bytes_max = limits.unexpected_bytes;
      side.context->receives = &side.receives;
      // Where peers come without us nobody counts them.
      side.context->remote_writes = exposing_ ? nullptr : &side.writes;
      side.context->remote_reads = exposing_ ? nullptr : &side.reads;
      side.context->apply_bindings();
      node.engine->set_receive_context(i, side.context.get());
    }
    if (exposing_) check(node.engine->serve_regions(false, false) == 0, "regions are not served");
  }
  void know(Node& node, size_t other) {
    if (node.addresses[other] != FI_ADDR_NOTAVAIL) return;
    const auto bytes = address_of(static_cast<int>(other));
    node.addresses[other] = node.av.insert(core::Address(bytes.data(), bytes.size()));
  }
  void unknow(Node& node);
  fi_addr_t destination(Node& node, size_t other, uint8_t context) {
    know(node, other);
    return bits_ == 0 ? node.addresses[other] : node.addresses[other] | uint64_t{context} << (64 - bits_);
  }

  // --- the program ---
  void step();

  void send(size_t who);
  uint64_t some_flags(Node& node, size_t bytes) {
    uint64_t flags = 0;
    if (pick(4) == 0) flags |= FI_DELIVERY_COMPLETE;
    if (pick(8) == 0) flags |= FI_FENCE;
    if (pick(4) == 0 && bytes <= node.engine->limits().inject_bytes) flags |= FI_INJECT;
    return flags;
  }
  static Request request_of(Sent& op, fi_addr_t dest) {
    Request request;
    request.kind = op.kind;
    request.tagged = op.tagged;
    request.iov = op.memory.iov();
    request.iov_count = op.memory.count();
    request.dest = dest;
    request.tag = op.tag;
    request.data = op.data;
    request.flags = op.flags;
    request.context = &op;
    request.silent = op.silent;
    return request;
  }
  bool accepted(ssize_t status, const Sent& op) {
    if (status == 0) return true;
    if (status != -FI_EAGAIN && nodes_[static_cast<size_t>(op.to)]->alive)
      wrong("a call was refused: " + std::to_string(status));
    return false;
  }
  Sent* keep(std::unique_ptr<Sent> op) {
    op->serial = sent_.size();
    if (!op->silent) waiting_.insert(op.get());
    if (op->silent) op->completed = true;
    sent_.push_back(std::move(op));
    return sent_.back().get();
  }

  void rma(size_t who);
  static size_t total(const std::vector<fi_rma_iov>& targets) {
    size_t out = 0;
    for (const fi_rma_iov& target : targets) out += target.len;
    return out;
  }
  Bytes at_target(const Sent& op) {
    Bytes out;
    const Bytes& memory = nodes_[static_cast<size_t>(op.to)]->memory;
    for (const fi_rma_iov& piece : op.targets)
      out.insert(out.end(), memory.begin() + long(piece.addr), memory.begin() + long(piece.addr + piece.len));
    return out;
  }
  void spoil_target(Sent& op);

  void atomic(size_t who);
  static Bytes as_bytes(const std::vector<uint64_t>& words) {
    Bytes out(words.size() * 8);
    std::memcpy(out.data(), words.data(), out.size());
    return out;
  }

  std::unique_ptr<Posted> make_record(const Side& side) {
    auto record = std::make_unique<Posted>();
    record->node = side.node;
    record->side = side.index;
    return record;
  }
  void receive(Node& node);
  bool post(Side& side, std::unique_ptr<Posted> record);
  static ReceiveRequest request_of(Posted& record, uint64_t flags) {
    ReceiveRequest request;
    request.iov = record.memory.iov();
    request.iov_count = record.memory.count();
    request.source = record.source;
    request.tag = record.tag;
    request.ignore = record.ignore;
    request.context = &record.handle;
    request.flags = flags;
    request.tagged = record.tagged;
    return request;
  }

  void peek(Node& node);
  void take_claimed(Node& node, Side& side);

  void shortcut(size_t who);
  void read_fast(Node& node);
  void take(Node& node);
  void release(Node& node, size_t index);
  void reserve(size_t who);
  void end_reserved(Node& node, size_t index, bool send);

  void cancel(size_t who);
  void close_context(size_t who);

  void kill(size_t who);

  // --- the model ---
  bool accepts(const Posted& record, const Sent& message) {
    if (record.tagged != message.tagged ||
        (record.tagged && ((record.tag ^ message.tag) & ~record.ignore) != 0))
      return false;
    return record.source == FI_ADDR_UNSPEC ||
           record.source == nodes_[size_t(message.to)]->addresses[size_t(message.from)];
  }
  Sent* oldest_unexpected(Side& side, const Posted& wanted) {
    const auto found = std::find_if(side.unexpected.begin(), side.unexpected.end(),
                                    [&](Sent* message) { return accepts(wanted, *message); });
    return found != side.unexpected.end() ? *found : nullptr;
  }
  void end_posting(Side& side, Posted& record) {
    std::erase(side.posted, &record);
    record.posted = false;
  }
  void assign(Side& side, Posted& record, Sent& message);
  void arrived(int from, int to, const Frame& frame) override;
  void first_frame(int from, int to, const Frame& frame, size_t bytes, bool carries);
  void check_fence(const Sent& fence);
  void lost(int at, int peer) override;
  void starve(bool on) override { starve_(on); }

  // --- completions ---
  void read_queues(Node& node);
  bool is_receive(const core::CompletionError& entry) {
    return by_handle_.contains(entry.base.context) || (entry.base.context == nullptr && entry.err == 0);
  }
  void completed(Node& node, const core::CompletionError& entry) {
    if (is_receive(entry)) received(node, entry);
    else transmitted(entry.base.context, entry.err);
  }
  // sim_checks.hpp
  void transmitted(void* context, int error);
  void check_result(const Sent& op, Node& target);
  void check_atomic(const Sent& op, Node& target);
  void received(Node& node, const core::CompletionError& entry);
  void received_part(Node& node, Posted& record, const core::CompletionError& entry);
  Sent* part_of(Posted& record, const core::CompletionError& entry);
  void answered(Posted& record, const core::CompletionError& entry);
  void check_returned(const Posted& record, const core::CompletionError& entry);
  void run_to_the_end();
  bool at_rest();
  std::string what_waits();
  void help();
  void check_end();
  void check_counters(Node& node);

  Net net_;
  void (*starve_)(bool);
  bool directed_ = false, killed_ = false, inject_errors_ = false, renamed_ = false, exposing_ = false;
  int bits_ = 0;
  std::vector<std::unique_ptr<Sent>> sent_;
  std::vector<std::unique_ptr<Posted>> posted_;
  std::map<void*, Posted*> by_handle_;
  std::set<Sent*> waiting_;
  std::map<std::pair<int, int>, std::deque<Sent*>> in_order_;
  std::map<std::pair<int, int>, Sent*> fragmented_;
  std::set<std::pair<int, int>> paused_;  // the first has asked the second to keep payloads
  std::vector<std::pair<core::MemoryRegion*, size_t>> regions_;  // with the number of the engine
  std::vector<std::unique_ptr<Node>> nodes_;
  std::string wrong_;
};

}  // namespace weft::proto::sim

#include "proto/engine/sim_checks.hpp"
#include "proto/engine/sim_program.hpp"
