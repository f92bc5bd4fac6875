// One-sided access: the memory of peers by cross-memory attach, and ours for them.
#include <cerrno>

#include "link/shm/link.hpp"
#include "os/clock.hpp"
#include "os/process.hpp"
#include "proto/engine/op.hpp"

namespace weft::link::shm {

namespace {
constexpr uint64_t window_pause_ns = 1'000'000;  // between two attempts to open one
}

// --- the target ---

void Link::expose(const proto::ExposedRegion& region) noexcept {
  if (header_ == nullptr || header_->pid_namespace == 0) return;
  if (exposed_ == nullptr) exposed_.reset(new (std::nothrow) ExposedRegions);
  if (exposed_ == nullptr || !exposed_->expose(region)) return;
  header_->regions_file.store(exposed_->fd() + 1, std::memory_order_release);
}

int Link::conceal(uint64_t key) noexcept {
  if (exposed_ == nullptr || header_ == nullptr || !belongs_here()) return 0;
  return exposed_->conceal(key, header_->users);
}

// --- the initiator ---

// At most once a millisecond: a peer that exposes nothing is not asked with every operation.
bool Link::open_window(Peer& peer) noexcept {
  const int file = peer.remote->regions_file.load(std::memory_order_acquire) - 1;
  if (file < 0 || header_->pid_namespace == 0 || peer.remote->pid_namespace != header_->pid_namespace)
    return false;
  const uint64_t now = os::monotonic_ns();
  if (now - peer.window_at_ns < window_pause_ns) return false;
  peer.window_at_ns = now;
  auto table = os::map_readable_memory_of(peer.pid, file, ::geteuid(), file_, region_table_bytes);
  if (!table && opened_as_ != ::geteuid())
    table = os::map_readable_memory_of(peer.pid, file, opened_as_, file_, region_table_bytes);
  // Its number may have been another process's when the file was opened.
  if (!table || os::has_exited(peer.pidfd)) return false;
  AccessSlot* ours = take_access_slot(peer.remote->users);
  if (ours == nullptr) return false;
  peer.window = RegionWindow(std::move(table), *ours);
  return true;
}

// Whether the peer has polled a short while ago: its poll clears a bit that we set, at most twice in that while.
bool Link::is_polling(Peer& peer) const noexcept {
  const uint64_t now = arch::ticks();
  const bool cleared = (peer.remote->pending.load(std::memory_order_relaxed) & pending_look) == 0;
  if (cleared && peer.asked_ticks != 0) peer.polled_ticks = std::max(peer.polled_ticks, peer.asked_ticks);
  if (now - peer.asked_ticks > stale_ticks_ / 2) {
    peer.remote->pending.fetch_or(pending_look, std::memory_order_relaxed);
    peer.asked_ticks = now;
  }
  return now - peer.polled_ticks < stale_ticks_;
}

bool Link::access(Peer& peer, bool write, const iovec* local, size_t local_count,
                  const wire::RmaTarget* targets, size_t target_count, size_t bytes,
                  uint64_t heard) noexcept {
  if (!peer.cma || peer.remote == nullptr || !belongs_here()) return false;
  // A frame that the peer answers at once takes less than two calls of the kernel.
  if (bytes <= small_access_max && (arch::ticks() - heard < stale_ticks_ || is_polling(peer))) return false;
  if (!peer.window && !open_window(peer)) return false;
  std::array<RegionWindow::Place, proto::rma_iov_max> places;
  if (target_count > places.size()) return false;
  for (size_t i = 0; i < target_count; ++i)
    if (!peer.window.find(targets[i].key, targets[i].address, targets[i].length, write, places[i]))
      return false;
  if (os::has_exited(peer.pidfd)) return false;
  size_t done = 0;
  for (size_t i = 0; i < target_count; ++i) {
    for (uint64_t at = 0; at < targets[i].length;) {
      const size_t piece = std::min<uint64_t>(access_bytes, targets[i].length - at);
      std::array<iovec, proto::iov_max> here;
      const size_t count = proto::slice(local, local_count, done, piece, here.data(), here.size());
      const iovec there{reinterpret_cast<void*>(places[i].address + at), piece};
      if (!peer.window.enter(places[i])) return false;
      const ssize_t moved = write ? os::write_process(peer.pid, here.data(), count, &there, 1, piece)
                                  : os::read_process(peer.pid, here.data(), count, &there, 1, piece);
      peer.window.leave();
      if (moved == -EPERM) peer.cma = false;  // not any more
      if (moved < 0) return false;
      at += piece;
      done += piece;
    }
  }
  return done == bytes;
}

}  // namespace weft::link::shm
