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
  }
  return "unknown provider error";
}

}  // namespace weft::core
