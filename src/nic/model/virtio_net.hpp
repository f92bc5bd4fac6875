// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// VirtioNet: a model of a virtio network card (VIRTIO 1.2, sections 2, 4.1 and 5.1), for tests and fuzzers of its
// driver. It does what the driver's doorbells ask for and nothing else, and raises no interrupt that the driver did not
// ask for, so a lost wake-up is seen. It tells what a driver does that the specification forbids. Must not know the
// driver.
//
// Contract: one thread; everything happens in the caller's stack. The hub outlives the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "nic/model/bus.hpp"
#include "nic/model/host.hpp"
#include "nic/model/hub.hpp"
#include "nic/virtio_net/spec.hpp"
#include "wire/neighbor.hpp"

namespace weft::nic::model {

class VirtioNet final : public Station {
 public:
  struct Settings {
    // Offered features (virtio_net::feature); a test takes some away.
    uint64_t features = virtio_net::feature::mtu | virtio_net::feature::mac |
                        virtio_net::feature::mergeable_buffers | virtio_net::feature::link_status |
                        virtio_net::feature::control_queue | virtio_net::feature::control_receive |
                        virtio_net::feature::event_index | virtio_net::feature::version_1 |
                        virtio_net::feature::access_platform | virtio_net::feature::packed_ring;
    wire::Mac mac{std::byte{0x52}, std::byte{0x54}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{1}};
    uint16_t mtu = 1500;
    uint16_t queue_size_max = 256;
    unsigned vectors = 3;
    unsigned reset_reads = 0;        // reads of the status until a reset is over
    bool has_function_reset = true;  // FLR
    bool uses_backwards = false;     // transmitted buffers are used in the opposite order of their batch
    bool refuses_features = false;   // never sets FEATURES_OK
    bool refuses_filter = false;     // answers commands with an error
    bool ignores_commands = false;
    std::function<void(const char* what)> on_violation;  // the driver did what the specification forbids
  };

  explicit VirtioNet(Hub& hub) : VirtioNet(hub, Settings()) {}
  VirtioNet(Hub& hub, const Settings& settings);
  ~VirtioNet();
  VirtioNet(const VirtioNet&) = delete;
  VirtioNet& operator=(const VirtioNet&) = delete;

  // --- Model (bus.hpp) ---
  void attach(Host* host) noexcept { host_ = host; }
  ConfigSpace& config() noexcept { return config_; }
  size_t bar_bytes(unsigned bar) const noexcept { return bar == bar_index ? bar_size : 0; }
  uint32_t read(unsigned bar, size_t offset, size_t width) noexcept;
  void write(unsigned bar, size_t offset, size_t width, uint64_t value) noexcept;
  bool reset() noexcept;

  // --- Station (hub.hpp) ---
  void on_wire(std::span<const std::byte> frame) noexcept override;
  void on_carrier(bool is_up) noexcept override;

  // --- for tests --- While it is held the device does not look at its transmit queue, whatever rings, and wants no
  // doorbell; then it looks.
  void hold_transmit(bool on) noexcept;
  // Something went wrong inside (DEVICE_NEEDS_RESET, 2.1.1).
  void need_reset() noexcept;
  // Called between the buffers of a received frame that takes several, each of which the driver then sees by itself.
  std::function<void()> between_buffers;
  // A hostile device: writes to the memory of a queue. `area`: 0 descriptors, 1 driver area, 2 device area.
  void scribble(unsigned queue, unsigned area, size_t offset, std::span<const std::byte> bytes) noexcept;
  // Uses a buffer that does not exist, or of a length that it does not have.
  void use(unsigned queue, uint16_t id, uint32_t bytes, unsigned descriptors = 1) noexcept;

  uint8_t status() const noexcept { return status_; }
  uint64_t features() const noexcept { return driver_features_; }
  uint64_t frames_missed() const noexcept { return frames_missed_; }
  uint64_t doorbells(unsigned queue) const noexcept { return doorbells_[queue % queues_max]; }

