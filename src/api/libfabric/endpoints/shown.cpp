// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "api/libfabric/endpoints/shown.hpp"

#include <new>
#include <string>

#include "arch/cpu.hpp"

namespace weft::fi {

namespace {

constexpr uint64_t pause_ticks = 15'000'000;  // 5 ms of a machine of 3 GHz; others are near enough

}  // namespace

void ShownEndpoint::open(const char* provider) noexcept {
  entry_ = os::StatisticsEntry::open(os::StatisticsEntry::Kind::Endpoint, provider, "");
  names_peer_ = false;
}

void ShownEndpoint::describe(const Provider& provider, uint32_t format, std::span<const std::byte> own,
                             std::span<const std::byte> peer) noexcept try {
  if (!entry_) return;
  std::string text;
  if (!own.empty()) text = provider.to_string(format, own.data());
  if (!peer.empty()) {
    text += " to ";
    text += provider.to_string(format, peer.data());
    names_peer_ = true;
  }
  entry_.describe(text);
} catch (const std::bad_alloc&) {  // it has no address then
}

bool ShownEndpoint::is_due() noexcept {
  if (!entry_) return false;
  const uint64_t now = arch::ticks();
  if (now - shown_at_ < pause_ticks) return false;
  shown_at_ = now;
  return true;
}

void ShownEndpoint::show(const proto::EngineCounts& counts) noexcept {
  using Value = os::StatisticsEntry::Value;
  entry_.show({{Value::MessagesSent, counts.sent},
               {Value::BytesSent, counts.bytes_sent},
               {Value::SendQueue, counts.send_queue},
               {Value::CompletionQueue, counts.completions},
               {Value::UnreportedErrors, counts.unreported}});
  if (!counts.shares_receives)
    entry_.show({{Value::MessagesReceived, counts.received},
                 {Value::BytesReceived, counts.bytes_received},
                 {Value::ReceiveQueue, counts.receive_queue},
                 {Value::Unexpected, counts.unexpected}});
  if (counts.lost != 0) entry_.show({{Value::Lost, counts.lost}});
}

}  // namespace weft::fi
