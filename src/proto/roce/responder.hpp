// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Responder: the receiving side of the queue pairs of an adapter (IBTA 9.7.4, 9.7.5; UC and UD: 9.8). It takes requests, executes
// them, keeps those that come behind a gap, and sends acknowledgements, NAKs, responses, CNPs and window updates. Of a queue
// pair it changes `receives`, `responder`, `reorder` and the counters, and of shared receive queues what is posted there.
//
// Must not know: how a packet finds its queue pair, whose turn it is (Scheduler), the requests of the same queue pair
// (Requester). What it shares with the requester is Services; a queue pair fails through Services::to_error(), which calls
// flush_receives().
//
// Its functions are in responder.cpp (requests), respond.cpp (answers), selective.cpp, congestion.cpp, unreliable.cpp, datagram.cpp
// and common_case.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/roce/number_table.hpp"
#include "proto/roce/queue_pair.hpp"
#include "proto/roce/selective.hpp"
#include "proto/roce/services.hpp"
#include "proto/roce/tag.hpp"
#include "wire/roce/packet.hpp"
#include "wire/roce/sack_bitmap.hpp"

namespace weft::proto::roce {

class Responder {
 public:
  using Packet = wire::roce::Packet;
  static constexpr uint64_t cnp_ns = 50'000;  // at most one CNP of a queue pair in that time

  // `srqs`: the packets of XRC name their shared receive queue.
  Responder(Services& services, const NumberTable<SharedReceiveQueue>& srqs)
      : services_(services), srqs_(srqs) {}
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  // --- input --- of the queue pair's peer, in a state that receives
  void on_request(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;     // RC, XRC
  void on_unreliable(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;  // UC
  void on_datagram(QueuePair& qp, const Arrival& arrival, const Packet& packet, uint64_t now) noexcept;  // UD
  // The expected request of RC, a SEND or WRITE of one packet with `bytes` of payload at `from`. `head` has its headers.
  // False: it is another case, and nothing has changed.
  bool on_common_request(QueuePair& qp, const wire::roce::Bth& bth, bool is_write, const std::byte* head,
                         const std::byte* from, size_t bytes, uint64_t now) noexcept;
  // A packet with a payload came with ECN's mark.
  void on_marked(QueuePair& qp, uint64_t now) noexcept;

  // --- what the scheduler names ---
  // Responses, at most `budget` packets, and when all have gone the acknowledgement or NAK.
  Sent respond(QueuePair& qp, uint64_t now, int& budget) noexcept;
  // Of RC: nothing else is owed.
  Sent acknowledge_alone(QueuePair& qp) noexcept;
  // False: no room.
  bool send_cnp(QueuePair& qp) noexcept;
  bool send_window(QueuePair& qp, uint32_t packets) noexcept;

  // --- states ---
  static void begin(QueuePair& qp) noexcept;  // INIT to RTR
  void reset(QueuePair& qp) noexcept;         // what is posted is forgotten
  void set_selective(QueuePair& qp, bool is_wanted);
  // max_dest_rd_atomic becomes `count`. may_hold() first: false where that would end an answer.
  static bool may_hold(const QueuePair& qp, uint32_t count) noexcept;
  static void resize(QueuePair& qp, uint32_t count);
  // The program moves it to ERR: an acknowledgement may still go, responses do not.
  static void end_responses(QueuePair& qp) noexcept;
  // The queue pair is in ERR: what the program has consumed is acknowledged all the same.
  void owe_last_acknowledgement(QueuePair& qp) noexcept;
  void drop_buffered(QueuePair& qp) noexcept;
  void flush_receives(QueuePair& qp, uint64_t now) noexcept;

 private:
  // responder.cpp
  static bool has_right_tag(const QueuePair& qp, const wire::roce::Bth& bth) noexcept {
    return qp.responder.tag_key != 0 && bth.tag == tag_of(qp.responder.tag_key, bth.psn);
  }
  static void learn_tag(QueuePair& qp, const wire::roce::Bth& bth) noexcept {
    if (!qp.responder.knows_tags && has_right_tag(qp, bth)) [[unlikely]]
      qp.responder.knows_tags = true;
  }
  bool is_forged(const QueuePair& qp, const wire::roce::Bth& bth) noexcept;
  void on_gap(QueuePair& qp, const Packet& packet) noexcept;
  static void on_duplicate(QueuePair& qp, const Packet& packet) noexcept;
  void execute(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  void on_send(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  void on_write(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  void on_read(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  void on_atomic(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  void on_atomic_write(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  void on_flush(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  static void answer_bare(QueuePair& qp, Resource& one, const Packet& packet) noexcept;
  uint32_t remote_pd(QueuePair& qp, const Packet& packet) const noexcept;
  static Resource* new_resource(QueuePair& qp) noexcept;
  static bool payload_fits(const QueuePair& qp, const Packet& packet) noexcept;
  bool pop_receive(QueuePair& qp, SharedReceiveQueue* srq) noexcept;
  SharedReceiveQueue* shared_queue(const QueuePair& qp, const Packet& packet) const noexcept;
  void finish_receive(QueuePair& qp, Completion completion, bool is_solicited, uint64_t now) noexcept;
  void fail_receive(QueuePair& qp, Status status, uint64_t now) noexcept;
  static void accepted(QueuePair& qp, const wire::roce::Bth& bth, uint32_t psns = 1) noexcept;
  static void owe_nak(QueuePair& qp, uint8_t syndrome) noexcept;
  // How the program hears of it: by the completion of the receive request that the message uses, else by an event; by an
  // event alone, for what is not of the message; by a completion that is there already.
  enum class Report : uint8_t { ByEither, ByEvent, ByCompletion };
  void refuse(QueuePair& qp, wire::roce::NakCode code, uint64_t now,
              Report report = Report::ByEither) noexcept;
  static void refuse_rnr(QueuePair& qp) noexcept;

  // respond.cpp
  bool send_response(QueuePair& qp, Resource& resource, uint64_t now) noexcept;
  bool send_acknowledgement(QueuePair& qp) noexcept;
  bool send_before_nak(QueuePair& qp, bool& is_all) noexcept;

  // selective.cpp
  void keep(QueuePair& qp, const Packet& packet) noexcept;
  void release_buffered(QueuePair& qp, uint32_t psn) noexcept;
  void execute_late(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  bool send_map(QueuePair& qp) noexcept;

  // unreliable.cpp
  void owe_window(QueuePair& qp, uint32_t psn) noexcept;

  // common_case.cpp
  bool handle_send(QueuePair& qp, bool is_solicited, const std::byte* from, size_t bytes,
                   uint64_t now) noexcept;
  bool handle_write(QueuePair& qp, const wire::roce::Reth& reth, const std::byte* from,
                    size_t bytes) noexcept;

  Services& services_;
  const NumberTable<SharedReceiveQueue>& srqs_;  // the adapter's
  ReorderPool reorder_pool_;                     // packets behind gaps, of all queue pairs
  // Payloads of maps that are on their way out: an output refers to payloads until it lets go. As many as wait in a batch
  // (link/roce/batch.hpp).
  std::array<std::array<std::byte, wire::roce::SackBitmap::bytes_max>, 64> maps_;
  uint32_t next_map_ = 0;  // counts those that were written
};

}  // namespace weft::proto::roce
