// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Fault: why a request failed, a packet was dropped or a call refused, with what was asked for and what there is. Filled where
// it is decided, for people: nothing depends on it. Must not know how it is told.
#pragma once

#include <weft/verbs_faults.h>

#include <cstdint>

#include "proto/roce/work.hpp"

namespace weft::proto::roce {

// enum weft_verbs_fault, in a byte.
using Cause = uint8_t;

struct Fault {
  enum class At : uint8_t {
    Requester,  // a request of this side: `opcode` is a SendOpcode
    Receiver,   // a receive request of this side
    Responder,  // a request of the peer: `opcode` is that of its packet
    Dropped,    // a packet that has no effect, likewise
    Post,       // a call that posts: `opcode` is a SendOpcode; of a receive, see is_receive
  };

  Cause cause = WEFT_FAULT_NONE;
  At at = At::Requester;
  uint8_t opcode = 0;
  bool is_receive = false;
  bool has_memory = false;          // key, address and length count
  bool has_region = false;          // base and bytes count
  Status status = Status::Success;  // of the completion that tells of it; Success: none does
  uint64_t id = 0;                  // wr_id, of Requester and Receiver
  uint32_t psn = 0;                 // of the packet, or of the request's first one
  uint32_t key = 0;
  uint64_t address = 0;
  uint64_t length = 0;
  uint64_t base = 0;   // of the region or window
  uint64_t bytes = 0;  // likewise
  // What was wanted and what is there: rights (Access), lengths, numbers, states, by the cause.
  uint64_t wanted = 0;
  uint64_t given = 0;
  // Of Dropped: the packet's source and destination.
  Gid source{};
  uint32_t qpn = 0;
};

}  // namespace weft::proto::roce
