// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// ShmPort: the way of a device to other devices of this host and user: rings in shared memory (shm_ring.hpp) instead
// of a UDP socket. docs/verbs.md has the handshake. Knows neither the program's interface nor threads.
//
// A ring has one direction. Who has packets for a GID makes it and connects to the Unix socket that is named after the
// GID; the connection brings the memory, wakes a receiver that sleeps, and tells of the end of either side. send()
// makes no system call but that for a sleeper; Hellos are sent by run_housekeeping().
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "link/packet/middleware.hpp"
#include "link/roce/gid.hpp"
#include "link/roce/shm_ring.hpp"
#include "os/disposal.hpp"
#include "os/fd.hpp"
#include "os/origin.hpp"
#include "os/poll_set.hpp"
#include "os/shared_memory.hpp"
#include "os/socket_address.hpp"
#include "proto/packet/observed.hpp"
#include "proto/roce/adapter.hpp"

namespace weft::link::roce {

struct ShmCounters {
  uint64_t sent = 0;
  uint64_t received = 0;
  uint64_t lost = 0;       // for receivers that take nothing
  uint64_t malformed = 0;  // peers that were cut off: what lay in their memory made no sense
  uint64_t refused = 0;    // connections of another user, or without a ring that is sound
};

// The first message of a connection; a memory file comes with it. The others are one byte each and wake the receiver.
struct ShmHello {
  uint64_t magic = 0x65636f7274666577;  // "weftroce"
  uint32_t version = 3;                 // of the handshake and of the memory
  uint32_t bytes = sizeof(ShmMemory);
  uint32_t is_registered = 0;  // 1: the receiver can have the sender's process fence
  uint32_t reserved = 0;
  Gid source{};
  Gid to{};
};

class ShmPort {
 public:
  static constexpr size_t peers_max = 256;  // rings of each direction; who comes later has UDP

  explicit ShmPort(proto::roce::Adapter& adapter) : adapter_(adapter) {}
  ShmPort(const ShmPort&) = delete;
  ShmPort& operator=(const ShmPort&) = delete;
  ~ShmPort() { close(); }

  // `own` is the address of GID 0, with its port. `capture` gets a copy of all packets; may be null. `audience` hears why a peer of this host is
  // left to UDP.
  Result<void> open(const os::SocketAddress& own, proto::PacketCapture* capture,
                    const packet::Audience& audience = {});
  void close() noexcept;

  enum class Sent : uint8_t { Taken, NoRoom, NoPath, AfterUdp };
  // PacketOutput::send(). NoPath: there is no ring to it (yet), and UDP has to serve. `waits_for_udp`: packets have not
  // left by UDP yet. AfterUdp: the first packet of a ring, which is taken as soon as they have.
  // `psns` is not 1: PacketOutput::send_aggregate(), after payload_max() and nothing else.
  Sent send(const Gid& to, const iovec* parts, size_t count, bool waits_for_udp = false,
            uint32_t psns = 1) noexcept;
  // PacketOutput::payload_max(). A capture has packets.
  size_t payload_max(const Gid& to) noexcept {
    if (!origin_.is_here()) return 0;
    const Outbound* const out = find(to);
    return out != nullptr && out->state == State::Standing && out->ring->may_aggregate() &&
                   capture_ == nullptr
               ? proto::roce::mtu_bytes_max
               : 0;
  }
  // Of the packets of the next send(): those of UD tell the receiver its marks.
  void set_vector(const proto::roce::AddressVector& to) noexcept { vector_ = &to; }
  // Gives what came to the adapter; returns how many packets. A peer's first packets came by UDP: before the first of
  // a ring, empty_sockets() takes what waits there, so that nothing is overtaken.
  template <class EmptySockets>
  int poll(uint64_t now, EmptySockets&& empty_sockets) noexcept {
    int packets = 0;
    for (const auto& in : inbound_) {
      if (!in->ring || in->ring->is_empty()) continue;
      if (!in->has_begun) {
        in->has_begun = true;
        empty_sockets();
      }
      packets += drain(*in, now);
    }
    return packets;
  }
  bool has_packets() const noexcept {
    for (const auto& in : inbound_)
      if (in->ring && !in->ring->is_empty()) return true;
    return false;
  }
  bool reaches(const Gid& to) const noexcept;  // packets to it go into a ring
  // Sends that GID a Hello now, before the first packet of a queue pair to it, unless it was there before.
  void expect(const Gid& to, uint64_t now) noexcept;
  bool has_lost(const Gid& to) const noexcept;  // its end has ended the ring to it
  bool has_rings() const noexcept { return !inbound_.empty(); }

  // Handshakes, the ends of peers, wake-ups: due once in a while, and when wait_fd() is readable.
  bool is_due(uint64_t now) const noexcept { return now >= housekeeping_at_; }
  void run_housekeeping(uint64_t now) noexcept;
  void housekeep_soon() noexcept { housekeeping_at_ = 0; }

