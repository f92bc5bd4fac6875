// How a completion queue drives the endpoints bound to it when the program knows their type: all endpoints of a directly linked provider are
// Engine<L>. Must not know which link it is.
#pragma once

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
};

}  // namespace weft::direct
