// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The data calls of a port whose default flags are not those of the context that its other calls find: FI_TRIGGER among them (fi_trigger(3)), or an alias that
// receives (fi_ep_alias of fi_endpoint(3)). A call without flags of its own becomes the ...msg call with these. One set for all engines: it
// calls the port's own vectors. Must not know which engines exist.
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

namespace weft::fi {

// What stands at the start of every port.
struct PortHead {
  fid_ep fid{};
  // The vectors that the port would have without this, and whose flags its calls take; null: they are not these calls'.
  struct Flagged {
    const fi_ops_msg* msg = nullptr;
    const fi_ops_tagged* tagged = nullptr;
    const fi_ops_rma* rma = nullptr;
    const fi_ops_atomic* atomic = nullptr;
    const uint64_t* transmit = nullptr;  // of sends, RMA and atomics; read at each call
    const uint64_t* receive = nullptr;
  };
  const Flagged* flagged = nullptr;  // in the port
};

// Puts `flagged` between the program and the vectors that the port has. Injects have no context and stay as they are; `flagged` lives as
// long as the port. Thread rules: as fi_control(3), nobody is inside a data call.
void use_flagged_calls(PortHead& port, PortHead::Flagged& flagged, const uint64_t* transmit,
                       const uint64_t* receive) noexcept;

}  // namespace weft::fi
