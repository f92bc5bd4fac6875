// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// ICRC. Polynomials are reflected, as the CRC has them: bit 31 is x^0.
#include "wire/roce/icrc.hpp"

#include <libdeflate.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "wire/bytes.hpp"
#include "wire/roce/opcode.hpp"

namespace weft::wire::roce {
namespace {

constexpr uint32_t polynomial = 0xedb88320u;
constexpr size_t dummy_bytes = 8;  // stands for the local route header
constexpr size_t masked_bytes_max = dummy_bytes + Ip6::bytes + Udp::bytes + bth_bytes;
constexpr size_t identification_end = 6;  // in the IPv4 header

constexpr std::byte ones{0xff};

// The part with masked fields, to the end of the BTH.
struct Masked {
  std::array<std::byte, masked_bytes_max> bytes;
  size_t count;

  Masked(Bytes headers, const std::byte* bth) noexcept {
    std::fill_n(bytes.begin(), dummy_bytes, ones);
    std::byte* const ip = bytes.data() + dummy_bytes;
    std::memcpy(ip, headers.data(), headers.size());
    std::byte* const udp = ip + headers.size() - Udp::bytes;
    if (headers.size() == Ip4::bytes + Udp::bytes) {
      ip[1] = ip[8] = ip[10] = ip[11] = ones;
    } else {
      ip[0] |= std::byte{0x0f};
      ip[1] = ip[2] = ip[3] = ip[7] = ones;
    }
    udp[6] = udp[7] = ones;
    std::byte* const to = udp + Udp::bytes;
    std::memcpy(to, bth, bth_bytes);
    to[4] = ones;
    count = dummy_bytes + headers.size() + bth_bytes;
  }
};

bool has_headers(Bytes headers) noexcept {
  return headers.size() == Ip4::bytes + Udp::bytes || headers.size() == Ip6::bytes + Udp::bytes;
}

// One bit back in time: the register before a zero bit was shifted in.
constexpr uint32_t divided_by_x(uint32_t r) noexcept {
  return (r & 0x80000000u) != 0 ? (r ^ polynomial) << 1 | 1 : r << 1;
}

// x^(-32 i) for packets of up to so many words; longer ones are divided step by step.
constexpr size_t inverse_count = 1088;
struct Inverses {
  std::array<uint32_t, inverse_count> of{};
  constexpr Inverses() {
    uint32_t r = 0x80000000u;  // 1
    for (uint32_t& one : of) {
      one = r;
      for (int bit = 0; bit < 32; ++bit) r = divided_by_x(r);
    }
  }
};
constexpr Inverses inverses;

constexpr uint32_t product(uint32_t a, uint32_t b) noexcept {
  uint32_t sum = 0;
  for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    sum ^= (a & bit) != 0 ? b : 0;
    b = b >> 1 ^ ((b & 1) != 0 ? polynomial : 0);
  }
  return sum;
}
static_assert(product(inverses.of[1], 0x80000000u) == inverses.of[1]);
static_assert(product(inverses.of[2], inverses.of[3]) == inverses.of[5]);

// The register before `bytes` zero bytes were shifted in.
uint32_t rewound(uint32_t r, size_t bytes) noexcept {
  for (; bytes % 4 != 0; --bytes)
    for (int bit = 0; bit < 8; ++bit) r = divided_by_x(r);
  for (size_t words = bytes / 4; words != 0;) {
    const size_t now = std::min(words, inverse_count - 1);
    r = product(inverses.of[now], r);
    words -= now;
  }
  return r;
}

uint32_t stored_icrc(Bytes datagram) noexcept {
  return swap_bytes(load_big<uint32_t>(datagram.data() + datagram.size() - icrc_bytes));
}

}  // namespace

uint32_t crc32(uint32_t crc, const void* bytes, size_t count) noexcept {
  return libdeflate_crc32(crc, bytes, count);
}

uint32_t icrc(Bytes headers, const iovec* parts, size_t count) noexcept {
  const auto* first = static_cast<const std::byte*>(parts[0].iov_base);
  const Masked masked(headers, first);
  uint32_t crc = crc32(0, masked.bytes.data(), masked.count);
  if (parts[0].iov_len > bth_bytes) crc = crc32(crc, first + bth_bytes, parts[0].iov_len - bth_bytes);
  for (size_t i = 1; i < count; ++i)
    if (parts[i].iov_len != 0) crc = crc32(crc, parts[i].iov_base, parts[i].iov_len);
  return crc;
}

uint32_t icrc(Bytes headers, Bytes packet) noexcept {
  const iovec part{const_cast<std::byte*>(packet.data()), packet.size()};
  return icrc(headers, &part, 1);
}

bool icrc_is_right(Bytes headers, Bytes datagram) noexcept {
  if (!has_headers(headers) || datagram.size() < bth_bytes + icrc_bytes) return false;
  return icrc(headers, datagram.first(datagram.size() - icrc_bytes)) == stored_icrc(datagram);
}

uint32_t icrc_of_rxe_flush(uint32_t of_packet, Bytes packet) noexcept {
  return crc32(of_packet, packet.data(), packet.size());
}

// `difference` is that of the ICRC with the identification 0, `behind` counts the bytes that it covers behind the identification.
static std::optional<uint16_t> identification_of(uint32_t difference, size_t behind) noexcept {
  // The register into which the two bytes were added, least significant first.
  const uint32_t added = rewound(difference, behind + 2);
  if (added >> 16 != 0) return {};
  return swap_bytes(static_cast<uint16_t>(added));
}

static uint32_t icrc_without_identification(Bytes ip4_headers, Bytes packet) noexcept {
  std::array<std::byte, Ip4::bytes + Udp::bytes> headers;
  std::ranges::copy(ip4_headers, headers.begin());
  headers[4] = headers[5] = std::byte{0};
  return icrc(headers, packet);
}

std::optional<uint16_t> solve_identification(Bytes ip4_headers, Bytes datagram) noexcept {
  if (ip4_headers.size() != Ip4::bytes + Udp::bytes || datagram.size() < bth_bytes + icrc_bytes) return {};
  const Bytes packet = datagram.first(datagram.size() - icrc_bytes);
  const uint32_t difference = icrc_without_identification(ip4_headers, packet) ^ stored_icrc(datagram);
  return identification_of(difference, ip4_headers.size() - identification_end + packet.size());
}

bool is_flush_of_rxe(Bytes headers, Bytes datagram, bool has_identification) noexcept {
  if (!has_headers(headers) || datagram.size() < bth_bytes + icrc_bytes) return false;
  const Bytes packet = datagram.first(datagram.size() - icrc_bytes);
  if (operation_of(load_byte(packet.data())) != Operation::Flush) return false;
  if (has_identification || headers.size() != Ip4::bytes + Udp::bytes)
    return icrc_of_rxe_flush(icrc(headers, packet), packet) == stored_icrc(datagram);
  const uint32_t found = icrc_of_rxe_flush(icrc_without_identification(headers, packet), packet);
  return identification_of(found ^ stored_icrc(datagram),
                           headers.size() - identification_end + 2 * packet.size())
      .has_value();
}

}  // namespace weft::wire::roce
