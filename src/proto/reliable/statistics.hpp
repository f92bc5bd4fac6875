// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What became of the packets of one endpoint, for whoever asks. Plain numbers; must not know who counts them.
#pragma once

#include <cstdint>

namespace weft::proto::reliable {

struct Statistics {
  uint64_t sent = 0;  // packets that the link took, everything below included
  uint64_t sent_again =
      0;  // of these: with bytes that were sent before, because they were lost or nothing came back
  uint64_t copies = 0;     // of these: the same packet once more on purpose (docs/reliable.md)
  uint64_t acks_sent = 0;  // of these: nothing but an acknowledgement
  uint64_t received =
      0;  // packets that were whole and of this protocol, everything below but `damaged` included
  uint64_t acks_received = 0;      // nothing but an acknowledgement
  uint64_t duplicates = 0;         // dropped: bytes that had come before, copies included
  uint64_t out_of_order = 0;       // kept until what is missing comes
  uint64_t not_taken = 0;          // dropped: beyond the window, no memory, or from too many peers at once
  uint64_t stale = 0;              // dropped: of a connection that is over, or not known
  uint64_t damaged = 0;            // dropped: checksum, length or head wrong
  uint64_t lost = 0;               // packets sent that were found lost; some may have been late only
  uint64_t timeouts = 0;           // nothing came back in time
  uint64_t assumed = 0;            // bytes that count as delivered without an acknowledgement
  uint64_t peers = 0;              // now
  uint64_t round_trip_ns = 0;      // smoothed, of the peer that was heard last; 0: not measured
  uint64_t round_trip_ns_min = 0;  // the shortest of the last 10 to 20 s, of the same
};

}  // namespace weft::proto::reliable
