// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Triggered operations and deferred work (fi_trigger(3)) of a port: what the data calls do with FI_TRIGGER. How an
// operation that waited is posted is in trigger.cpp, how they wait in work_queue.hpp. Must not know which engines
// exist.
#pragma once

#include <rdma/fi_trigger.h>

#include "api/libfabric/endpoints/endpoint.hpp"
#include "api/libfabric/objects/work_queue.hpp"

namespace weft::fi {

// Where operations of `port` wait and start. `lane` is null where the engine runs no deferred work.
[[gnu::cold]] WorkTarget work_target_of(Port& port) noexcept;

// FI_TRIGGER of a ...msg call: `msg.context` is a fi_triggered_context. Copies what it needs. 0 or -FI_E*.
ssize_t defer_message(const WorkTarget& work_target, fi_op_type type, const fi_msg& msg,
                      uint64_t flags) noexcept;
ssize_t defer_tagged(const WorkTarget& work_target, fi_op_type type, const fi_msg_tagged& msg,
                     uint64_t flags) noexcept;
ssize_t defer_rma(const WorkTarget& work_target, fi_op_type type, const fi_msg_rma& msg,
                  uint64_t flags) noexcept;
ssize_t defer_atomic(const WorkTarget& work_target, fi_op_type type, const fi_msg_atomic& msg,
                     const fi_msg_fetch* fetch, const fi_msg_compare* compare, uint64_t flags) noexcept;

}  // namespace weft::fi
