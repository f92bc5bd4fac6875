// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What goes out, and what comes to memory and completion queues, for requester and responder alike.
#include "proto/roce/services.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/assert.hpp"

namespace weft::proto::roce {

using wire::roce::AckKind;
using wire::roce::NakCode;

bool Services::send_packet(QueuePair& qp, const AddressVector& to, wire::roce::Packet& packet, iovec* parts,
                           size_t count, size_t payload) noexcept {
  WEFT_ASSERT(count != 0 && payload <= mtu_bytes_max);
  WEFT_ASSERT(packet.bth.psn <= psn_mask);
  WEFT_ASSERT(qp.state != QpState::Reset && qp.state != QpState::Init);
  std::array<std::byte, wire::roce::headers_bytes_max> head;
  static std::byte zeros[4];
  packet.bth.pad = wire::roce::pad_of(payload);
  parts[0] = {head.data(), wire::roce::write_headers(packet, head.data())};
  if (packet.bth.pad != 0) parts[count++] = {zeros, packet.bth.pad};
  if (packet.psns != 1) {
    if (!output.send_aggregate(to, parts, count, packet.psns)) return false;
    ++counters.aggregates;
  } else if (!output.send(to, parts, count)) {
    return false;
  }
  ++counters.sent;
  ++qp.sent;
  qp.sent_bytes += payload;
  return true;
}

// A rate counts packets.
uint32_t Services::aggregate_of(const QueuePair& qp, uint32_t left) const noexcept {
  if (left < 2 || !qp.is_reliable() || (qp.attention & attention_pace) != 0) return 1;
  const size_t packets = output.payload_max(qp.attributes.path) / qp.attributes.mtu_bytes();
  return std::clamp<uint32_t>(static_cast<uint32_t>(packets), 1, left);
}

bool Services::scatter(std::span<const Element> elements, uint32_t pd, uint64_t offset,
                       std::span<const std::byte> from) noexcept {
  for (const Element& element : elements) {
    if (from.empty()) break;
    if (offset >= element.length) {
      offset -= element.length;
      continue;
    }
    const size_t take = std::min<uint64_t>(from.size(), element.length - offset);
    std::byte* at = nullptr;
    if (!memory.local(element.key, pd, element.address + offset, take, true, at)) return false;
    std::memcpy(at, from.data(), take);
    from = from.subspan(take);
    offset = 0;
  }
  return from.empty();
}

void Services::complete(CompletionQueue* cq, QueuePair& qp, const Completion& completion,
                        bool is_solicited) noexcept {
  if (cq == nullptr || cq->push(completion, is_solicited)) return;
  qp.attention |= attention_overrun;
  scheduler.make_ready(qp);  // Adapter::serve() fails it
}

void Services::count_nak(QueuePair& qp, uint8_t syndrome) noexcept {
  const auto add = [&](uint64_t NakCounters::*which) {
    ++(counters.naks.*which);
    ++(qp.naks.*which);
  };
  const wire::roce::Aeth aeth{syndrome, 0};
  if (aeth.kind() == AckKind::RnrNak) return add(&NakCounters::rnr);
  switch (static_cast<NakCode>(aeth.value())) {
    case NakCode::Sequence:
      return add(&NakCounters::sequence);
    case NakCode::InvalidRequest:
      return add(&NakCounters::request);
    case NakCode::RemoteAccess:
      return add(&NakCounters::access);
    default:
      return add(&NakCounters::operation);
  }
}

}  // namespace weft::proto::roce
