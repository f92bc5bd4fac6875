// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Adapter: queue pairs, queues and memory of one RoCEv2 port; what the specification calls a channel adapter. A
// state machine: packets, commands and the time go in; packets, completions and events come out. docs/roce.md has
// the design. Must not know sockets, clocks, IP or the ICRC.
//
// Calls, one at a time, with `now` in ns of a clock that never goes back:
//   control   create_*, modify, destroy_*, and memory(): allocate, and say why they refuse
//   commands  post_send, post_receive; CompletionQueue::poll and arm
//   input     on_packet() for each packet, then flush(), which sends what is due: acknowledgements coalesce until then
//   output    PacketOutput and Events, from inside these calls only
//   time      next_due(); flush() runs the timers
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "proto/roce/attributes.hpp"
#include "proto/roce/congestion.hpp"
#include "proto/roce/environment.hpp"
#include "proto/roce/fault.hpp"
#include "proto/roce/memory.hpp"
#include "proto/roce/number_table.hpp"
#include "proto/roce/psn.hpp"
#include "proto/roce/queue_pair.hpp"
#include "proto/roce/queues.hpp"
#include "proto/roce/scheduler.hpp"
#include "proto/roce/tag.hpp"
#include "proto/roce/work.hpp"
#include "wire/roce/packet.hpp"

namespace weft::proto::roce {

class Adapter {
 public:
  static constexpr int packets_per_flush = 256;
  static constexpr uint32_t window_least = 16;  // of UC, in packets; also until the first update
  static constexpr uint64_t window_patience_ns = 100'000'000;  // without an update; then there is no limit
  static constexpr int32_t window_behind_max =
      4096;  // packets; then an update tells of too old ones to begin a window
  static constexpr uint64_t notice_ns = 50'000;  // a CNP of a QP at most in that time

  Adapter(PacketOutput& output, Events& events, Random random)
      : output_(output),
        events_(events),
        memory_(random),
        qps_(objects_max, random),
        srqs_(objects_max, random) {}
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;
  ~Adapter();

  size_t datagram_bytes_max = mtu_bytes_max;  // of UD; set before the first QP
  // Whether a peer of that name is an adapter of Weft, with which a queue pair repeats selectively, or one of UC has a
  // window. Null: nobody is. Set before the first QP.
  bool (*is_ours)(const Gid& peer) noexcept = nullptr;
  bool has_selective = true;  // false: RC and XRC go back all the same
  // Another algorithm than Dcqcn, for all queue pairs; set before the first one.
  congestion::Make algorithm = nullptr;
  // Bytes of a buffer, with its owner's bookkeeping, that packets of UC wait in until on_packet(); their senders are told
  // windows that fit. 0: unknown.
  size_t unreliable_room_bytes = 0;
  std::vector<Gid> names;       // of its own ports, as Arrival::source has them; set before the first packet
  bool has_common_case = true;  // false: tests compare what the general way does (common_case.cpp)

  // --- control ---
  Result<CompletionQueue*> create_cq(uint32_t capacity);
  int destroy_cq(CompletionQueue& cq) noexcept;  // -EBUSY: a QP uses it
  // Whether a queue is armed by another than `by`. True also for more queues than are looked at.
  bool is_armed_by_other(const void* by) const noexcept {
    constexpr size_t looked_at_max = 64;
    return cqs_.size() > looked_at_max || std::ranges::any_of(cqs_, [by](const auto& cq) {
             return cq->armed_by() != nullptr && cq->armed_by() != by;
           });
  }
  Result<SharedReceiveQueue*> create_srq(uint32_t pd, uint32_t requests, uint32_t elements, uint32_t xrcd = 0,
                                         CompletionQueue* cq = nullptr);
  int destroy_srq(SharedReceiveQueue& srq) noexcept;  // -EBUSY
  Result<QueuePair*> create_qp(const QueuePairRequest& request);
  void destroy_qp(QueuePair& qp) noexcept;
  void observe(QueuePairObserver* observer) noexcept { observer_ = observer; }  // null: nobody
  // ibv_modify_qp(3). Nothing is changed by what is refused.
  Result<void> modify(QueuePair& qp, const Attributes& attributes, uint32_t mask, uint64_t now);
  // ibv_attach_mcast(3). `group` is what Arrival::group will name. True: the group is new, and the owner has its ports
  // join it. A QP that is attached already stays so. EINVAL: the QP is not UD; ENOMEM: a bound of groups.
  Result<bool> attach(QueuePair& qp, const Gid& group);
  // True: nobody is left in the group. EINVAL: the QP is not attached to it.
  Result<bool> detach(QueuePair& qp, const Gid& group);
  // One of the groups that the QP is attached to; nothing: there is none.
  std::optional<Gid> first_group(const QueuePair& qp) const noexcept;
  MemoryTable& memory() noexcept { return memory_; }

