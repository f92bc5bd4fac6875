// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Posting: which requests a queue pair takes, and why it refuses others.
#include <algorithm>
#include <cerrno>

#include "base/assert.hpp"
#include "proto/roce/adapter.hpp"

namespace weft::proto::roce {

bool Adapter::allowed(QpType type, SendOpcode opcode) noexcept {
  const bool plain = opcode == SendOpcode::Send || opcode == SendOpcode::SendImmediate;
  switch (type) {
    case QpType::Rc:
    case QpType::XrcSend:
      return opcode <= SendOpcode::SendInvalidate || opcode == SendOpcode::AtomicWrite ||
             opcode == SendOpcode::Flush;
    case QpType::Uc:
      return plain || opcode == SendOpcode::Write || opcode == SendOpcode::WriteImmediate ||
             opcode == SendOpcode::BindWindow || opcode == SendOpcode::LocalInvalidate;
    case QpType::Ud:
      return plain;
    case QpType::XrcReceive:
      return false;
  }
  return false;
}

// An ATOMIC WRITE has 8 bytes, a FLUSH a range or a region and nothing else.
static bool fits(const SendRequest& request, uint64_t length) noexcept {
  const bool has_value = (request.flags & inline_data) != 0;
  if (request.opcode == SendOpcode::AtomicWrite) return length == (has_value ? 0 : sizeof(uint64_t));
  return request.elements.empty() && !has_value && request.compare_add <= message_bytes_max &&
         request.immediate < 64 && wire::roce::Feth::of(request.immediate).is_valid();
}

int Adapter::check(const QueuePair& qp, const SendRequest& request) const noexcept {
  if (qp.state == QpState::Reset || qp.state == QpState::Init || qp.state == QpState::ReadyToReceive)
    return -EINVAL;
  if (!allowed(qp.type, request.opcode) || request.elements.size() > qp.sends.elements_each()) return -EINVAL;
  const uint64_t length = length_of(request.elements);
  if (length > (qp.type == QpType::Ud ? datagram_bytes_max : message_bytes_max)) return -EINVAL;
  const bool is_atomic = request.opcode == SendOpcode::CompareSwap || request.opcode == SendOpcode::FetchAdd;
  if (is_atomic && length != sizeof(uint64_t)) return -EINVAL;
  if (request.opcode >= SendOpcode::Flush) return fits(request, length) ? 0 : -EINVAL;
  if ((request.flags & inline_data) == 0) return 0;
  const bool carries =
      request.opcode <= SendOpcode::SendImmediate || request.opcode == SendOpcode::SendInvalidate;
  return carries && length <= qp.sends.inline_each() ? 0 : -EINVAL;
}

int Adapter::post_send(QueuePair& qp, const SendRequest& request, uint64_t now) noexcept {
  if (has_common_case && post_common(qp, request, now)) return 0;
  if (const int rc = check(qp, request); rc != 0) return rc;
  if (qp.sends.full()) return -ENOMEM;
  requester_.post(qp, request);
  if (qp.state == QpState::Error || qp.state == QpState::SendError) {
    requester_.flush_sends(qp, now);
    return 0;
  }
  services_.scheduler.make_ready(qp);
  // Without the timers: the answers that they wait for may be in the socket, which a program that posts does not read.
  WEFT_ASSERT(Scheduler::is_ready(qp));
  if (services_.scheduler.first() == &qp) serve_ready(now);
  qp.assert_invariants();
  return 0;
}

int Adapter::post_receive(QueuePair& qp, const ReceiveRequest& request, uint64_t now) noexcept {
  if (qp.state == QpState::Reset || qp.srq != nullptr || qp.receives.capacity() == 0) return -EINVAL;
  if (const int rc = qp.receives.post(request); rc != 0) return rc;
  if (qp.state == QpState::Error) responder_.flush_receives(qp, now);
  return 0;
}

// --- why one was refused ---

void Adapter::log_refused(const QueuePair& qp, const SendRequest& request) const noexcept {
  QueuePairObserver* const observer = services_.faults.observer();
  if (observer == nullptr) return;
  Fault fault;
  fault.at = Fault::At::Post;
  fault.opcode = static_cast<uint8_t>(request.opcode);
  fault.id = request.id;
  const uint64_t length = length_of(request.elements);
  const bool takes =
      qp.state != QpState::Reset && qp.state != QpState::Init && qp.state != QpState::ReadyToReceive;
  if (!takes) {
    fault.cause = WEFT_FAULT_POST_STATE;
  } else if (!allowed(qp.type, request.opcode)) {
    fault.cause = WEFT_FAULT_POST_OPCODE;
  } else if (request.elements.size() > qp.sends.elements_each()) {
    fault.cause = WEFT_FAULT_POST_ELEMENTS;
    fault.wanted = request.elements.size();
    fault.given = qp.sends.elements_each();
  } else if ((request.flags & inline_data) != 0 && length > qp.sends.inline_each()) {
    fault.cause = WEFT_FAULT_POST_INLINE;
    fault.wanted = length;
    fault.given = qp.sends.inline_each();
  } else if (check(qp, request) != 0) {
    fault.cause = WEFT_FAULT_POST_LENGTH;
    fault.wanted = length;
    const bool is_atomic = request.opcode == SendOpcode::CompareSwap ||
                           request.opcode == SendOpcode::FetchAdd ||
                           request.opcode == SendOpcode::AtomicWrite;
    fault.given = is_atomic               ? sizeof(uint64_t)
                  : qp.type == QpType::Ud ? datagram_bytes_max
                                          : message_bytes_max;
  } else {
    fault.cause = WEFT_FAULT_QUEUE_FULL;
    fault.given = qp.sends.capacity();
  }
  observer->on_fault(&qp, fault);
}

void Adapter::log_refused(const QueuePair& qp, const ReceiveRequest& request) const noexcept {
  QueuePairObserver* const observer = services_.faults.observer();
  if (observer == nullptr) return;
  Fault fault;
  fault.at = Fault::At::Post;
  fault.is_receive = true;
  fault.id = request.id;
  if (qp.state == QpState::Reset) {
    fault.cause = WEFT_FAULT_POST_STATE;
  } else if (qp.srq != nullptr || qp.receives.capacity() == 0) {
    fault.cause = WEFT_FAULT_POST_OPCODE;
  } else if (request.elements.size() > qp.receives.elements_each()) {
    fault.cause = WEFT_FAULT_POST_ELEMENTS;
    fault.wanted = request.elements.size();
    fault.given = qp.receives.elements_each();
  } else {
    fault.cause = WEFT_FAULT_QUEUE_FULL;
    fault.given = qp.receives.capacity();
  }
  observer->on_fault(&qp, fault);
}

}  // namespace weft::proto::roce
