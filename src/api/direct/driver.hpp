// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How a completion queue drives the endpoints bound to it when the program knows their type: all endpoints of a directly linked provider are
// Engine<L>. Must not know which link it is.
#pragma once

#include "api/libfabric/objects/objects.hpp"
#include "core/progress.hpp"
#include "proto/engine/engine.hpp"

namespace weft::direct {

template <class L>
struct SoleEngine {
  static void progress(const core::ProgressorList& list) noexcept {
    if (core::Progressor* only = list.only(); only != nullptr) [[likely]]
      static_cast<proto::Engine<L>*>(only)->proto::template Engine<L>::progress();
    else list.progress();
  }
  static uint32_t idle(core::IdlePolls& polls, bool arrived) noexcept {
    return static_cast<fi::YieldWhenIdle&>(polls).idle(arrived);
  }
};

}  // namespace weft::direct
