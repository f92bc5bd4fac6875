// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One-sided access: the memory of peers by cross-memory attach, and ours for them.
#include <new>

#include "link/shm/link.hpp"

namespace weft::link::shm {

// --- the target ---

void Link::expose(const proto::ExposedRegion& region) noexcept {
  if (header_ == nullptr || header_->pid_namespace == 0 || !belongs_here()) return;
  if (exposed_ == nullptr) exposed_.reset(new (std::nothrow) ExposedRegions(handshakes_.nonce()));
  if (exposed_ == nullptr || !exposed_->expose(region)) return;
  header_->regions_file.store(exposed_->fd() + 1, std::memory_order_release);
}

int Link::conceal(uint64_t key) noexcept {
  if (exposed_ == nullptr || header_ == nullptr || !belongs_here()) return 0;
  return exposed_->conceal(key, header_->users);
}

int Link::conceal_all() noexcept {
  if (exposed_ == nullptr || header_ == nullptr || !belongs_here()) return 0;
  return exposed_->conceal_all(header_->users);
}

// --- the initiator ---

bool Link::access(Peer& peer, bool write, const iovec* local, size_t local_count,
                  const wire::RmaTarget* targets, size_t target_count, size_t bytes) noexcept {
  if (!peer.memory.can_read() || peer.remote == nullptr || peer.has_closed() || !belongs_here()) return false;
  if (!peer.regions.is_open() &&
      !peer.regions.open(*peer.remote, header_->pid_namespace, peer.nonce, peer.pid, owner_, file_.fd()))
    return false;
  bool is_forbidden = false;
  const bool moved =
      peer.regions.access(peer.memory, write, local, local_count, targets, target_count, bytes, is_forbidden);
  if (is_forbidden) paths_.forbid(peer);
  if (moved) traffic_.add_by_kernel(write, bytes);
  return moved;
}

}  // namespace weft::link::shm