  // Sleeping: between arm() and disarm(), wait_fd() is readable when there is something. arm() is false when there is
  // something now. Not later than next_due(), run_housekeeping() wants to be called.
  int wait_fd() const noexcept { return set_.get(); }
  bool arm() noexcept;
  void disarm() noexcept;
  void relax() noexcept;  // the program polls, and nobody is going to arm for a while
  uint64_t next_due() const noexcept { return due_at_; }

  const ShmCounters& counters() const noexcept { return counters_; }
  // The name of the Unix socket of who has that GID.
  // A link-local address is one for each interface, of which `scope` is the number; 0: it is no such address.
  static std::string name_of(const Gid& gid, uint32_t scope = 0);

 private:
  static constexpr int burst = 64;                        // packets of a ring in one turn
  static constexpr uint64_t housekeeping_ns = 1'000'000;  // while the program polls
  static constexpr uint64_t again_ns = 10'000'000'000;    // until a peer that was not there is tried again
  static constexpr uint64_t busy_ns = 10'000'000;         // until one whose queue was full is
  // With a receiver whose ring is full; then packets are lost. For UC and UD, which do not repeat, longer than one waits for
  // a busy processor.
  static constexpr uint64_t full_ns_max = 100'000'000;
  static constexpr uint64_t reliable_full_ns_max = 10'000'000;
  static constexpr uint64_t foreign_ns = 100'000'000;  // after a connection of another user none is accepted

  struct Watched {
    enum class Kind : uint8_t { Listener, In, Out };
    explicit Watched(Kind of) noexcept : kind(of) {}
    Kind kind;
  };
  struct Inbound : Watched {
    Inbound() noexcept : Watched(Kind::In) {}
    os::Fd connection;
    os::Mapping memory;
    std::optional<ShmReceiver> ring;  // empty: the handshake has not come
    Gid source{};
    Gid alias{};
    os::SocketAddress address;
    bool has_begun = false;
    bool is_malformed = false;
    bool is_registered = false;
  };
  enum class State : uint8_t { Wanted, Absent, HelloSent, Standing };
  struct Outbound : Watched {
    Outbound() noexcept : Watched(Kind::Out) {}
    Gid to{};
    State state = State::Wanted;
    bool is_asked_for = false;  // while Absent
    bool has_ended = false;     // it had a ring once, and has none now
    uint64_t again_at = 0;
    uint64_t full_since = 0;  // 0: there was room
    os::Fd connection;
    os::Mapping memory;
    std::optional<ShmSender> ring;
  };
  struct GidHash {
    size_t operator()(const Gid& gid) const noexcept;
  };

  Outbound* find(const Gid& to) noexcept {
    // Inline; the comparison of std::array goes byte by byte.
    if (last_ != nullptr && std::memcmp(last_->to.data(), to.data(), to.size()) == 0) [[likely]]
      return last_;
    return find_other(to);
  }
  Outbound* find_other(const Gid& to) noexcept;
  Outbound* want(const Gid& to) noexcept;
  Sent put(Outbound& out, const iovec* parts, size_t count, uint32_t psns) noexcept;
  void capture_sent(const Gid& to, const iovec* parts, size_t count) noexcept;
  int drain(Inbound& in, uint64_t now) noexcept;
  void on_packet(const Inbound& in, std::span<const std::byte> bytes, std::span<const std::byte> headers,
                 uint64_t now) noexcept;

  // run_housekeeping()
  void send_hello_wanted(uint64_t now);
  void ask_again(uint64_t now) noexcept;
  void send_hello(Outbound& out, uint64_t now);
  void on_ready(Watched& watched, uint64_t now);
  void accept(uint64_t now);
  void read(Inbound& in, uint64_t now);
  bool attach(Inbound& in, uint64_t now);
  void note_not_passed(int code) noexcept;
  void end(Inbound& in, uint64_t now) noexcept;
  void end(Outbound& out, uint64_t now) noexcept;
  void close_later(os::Fd connection) noexcept;
  bool may_receive() noexcept;  // the disposal is free
  bool fence_all() noexcept;
  void hold(uint64_t until) noexcept;

  proto::roce::Adapter& adapter_;
  os::SocketAddress own_;
  Gid local_gid_{};
  std::vector<std::unique_ptr<Inbound>> inbound_;
  Outbound* last_ = nullptr;
  const proto::roce::AddressVector* vector_ = nullptr;
  std::unordered_map<Gid, std::unique_ptr<Outbound>, GidHash> outbound_;
  bool is_armed_ = false;
  bool fences_ = false;      // membarrier(2) works here
  bool is_relaxed_ = false;  // senders that are registered need no fence
  proto::PacketCapture* capture_ = nullptr;
  uint64_t housekeeping_at_ = 0;
  // Cold below.
  uint64_t due_at_ = UINT64_MAX;
  uint64_t ask_again_at_ = 0;
  uint64_t held_until_ = 0;  // the listener is not looked at; 0: it is
  bool has_wanted_ = false;
  bool has_noted_ = false;
  packet::Audience audience_;
  ShmCounters counters_;
  Watched listener_tag_{Watched::Kind::Listener};
  os::Fd listener_;
  os::PollSet set_;
  os::Disposal disposal_;
  std::vector<os::Fd> gone_;  // for disposal_
  os::Origin origin_;
};

}  // namespace weft::link::roce
