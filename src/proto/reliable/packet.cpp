// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packets to bytes and back. Everything that is read was checked against what is there.
#include "proto/reliable/packet.hpp"

#include <bit>

#if defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace weft::proto::reliable {
namespace {

constexpr uint8_t magic = 0x57;
constexpr uint8_t version = 1;
constexpr size_t flags_at = 2;
constexpr size_t check_at = fixed_head_bytes;

template <class T>
T little(T value) noexcept {
  if constexpr (std::endian::native == std::endian::little || sizeof(T) == 1) {
    return value;
  } else {
    T turned = 0;
    for (size_t i = 0; i < sizeof(T); ++i)
      turned = static_cast<T>((turned << 8) | ((value >> (8 * i)) & 0xff));
    return turned;
  }
}

template <class T>
void put(std::byte*& at, T value) noexcept {
  value = little(value);
  std::memcpy(at, &value, sizeof(T));
  at += sizeof(T);
}

template <class T>
T get(const std::byte*& at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof(T));
  at += sizeof(T);
  return little(value);
}

struct CrcTable {
  std::array<uint32_t, 256> entries{};
  constexpr CrcTable() {
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t rest = i;
      for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? 0x82f63b78u : 0u);
      entries[i] = rest;
    }
  }
};
constexpr CrcTable crc_table;

#if defined(__x86_64__)
// The instruction of SSE4.2. The baseline (cmake/flags.cmake) does not have it, so the caller asks the CPU. Leaves fewer than 8 bytes.
[[gnu::target("sse4.2")]] uint32_t crc32c_words(uint32_t crc, const std::byte*& at, size_t& bytes) noexcept {
  uint64_t wide = crc;
  for (; bytes >= 8; at += 8, bytes -= 8) {
    uint64_t word;
    std::memcpy(&word, at, sizeof word);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  return static_cast<uint32_t>(wide);
}
#elif defined(__aarch64__)
// Likewise of the CRC extension, which Armv8.0 does not demand.
[[gnu::target("+crc")]] uint32_t crc32c_words(uint32_t crc, const std::byte*& at, size_t& bytes) noexcept {
  for (; bytes >= 8; at += 8, bytes -= 8) {
    uint64_t word;
    std::memcpy(&word, at, sizeof word);
    crc = __crc32cd(crc, word);
  }
  return crc;
}
#endif

bool has_crc32c() noexcept {
#if defined(__x86_64__)
  return __builtin_cpu_supports("sse4.2");
#elif defined(__aarch64__)
  return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#endif
}

}  // namespace

uint32_t crc32c(uint32_t crc, const std::byte* at, size_t bytes) noexcept {
  crc = ~crc;
  if (has_crc32c()) crc = crc32c_words(crc, at, bytes);
  for (; bytes > 0; ++at, --bytes)
    crc = (crc >> 8) ^ crc_table.entries[(crc ^ std::to_integer<uint32_t>(*at)) & 0xff];
  return ~crc;
}

size_t encode(const Packet& packet, std::byte* out) noexcept {
  std::byte* at = out;
  put<uint8_t>(at, magic);
  put<uint8_t>(at, static_cast<uint8_t>(version << 4 | static_cast<uint8_t>(packet.type)));
  put<uint8_t>(at, packet.flags);
  put<uint8_t>(at, (packet.flags & has_ack) != 0 ? packet.range_count : uint8_t{0});
  put<uint32_t>(at, packet.to);
  put<uint32_t>(at, packet.from);
  put<uint32_t>(at, packet.stamp);
  put<uint64_t>(at, packet.offset);
  if ((packet.flags & (has_check | has_length)) != 0) put<uint32_t>(at, 0);
  if ((packet.flags & has_ack) != 0) {
    put<uint64_t>(at, packet.ack);
    put<uint32_t>(at, packet.window);
    put<uint32_t>(at, packet.echo);
    put<uint32_t>(at, packet.hold);
    for (size_t i = 0; i < packet.range_count; ++i) {
      put<uint32_t>(at, static_cast<uint32_t>(packet.ranges[i].begin - packet.ack));
      put<uint32_t>(at, static_cast<uint32_t>(packet.ranges[i].end - packet.ranges[i].begin));
    }
  }
  if ((packet.flags & has_handshake) != 0) {
    put<uint64_t>(at, packet.incarnation);
    put<uint64_t>(at, packet.peer_incarnation);
    put<uint8_t>(at, static_cast<uint8_t>(packet.address.size()));
    std::memcpy(at, packet.address.data(), packet.address.size());
    at += packet.address.size();
  }
  return static_cast<size_t>(at - out);
}

