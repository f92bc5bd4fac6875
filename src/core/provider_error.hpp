// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Why an operation failed, finer than an errno: prov_errno of fi_cq_err_entry, in words for fi_cq_strerror(3). Knows nothing else.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

namespace weft::core {

enum class ProviderError : int {
  None = 0,
  PeerDied = 1,
  PeerClosed = 2,
  PeerUnreachable = 3,
  PeerReplaced = 4,
  PeerMisbehaved = 5,
  NoChannel = 6,
  RemoteKey = 7,
  RemoteAccess = 8,
  RemoteMemory = 9,
  Cancelled = 10,
  ConnectionRefused = 11,
  ConnectionRejected = 12,
  ConnectionTimedOut = 13,
  ConnectionReset = 14,
  ConnectionForeign = 15,
  NotReceived = 16,
  PeerOfOtherUser = 17,
  OwnShortage = 18,
  PeerShortage = 19,
  DescriptorsNotPassed = 20,
};

// Besides a reason: messages to the peer that were injected, or had completed, may not have reached it, and no entry has said so.
inline constexpr int earlier_unreceived = 0x100;
constexpr ProviderError with_earlier(ProviderError error) noexcept {
  return static_cast<ProviderError>(static_cast<int>(error) | earlier_unreceived);
}

constexpr const char* plain_text(ProviderError error) noexcept {
  switch (error) {
    case ProviderError::None:
      return "no further detail";
    case ProviderError::PeerDied:
      return "the peer process has died";
    case ProviderError::PeerClosed:
      return "the peer closed its endpoint";
    case ProviderError::PeerUnreachable:
      return "nobody answers at the peer's address";
    case ProviderError::PeerReplaced:
      return "the peer's address was taken over by a new endpoint";
    case ProviderError::PeerMisbehaved:
      return "the peer sent a malformed frame and was cut off";
    case ProviderError::NoChannel:
      return "no memory left for a channel to the peer";
    case ProviderError::RemoteKey:
      return "the target has no memory region with that key";
    case ProviderError::RemoteAccess:
      return "the target's memory region does not allow that access or is too short";
    case ProviderError::RemoteMemory:
      return "the target ran out of memory";
    case ProviderError::Cancelled:
      return "the program cancelled the operation";
    case ProviderError::ConnectionRefused:
      return "nobody listens at that address";
    case ProviderError::ConnectionRejected:
      return "the listener rejected the request for a connection";
    case ProviderError::ConnectionTimedOut:
      return "nobody answered the request for a connection in time";
    case ProviderError::ConnectionReset:
      return "the other side ended the connection before it answered the request";
    case ProviderError::ConnectionForeign:
      return "what answered at that address speaks another protocol or version";
    case ProviderError::NotReceived:
      return "the peer has gone, and messages to it that were injected, or had completed, may not have "
             "reached it";
    case ProviderError::PeerOfOtherUser:
      return "the peer is a process of another user; shared memory joins processes of one user only";
    case ProviderError::OwnShortage:
      return "this process lacks descriptors or memory to meet the peer (a warning in the log says which)";
    case ProviderError::PeerShortage:
      return "the peer's process lacks descriptors or memory to meet this one (its log says which)";
    case ProviderError::DescriptorsNotPassed:
      return "the kernel or an emulator does not pass descriptors between this process and the peer "
             "(SCM_RIGHTS), and they cannot be opened in /proc";
  }
  return "unknown provider error";
}

// With earlier_unreceived, as texts that last.
inline constexpr int provider_errors = static_cast<int>(ProviderError::DescriptorsNotPassed) + 1;
template <int error>
inline constexpr auto text_with_earlier = [] {
  constexpr std::string_view plain = plain_text(ProviderError(error));
  constexpr std::string_view besides =
      "; earlier messages to this peer, injected or complete, may not have reached it";
  std::array<char, plain.size() + besides.size() + 1> text{};
  for (size_t i = 0; i < plain.size(); ++i) text[i] = plain[i];
  for (size_t i = 0; i < besides.size(); ++i) text[plain.size() + i] = besides[i];
  return text;
}();

inline const char* to_text(ProviderError error) noexcept {
  static constexpr auto texts = []<int... all>(std::integer_sequence<int, all...>) {
    return std::array{text_with_earlier<all>.data()...};
  }
  (std::make_integer_sequence<int, provider_errors>());
  const auto number = static_cast<unsigned>(error);
  const unsigned plain = number & ~static_cast<unsigned>(earlier_unreceived);
  return plain != number && plain < texts.size() ? texts[plain] : plain_text(error);
}

}  // namespace weft::core
