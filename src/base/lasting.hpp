// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Objects that no destructor of the program finds gone: made at their first use, and freed only when dlclose(3) unloads the library
// (api/libfabric/entry/unload.inc). Knows nothing of ours.
#pragma once

#include <atomic>
#include <utility>

namespace weft {

struct LastingBase {
  LastingBase* older = nullptr;
  void (*free)(LastingBase* self) noexcept = nullptr;
};

inline std::atomic<LastingBase*> lasting_newest{nullptr};

template <class T>
struct Lasting : LastingBase {
  template <class... Args>
  explicit Lasting(Args&&... args) : value(std::forward<Args>(args)...) {
    free = [](LastingBase* self) noexcept { delete static_cast<Lasting*>(self); };
  }
  T value;
};

// Any thread. Bound: one for each place in the source, and one for each reset of the log.
template <class T, class... Args>
T& make_lasting(Args&&... args) {
  auto* made = new Lasting<T>(std::forward<Args>(args)...);
  made->older = lasting_newest.load(std::memory_order_relaxed);
  while (!lasting_newest.compare_exchange_weak(made->older, made, std::memory_order_acq_rel)) {
  }
  return made->value;
}

// The newest first. Nothing of the library may be called any more.
inline void free_lasting() noexcept {
  LastingBase* next = lasting_newest.exchange(nullptr, std::memory_order_acq_rel);
  while (next != nullptr) {
    LastingBase* older = next->older;
    next->free(next);
    next = older;
  }
}

}  // namespace weft
