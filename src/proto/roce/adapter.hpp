// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Adapter: one RoCEv2 port; what the specification calls a channel adapter. It keeps the registry (queue pairs, completion
// queues, memory, shared receive queues, multicast groups), moves queue pairs through their states, finds the queue pair of
// each packet, and sends what the scheduler names. A state machine: packets, commands and the time go in; packets, completions
// and events come out. docs/roce.md has the design.
//
// Must not know: sockets, clocks, IP or the ICRC; how requests become packets and are retried (Requester), how they are executed
// and answered (Responder), whose turn it is and what comes next (Scheduler). It is the only one that knows all three.
//
// Calls, one at a time, with `now` in ns of a clock that never goes back:
//   control   create_*, modify, destroy_*, and memory(): allocate, and say why they refuse
//   commands  post_send, post_receive; CompletionQueue::poll and arm
//   input     on_packet() for each packet, then flush(), which sends what is due: acknowledgements coalesce until then
//   output    PacketOutput and Events, from inside these calls only
//   time      next_due(); flush() runs the timers
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "proto/roce/attributes.hpp"
#include "proto/roce/environment.hpp"
#include "proto/roce/memory.hpp"
#include "proto/roce/number_table.hpp"
#include "proto/roce/queue_pair.hpp"
#include "proto/roce/queues.hpp"
#include "proto/roce/requester.hpp"
#include "proto/roce/responder.hpp"
#include "proto/roce/scheduler.hpp"
#include "proto/roce/services.hpp"
#include "proto/roce/work.hpp"
#include "wire/roce/packet.hpp"

namespace weft::proto::roce {

class Adapter final : private ErrorTransition {
 public:
  static constexpr int packets_per_flush = 256;  // and the rest of a turn

  Adapter(PacketOutput& output, Events& events, Random random)
      : services_(output, events, random, *this),
        qps_(objects_max, random),
        srqs_(objects_max, random),
        requester_(services_),
        responder_(services_, srqs_) {}
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;
  ~Adapter();

  size_t datagram_bytes_max = mtu_bytes_max;  // of UD; set before the first QP
  // Whether a peer of that name is an adapter of Weft, with which a queue pair repeats selectively, or one of UC has a
  // window. Null: nobody is. Set before the first QP.
  bool (*is_weft_peer)(const Gid& peer) noexcept = nullptr;
  bool has_selective = true;  // false: RC and XRC go back all the same
  // Another algorithm than Dcqcn, for all queue pairs; set before the first one.
  congestion::Make algorithm = nullptr;
  // Bytes of a buffer, with its owner's bookkeeping, that packets of UC wait in until on_packet(); their senders are told
  // windows that fit. 0: unknown.
  size_t unreliable_room_bytes = 0;
  std::vector<Gid> names;       // of its own ports, as Arrival::source has them; set before the first packet
  bool has_common_case = true;  // false: tests compare what the general path does (common_case.cpp)

  // --- control ---
  Result<CompletionQueue*> create_cq(uint32_t capacity);
  int destroy_cq(CompletionQueue& cq) noexcept;  // -EBUSY: a QP uses it
  // Whether a queue is armed by another than `by`. True also for more queues than are looked at.
  bool is_armed_by_other(const void* by) const noexcept {
    constexpr size_t checked_at_max = 64;
    return cqs_.size() > checked_at_max || std::ranges::any_of(cqs_, [by](const auto& cq) {
             return cq->armed_by() != nullptr && cq->armed_by() != by;
           });
  }
  Result<SharedReceiveQueue*> create_srq(uint32_t pd, uint32_t requests, uint32_t elements, uint32_t xrcd = 0,
                                         CompletionQueue* cq = nullptr);
  int destroy_srq(SharedReceiveQueue& srq) noexcept;  // -EBUSY
  Result<QueuePair*> create_qp(const QueuePairRequest& request);
  void destroy_qp(QueuePair& qp) noexcept;
  void observe(QueuePairObserver* observer) noexcept { services_.faults.observe(observer); }  // null: nobody
  // ibv_modify_qp(3). Nothing is changed by what is refused.
  Result<void> modify(QueuePair& qp, const Attributes& attributes, uint32_t mask, uint64_t now);
  // ibv_attach_mcast(3). `group` is what Arrival::group will name. True: the group is new, and the owner has its ports
  // join it. A QP that is attached already stays so. EINVAL: the QP is not UD; ENOMEM: a bound of groups.
  Result<bool> attach(QueuePair& qp, const Gid& group);
  // True: nobody is left in the group. EINVAL: the QP is not attached to it.
  Result<bool> detach(QueuePair& qp, const Gid& group);
  // One of the groups that the QP is attached to; nothing: there is none.
  std::optional<Gid> first_group(const QueuePair& qp) const noexcept;
  MemoryTable& memory() noexcept { return services_.memory; }