  // --- commands --- 0, or -EINVAL (state, type, too much of something), -ENOMEM (full).
  // What post_send() would say of the request, but for the room in the queue.
  int check(const QueuePair& qp, const SendRequest& request) const noexcept;
  int post_send(QueuePair& qp, const SendRequest& request, uint64_t now) noexcept;
  int post_receive(QueuePair& qp, const ReceiveRequest& request, uint64_t now) noexcept;
  int post_receive(SharedReceiveQueue& srq, const ReceiveRequest& request) noexcept {
    return srq.queue.post(request);
  }
  // Why post_send(), or check(), and post_receive() refused that request: told to the observer.
  void tell_refused(const QueuePair& qp, const SendRequest& request) const noexcept;
  void tell_refused(const QueuePair& qp, const ReceiveRequest& request) const noexcept;

  // --- input ---
  void on_packet(const Arrival& arrival, uint64_t now) noexcept;
  void flush(uint64_t now) noexcept;
  // flush() without the timers: for who has not taken all that has arrived, the answer that a timer waits for perhaps.
  void serve_ready(uint64_t now) noexcept;

  // --- output ---
  uint64_t next_due() const noexcept { return scheduler_.next_due(); }  // UINT64_MAX: no timer
  // next_due() is that of a probe, which may be late. Otherwise the queue pair would be due at `otherwise`.
  bool is_probe_next(uint64_t& otherwise) const noexcept { return scheduler_.is_probe_next(otherwise); }
  // All that flush() would send is one acknowledgement of an RC queue pair.
  bool owes_acknowledgement_alone() const noexcept { return scheduler_.owes_acknowledgement_alone(); }
  // Then: the same queue pair has requests of its own that are not acknowledged.
  bool awaits_acknowledgement() const noexcept;
  // Then: the acknowledgement may leave so much later before the peer repeats. Its timeout is taken to be that of this side.
  bool may_wait(uint64_t ns) const noexcept;
  bool has_ready() const noexcept { return scheduler_.has_ready(); }  // flush() has something to send
  // The first PSN behind the requests of a queue pair that were sent as a whole: the peer may have consumed each of them.
  uint32_t end_of_sent(const QueuePair& qp) const noexcept;
  // Whether the peer may have consumed a request before that PSN without an acknowledgement having arrived.
  bool awaits_before(const QueuePair& qp, uint32_t psn) const noexcept;
  const AdapterCounters& counters() const noexcept { return counters_; }
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
  void fail_overrun(QueuePair& qp, uint64_t now) noexcept;
  void on_other(QueuePair& qp, bool is_from_peer, const Packet& packet, uint64_t now) noexcept;
  void on_timer(QueuePair& qp, uint64_t now) noexcept;
  bool send_packet(QueuePair& qp, const AddressVector& to, Packet& packet, iovec* parts, size_t count,
                   size_t payload) noexcept;
  static bool may_hold(const ResponderState& responder, uint32_t count) noexcept;
  static void resize(ResponderState& responder, uint32_t count);
  void apply(QueuePair& qp, const Attributes& a, uint32_t mask) noexcept;
  void reset(QueuePair& qp) noexcept;
  void to_error(QueuePair& qp, uint64_t now) noexcept;
  void complete(CompletionQueue* cq, QueuePair& qp, const Completion& completion, bool is_solicited) noexcept;

