// Triggered operations and the deferred work queue (fi_trigger(3)): operations that start when a counter reaches a value.
#pragma once

#include <rdma/fi_trigger.h>

#include "faces/libfabric/endpoint.hpp"

namespace weft::fi {

// FI_TRIGGER of a ...msg call: `msg.context` is a fi_triggered_context. Copies what it needs.
template <class L>
ssize_t defer_message(Port<L>&, fi_op_type, const fi_msg&, uint64_t) noexcept { return -FI_ENOSYS; }
template <class L>
ssize_t defer_tagged(Port<L>&, fi_op_type, const fi_msg_tagged&, uint64_t) noexcept { return -FI_ENOSYS; }
template <class L>
ssize_t defer_rma(Port<L>&, fi_op_type, const fi_msg_rma&, uint64_t) noexcept { return -FI_ENOSYS; }
template <class L>
ssize_t defer_atomic(Port<L>&, fi_op_type, const fi_msg_atomic&, const fi_msg_fetch*, const fi_msg_compare*, uint64_t) noexcept { return -FI_ENOSYS; }

}  // namespace weft::fi
