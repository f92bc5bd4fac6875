// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// From counters to entries.
#include "link/roce/shown.hpp"

#include <exception>
#include <string_view>

#include "link/roce/device.hpp"
#include "os/clock.hpp"
#include "os/plain_address.hpp"

namespace weft::link::roce {
namespace {

using proto::roce::QpType;
using proto::roce::QueuePair;
using Value = os::StatisticsEntry::Value;

std::string_view name_of(QpType type) noexcept {
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
  return "";
}

}  // namespace

Shown::Shown(const std::string& name, const std::string& addresses, const packet::Audience& audience) noexcept
    : faults_(name, audience),
      device_(os::StatisticsEntry::open(os::StatisticsEntry::Kind::Device, name, addresses)) {}

void Shown::show(const proto::roce::AdapterCounters& adapter, const DeviceCounters& device,
                 const PortCounters& ports, uint64_t lost) noexcept {
  device_.show({{Value::PacketsSent, adapter.sent},
                {Value::PacketsReceived, adapter.received},
                {Value::Retransmissions, adapter.sent_again},
                {Value::NaksSent, adapter.naks_sent},
                {Value::NaksReceived, adapter.naks_received},
                {Value::Timeouts, adapter.timeouts},
                {Value::Duplicates, adapter.duplicates},
                {Value::Gaps, adapter.gaps},
                {Value::IcrcErrors, ports.wrong_icrc},
                {Value::Malformed, adapter.malformed + device.shm.malformed},
                {Value::Lost, device.shm.lost + lost},
                {Value::NearSent, device.shm.sent},
                {Value::NearReceived, device.shm.received},
                {Value::CongestionMarks, adapter.marked + adapter.cnps_received},
                {Value::NoticesSent, adapter.cnps_sent},
                {Value::NoticesReceived, adapter.cnps_received},
                {Value::SelectiveRetransmissions, adapter.repeated},
                {Value::Kept, adapter.buffered},
                {Value::TooLong, adapter.too_long}});
}

void Shown::on_create(const QueuePair& qp) noexcept try {
  Line& line = lines_[qp.number];
  line = {os::StatisticsEntry::open(os::StatisticsEntry::Kind::QueuePair, name_of(qp.type), {}, device_.id()),
          {},
          false,
          0};
  show(line, qp);
} catch (const std::exception&) {  // no memory: this one is not shown
}

void Shown::on_fault(const QueuePair* qp, const proto::roce::Fault& fault) noexcept {
  faults_.report(qp, fault, os::monotonic_ns());
}

void Shown::on_destroy(const QueuePair& qp) noexcept {
  const auto found = lines_.find(qp.number);
  if (found == lines_.end()) return;
  show(found->second, qp);
  lines_.erase(found);
}

void Shown::show(const QueuePair& qp, bool is_shm) noexcept try {
  const auto found = lines_.find(qp.number);
  if (found == lines_.end()) return;
  Line& line = found->second;
  const Gid& to = qp.attributes.path.destination;
  if (to != Gid{} && (line.to != to || line.is_shm != is_shm || line.cause != qp.cause)) {
    line.to = to;
    line.is_shm = is_shm;
    line.cause = qp.cause;
    const char* const why = qp.cause == 0 ? nullptr : weft_verbs_fault_text(qp.cause);
    line.entry.describe("to " + os::plain_text(address_of(to)) + (is_shm ? " by shm" : " by udp") +
                        (why == nullptr ? "" : std::string("; failed: ") + why));
  }
  show(line, qp);
} catch (const std::exception&) {  // no memory for a text: at the next time
}

void Shown::show(Line& line, const QueuePair& qp) noexcept {
  const size_t completions =
      (qp.send_cq == nullptr ? 0 : qp.send_cq->size()) +
      (qp.receive_cq == nullptr || qp.receive_cq == qp.send_cq ? 0 : qp.receive_cq->size());
  line.entry.show({{Value::PacketsSent, qp.sent},
                   {Value::PacketsReceived, qp.received},
                   {Value::BytesSent, qp.sent_bytes},
                   {Value::BytesReceived, qp.received_bytes},
                   {Value::Retransmissions, qp.sent_again},
                   {Value::NaksSent, qp.naks_sent},
                   {Value::NaksReceived, qp.naks_received},
                   {Value::Timeouts, qp.timeouts},
                   {Value::Duplicates, qp.duplicates},
                   {Value::Gaps, qp.gaps},
                   {Value::SelectiveRetransmissions, qp.repeated},
                   {Value::Kept, qp.buffered},
                   {Value::TooLong, qp.too_long},
                   {Value::SendQueue, qp.sends.tail - qp.sends.head},
                   {Value::ReceiveQueue, qp.srq != nullptr ? qp.srq->queue.size() : qp.receives.size()},
                   {Value::CompletionQueue, completions},
                   {Value::State, static_cast<uint64_t>(qp.state)},
                   {Value::Number, qp.number},
                   {Value::PeerNumber, qp.attributes.destination}});
}

}  // namespace weft::link::roce
