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

#include "core/address_vector.hpp"
#include "core/completion_queue.hpp"
#include "core/counter.hpp"
#include "core/memory_region.hpp"
#include "proto/engine/engine.hpp"
#include "proto/engine/sim_link.hpp"

namespace weft::proto::sim {

using Bytes = std::vector<std::byte>;

// A buffer in several pieces, each an allocation of its own: one byte too many is seen.
class Pieces {
 public:
  Pieces() = default;
  Pieces(size_t bytes, size_t count, std::byte fill) {
    for (size_t i = 0; i < count; ++i) {
      const size_t n = i + 1 == count ? bytes : bytes / (count - i + i % 2);
      bytes -= n;
      parts_.push_back(std::make_unique<std::byte[]>(n));
      std::fill_n(parts_.back().get(), n, fill);
      iov_.push_back({parts_.back().get(), n});
    }
  }
  Pieces(const Bytes& bytes, size_t count) : Pieces(bytes.size(), count, {}) {
    (void)scatter(iov_.data(), iov_.size(), 0, bytes.data(), bytes.size());
  }
  const iovec* iov() const { return iov_.data(); }
  size_t count() const { return iov_.size(); }
  std::byte* base() const { return iov_.empty() ? nullptr : static_cast<std::byte*>(iov_[0].iov_base); }
  size_t size() const { return total_bytes(iov_.data(), iov_.size()); }
  Bytes get() const {
    Bytes out(size());
    (void)gather(out.data(), iov_.data(), iov_.size(), 0, out.size());
    return out;
  }
  void spoil() const {
    for (const iovec& part : iov_)
      std::fill_n(static_cast<std::byte*>(part.iov_base), part.iov_len, std::byte{0xee});
  }

