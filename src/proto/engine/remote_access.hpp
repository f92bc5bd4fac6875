// One-sided access: a link that reads and writes exposed memory of a peer without a call of the peer's process. Must not know any Link.
#pragma once

#include <sys/uio.h>

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "wire/frame.hpp"

namespace weft::proto {

// A region in one piece, as peers name it.
struct ExposedRegion {
  uint64_t key = 0;
  uint64_t base = 0;     // the remote address of the first byte
  uint64_t length = 0;   // bytes
  uint64_t address = 0;  // in our memory
  bool readable = false;
  bool writable = false;
};

// The target: expose() from now on; conceal() until nobody is at it any more: 0, or -FI_EBUSY after a bounded time. The initiator: access() moves
// `bytes` between the pieces of `local` and `targets`, and checks keys and bounds against what the peer exposes. False: it could not, though some
// bytes may have moved; then a frame asks the peer, who decides. `heard`: stamp() of the peer's last answer. Only for peers of which
// nothing stands before the access.
template <class L>
concept HasRemoteAccess = requires(L& link, typename L::PeerBase& peer, const ExposedRegion& region,
                                   const iovec* local, const wire::RmaTarget* targets) {
  { link.expose(region) }
  noexcept;
  { link.conceal(uint64_t{}) }
  noexcept->std::same_as<int>;
  { link.access(peer, bool{}, local, size_t{}, targets, size_t{}, size_t{}, uint64_t{}) }
  noexcept->std::same_as<bool>;
};

}  // namespace weft::proto
