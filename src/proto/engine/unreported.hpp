// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Errors of transmit operations: entries in the completion queue, and those that have none (docs/engine.md, "Counted errors"). Must not know links.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/address_vector.hpp"
#include "core/progress.hpp"
#include "core/provider_error.hpp"
#include "proto/engine/context.hpp"

namespace weft::proto {

class TransmitErrors {
 public:
  // An operation, or a message without one.
  struct Failed {
    const PeerState& peer;
    TxContext& tx;
    void* context;
    uint64_t flags;
    uint64_t tag;
    bool silent;
  };

  // `nowhere`: where errors go that concern no operation while no transmit context has posted one. `remembers`: a later operation to the address of a
  // lost peer tells what no entry had told; not of a connection, which has no later ones.
  TransmitErrors(TxContext& nowhere, bool inject_errors, bool remembers) noexcept
      : nowhere_(nowhere), inject_errors_(inject_errors), remembers_(remembers) {}
  TransmitErrors(const TransmitErrors&) = delete;
  TransmitErrors& operator=(const TransmitErrors&) = delete;

  void set_watcher(core::Watcher* watcher) noexcept { watcher_ = watcher; }
  core::Watcher* watcher() const noexcept { return watcher_; }
  // Errors that concern no operation go to the context that posted last.
  void report_to(TxContext& tx) noexcept { reporting_ = &tx; }
  void release(const TxContext& tx) noexcept {
    if (reporting_ == &tx) reporting_ = &nowhere_;
  }
  // The entry of an operation that failed; of one without a completion only if the program asked for such entries.
  void push(const Failed& failed, int status, core::ProviderError why) noexcept;

  // False: the program itself ended it.
  static bool is_loss(core::ProviderError why) noexcept;
  // The operations of a peer end between these two; after had_left(), those that had left before them. `unread`: AnyLink::unread(), of a loss.
  void begin_losing(const PeerState& peer, uint8_t unread, int status) noexcept;
  void had_left() noexcept { losing_.in_flight = true; }
  void end_losing(int status, core::ProviderError why) noexcept;
  // An operation to that address has succeeded.
  void reached(const core::Address& address) noexcept {
    if (owed_count_ != 0) (void)forget_owed(address);
  }
  uint64_t unreported() const noexcept { return unreported_; }

 private:
  void report_unattributed(const PeerState& peer, uint64_t count, int status, core::ProviderError why,
                           bool is_lost) noexcept;
  void remember_owed(const core::Address& address) noexcept;
  bool forget_owed(const core::Address& address) noexcept;

  TxContext& nowhere_;
  const bool inject_errors_;
  const bool remembers_;
  TxContext* reporting_ = &nowhere_;
  core::Watcher* watcher_ = nullptr;
  struct Losing {  // a peer whose operations are being ended
    const PeerState* peer = nullptr;
    uint64_t silent = 0;     // errors that have no entry
    bool owed = false;       // earlier ones had none, nor has an entry to this peer told of them
    bool reported = false;   // by an entry of an operation
    bool in_flight = false;  // those are ended that had left before what waits
  };
  Losing losing_;
  // Peers that were lost so, and whose operations have not told it yet; of many the newest.
  std::array<core::Address, 32> owed_;
  size_t owed_count_ = 0;
  size_t owed_next_ = 0;     // which makes room where all are taken
  uint64_t unreported_ = 0;  // errors
};

}  // namespace weft::proto
