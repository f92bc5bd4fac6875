// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tags: what an adapter of Weft writes into the reserved bits of the requests that it sends to another one
// (wire::roce::Bth::tag), so that the responder can tell a request with another PSN than the expected one from a forged
// packet. A tag is computed from both queue pair numbers, the initial PSN and the PSN of the packet: whoever sees no
// packet guesses it in one of 8,191 attempts. docs/roce.md, "Tags", has the rules. Stateless.
#pragma once

#include <cstdint>

namespace weft::proto::roce {

// 13 bits, and 0 for packets without a tag.
constexpr uint16_t tag_of(uint64_t key, uint32_t psn) noexcept {
  if (key == 0) return 0;
  uint64_t x = (psn ^ key) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 32) * (key | 1);
  const auto tag = static_cast<uint16_t>(x >> 51);
  return tag == 0 ? uint16_t{1} : tag;
}

// Of one direction. Never 0.
constexpr uint64_t tag_key(uint32_t requester_qpn, uint32_t responder_qpn, uint32_t first_psn) noexcept {
  uint64_t x = (uint64_t{requester_qpn} << 24 | responder_qpn) + 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u + first_psn;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return x == 0 ? 1 : x;
}

// The tag of an answer says whether it covers a duplicate request, and what became of the original's answer.
enum class Duplicate : uint16_t {
  None = 0,      // as every answer of a third-party peer
  Answered = 1,  // an answer had left before the duplicate came
  Waiting = 2,   // it had not: the original waited here as well
  Earlier = 3    // as Answered, and requests that came behind the duplicate are answered, too
};
// New requests are accepted.
constexpr Duplicate behind(Duplicate duplicate) noexcept {
  return duplicate == Duplicate::Answered ? Duplicate::Earlier : duplicate;
}

}  // namespace weft::proto::roce
