// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What an observer keeps.
#include "proto/packet/observed.hpp"

#include <new>

namespace weft::proto {

std::vector<std::byte>* PacketObserver::gather(const iovec* parts, size_t count) noexcept try {
  gathered_.clear();
  for (size_t i = 0; i < count; ++i) {
    const auto* from = static_cast<const std::byte*>(parts[i].iov_base);
    gathered_.insert(gathered_.end(), from, from + parts[i].iov_len);
  }
  return &gathered_;
} catch (const std::bad_alloc&) {
  return nullptr;
}

void PacketObserver::sent(std::span<const std::byte> own, std::span<const std::byte> to,
                          std::span<const std::byte> bytes) noexcept {
  ++statistics_.sent;
  statistics_.sent_bytes += bytes.size();
  if (capture != nullptr) capture->record(own, to, bytes);
}

void PacketObserver::received(const ReceivedPacket& packet) noexcept {
  ++statistics_.received;
  statistics_.received_bytes += packet.bytes.size();
  if (capture != nullptr) capture->record(packet.source, packet.destination, packet.bytes);
}

void PacketObserver::log_summary() noexcept try {
  if (note == nullptr) return;
  if (faults) note(noted, faults->summary().c_str());
  if (capture != nullptr)
    if (const std::string text = capture->summary(); !text.empty()) note(noted, text.c_str());
} catch (const std::bad_alloc&) {  // then nobody is told
}

}  // namespace weft::proto
