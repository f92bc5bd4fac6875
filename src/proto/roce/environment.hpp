// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What an adapter and its owner exchange: where packets go, how they come, who hears of queue pairs, and what is counted.
// Must not know the adapter.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/roce/fault.hpp"
#include "proto/roce/queue_pair.hpp"
#include "proto/roce/work.hpp"

namespace weft::proto::roce {

// Where packets go.
struct PacketOutput {
  // One packet in pieces, from the BTH to the pad, without ICRC; the first piece has all headers. True: taken, or
  // lost on the way. False: no room now, it is offered again at a later flush(). The first piece changes after the
  // call, the others stay as they are until flush(), or until the owner returns to the program.
  virtual bool send(const AddressVector& to, const iovec* parts, size_t count) noexcept = 0;
  // What was taken is sent now, or copied. For an output that keeps the pieces when send() returns.
  virtual void flush() noexcept {}
  // Bytes of payload that one packet to it may have, where those of several packets of an RC message may go as one: an
  // aggregate, with the header of the first one (that of the last one's kind where it ends the message). 0: they may not.
  // At most mtu_bytes_max.
  virtual size_t payload_max(const AddressVector&) noexcept { return 0; }
  // send() of an aggregate of `psns` packets, which the receiver's Arrival::psns has to tell. Not called where payload_max() is 0.
  virtual bool send_aggregate(const AddressVector&, const iovec*, size_t, uint32_t) noexcept { return true; }

 protected:
  ~PacketOutput() = default;
};

// A packet whose ICRC was right.
struct Arrival {
  Gid source{};                      // the sender's port, and
  Gid alias{};                       // the name that it has as well, if it has two; zeros: it has not
  std::span<const std::byte> bytes;  // from the BTH to the pad
  // What UD delivers in front of the payload: grh_bytes, of IPv4 20 zero bytes and the IP header. Empty: zeros.
  std::span<const std::byte> grh;
  // Where the sender may still change `bytes`: a copy of their first headers_bytes_max, or of all. Empty: it may not.
  std::span<const std::byte> headers;
  bool is_marked = false;  // ECN: congestion experienced
  uint8_t psns = 1;        // packets that it stands for: PacketOutput::send_aggregate()
  // The multicast group that it was sent to, to the QPN of groups; null: it was sent to this port alone.
  const Gid* group = nullptr;
};

struct AdapterCounters {
  uint64_t sent = 0;
  uint64_t sent_again = 0;
  uint64_t received = 0;   // of a QP that takes them
  uint64_t one_sided = 0;  // of these: WRITEs, READs and atomics
  uint64_t malformed = 0;  // no packet
  uint64_t unknown = 0;    // no such QP, or not of this type or in this state
  uint64_t foreign = 0;    // not from the QP's peer, or with another P_Key or Q_Key
  uint64_t duplicates = 0;
  uint64_t gaps = 0;
  uint64_t ghosts = 0;  // acknowledgements and responses of nothing that is open; requests with a wrong tag
  uint64_t naks_sent = 0;
  uint64_t naks_received = 0;
  NakCounters naks;  // both of these
  uint64_t timeouts = 0;
  uint64_t marked = 0;         // ECN: packets of peers that arrived so
  uint64_t cnps_received = 0;  // CNP: of peers
  uint64_t cnps_sent = 0;
  uint64_t repeated = 0;    // of sent_again: by selective repeat
  uint64_t buffered = 0;    // requests that came before one that was missing, and waited
  uint64_t probes = 0;      // of sent_again: for an answer that did not come
  uint64_t too_long = 0;    // messages of UD and UC that are longer than the posted receive
  uint64_t aggregates = 0;  // of sent: PacketOutput::payload_max()
};

// Who keeps account of queue pairs. Calls come from create_qp() and destroy_qp(), and from the adapter's destructor;
// on_fault() from wherever a request fails, a packet is dropped or a call refused, at any rate that peers like.
struct QueuePairObserver {
  virtual void on_create(const QueuePair& qp) noexcept = 0;
  virtual void on_destroy(const QueuePair& qp) noexcept = 0;
  // Null: a packet to a queue pair that is not there.
  virtual void on_fault(const QueuePair* qp, const Fault& fault) noexcept = 0;

 protected:
  ~QueuePairObserver() = default;
};

}  // namespace weft::proto::roce
