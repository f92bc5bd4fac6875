// How a completion queue drives the endpoints bound to it when the program knows their type. Must not know which link it is.
#pragma once

#include "core/completion_queue.hpp"
#include "core/progress.hpp"
#include "proto/engine/engine.hpp"

namespace weft::direct {

// All of them are Engine<L>.
template <class L>
struct SoleEngine {
  static void progress(const core::ProgressorList& list) noexcept {
    if (core::Progressor* only = list.only(); only != nullptr) [[likely]]
      static_cast<proto::Engine<L>*>(only)->proto::template Engine<L>::progress();
    else list.progress();
  }
};

// For the endpoints of provider P. One that has connected endpoints, too, has engines of two types.
template <class P>
struct DriverOf : SoleEngine<typename P::Link> {};
template <class P>
requires requires { typename P::Connection; }
struct DriverOf<P> : core::AnyEndpoint {};

}  // namespace weft::direct
