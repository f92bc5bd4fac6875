// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Device: one network card that this process drives, and what the endpoints on it share (proto/device.hpp): the address
// of its own, the frames that come, memory to send from, the program's regions, sleep, link state, resets. docs/nic.md.
// Must not know what frames carry beyond their UDP port, nor which driver the card has.
//
// Threads: as proto::Device: every call under the lock of the domain.
//
// Bounds: of an endpoint inbox_bytes of frames that somebody else's poll took in; bounce_bytes_max of memory to send
// from, at least bounce_buffers_min buffers; endpoints_max endpoints.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "core/progress.hpp"
#include "core/registrar.hpp"
#include "link/ethernet/stack.hpp"
#include "link/nic/card.hpp"
#include "link/nic/regions.hpp"
#include "os/origin.hpp"
#include "os/socket_address.hpp"
#include "proto/device.hpp"
#include "proto/setup.hpp"

namespace weft::link::nic {

class Frames;

// What a card is told: WEFT_NIC (settings.hpp), or the owner.
struct Configuration {
  std::string card;           // "0000:00:04.0"
  os::SocketAddress address;  // its own, port 0
  ethernet::Network network;
  size_t mtu_bytes = 1500;  // of IP packets
};

struct Statistics {
  uint64_t sent = 0;
  uint64_t received = 0;           // for somebody here
  uint64_t looped = 0;             // from one endpoint here to another
  uint64_t copied_bytes = 0;       // of frames that went, by bounce buffers
  uint64_t in_place_bytes = 0;     // of those, read by the card where the program has them
  uint64_t for_nobody = 0;         // neither UDP to a port here nor ARP nor ICMPv6
  uint64_t inbox_full = 0;         // lost, their endpoint did not poll
  uint64_t lost_without_link = 0;  // to send, while there was no carrier
  uint64_t no_room = 0;            // refused, the owner tries again
  uint64_t resets = 0;             // of a card that contradicted itself, or sent nothing for hang_ns
  uint64_t link_changes = 0;
  uint64_t regions_not_mapped = 0;  // their bytes are copied
};

class Device final : public core::Progressor, public core::Registrar, TokenSink {
 public:
  static constexpr size_t inbox_bytes = size_t{512} << 10;
  static constexpr size_t bounce_bytes_max = size_t{2} << 20;
  static constexpr size_t bounce_buffers_min = 64;
  static constexpr size_t bounce_buffers_max = 512;
  static constexpr size_t endpoints_max = 1024;
  static constexpr size_t frames_per_poll = 64;
  static constexpr size_t receive_frames = 256;      // that wait in the card, if it has room for no more
  static constexpr size_t in_place_bytes_min = 256;  // what is shorter is cheaper to copy
  static constexpr uint32_t busy_polls_per_check = 64;
  static constexpr uint64_t check_ns = 100'000'000;    // link state, progress of the card
  static constexpr uint64_t hang_ns = 2'000'000'000;   // frames wait, there is carrier, and none goes
  static constexpr unsigned link_wait_us = 3'000'000;  // at open()
  static constexpr uint64_t remove_wait_ns =
      50'000'000;                            // for frames that read from a region, before the card is reset
  static constexpr unsigned resets_max = 8;  // in reset_window_ns; then the card is given up
  static constexpr uint64_t reset_window_ns = 10'000'000'000;

  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { close(); }

  // --- proto::Device ---
  void set_warning(proto::PacketWarning warning, const void* who) noexcept {
    warning_ = warning;
    warned_ = who;
  }
  // The card that WEFT_NIC names so (settings.hpp), by VFIO (open.hpp).
  Result<void> open(const proto::DeviceRequest& request);
  // That one: tests, RoCEv2 ports.
  Result<void> open(std::unique_ptr<Card> card, const Configuration& configuration);
  void close() noexcept;
  std::vector<proto::DeviceCounter> counters() const;

  // --- from open() to close() ---
  const Configuration& configuration() const noexcept { return configuration_; }
  wire::Mac mac() const noexcept { return mac_; }
  size_t mtu_bytes() const noexcept { return mtu_bytes_; }
  bool has_link() const noexcept { return has_link_; }
  bool is_lost() const noexcept { return is_lost_; }  // it was given up; frames go nowhere
  const Statistics& statistics() const noexcept { return statistics_; }
  DriverCounters driver_counters() const noexcept;
  Card& card() noexcept { return *card_; }
  // Frames that the card has not given back.
  size_t frames_in_flight() const noexcept { return slots_.size() - free_.size(); }

