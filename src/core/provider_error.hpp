// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Why an operation failed, finer than an errno: prov_errno of fi_cq_err_entry, in words for fi_cq_strerror(3). Knows nothing else.
#pragma once

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
  PeerOfOtherUser = 17,
  OwnShortage = 18,
  PeerShortage = 19,
  DescriptorsNotPassed = 20,
};

inline const char* to_text(ProviderError error) noexcept {
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

}  // namespace weft::core