 private:
  std::vector<std::unique_ptr<std::byte[]>> parts_;
  std::vector<iovec> iov_;
};

struct Posted;

// An operation that an engine accepted for transmission.
struct Sent {
  OpKind kind = OpKind::Send;
  size_t serial = 0;
  int from = 0, to = 0;
  uint8_t context = 0;  // receive context at the target
  bool tagged = false, acked = false, fence = false, silent = false;
  uint64_t tag = 0, data = 0, flags = 0;
  Bytes bytes;    // of the message, or what is written
  Pieces memory;  // the program's until completion: source, or destination of a read
  bool completed = false, cancelled = false, failed_to_send = false;
  // Messages.
  bool arrived = false, whole = false, discarded = false;
  size_t train_left = 0;
  Posted* receive = nullptr;
  size_t offset = 0, room = 0;  // in the receive
  bool received = false;        // the receive's completion for it was read
  // RMA and atomics.
  std::vector<fi_rma_iov> targets;
  size_t slot = 0;
  int refused = 0;  // the error that the target must answer with
  uint32_t atomic_op = 0;
  core::AtomicKind atomic_kind = core::AtomicKind::Write;
  std::vector<uint64_t> operand, compare;
  size_t cell = 0;
  Pieces result, compare_memory;
};

// A receive that a program posted, or a peek.
struct Posted {
  fi_context handle{};
  bool peek = false, tagged = false, multi = false;
  uint64_t tag = 0, ignore = 0, source = FI_ADDR_UNSPEC;
  Pieces memory;
  Sent* peeked = nullptr;
  std::vector<Sent*> parts;  // one, unless multi
  size_t used = 0;           // multi
  bool posted = false, cancelled = false, ended = false;
  size_t node = 0, side = 0;
};

inline constexpr std::byte untouched{0xcc};
inline constexpr size_t slot_bytes = 8192, slot_count = 8, cells_per_engine = 4, engines_max = 3,
                        contexts_max = 2;
inline constexpr size_t memory_bytes = slot_bytes * slot_count + engines_max * cells_per_engine * 8;
inline constexpr uint64_t open_key = 5, read_only_key = 6;

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
    if (wrong_.empty()) settle();
    return wrong_;
  }

 private:
  using Eng = Engine<L>;
  struct Side {  // one receive context
    size_t node = 0, index = 0;
    std::unique_ptr<RxContext> context;
    core::Counter receives, writes, reads;
    std::vector<Posted*> posted;
    std::vector<Sent*> unexpected;
    std::vector<Posted*> claimed;
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
    std::unique_ptr<Eng> engine;
    bool alive = true;
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
        return pick(L::train_bytes_max + 2);
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
    net_.unreadable = one_of({0U, 50U});
    net_.frames_max = one_of<size_t>({1, 3, 20, 200});
    EngineLimits limits;
    limits.transmit_size = one_of<size_t>({2, 5, 64});
    limits.receive_size = one_of<size_t>({4, 16, 64, 200});
    limits.inject_bytes = one_of<size_t>({64, 1000});
    limits.unexpected_bytes = one_of<size_t>({1, 700, 3000, 1 << 20});
    directed_ = pick(3) == 0;
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
    node.engine->link().open(net_, id, *node.engine);
    node.engine->set_address_vector(&node.av);
    node.engine->set_regions(&node.regions);
    node.engine->add_queue(&node.tx_cq);
    node.engine->add_queue(&node.rx_cq);
    const size_t half = memory_bytes / 2;
    const iovec parts[] = {{node.memory.data(), half}, {node.memory.data() + half, memory_bytes - half}};
    for (const auto& [key, access] :
         {std::pair{open_key, FI_REMOTE_READ | FI_REMOTE_WRITE}, std::pair{read_only_key, FI_REMOTE_READ}}) {
      core::RegionRequest request;
      request.iov = parts;
      request.iov_count = 2;
      request.access = access;
      request.requested_key = key;
      auto region = node.regions.add(request);
      if (check(static_cast<bool>(region), "no region")) regions_.push_back({*region, size_t(id)});
    }
    node.tx.cq = &node.tx_cq;
    node.tx.sends = pick(2) == 0 ? &node.sends : nullptr;
    node.tx.reads = &node.reads;
    node.tx.writes = &node.writes;
    node.tx.settle();
    for (uint8_t i = 0; i < (bits_ == 0 ? 1 : contexts_max); ++i) {
      node.sides.push_back(std::make_unique<Side>());
      Side& side = *node.sides.back();
      side.node = size_t(id);
      side.index = i;
      side.context = std::make_unique<RxContext>(i, limits.receive_size, net_.random());
      side.context->cq = &node.rx_cq;
      side.context->directed = directed_;
      side.context->unexpected_bytes_max = limits.unexpected_bytes;
      side.context->receives = &side.receives;
      side.context->remote_writes = &side.writes;
      side.context->remote_reads = &side.reads;
      side.context->settle();
      node.engine->set_receive_context(i, side.context.get());
    }
  }
  void know(Node& node, size_t other) {
    if (node.addresses[other] != FI_ADDR_NOTAVAIL) return;
    const auto bytes = address_of(static_cast<int>(other));
    node.addresses[other] = node.av.insert(core::Address(bytes.data(), bytes.size()));
  }
  fi_addr_t destination(Node& node, size_t other, uint8_t context) {
    know(node, other);
    return bits_ == 0 ? node.addresses[other] : node.addresses[other] | uint64_t{context} << (64 - bits_);
  }

  // --- the program ---
  void step() {
    const size_t who = pick(nodes_.size());
    Node& node = *nodes_[who];
    if (!node.alive) return;
    const uint64_t what = pick(100);
    if (what < 25) {
      send(who);
    } else if (what < 45) {
      receive(node);
    } else if (what < 52) {
      rma(who);
    } else if (what < 57) {
      atomic(who);
    } else if (what < 61) {
      peek(node);
    } else if (what < 64) {
      cancel(who);
    } else if (what < 80) {
      read_queues(node);
    } else if (what < 99 || killed_ || pick(6) != 0) {
      node.engine->progress();
    } else {
      kill(who);
    }
  }

  void send(size_t who) {
    Node& node = *nodes_[who];
    auto op = std::make_unique<Sent>();
    op->from = static_cast<int>(who);
    op->to = static_cast<int>(pick(nodes_.size()));
    op->context = static_cast<uint8_t>(pick(node.sides.size()));
    op->tagged = pick(2) == 0;
    op->tag = op->tagged ? pick(4) : 0;
    op->bytes = some_bytes(some_length());
    const fi_addr_t dest = destination(node, static_cast<size_t>(op->to), op->context);
    ssize_t status;
    const uint64_t way = pick(4);
    if (way == 0 && op->bytes.size() <= node.engine->limits().inject_bytes) {
      op->memory = Pieces(op->bytes, 1);
      op->silent = true;
      status = op->tagged ? node.engine->template inject<true>(node.tx, op->memory.base(), op->bytes.size(),
                                                               dest, op->tag)
                          : node.engine->template inject<false>(node.tx, op->memory.base(), op->bytes.size(),
                                                                dest, 0);
      op->memory.spoil();
    } else if (way == 1) {
      op->memory = Pieces(op->bytes, 1);
      status = op->tagged ? node.engine->template send<true>(node.tx, op->memory.base(), op->bytes.size(),
                                                             dest, op->tag, op.get())
                          : node.engine->template send<false>(node.tx, op->memory.base(), op->bytes.size(),
                                                              dest, 0, op.get());
    } else {
      op->memory = Pieces(op->bytes, 1 + pick(iov_max));
      op->flags = some_flags(node, op->bytes.size());
      if (pick(4) == 0) op->flags |= FI_REMOTE_CQ_DATA;
      op->data = (op->flags & FI_REMOTE_CQ_DATA) != 0 ? net_.random() : 0;
      op->acked = (op->flags & FI_DELIVERY_COMPLETE) != 0;
      op->fence = (op->flags & FI_FENCE) != 0;
      Request request = request_of(*op, dest);
      status = node.engine->post(node.tx, request);
      if ((op->flags & FI_INJECT) != 0) op->memory.spoil();
    }
    if (!accepted(status, *op)) return;
    in_order_[{op->from, op->to}].push_back(op.get());
    keep(std::move(op));
  }
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

  void rma(size_t who) {
    Node& node = *nodes_[who];
    const size_t to = pick(nodes_.size());
    Node& target = *nodes_[to];
    const size_t slot = pick(slot_count);
    if (target.busy[slot]) return;
    auto op = std::make_unique<Sent>();
    op->kind = pick(2) == 0 ? OpKind::Write : OpKind::Read;
    op->from = static_cast<int>(who);
    op->to = static_cast<int>(to);
    op->context = static_cast<uint8_t>(pick(node.sides.size()));
    op->acked = true;
    op->slot = slot;
    op->flags = some_flags(node, 0) & ~FI_INJECT;
    const bool write = op->kind == OpKind::Write;
    size_t left = some_length();
    uint64_t at = slot * slot_bytes + pick(40);
    for (size_t n = 1 + pick(3); n > 0; --n) {
      const size_t length = n == 1 ? left : left / 2;
      op->targets.push_back({at, length, open_key});
      at += length + pick(30);
      left -= length;
    }
    Bytes bytes = some_bytes(total(op->targets));
    if (write) {
      op->bytes = bytes;
      if (bytes.size() <= node.engine->limits().inject_bytes && pick(3) == 0) op->flags |= FI_INJECT;
      if (pick(3) == 0) op->flags |= FI_REMOTE_CQ_DATA;
      op->data = (op->flags & FI_REMOTE_CQ_DATA) != 0 ? net_.random() : 0;
    } else if (target.alive) {
      for (const fi_rma_iov& piece : op->targets)
        for (size_t i = 0; i < piece.len; ++i)
          target.memory[piece.addr + i] = static_cast<std::byte>(net_.random());
      op->bytes = at_target(*op);
    }
    spoil_target(*op);
    op->memory =
        write ? Pieces(bytes, 1 + pick(iov_max)) : Pieces(bytes.size(), 1 + pick(iov_max), untouched);
    Request request = request_of(*op, destination(node, to, op->context));
    request.targets = op->targets.data();
    request.target_count = op->targets.size();
    const ssize_t status = node.engine->post(node.tx, request);
    if ((op->flags & FI_INJECT) != 0) op->memory.spoil();
    if (!accepted(status, *op)) return;
    target.busy[slot] = true;
    if ((op->flags & FI_REMOTE_CQ_DATA) != 0 && op->refused == 0) target.expected_data.insert(op->data);
    keep(std::move(op));
  }
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
  // Sometimes the peer's memory is not what the program believes.
  void spoil_target(Sent& op) {
    fi_rma_iov& piece = op.targets[pick(op.targets.size())];
    switch (pick(12)) {
      case 0:
        piece.key = 99;
        op.refused = FI_EKEYREJECTED;
        break;
      case 1:
        piece.addr = memory_bytes - piece.len + 1 + pick(100);
        op.refused = FI_EACCES;
        break;
      case 2:
        piece.key = read_only_key;
        op.refused = op.kind == OpKind::Read ? 0 : FI_EACCES;
        break;
      default:
        break;
    }
  }

  void atomic(size_t who) {
    Node& node = *nodes_[who];
    auto op = std::make_unique<Sent>();
    op->kind = OpKind::Atomic;
    op->from = static_cast<int>(who);
    op->to = static_cast<int>(pick(nodes_.size()));
    op->context = static_cast<uint8_t>(pick(node.sides.size()));
    op->acked = true;
    op->cell = pick(cells_per_engine);
    op->atomic_kind = one_of({core::AtomicKind::Write, core::AtomicKind::Fetch, core::AtomicKind::Compare});
    op->atomic_op = op->atomic_kind == core::AtomicKind::Write   ? one_of<uint32_t>({FI_SUM, FI_ATOMIC_WRITE})
                    : op->atomic_kind == core::AtomicKind::Fetch ? one_of<uint32_t>({FI_SUM, FI_ATOMIC_READ})
                                                                 : uint32_t{FI_CSWAP};
    const size_t count = 1 + pick(cells_per_engine - op->cell);
    for (size_t i = 0; i < count; ++i) {
      op->operand.push_back(pick(5));
      op->compare.push_back(pick(5));
    }
    op->flags = some_flags(node, 8 * count);
    const bool operand = op->atomic_op != FI_ATOMIC_READ;
    if (operand) op->memory = Pieces(as_bytes(op->operand), 1);
    op->compare_memory = Pieces(as_bytes(op->compare), 1);
    op->result = Pieces(8 * count, 1, untouched);
    op->targets.push_back(
        {slot_bytes * slot_count + 8 * (cells_per_engine * who + op->cell), 8 * count, open_key});
    spoil_target(*op);
    if (op->refused == FI_EACCES && op->targets[0].key == read_only_key && !operand) op->refused = 0;
    Request request = request_of(*op, destination(node, static_cast<size_t>(op->to), op->context));
    request.targets = op->targets.data();
    request.target_count = 1;
    request.datatype = FI_UINT64;
    request.atomic_op = op->atomic_op;
    request.atomic_kind = op->atomic_kind;
    request.compare = op->compare_memory.iov();
    request.compare_count = op->atomic_kind == core::AtomicKind::Compare ? 1 : 0;
    request.result = op->result.iov();
    request.result_count = op->atomic_kind == core::AtomicKind::Write ? 0 : 1;
    const ssize_t status = node.engine->post(node.tx, request);
    if (status == 0 && (op->flags & FI_INJECT) != 0) op->memory.spoil();
    if (!accepted(status, *op)) return;
    if (op->refused == 0) nodes_[static_cast<size_t>(op->to)]->atomics[op->from].push_back(op.get());
    keep(std::move(op));
  }
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
  void receive(Node& node) {
    Side& side = *node.sides[pick(node.sides.size())];
    if (!side.claimed.empty() && pick(2) == 0) return take_claimed(node, side);
    auto record = make_record(side);
    record->tagged = pick(2) == 0;
    record->tag = record->tagged ? pick(4) : 0;
    record->ignore = record->tagged ? one_of<uint64_t>({0, 0, 1, 3}) : 0;
    if (directed_ && pick(2) == 0) record->source = node.addresses[pick(nodes_.size())];
    record->multi = !record->tagged && pick(3) == 0;
    record->memory = Pieces(record->multi ? 500 + pick(12'000) : some_length(),
                            record->multi ? 1 : 1 + pick(iov_max), untouched);
    (void)post(side, std::move(record));
  }
  bool post(Side& side, std::unique_ptr<Posted> record) {
    ssize_t status;
    if (record->tagged && record->memory.count() == 1 && pick(2) == 0) {
      status = side.context->receive_tagged(record->memory.base(), record->memory.size(), record->source,
                                            record->tag, record->ignore, &record->handle);
    } else {
      status = side.context->receive(request_of(*record, record->multi ? FI_MULTI_RECV : 0));
    }
    if (status == -FI_EAGAIN) return false;
    check(status == 0, "a receive was refused");
    Posted& posted = *record;
    posted_.push_back(std::move(record));
    by_handle_[&posted.handle] = &posted;
    posted.posted = true;
    side.posted.push_back(&posted);
    for (size_t i = 0; i < side.unexpected.size() && posted.posted;) {
      Sent& message = *side.unexpected[i];
      if (!accepts(posted, message)) {
        ++i;
        continue;
      }
      side.unexpected.erase(side.unexpected.begin() + long(i));
      assign(side, posted, message);
    }
    return true;
  }
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

  void peek(Node& node) {
    Side& side = *node.sides[pick(node.sides.size())];
    auto record = make_record(side);
    record->peek = true;
    record->tagged = pick(2) == 0;
    record->tag = pick(4);
    record->ignore = one_of<uint64_t>({0, 3});
    const uint64_t also = one_of<uint64_t>({0, FI_CLAIM, FI_DISCARD});
    auto found = std::find_if(side.unexpected.begin(), side.unexpected.end(),
                              [&](Sent* message) { return accepts(*record, *message); });
    if (found != side.unexpected.end()) record->peeked = *found;
    if (!check(side.context->peek(request_of(*record, FI_PEEK | also)) == 0, "a peek failed")) return;
    by_handle_[&record->handle] = record.get();
    if (record->peeked != nullptr && also != 0) side.unexpected.erase(found);
    if (record->peeked != nullptr && also == FI_DISCARD) record->peeked->discarded = true;
    if (record->peeked != nullptr && also == FI_CLAIM) side.claimed.push_back(record.get());
    posted_.push_back(std::move(record));
  }
  void take_claimed(Node& node, Side& side) {
    read_queues(node);  // the answer to the peek has the same context
    Posted& record = *side.claimed.back();
    if (!check(record.ended, "a peek was not answered")) return;
    if (pick(4) == 0) {
      if (!check(side.context->receive(request_of(record, FI_CLAIM | FI_DISCARD)) == 0, "a discard failed"))
        return;
      record.peeked->discarded = true;
    } else {
      record.memory = Pieces(some_length(), 1 + pick(iov_max), untouched);
      if (side.context->receive(request_of(record, FI_CLAIM)) == -FI_EAGAIN) return;
      record.peek = false;
      assign(side, record, *record.peeked);
    }
    record.ended = false;
    std::erase(side.claimed, &record);
  }

  void cancel(size_t who) {
    Node& node = *nodes_[who];
    if (pick(2) == 0 && !waiting_.empty()) {
      Sent& op = **std::next(waiting_.begin(), long(pick(waiting_.size())));
      if (op.from != int(who) || node.engine->cancel(&op) != 0) return;
      check(!op.arrived, "a message was cancelled that had been sent");
      op.cancelled = true;
      std::erase(in_order_[{op.from, op.to}], &op);
      return;
    }
    Side& side = *node.sides[pick(node.sides.size())];
    if (posted_.empty()) return;
    Posted& record = *posted_[pick(posted_.size())];
    const bool here = std::find(side.posted.begin(), side.posted.end(), &record) != side.posted.end();
    const ssize_t status = side.context->cancel(&record.handle);
    if (!check(status == (here ? 0 : -FI_ENOENT), "cancel of a receive: neither cancelled nor completed") ||
        !here)
      return;
    record.cancelled = true;
    end_posting(side, record);
  }

  void kill(size_t who) {
    Node& node = *nodes_[who];
    killed_ = true;
    node.alive = false;
    net_.kill(int(who));
    node.engine.reset();
    std::erase_if(waiting_, [&](Sent* op) { return op->from == int(who); });
    for (const auto& op : sent_)
      if (op->from == int(who)) op->completed = true;
  }

  // --- the model ---
  bool accepts(const Posted& record, const Sent& message) {
    if (record.tagged != message.tagged ||
        (record.tagged && ((record.tag ^ message.tag) & ~record.ignore) != 0))
      return false;
    return record.source == FI_ADDR_UNSPEC ||
           record.source == nodes_[size_t(message.to)]->addresses[size_t(message.from)];
  }
  void end_posting(Side& side, Posted& record) {
    std::erase(side.posted, &record);
    record.posted = false;
  }
  void assign(Side& side, Posted& record, Sent& message) {
    message.receive = &record;
    message.offset = record.used;
    message.room = std::min(message.bytes.size(), record.memory.size() - record.used);
    record.parts.push_back(&message);
    if (record.multi) {
      record.used += message.room;
      if (record.memory.size() - record.used < side.context->multi_receive_min) end_posting(side, record);
    } else {
      end_posting(side, record);
    }
  }
  void arrived(int from, int to, const Frame& frame) override {
    using enum wire::FrameKind;
    switch (frame.head.kind) {
      case Tagged:
      case Msg:
      case TaggedAck:
      case MsgAck:
        return first_frame(from, to, frame, frame.head.length, true);
      case TaggedRts:
      case MsgRts:
        return first_frame(from, to, frame, 0, false);
      case TaggedFirst:
      case MsgFirst:
        return first_frame(from, to, frame, frame.head.length - sizeof(wire::FirstPrefix), true);
      case More: {
        Sent* message = trains_[{from, to}];
        if (!check(message != nullptr && message->train_left >= frame.head.length, "bytes of no message"))
          return;
        message->train_left -= frame.head.length;
        message->whole = message->train_left == 0;
        return;
      }
      case Pause:
        paused_.insert({from, to});
        return;
      case Resume:
        paused_.erase({from, to});
        return;
      default:
        return;
    }
  }
  void first_frame(int from, int to, const Frame& frame, size_t bytes, bool carries) {
    using enum wire::FrameKind;
    const wire::FrameKind kind = frame.head.kind;
    auto& order = in_order_[{from, to}];
    if (!check(!order.empty(), "a message that nobody sent")) return;
    Sent& message = *order.front();
    order.pop_front();
    const bool tagged = kind == Tagged || kind == TaggedAck || kind == TaggedRts || kind == TaggedFirst;
    check(message.tagged == tagged && (!tagged || frame.head.a == message.tag) &&
              frame.head.context == message.context,
          "messages change places");
    const bool train = kind == TaggedFirst || kind == MsgFirst;
    message.arrived = true;
    message.train_left = train ? message.bytes.size() - bytes : 0;
    message.whole = carries && message.train_left == 0;
    if (train) trains_[{from, to}] = &message;
    if (message.fence) check_fence(message);
    Side& side = *nodes_[size_t(to)]->sides[message.context];
    const auto found = std::find_if(side.posted.begin(), side.posted.end(),
                                    [&](Posted* record) { return accepts(*record, message); });
    if (found == side.posted.end()) side.unexpected.push_back(&message);
    else assign(side, **found, message);
  }
  // FI_FENCE: what was written before it is there.
  void check_fence(const Sent& fence) {
    for (Sent* op : waiting_) {
      if (op->from != fence.from || op->to != fence.to || op->kind != OpKind::Write || op->refused != 0 ||
          op->cancelled)
        continue;
      if (op->serial < fence.serial)
        check(at_target(*op) == op->bytes, "a fence was passed before an earlier write was done");
    }
  }
  void lost(int at, int peer) override {
    for (auto& side : nodes_[size_t(at)]->sides)
      std::erase_if(side->unexpected,
                    [&](Sent* message) { return message->from == peer && !message->whole; });
  }
  void starve(bool on) override { starve_(on); }

  // --- completions ---
  void read_queues(Node& node) {
    fi_cq_tagged_entry entries[4];
    fi_addr_t sources[4];
    for (core::CompletionQueue* queue : {&node.tx_cq, &node.rx_cq}) {
      for (;;) {
        const ssize_t got = queue->read<fi_cq_tagged_entry, true>(entries, 4, sources);
        if (got == -FI_EAVAIL) {
          core::CompletionError error;
          if (!check(queue->read_error(error) == 0, "an error that cannot be read")) return;
          queue == &node.tx_cq ? transmitted(error.base.context, error.err) : received(node, error);
          continue;
        }
        if (got <= 0) break;
        for (ssize_t i = 0; i < got; ++i) {
          core::CompletionError entry;
          entry.base = {entries[i].op_context, entries[i].flags, entries[i].len, entries[i].buf,
                        entries[i].data,       entries[i].tag,   sources[i]};
          queue == &node.tx_cq ? transmitted(entries[i].op_context, 0) : received(node, entry);
        }
      }
    }
  }
  // sim_checks.hpp
  void transmitted(void* context, int error);
  void check_result(const Sent& op, Node& target);
  void check_atomic(const Sent& op, Node& target);
  void received(Node& node, const core::CompletionError& entry);
  void received_part(Node& node, Posted& record, const core::CompletionError& entry);
  Sent* part_of(Posted& record, const core::CompletionError& entry);
  void answered(Posted& record, const core::CompletionError& entry);
  void settle();
  bool at_rest();
  std::string what_waits();
  void help();
  void check_end();
  void check_counters(Node& node);

  Net net_;
  void (*starve_)(bool);
  bool directed_ = false, killed_ = false;
  int bits_ = 0;
  std::vector<std::unique_ptr<Sent>> sent_;
  std::vector<std::unique_ptr<Posted>> posted_;
  std::map<void*, Posted*> by_handle_;
  std::set<Sent*> waiting_;
  std::map<std::pair<int, int>, std::deque<Sent*>> in_order_;
  std::map<std::pair<int, int>, Sent*> trains_;
  std::set<std::pair<int, int>> paused_;  // the first has asked the second to keep payloads
  std::vector<std::pair<core::MemoryRegion*, size_t>> regions_;  // with the number of the engine
  std::vector<std::unique_ptr<Node>> nodes_;
  std::string wrong_;
};

}  // namespace weft::proto::sim

#include "proto/engine/sim_checks.hpp"