  // --- endpoints (frames.hpp) ---
  // EADDRINUSE, ENOSPC.
  Result<void> attach(Frames& endpoint, uint16_t port);
  void detach(Frames& endpoint) noexcept;
  // A port that nobody has here, of the dynamic ones (RFC 6335); 0: none was found.
  uint16_t draw_port() const noexcept;
  int join(const wire::Mac& group) noexcept;
  void leave(const wire::Mac& group) noexcept;
  // A whole frame. `stays`: the bytes behind the parts stay as they are until the receiver has them, or nobody minds.
  // False: no room.
  bool send(const iovec* parts, size_t count, bool stays) noexcept;
  // Whether send() takes so many frames now, at most 64. While nothing is under way it is true.
  bool has_room(size_t frames) noexcept;
  // The card is told of what was sent; during a poll at its end, and if the owner rings itself, by ring() alone.
  void flush() noexcept {
    if (!is_polling_ && !is_rung_by_owner_ && card_ != nullptr) card_->kick();
  }
  // For an owner that sends by many calls and comes to an end of them: one doorbell for all.
  void set_rung_by_owner(bool on) noexcept { is_rung_by_owner_ = on; }
  void ring() noexcept {
    if (is_usable()) card_->kick();
  }
  // Returns when the card reads no region any more, after at most remove_wait_ns and a reset. Does nothing while the
  // card shows frames.
  void await_no_reads() noexcept;
  // Takes frames from the card. Those of `direct` go to `sink`, the others to inboxes. Both may be null. Returns how
  // many came for `direct`.
  int poll(const Frames* direct, FrameSink* sink) noexcept;
  // Between them frames that are sent wait for the second.
  void begin_poll() noexcept { is_polling_ = true; }
  void end_poll() noexcept {
    is_polling_ = false;
    flush();
  }

  // --- core::Progressor ---
  void progress() noexcept override { (void)poll(nullptr, nullptr); }
  int wait_fd() noexcept override { return card_ != nullptr ? card_->wait_fd() : -1; }
  bool arm() noexcept override;
  void disarm() noexcept override {
    if (is_usable()) card_->disarm();
  }

  // --- core::Registrar ---
  // Maps what the card may read. Memory that cannot be mapped is copied as if it were not registered.
  int add(const core::Registration& registration, core::Registered& out) noexcept override;
  int remove(const core::Registration& registration, void* handle) noexcept override;

 private:
  static constexpr unsigned transmit_descriptors = 1024;  // if the card has so many
  // So many are kept for frames that are copied, or half of them.
  static constexpr size_t descriptors_reserved = 256;
  static constexpr size_t pieces_max = 4;  // of regions, in one frame
  struct Slot {                            // a bounce buffer
    std::array<Piece*, pieces_max> pieces{};
    uint8_t piece_count = 0;
  };
  struct Endpoint {
    uint16_t port;
    Frames* frames;
  };
  struct Group {
    wire::Mac mac;
    unsigned users;
  };
  struct Region {
    std::vector<Piece*> pieces;
  };
  class Receiver;
  class Gatherer;

  bool is_usable() const noexcept { return card_ != nullptr && !is_lost_ && origin_.is_here(); }
  Result<void> start();
  void await_link() noexcept;
  Result<void> make_buffers();
  void on_token(uint64_t token) noexcept override;
  bool make_room() noexcept;
  void release(Slot& slot) noexcept;
  void forget_frames() noexcept;
  bool is_to_us(const iovec& head) const noexcept;
  void loop(const iovec* parts, size_t count) noexcept;
  const Endpoint* find(uint16_t port) const noexcept;
  void deliver(Frames& to, std::span<const std::byte> frame, bool is_checked) noexcept;
  void answer() noexcept;
  void check(uint64_t now) noexcept;
  void update_link(bool has_link) noexcept;
  void recover(const char* why) noexcept;
  void unmap(Region& region) noexcept;
  bool is_read(const Region& region) const noexcept;
  template <class IsRead>
  void await_reads(IsRead&& is_read) noexcept;
  void warn(const std::string& what) const noexcept;

  std::unique_ptr<Card> card_;
  os::Origin origin_;
  bool has_link_ = false;
  bool is_lost_ = false;
  bool is_polling_ = false;
  bool is_rung_by_owner_ = false;
  bool is_receiving_ = false;  // the card shows frames: nothing may be reclaimed
  wire::Mac mac_{};
  std::vector<Endpoint> endpoints_;  // by port
  std::vector<Slot> slots_;
  std::vector<uint16_t> free_;  // slots
  size_t slot_bytes_ = 0;
  size_t descriptors_reserved_ = 0;
  size_t descriptors_per_copy_ = 0;  // at most
  DmaMemory buffers_;
  Regions regions_;
  size_t in_place_ = 0;  // frames under way with pieces of regions
  Statistics statistics_;
  ethernet::Host own_{};
  ethernet::Stack host_;  // answers for all

  // --- cold below this line ---
  Configuration configuration_;
  DriverSettings settings_;
  size_t mtu_bytes_ = 0;
  uint64_t check_at_ = 0;
  uint32_t busy_polls_ = 0;  // that found frames, and so did not look at the clock
  uint64_t reclaimed_ = 0;
  uint64_t reclaimed_seen_ = 0;
  uint64_t still_since_ = 0;  // the first look since which it gave no frame back; 0: it did, or has none
  uint64_t resets_since_ = 0;
  unsigned resets_ = 0;  // since then
  std::vector<Group> groups_;
  std::vector<std::unique_ptr<Region>> mapped_;
  proto::PacketWarning warning_ = nullptr;
  const void* warned_ = nullptr;
};

static_assert(proto::Device<Device> && proto::MakesProgress<Device> && proto::RegistersMemory<Device> &&
              proto::HasDeviceCounters<Device> && proto::HasWarnings<Device>);

}  // namespace weft::link::nic