  // fault.cpp: nothing of it changes what happens but `cause` of the queue pair, which its next completions tell
  void tell(QueuePair& qp, const Fault& fault) noexcept;
  void tell_send(QueuePair& qp, Status status) noexcept;
  void tell_receive(QueuePair& qp, Status status, const Packet& packet) noexcept;
  void tell_refusal(QueuePair& qp, const Packet& packet, Cause cause, uint64_t wanted = 0,
                    uint64_t given = 0) noexcept;
  void tell_access(QueuePair& qp, const Packet& packet, uint32_t key, uint32_t pd, uint64_t address,
                   uint64_t length, uint32_t rights) noexcept;
  void tell_response(QueuePair& qp, const Resource& one, uint64_t address, uint64_t length) noexcept;
  void tell_overrun(QueuePair& qp) noexcept;
  void tell_dropped(const QueuePair* qp, const Arrival& arrival, const Packet& packet, Cause cause,
                    uint64_t wanted = 0, uint64_t given = 0) const noexcept;
  void tell_gap(const QueuePair& qp, const Packet& packet) const noexcept;
  static bool allowed(QpType type, SendOpcode opcode) noexcept;
  bool find_bad_element(std::span<const Element> elements, uint32_t pd, bool write,
                        Fault& fault) const noexcept;
  void count_nak(QueuePair& qp, uint8_t syndrome) noexcept;

  // congestion.cpp
  void on_marked(QueuePair& qp, uint64_t now) noexcept;
  void on_notice(QueuePair& qp, bool is_peer, const Packet& packet, uint64_t now) noexcept;
  bool send_notice(QueuePair& qp) noexcept;

