// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One connection: two streams, what is known of the path and of the other side. Kept by whoever is above (a peer of the engine is one); driven by
// Core alone. Must not know sockets or clocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/list.hpp"
#include "proto/congestion/delay_window.hpp"
#include "proto/reliable/liveness.hpp"
#include "proto/reliable/loss_history.hpp"
#include "proto/reliable/owed_ack.hpp"
#include "proto/reliable/path_mtu.hpp"
#include "proto/reliable/receive_stream.hpp"
#include "proto/reliable/round_trip.hpp"
#include "proto/reliable/send_stream.hpp"

namespace weft::proto::reliable {

// Where packets go, as the packet link writes it.
struct PacketAddress {
  std::array<std::byte, handshake_address_max> bytes{};
  size_t length = 0;

  PacketAddress() = default;
  explicit PacketAddress(std::span<const std::byte> from) noexcept
      : length(from.size() < handshake_address_max ? from.size() : handshake_address_max) {
    std::memcpy(bytes.data(), from.data(), length);
  }
  std::span<const std::byte> span() const noexcept { return {bytes.data(), length}; }
  bool operator==(const PacketAddress& other) const noexcept {
    return length == other.length && std::memcmp(bytes.data(), other.bytes.data(), length) == 0;
  }
};

// What showed that a peer is gone, where that is a conclusion of ours.
enum class Death : uint8_t {
  None,      // it said so, or somebody else is there
  Silence,   // nothing came back
  NoRoom,    // the packet link took nothing for it
  Refusals,  // the packet link heard that nobody is there
  Truncated  // it left, and not all that it had sent came
};

// Who the two sides of a connection are.
struct Identity {
  uint32_t id = 0;                // our number for the connection
  uint32_t peer_id = 0;           // the number that the other side has for it; 0: not heard yet
  uint64_t incarnation = 0;       // of our side
  uint64_t peer_incarnation = 0;  // of the other side; 0: not heard yet
  // The largest incarnation of the other side that was asked to begin again: nothing of it is taken.
  uint64_t denied = 0;
  uint8_t restarts = 0;    // with a larger incarnation, because the other side asked for it
  bool validated = false;  // the other side has used our number: it gets what we send to its address
  size_t credit = 0;       // bytes that may go to a peer that came by itself and has not been validated
  PacketAddress address;   // by which the program knows it
  PacketAddress path;      // where its packets come from
};

// How a connection ends.
struct Ending {
  uint64_t final_offset = 0;  // of the incoming stream, with `finishing`
  uint64_t finish_due = 0;    // until then all before it should have come; 0: no deadline
  uint64_t close_sent_at = 0;
  Death death = Death::None;  // with `dead_ns`, when it is lost
  uint64_t dead_ns = 0;       // how long that was so
  bool finishing = false;     // the peer leaves, and not all that it sent is handed up
  bool close_sent = false;
  bool closed = false;
};

// What a connection waits for, in the order in which what is due runs. When each is due: Core::due() in timers.cpp.
enum class Timer : uint8_t {
  Finish,       // the peer leaves, and not all that it sent has come
  NoRoom,       // the packet link takes nothing for the peer
  Loss,         // packets count as lost, for later ones have arrived
  Ask,          // the acknowledgement is asked for once more
  Refusal,      // whether nobody is there, as the packet link heard, is asked for
  Pace,         // what the window permits may go by the rate
  Answer,       // nothing came back
  Acknowledge,  // what came is acknowledged
  Count,
};

struct ReadyHook : ListHook {};
struct TimedHook : ListHook {};
struct UnvalidatedHook : ListHook {};
struct OwedHook : ListHook {};

struct Connection : ReadyHook, TimedHook, UnvalidatedHook, OwedHook {
  Identity who;
  SendStream out;
  ReceiveStream in;

  // --- the path ---
  RoundTrip rtt;
  PathMtu mtu;
  congestion::Slot congestion{congestion::make<congestion::DelayWindow>};
  LossHistory history;
  SendRoom room;

  // --- the peer ---
  OwedAck owed;
  Liveness life;
  // Bytes of the window of the peer's socket that packets since it was heard last may occupy (Core::add_in_flight()).
  size_t in_flight_estimate = 0;

  // --- sending ---
  uint64_t epoch = 0;          // Core's count of polls, when something was sent last
  size_t unsent_frames = 0;    // frames since the last flush
  unsigned hurried = 0;        // calls of Core::hurry() since the last poll,
  unsigned hurries = 4;        // of which so many send
  bool one_more = false;       // a timeout permits one packet beyond the window
  bool all_again = false;      // a timeout sends everything, beyond the window
  bool asks_for_sign = false;  // the packet without payload of the next flush wants an answer
  bool keepalive = false;      // silence is taken for death though nothing is under way

  // --- what is waited for above ---
  bool expects = false;  // a completion waits for the next frame
  uint64_t awaited = 0;  // completions wait for acknowledgements before here
  // Bytes of the stream before it count as delivered without an acknowledgement (CompletionPolicy).
  uint64_t assumed_delivered = 0;
  bool lone = false;     // one small frame goes by itself: its acknowledgement may come with the answer
  bool patient = false;  // what goes now does not ask for its acknowledgement, unless that is late

  // --- timers ---
  uint64_t timeout_from = 0;  // 0: nothing is waited for
  uint64_t ask_due = 0;       // when to ask for the acknowledgement; 0: not
  uint64_t pace_due = 0;      // when what the window permits may go by the rate; 0: nothing waits for it
  unsigned backoff = 0;       // timeouts in a row
  unsigned probes = 0;        // packets left to send because the peer has not been validated

  Ending ending;
};

}  // namespace weft::proto::reliable