  static constexpr unsigned bar_index = 4;
  static constexpr size_t common_offset = 0x0100;
  static constexpr size_t isr_offset = 0x0800;
  static constexpr size_t device_offset = 0x1000;
  static constexpr size_t notify_offset = 0x2000;
  static constexpr uint32_t notify_multiplier = 4;
  static constexpr size_t bar_size = 0x3000;

 private:
  static constexpr unsigned queues_max = 3;

  struct Piece {
    uint64_t address = 0;
    uint32_t bytes = 0;
    bool is_writable = false;
  };
  struct Buffer {
    uint16_t id = 0;
    unsigned descriptors = 0;
    std::vector<Piece> pieces;
    size_t bytes(bool writable) const noexcept;
  };
  struct UsedBuffer {
    uint16_t id = 0;
    unsigned descriptors = 0;
    uint32_t bytes = 0;
  };
  // Where the device is in a ring: an index that runs through all 2^16 (split), or an offset and a wrap counter
  // (packed).
  struct RingPosition {
    uint16_t at = 0;
    bool wrap = true;
  };
  struct DeviceQueue {
    bool is_enabled = false;
    uint16_t size = 0;
    uint16_t vector = virtio_net::common::no_vector;
    uint64_t areas[3] = {};  // descriptors, driver area, device area
    RingPosition available;
    RingPosition used;
    std::vector<UsedBuffer> to_use;  // not yet shown to the driver
  };

  void forbid(bool is_wrong, const char* what) const {
    if (is_wrong && settings_.on_violation) settings_.on_violation(what);
  }
  bool is_packed() const noexcept { return (driver_features_ & virtio_net::feature::packed_ring) != 0; }
  bool has(uint64_t feature) const noexcept { return (driver_features_ & feature) != 0; }
  bool is_live() const noexcept { return (status_ & virtio_net::status::driver_ok) != 0; }
  void reset_state() noexcept;
  void write_status(uint8_t value) noexcept;
  uint64_t read_common(size_t field, size_t width) noexcept;
  void write_common(size_t field, size_t width, uint32_t value) noexcept;
  void config_changed() noexcept;

  void notify(unsigned queue) noexcept;
  // The next buffer that is available; false: none.
  bool take(DeviceQueue& queue, Buffer& out) noexcept;
  bool take_split(DeviceQueue& queue, Buffer& out) noexcept;
  bool take_packed(DeviceQueue& queue, Buffer& out) noexcept;
  // Shows all of `to_use` to the driver, and interrupts it if it wants that.
  void show(DeviceQueue& queue) noexcept;
  bool show_split(DeviceQueue& queue) noexcept;
  bool show_packed(DeviceQueue& queue) noexcept;
  // Whether the driver should ring when it makes the next buffer available.
  void want_doorbell(DeviceQueue& queue, bool on) noexcept;
  void advance(RingPosition& ring_position, unsigned count, unsigned size) const noexcept;

  bool gather(const Buffer& buffer, std::vector<std::byte>& out) noexcept;
  bool scatter(const Buffer& buffer, std::span<const std::byte> bytes) noexcept;
  void transmit() noexcept;
  void execute() noexcept;
  uint8_t execute(std::span<const std::byte> command);
  bool passes(std::span<const std::byte> frame) const noexcept;

  Settings settings_;
  Hub& hub_;
  Host* host_ = nullptr;
  ConfigSpace config_;
  uint8_t status_ = 0;
  uint8_t generation_ = 0;
  bool has_link_ = false;
  bool holds_transmit_ = false;
  unsigned reset_left_ = 0;
  uint64_t driver_features_ = 0;
  uint32_t device_feature_select_ = 0;
  uint32_t driver_feature_select_ = 0;
  uint16_t queue_select_ = 0;
  uint16_t config_vector_ = virtio_net::common::no_vector;
  DeviceQueue queues_[queues_max];
  uint64_t doorbells_[queues_max] = {};

  bool is_promiscuous_ = true;
  bool passes_all_groups_ = false;
  std::vector<wire::Mac> unicast_;
  std::vector<wire::Mac> groups_;

  uint64_t frames_missed_ = 0;
};

static_assert(Model<VirtioNet>);

}  // namespace weft::nic::model