  // selective.cpp
  void set_selective(QueuePair& qp);
  void set_tag_keys(QueuePair& qp) const noexcept;
  void keep(QueuePair& qp, const Packet& packet) noexcept;
  void drop_kept(QueuePair& qp) noexcept;
  void release_kept(QueuePair& qp, uint32_t psn) noexcept;
  void execute_late(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  bool send_map(QueuePair& qp) noexcept;
  void on_gap_map(QueuePair& qp, bool is_peer, const Packet& packet, uint64_t now) noexcept;
  bool has_map_told(const QueuePair& qp) const noexcept;
  bool is_going_back(const QueuePair& qp) const noexcept;
  template <class IsLost>
  void find_lost(QueuePair& qp, uint32_t limit, IsLost&& is_lost) noexcept;
  void probe(QueuePair& qp, uint64_t now) noexcept;
  void end_repeats(QueuePair& qp) noexcept;
  Sent repeat(QueuePair& qp, uint64_t now, int& budget) noexcept;

  // common_case.cpp: false where it is no such case, and then nothing has changed
  bool post_common(QueuePair& qp, const SendRequest& request, uint64_t now) noexcept;
  bool on_common_packet(const Arrival& arrival, uint64_t now) noexcept;
  bool on_common_ack(QueuePair& qp, uint32_t psn, uint8_t syndrome, uint64_t now) noexcept;
  bool take_send(QueuePair& qp, bool is_solicited, const std::byte* from, size_t bytes,
                 uint64_t now) noexcept;
  bool take_write(QueuePair& qp, const wire::roce::Reth& reth, const std::byte* from, size_t bytes) noexcept;
  Sent acknowledge_alone(QueuePair& qp) noexcept;
  bool send_complete(QueuePair& qp, std::byte* head, size_t head_bytes, std::byte* payload,
                     size_t bytes) noexcept;

  // requester.cpp
  Sent repeat_packet(QueuePair& qp, uint32_t index, uint32_t number, uint64_t now) noexcept;
  Sent transmit(QueuePair& qp, uint64_t now, int budget) noexcept;
  enum class Begin : uint8_t { Go, Blocked, Done, Failed };
  Begin begin(QueuePair& qp, SendEntry& entry, uint64_t now) noexcept;
  Sent transmit_answered(QueuePair& qp, SendEntry& entry, uint64_t now) noexcept;
  Sent transmit_packet(QueuePair& qp, SendEntry& entry, uint64_t now) noexcept;
  bool gather(QueuePair& qp, uint32_t index, uint64_t offset, size_t length, iovec* parts,
              size_t& count) noexcept;
  bool scatter(QueuePair& qp, uint32_t index, uint64_t offset, std::span<const std::byte> from) noexcept;
  bool asks(const QueuePair& qp, const SendEntry& entry, bool is_last, uint32_t psn,
            uint32_t psns) const noexcept;
  uint32_t aggregate_of(const QueuePair& qp, uint32_t left) const noexcept;
  bool asks_again(QueuePair& qp) noexcept;
  void complete_sends(QueuePair& qp, uint64_t now) noexcept;
  void complete_send(QueuePair& qp, Status status, uint64_t now) noexcept;
  void fail_send(QueuePair& qp, Status status, uint64_t now) noexcept;
  void flush_sends(QueuePair& qp, uint64_t now) noexcept;
  void tell_drained(QueuePair& qp) noexcept;

  // acknowledge.cpp
  void on_answer(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  void on_answer_to_duplicate(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  void take_answer(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  void on_ack(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  void on_read_response(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  void on_atomic_ack(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  bool reach(QueuePair& qp, uint32_t index, uint32_t psn, uint64_t now) noexcept;
  bool find_open(QueuePair& qp, uint32_t psn, uint32_t& index) noexcept;
  bool acknowledge_all(QueuePair& qp, uint32_t psn, uint64_t now) noexcept;
  void advance(QueuePair& qp, uint32_t oldest, uint64_t now) noexcept;
  bool is_back(const QueuePair& qp) const noexcept;
  void go_back(QueuePair& qp) noexcept;
  void retry(QueuePair& qp, uint64_t now, bool counts = true) noexcept;
  void on_implied_nak(QueuePair& qp, uint64_t now) noexcept;

  // responder.cpp
  void on_request(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  void on_unreliable(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  static bool has_right_tag(const QueuePair& qp, const wire::roce::Bth& bth) noexcept {
    return qp.responder.tag_key != 0 && bth.tag == tag_of(qp.responder.tag_key, bth.psn);
  }
  bool is_forged(const QueuePair& qp, const wire::roce::Bth& bth) noexcept;
  void learn_tag(QueuePair& qp, const wire::roce::Bth& bth) noexcept {
    if (!qp.responder.knows_tags && has_right_tag(qp, bth)) [[unlikely]]
      qp.responder.knows_tags = true;
  }
  void on_gap(QueuePair& qp, const Packet& packet) noexcept;
  void on_duplicate(QueuePair& qp, const Packet& packet) noexcept;
  void execute(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  void on_send(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  void on_write(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  void on_read(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  void on_atomic(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  uint32_t remote_pd(QueuePair& qp, const Packet& packet) const noexcept;
  Resource* new_resource(QueuePair& qp) noexcept;
  bool payload_fits(const QueuePair& qp, const Packet& packet) const noexcept;
  bool take_receive(QueuePair& qp, SharedReceiveQueue* srq) noexcept;
  SharedReceiveQueue* shared_queue(const QueuePair& qp, const Packet& packet) const noexcept;
  bool scatter_to(std::span<const Element> elements, uint32_t pd, uint64_t offset,
                  std::span<const std::byte> from) noexcept;
  void finish_receive(QueuePair& qp, Completion completion, bool is_solicited, uint64_t now) noexcept;
  void fail_receive(QueuePair& qp, Status status, uint64_t now) noexcept;
  void accepted(QueuePair& qp, const wire::roce::Bth& bth, uint32_t psns = 1) noexcept;
  void owe_nak(QueuePair& qp, uint8_t syndrome) noexcept;
  // How the program hears of it: by the completion of the receive request that the message uses, else by an event; by an
  // event alone, for what is not of the message; by a completion that is there already.
  enum class Told : uint8_t { ByEither, ByEvent, ByCompletion };
  void refuse(QueuePair& qp, wire::roce::NakCode code, uint64_t now, Told told = Told::ByEither) noexcept;
  void refuse_rnr(QueuePair& qp) noexcept;
  void flush_receives(QueuePair& qp, uint64_t now) noexcept;

  // respond.cpp
  Sent respond(QueuePair& qp, uint64_t now, int& budget) noexcept;
  bool send_response(QueuePair& qp, Resource& resource, uint64_t now) noexcept;
  bool send_acknowledgement(QueuePair& qp) noexcept;
  bool send_before_nak(QueuePair& qp, bool& is_all) noexcept;

  // tail.cpp
  void probe_tail(QueuePair& qp, uint64_t now) noexcept;
  static void put_off_probe(RequesterState& requester, uint64_t now) noexcept;
  static void end_probes(RequesterState& requester, uint64_t now) noexcept;
  // An answer is awaited from now on.
  static void await_answer(QueuePair& qp, uint64_t now) noexcept {
    RequesterState& r = qp.requester;
    const uint64_t timeout = ack_timeout_ns(qp.attributes.timeout);
    if (timeout == UINT64_MAX) return;
    r.deadline = now + timeout;
    r.probe_at = now + r.round_trip.wait();
    r.was_put_off = false;
  }
  static void await_nothing(RequesterState& r) noexcept { r.deadline = r.probe_at = UINT64_MAX; }
  // A packet that was never sent before, and asks for an acknowledgement or a response, has left.
  static void time(RequesterState& r, uint32_t psn, uint64_t now) noexcept {
    if (r.timed_at != 0) return;
    r.timed = psn;
    r.timed_at = now;
  }
  // Packets are sent again that were not probed: no answer is measured, nor taken for one to a probe.
  static void forget_timed(RequesterState& r) noexcept {
    r.timed_at = 0;
    r.round_trip.forget_probe();
  }
  // All before `oldest` is acknowledged.
  static void heard(RequesterState& r, uint64_t now) noexcept {
    if (r.timed_at != 0 && psn_diff(r.oldest, r.timed) > 0) {
      r.round_trip.sample(now - r.timed_at);
      r.timed_at = 0;
    }
    if (r.probes != 0) [[unlikely]]
      end_probes(r, now);
  }
  // The peer says that packets are missing.
  static void heard_of_loss(QueuePair& qp, uint64_t now) noexcept {
    if (qp.requester.has_probed) [[unlikely]]
      find_tail_loss(qp, now);
  }
  static void find_tail_loss(QueuePair& qp, uint64_t now) noexcept;

  // unreliable.cpp
  static void begin_window(QueuePair& qp) noexcept;
  bool awaits_window(QueuePair& qp, uint32_t psn, uint64_t now) const noexcept;
  bool asks_window(const QueuePair& qp, uint32_t psn) const noexcept;
  void end_window(QueuePair& qp) noexcept;
  void owe_window(QueuePair& qp, uint32_t psn) noexcept;
  uint32_t window_for(const QueuePair& qp) const noexcept;
  bool send_window(QueuePair& qp) noexcept;
  void on_window_update(QueuePair& qp, bool is_peer, const Packet& packet) noexcept;

  // datagram.cpp
  Sent transmit_datagrams(QueuePair& qp, uint64_t now, int budget) noexcept;
  void on_datagram(QueuePair& qp, const Arrival& arrival, const Packet& packet, uint64_t now) noexcept;
  void on_group_datagram(const Arrival& arrival, const Packet& packet, uint64_t now) noexcept;

  PacketOutput& output_;
  Events& events_;
  MemoryTable memory_;
  NumberTable<QueuePair> qps_;
  NumberTable<SharedReceiveQueue> srqs_;
  Scheduler scheduler_;
  AdapterCounters counters_;
  KeptPool kept_;
  // Of maps that are on their way out: an output refers to payloads. As many as wait in a batch (link/roce/batch.hpp).
  std::array<std::array<std::byte, wire::roce::GapMap::bytes_max>, 64> maps_;
  uint32_t next_map_ = 0;
  // Cold below.
  uint32_t unreliable_count_ = 0;  // queue pairs of UC
  std::vector<std::unique_ptr<CompletionQueue>> cqs_;
  QueuePairObserver* observer_ = nullptr;
  struct Group {
    Gid gid{};
    std::vector<QueuePair*> members;
  };
  std::vector<Group> groups_;
};

}  // namespace weft::proto::roce