  // --- commands --- 0, or -EINVAL (state, type, too much of something), -ENOMEM (full).
  // What post_send() would say of the request, but for the room in the queue.
  int check(const QueuePair& qp, const SendRequest& request) const noexcept;
  int post_send(QueuePair& qp, const SendRequest& request, uint64_t now) noexcept;
  int post_receive(QueuePair& qp, const ReceiveRequest& request, uint64_t now) noexcept;
  int post_receive(SharedReceiveQueue& srq, const ReceiveRequest& request) noexcept {
    return srq.queue.post(request);
  }
  // Why post_send(), or check(), and post_receive() refused that request: told to the observer.
  void log_refused(const QueuePair& qp, const SendRequest& request) const noexcept;
  void log_refused(const QueuePair& qp, const ReceiveRequest& request) const noexcept;

  // --- input ---
  void on_packet(const Arrival& arrival, uint64_t now) noexcept;
  void flush(uint64_t now) noexcept;
  // flush() without the timers: for who has not taken all that has arrived, the answer that a timer waits for perhaps.
  void serve_ready(uint64_t now) noexcept;

  // --- output ---
  uint64_t next_due() const noexcept { return services_.scheduler.next_due(); }  // UINT64_MAX: no timer
  // next_due() is that of a probe, which may be late. Otherwise the queue pair would be due at `otherwise`.
  bool is_probe_next(uint64_t& otherwise) const noexcept {
    return services_.scheduler.is_probe_next(otherwise);
  }
  // All that flush() would send is one acknowledgement of an RC queue pair.
  bool owes_acknowledgement_alone() const noexcept {
    return services_.scheduler.owes_acknowledgement_alone();
  }
  // Then: the same queue pair has requests of its own that are not acknowledged.
  bool awaits_acknowledgement() const noexcept;
  // Then: the acknowledgement may leave so much later before the peer repeats. Its timeout is taken to be that of this side.
  bool may_wait(uint64_t ns) const noexcept;
  bool has_ready() const noexcept {
    return services_.scheduler.has_ready();
  }  // flush() has something to send
  // The first PSN behind the requests of a queue pair that were sent as a whole: the peer may have consumed each of them.
  uint32_t end_of_sent(const QueuePair& qp) const noexcept { return Requester::end_of_sent(qp); }
  // Whether the peer may have consumed a request before that PSN without an acknowledgement having arrived.
  bool awaits_before(const QueuePair& qp, uint32_t psn) const noexcept {
    return Requester::awaits_before(qp, psn);
  }
  const AdapterCounters& counters() const noexcept { return services_.counters; }
  template <class Fn>
  void for_each_qp(Fn&& fn) const {
    qps_.for_each(fn);
  }
  QueuePair* find(uint32_t qpn) const noexcept { return qps_.find(qpn); }
  SharedReceiveQueue* find_srq(uint32_t number) const noexcept { return srqs_.find(number); }

 private:
  using Packet = wire::roce::Packet;

  // adapter.cpp
  static bool is_same(const Gid& a, const Gid& b) noexcept {
    return std::memcmp(a.data(), b.data(), a.size()) == 0;
  }
  static bool is_peer(const QueuePair& qp, const Arrival& arrival) noexcept {
    const Gid& peer = qp.attributes.path.destination;
    return is_same(arrival.source, peer) || (is_same(arrival.alias, peer) && !is_same(peer, Gid{}));
  }
  Sent serve(QueuePair& qp, uint64_t now) noexcept;
  Sent run_turn(QueuePair& qp, uint64_t now) noexcept;
  void fail_overrun(QueuePair& qp, uint64_t now) noexcept;
  void on_other(QueuePair& qp, bool is_from_peer, const Packet& packet, uint64_t now) noexcept;
  void apply(QueuePair& qp, const Attributes& a, uint32_t mask) noexcept;
  void reset(QueuePair& qp) noexcept;
  void to_error(QueuePair& qp, uint64_t now) noexcept override;
  void set_selective(QueuePair& qp);
  void set_tag_keys(QueuePair& qp) const noexcept;
  uint32_t window_for(const QueuePair& qp) const noexcept;

  // post.cpp
  static bool allowed(QpType type, SendOpcode opcode) noexcept;

  // common_case.cpp: false where it is no such case, and then nothing has changed
  bool post_common(QueuePair& qp, const SendRequest& request, uint64_t now) noexcept;
  bool on_common_packet(const Arrival& arrival, uint64_t now) noexcept;

  // datagram.cpp
  void on_group_datagram(const Arrival& arrival, const Packet& packet, uint64_t now) noexcept;

  Services services_;
  NumberTable<QueuePair> qps_;            // by QPN; owned
  NumberTable<SharedReceiveQueue> srqs_;  // by SRQN; owned
  Requester requester_;
  Responder responder_;
  // Cold below.
  uint32_t unreliable_count_ = 0;  // queue pairs of UC
  std::vector<std::unique_ptr<CompletionQueue>> cqs_;
  struct Group {
    Gid gid{};
    std::vector<QueuePair*> members;
  };
  std::vector<Group> groups_;  // those with members
};

}  // namespace weft::proto::roce
