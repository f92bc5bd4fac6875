// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The sentences, and their rate.
#include "link/roce/fault_log.hpp"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <exception>
#include <string_view>
#include <utility>

#include "link/roce/gid.hpp"
#include "os/plain_address.hpp"
#include "wire/roce/opcode.hpp"

namespace weft::link::roce {
namespace {

using proto::roce::Fault;
using proto::roce::QpType;
using proto::roce::QueuePair;
using proto::roce::SendOpcode;
using proto::roce::Status;
using wire::roce::Operation;

__attribute__((format(printf, 2, 3))) void add(std::string& text, const char* format, ...) {
  std::array<char, 256> piece;
  va_list arguments;
  va_start(arguments, format);
  const int count = std::vsnprintf(piece.data(), piece.size(), format, arguments);
  va_end(arguments);
  if (count > 0) text.append(piece.data(), std::min<size_t>(static_cast<size_t>(count), piece.size() - 1));
}

const char* name_of(QpType type) noexcept {
  switch (type) {
    case QpType::Rc:
      return "RC";
    case QpType::Uc:
      return "UC";
    case QpType::Ud:
      return "UD";
    case QpType::XrcSend:
      return "XRC send";
    case QpType::XrcReceive:
      return "XRC receive";
  }
  return "?";
}

const char* name_of(SendOpcode opcode) noexcept {
  switch (opcode) {
    case SendOpcode::Write:
      return "RDMA WRITE";
    case SendOpcode::WriteImmediate:
      return "RDMA WRITE with immediate";
    case SendOpcode::Send:
      return "SEND";
    case SendOpcode::SendImmediate:
      return "SEND with immediate";
    case SendOpcode::Read:
      return "RDMA READ";
    case SendOpcode::CompareSwap:
      return "COMPARE AND SWAP";
    case SendOpcode::FetchAdd:
      return "FETCH AND ADD";
    case SendOpcode::Flush:
      return "FLUSH";
    case SendOpcode::AtomicWrite:
      return "ATOMIC WRITE";
    case SendOpcode::LocalInvalidate:
      return "LOCAL INVALIDATE";
    case SendOpcode::BindWindow:
      return "BIND MW";
    case SendOpcode::SendInvalidate:
      return "SEND with invalidate";
  }
  return "request of an unknown opcode";
}

const char* name_of_packet(uint8_t opcode) noexcept {
  switch (wire::roce::operation_of(opcode)) {
    case Operation::SendLastImmediate:
    case Operation::SendOnlyImmediate:
      return "SEND with immediate";
    case Operation::SendLastInvalidate:
    case Operation::SendOnlyInvalidate:
      return "SEND with invalidate";
    case Operation::SendFirst:
    case Operation::SendMiddle:
    case Operation::SendLast:
    case Operation::SendOnly:
      return "SEND";
    case Operation::WriteLastImmediate:
    case Operation::WriteOnlyImmediate:
      return "RDMA WRITE with immediate";
    case Operation::WriteFirst:
    case Operation::WriteMiddle:
    case Operation::WriteLast:
    case Operation::WriteOnly:
      return "RDMA WRITE";
    case Operation::ReadRequest:
      return "RDMA READ";
    case Operation::CompareSwap:
      return "COMPARE AND SWAP";
    case Operation::FetchAdd:
      return "FETCH AND ADD";
    case Operation::Flush:
      return "FLUSH";
    case Operation::AtomicWrite:
      return "ATOMIC WRITE";
    case Operation::Acknowledge:
      return "acknowledgement";
    case Operation::AtomicAcknowledge:
      return "answer to an atomic";
    case Operation::ReadResponseFirst:
    case Operation::ReadResponseMiddle:
    case Operation::ReadResponseLast:
    case Operation::ReadResponseOnly:
      return "response to an RDMA READ";
  }
  return "packet of an unknown opcode";
}

const char* name_of(Status status) noexcept {
  switch (status) {
    case Status::Success:
      return "success";
    case Status::LocalLength:
      return "local length error";
    case Status::LocalOperation:
      return "local QP operation error";
    case Status::LocalProtection:
      return "local protection error";
    case Status::Flushed:
      return "Work Request Flushed Error";
    case Status::WindowBind:
      return "memory bind operation error";
    case Status::BadResponse:
      return "bad response error";
    case Status::LocalAccess:
      return "local access error";
    case Status::RemoteInvalidRequest:
      return "remote invalid request error";
    case Status::RemoteAccess:
      return "remote access error";
    case Status::RemoteOperation:
      return "remote operation error";
    case Status::RetryExceeded:
      return "transport retry counter exceeded";
    case Status::RnrRetryExceeded:
      return "RNR retry counter exceeded";
  }
  return "?";
}

std::string rights_of(uint64_t access) {
  static constexpr std::array<std::pair<uint32_t, const char*>, 7> names{
      {{proto::roce::local_write, "local write"},
       {proto::roce::remote_write, "remote write"},
       {proto::roce::remote_read, "remote read"},
       {proto::roce::remote_atomic, "remote atomic"},
       {proto::roce::window_bind, "window bind"},
       {proto::roce::flush_global, "flush global"},
       {proto::roce::flush_persistent, "flush persistent"}}};
  std::string text;
  for (const auto& [bit, name] : names)
    if ((access & bit) != 0) text.append(text.empty() ? "" : ", ").append(name);
  return text.empty() ? "local read alone" : text;
}

std::string place_of(const Gid& gid) { return gid == Gid{} ? "nobody" : os::plain_text(address_of(gid)); }

// What a request or an element asked for.
void add_memory(std::string& text, const Fault& fault) {
  if (!fault.has_memory) return;
  const bool is_remote = fault.at == Fault::At::Responder ||
                         (fault.cause >= WEFT_FAULT_NO_ANSWER && fault.cause < 0x20) ||
                         fault.cause == WEFT_FAULT_NO_READS;
  add(text, " of %" PRIu64 " bytes at 0x%" PRIx64 " with %s 0x%08x", fault.length, fault.address,
      is_remote ? "rkey" : "lkey", fault.key);
}

void add_wanted(std::string& text, const QueuePair* qp, const Fault& fault) {
  const auto range = [&] {
    add(text, ": wanted [0x%" PRIx64 ", 0x%" PRIx64 "), the region has [0x%" PRIx64 ", 0x%" PRIx64 ")",
        fault.address, fault.address + fault.length, fault.base, fault.base + fault.bytes);
  };
  switch (fault.cause) {
    case WEFT_FAULT_LKEY_BOUNDS:
    case WEFT_FAULT_RKEY_BOUNDS:
      return range();
    case WEFT_FAULT_LKEY_RIGHTS:
    case WEFT_FAULT_RKEY_RIGHTS:
    case WEFT_FAULT_QP_RIGHTS:
      text += ": wanted " + rights_of(fault.wanted) + ", given " + rights_of(fault.given);
      return;
    case WEFT_FAULT_RKEY_QUEUE_PAIR:
      add(text, ": bound to 0x%06x", static_cast<unsigned>(fault.given));
      return;
    case WEFT_FAULT_RECEIVE_SHORT:
      add(text, ": %" PRIu64 " bytes have come, the receive has room for %" PRIu64, fault.wanted,
          fault.given);
      return;
    case WEFT_FAULT_REQUEST_LENGTH:
      add(text, ": %" PRIu64 " bytes where %" PRIu64 " were due; the path MTU here is %zu", fault.given,
          fault.wanted, qp == nullptr ? size_t{0} : qp->attributes.mtu_bytes());
      return;
    case WEFT_FAULT_MESSAGE_LENGTH:
    case WEFT_FAULT_POST_ELEMENTS:
    case WEFT_FAULT_POST_LENGTH:
    case WEFT_FAULT_POST_INLINE:
      add(text, ": wanted %" PRIu64 ", given %" PRIu64, fault.wanted, fault.given);
      return;
    case WEFT_FAULT_QUEUE_FULL:
    case WEFT_FAULT_CQ_OVERRUN:
      add(text, ": it has %" PRIu64 " entries", fault.given);
      return;
    case WEFT_FAULT_TOO_MANY_READS:
      add(text, ", which is %" PRIu64, fault.given);
      return;
    case WEFT_FAULT_QKEY:
      add(text, ": wanted 0x%" PRIx64 ", given 0x%" PRIx64, fault.wanted, fault.given);
      return;
    case WEFT_FAULT_PKEY:
      add(text, ": wanted 0x%" PRIx64 ", given 0x%" PRIx64, fault.wanted, fault.given);
      return;
    case WEFT_FAULT_FIRST_PSN:
      add(text, ": wanted %" PRIu64 ", given %" PRIu64, fault.wanted, fault.given);
      return;
    case WEFT_FAULT_SRQ_UNKNOWN:
    case WEFT_FAULT_REMOTE_INVALIDATE:
    case WEFT_FAULT_ATOMIC_ALIGNMENT:
      add(text, ": 0x%" PRIx64, fault.wanted);
      return;
    case WEFT_FAULT_POST_STATE:
      if (fault.is_receive) text += ": receives are taken from INIT on";
      else text += ": they are taken in RTS";
      return;
    case WEFT_FAULT_NO_ANSWER:
    case WEFT_FAULT_ANSWERS_OTHER_PSN:
      add(text, ": %" PRIu64 " attempts, timeout %" PRIu64 " (4.096 us * 2^timeout each)", fault.wanted,
          fault.given);
      if (qp == nullptr || fault.cause != WEFT_FAULT_NO_ANSWER) return;
      if (qp->received == 0)
        text += "; nothing was ever heard from it: is it in RTR, with this GID and queue pair number?";
      if (qp->attributes.path.hop_limit == 1)
        text += "; the hop limit is 1: no router lets such packets pass";
      return;
    case WEFT_FAULT_NO_RECEIVE_THERE:
      add(text, ": rnr_retry %" PRIu64, fault.wanted - 1);
      return;
    default:
      return;
  }
}

}  // namespace

std::string text_of(const QueuePair* qp, const Fault& fault) {
  std::string text;
  if (qp != nullptr) {
    add(text, "queue pair 0x%06x (%s, %s", qp->number, name_of(qp->type), proto::roce::name_of(qp->state));
    if (qp->type != QpType::Ud && qp->attributes.path.destination != Gid{}) {
      text += ", to " + place_of(qp->attributes.path.destination);
      add(text, " queue pair 0x%06x", qp->attributes.destination);
    }
    text += "): ";
  }
  const char* const why = weft_verbs_fault_text(fault.cause);
  const char* const because = why == nullptr ? "unknown cause" : why;
  switch (fault.at) {
    case Fault::At::Requester:
      text += fault.cause == WEFT_FAULT_CQ_OVERRUN ? "send queue"
                                                   : name_of(static_cast<SendOpcode>(fault.opcode));
      if (fault.cause != WEFT_FAULT_CQ_OVERRUN)
        add(text, " (wr_id %" PRIu64 ", PSN %u)", fault.id, fault.psn);
      add_memory(text, fault);
      text.append(" failed: ").append(because);
      break;
    case Fault::At::Receiver:
      text += "receive";
      if (fault.cause != WEFT_FAULT_CQ_OVERRUN)
        add(text, " (wr_id %" PRIu64 ") of %s, PSN %u,", fault.id, name_of_packet(fault.opcode), fault.psn);
      add_memory(text, fault);
      text.append(" failed: ").append(because);
      break;
    case Fault::At::Responder:
      add(text, "%s of the peer, PSN %u,", name_of_packet(fault.opcode), fault.psn);
      add_memory(text, fault);
      text.append(" refused: ").append(because);
      break;
    case Fault::At::Dropped:
      add(text, "%s of ", name_of_packet(fault.opcode));
      text += place_of(fault.source);
      add(text, " to queue pair 0x%06x, PSN %u, dropped: ", fault.qpn, fault.psn);
      text += because;
      break;
    case Fault::At::Post:
      text += fault.is_receive ? "ibv_post_recv" : "ibv_post_send of ";
      if (!fault.is_receive) text += name_of(static_cast<SendOpcode>(fault.opcode));
      add(text, " (wr_id %" PRIu64 ") refused: ", fault.id);
      text += because;
      break;
  }
  add_wanted(text, qp, fault);
  if (fault.status != Status::Success) text.append(" [").append(name_of(fault.status)).append("]");
  add(text, " [vendor_err 0x%02x]", fault.cause);
  return text;
}

void FaultLog::report(const QueuePair* qp, const Fault& fault, uint64_t now) noexcept {
  if (audience_.note == nullptr) return;
  Period& period = periods_[fault.cause];
  if (now >= period.until) {
    period.until = now + period_ns;
    period.lines = 0;
  }
  if (period.lines == lines_max) {
    ++period.left_out;
    return;
  }
  ++period.lines;
  try {
    std::string text = name_ + ": " + text_of(qp, fault);
    if (period.left_out != 0)
      text += "; " + std::to_string(std::exchange(period.left_out, 0)) + " more of this kind were not told";
    audience_.note(audience_.noted, text.c_str());
  } catch (const std::exception&) {  // no memory for a sentence
  }
}

}  // namespace weft::link::roce