void seal(std::byte* head, size_t bytes, std::span<const Piece> payload) noexcept {
  std::byte* at = head + check_at;
  if ((std::to_integer<uint8_t>(head[flags_at]) & has_length) != 0) {
    size_t length = bytes;
    for (const Piece& piece : payload) length += piece.bytes;
    return put<uint32_t>(at, static_cast<uint32_t>(length));
  }
  uint32_t crc = crc32c(0, head, bytes);
  for (const Piece& piece : payload) crc = crc32c(crc, piece.at, piece.bytes);
  put<uint32_t>(at, crc);
}

static bool check_is_right(std::span<const std::byte> bytes) noexcept {
  constexpr std::array<std::byte, check_bytes> zero{};
  const std::byte* at = bytes.data() + check_at;
  const auto said = get<uint32_t>(at);
  uint32_t crc = crc32c(0, bytes.data(), check_at);
  crc = crc32c(crc, zero.data(), zero.size());
  return crc32c(crc, at, bytes.size() - check_at - check_bytes) == said;
}

bool decode(std::span<const std::byte> bytes, uint8_t must_have, Packet& out) noexcept {
  if (bytes.size() < fixed_head_bytes) return false;
  const std::byte* at = bytes.data();
  if (get<uint8_t>(at) != magic) return false;
  const auto kind = get<uint8_t>(at);
  if (kind >> 4 != version || (kind & 15) < 1 || (kind & 15) > 4) return false;
  out.type = static_cast<PacketType>(kind & 15);
  out.flags = get<uint8_t>(at);
  out.range_count = get<uint8_t>(at);
  if ((out.flags &
       ~(has_handshake | has_ack | wants_ack | saw_duplicate | has_check | is_copy | has_length)) != 0)
    return false;
  if ((out.flags & must_have) != must_have) return false;
  if ((out.flags & has_check) != 0 && (out.flags & has_length) != 0) return false;
  if (out.range_count > ranges_max || ((out.flags & has_ack) == 0 && out.range_count != 0)) return false;
  const bool handshake = (out.flags & has_handshake) != 0;
  if (bytes.size() < head_bytes(out.flags, out.range_count, 0)) return false;
  out.to = get<uint32_t>(at);
  out.from = get<uint32_t>(at);
  out.stamp = get<uint32_t>(at);
  out.offset = get<uint64_t>(at);
  if ((out.flags & has_check) != 0) {
    if (!check_is_right(bytes)) return false;
    at += check_bytes;
  } else if ((out.flags & has_length) != 0) {
    out.length = get<uint32_t>(at);
    if (out.length != bytes.size()) return false;
  }
  if ((out.flags & has_ack) != 0) {
    out.ack = get<uint64_t>(at);
    out.window = get<uint32_t>(at);
    out.echo = get<uint32_t>(at);
    out.hold = get<uint32_t>(at);
    if (out.ack > UINT64_MAX / 2) return false;
    for (size_t i = 0; i < out.range_count; ++i) {
      const auto gap = get<uint32_t>(at);
      const auto length = get<uint32_t>(at);
      if (length == 0) return false;
      out.ranges[i] = {out.ack + gap, out.ack + gap + length};
    }
  }
  if (handshake) {
    out.incarnation = get<uint64_t>(at);
    out.peer_incarnation = get<uint64_t>(at);
    const size_t length = get<uint8_t>(at);
    const auto left = static_cast<size_t>(bytes.data() + bytes.size() - at);
    if (length == 0 || length > handshake_address_max || length > left || out.incarnation == 0) return false;
    out.address = {at, length};
    at += length;
  }
  out.payload = bytes.subspan(static_cast<size_t>(at - bytes.data()));
  if (out.offset > UINT64_MAX / 2) return false;
  return out.type == PacketType::Data || out.payload.empty();
}

}  // namespace weft::proto::reliable
