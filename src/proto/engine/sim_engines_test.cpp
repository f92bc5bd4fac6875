// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Compiles the engines of sim_engines.hpp, and replaces the allocation of the program so that it can fail. Has no test.
#include "proto/engine/sim_engines.hpp"

#include <cstdlib>
#include <new>

namespace weft::proto::sim {
bool out_of_memory = false;
bool starving = false;
}  // namespace weft::proto::sim

namespace {

void* take(size_t bytes) noexcept { return std::malloc(bytes == 0 ? 1 : bytes); }
void* take_or_throw(size_t bytes) {
  if (void* at = weft::proto::sim::out_of_memory ? nullptr : take(bytes); at != nullptr) return at;
  throw std::bad_alloc();
}
void* take_or_null(size_t bytes) noexcept { return weft::proto::sim::starving ? nullptr : take(bytes); }

}  // namespace

// What may fail without an exception does fail while `starving`. All of them take from malloc, which the compiler cannot see once it has
// inlined only one side.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(size_t bytes) { return take_or_throw(bytes); }
void* operator new[](size_t bytes) { return take_or_throw(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return take_or_null(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return take_or_null(bytes); }
void operator delete(void* at) noexcept { std::free(at); }
void operator delete[](void* at) noexcept { std::free(at); }
void operator delete(void* at, size_t) noexcept { std::free(at); }
void operator delete[](void* at, size_t) noexcept { std::free(at); }

#if !defined(__clang__)
namespace weft::proto {

template class Engine<sim::PlainLink>;
template class Engine<sim::RichLink>;
template class Engine<sim::CreditLink>;
template class Engine<sim::FastLink>;
template class Engine<sim::LateLink>;
template class Engine<sim::ReferringLink>;

}  // namespace weft::proto
#endif
