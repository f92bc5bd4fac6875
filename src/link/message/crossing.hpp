// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What becomes of a connection that somebody makes to us who may be connected, or being connected to, already. One
// rule for all networks, so that both sides decide alike without a word: of two connections that cross, that of the
// side with the lower address stays. Stateless; must not know how connections are made or refused.
#pragma once

#include <cstdint>

namespace weft::link::message {

enum class Call : uint8_t {
  FromNew,  // a peer that is not known
  FromRestarted,  // another endpoint at a known address: the old one has gone, if the caller may speak for that address
  Duplicate,  // the connection that is there, or ours, goes first
  Instead,    // it becomes the known peer's connection; ours to that peer is given up
};

// What is known of who calls, by the address that he names.
struct Caller {
  bool known = false;             // there is a peer of that address
  bool connected = false;         // and a connection to it that works
  bool same_incarnation = false;  // then: of the same endpoint
  bool being_connected = false;   // we are connecting to it
  bool is_higher = false;         // its address is higher than ours
};

constexpr Call judge(const Caller& caller) noexcept {
  if (!caller.known) return Call::FromNew;
  if (caller.connected) return caller.same_incarnation ? Call::Duplicate : Call::FromRestarted;
  return caller.being_connected && caller.is_higher ? Call::Duplicate : Call::Instead;
}

}  // namespace weft::link::message
