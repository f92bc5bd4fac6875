// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the specification fixes: registers, feature bits and structures in memory. Sections are those of "Virtual I/O
// Device (VIRTIO) Version 1.2", OASIS Committee Specification 01, 2022. Must not know how they are used.
//
// All of it is little endian (section 1.4), and so are the machines that this is built for.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace weft::nic::virtio_net {

static_assert(std::endian::native == std::endian::little);

// --- PCI (4.1.2) ---

inline constexpr uint16_t vendor_id = 0x1af4;
inline constexpr uint16_t device_id = 0x1041;  // 0x1040 and the device type, 1: a network card (5.1.1)
inline constexpr uint16_t transitional_device_id = 0x1000;  // also speaks the interface before 1.0

// Capabilities that say where the registers are (4.1.4): offsets into one of them, in configuration space.
namespace capability {
inline constexpr uint8_t vendor_specific = 0x09;  // PCI's id of all of them
inline constexpr size_t next = 1;
inline constexpr size_t bytes = 2;
inline constexpr size_t type = 3;
inline constexpr size_t bar = 4;
inline constexpr size_t offset = 8;
inline constexpr size_t length = 12;
inline constexpr size_t notify_multiplier = 16;  // of a notification capability only (4.1.4.4)
inline constexpr size_t bytes_min = 16;
inline constexpr size_t notify_bytes_min = 20;

inline constexpr uint8_t common = 1;
inline constexpr uint8_t notify = 2;
inline constexpr uint8_t interrupt_status = 3;  // without MSI-X only
inline constexpr uint8_t device = 4;
inline constexpr uint8_t pci = 5;  // another way to the registers, through configuration space
}  // namespace capability

// The common configuration (4.1.4.3). Each field is accessed by its width, the 64-bit ones as two words (4.1.3.1).
namespace common {
inline constexpr size_t device_feature_select = 0x00;  // 32 bits; which word of the features
inline constexpr size_t device_feature = 0x04;         // 32
inline constexpr size_t driver_feature_select = 0x08;  // 32
inline constexpr size_t driver_feature = 0x0c;         // 32
inline constexpr size_t config_vector = 0x10;          // 16; MSI-X vector of configuration changes
inline constexpr size_t queue_count = 0x12;            // 16
inline constexpr size_t status = 0x14;                 // 8
inline constexpr size_t config_generation = 0x15;      // 8
inline constexpr size_t queue_select = 0x16;           // 16; whom the following are of
inline constexpr size_t queue_size = 0x18;           // 16; the largest until the driver writes a smaller one
inline constexpr size_t queue_vector = 0x1a;         // 16
inline constexpr size_t queue_enable = 0x1c;         // 16
inline constexpr size_t queue_notify_offset = 0x1e;  // 16; in units of the multiplier
inline constexpr size_t queue_descriptors = 0x20;    // 64
inline constexpr size_t queue_driver = 0x28;         // 64; "driver area"
inline constexpr size_t queue_device = 0x30;         // 64; "device area"
inline constexpr size_t bytes = 0x38;

inline constexpr uint16_t no_vector = 0xffff;  // 4.1.5.1.2
}  // namespace common

// Device status (2.1).
namespace status {
inline constexpr uint8_t acknowledge = 1;
inline constexpr uint8_t driver = 2;
inline constexpr uint8_t driver_ok = 4;
inline constexpr uint8_t features_ok = 8;
inline constexpr uint8_t needs_reset = 64;
inline constexpr uint8_t failed = 128;
}  // namespace status

// Feature bits: of the device (5.1.3), of the rings and the transport (6).
namespace feature {
inline constexpr uint64_t mtu = uint64_t{1} << 3;
inline constexpr uint64_t mac = uint64_t{1} << 5;
inline constexpr uint64_t mergeable_buffers = uint64_t{1} << 15;  // VIRTIO_NET_F_MRG_RXBUF
inline constexpr uint64_t link_status = uint64_t{1} << 16;        // VIRTIO_NET_F_STATUS
inline constexpr uint64_t control_queue = uint64_t{1} << 17;      // VIRTIO_NET_F_CTRL_VQ
inline constexpr uint64_t control_receive = uint64_t{1} << 18;    // VIRTIO_NET_F_CTRL_RX
inline constexpr uint64_t event_index = uint64_t{1} << 29;        // VIRTIO_F_EVENT_IDX
inline constexpr uint64_t version_1 = uint64_t{1} << 32;
inline constexpr uint64_t access_platform = uint64_t{1} << 33;  // the device's addresses go through the IOMMU
inline constexpr uint64_t packed_ring = uint64_t{1} << 34;
inline constexpr uint64_t order_platform = uint64_t{1} << 36;  // barriers as for any PCI device
}  // namespace feature

// --- the network card ---

// Its configuration (5.1.4).
namespace config {
inline constexpr size_t mac = 0;     // 6 bytes
inline constexpr size_t status = 6;  // 16; with VIRTIO_NET_F_STATUS
inline constexpr size_t mtu = 10;    // 16; with VIRTIO_NET_F_MTU
inline constexpr size_t bytes_min = 6;
inline constexpr uint16_t status_link_up = 1;
inline constexpr uint16_t mtu_min = 68;  // 5.1.4.1
}  // namespace config

// Queues (5.1.2). Without VIRTIO_NET_F_MQ there is one pair, and the control queue follows it.
inline constexpr uint16_t receive_queue = 0;
inline constexpr uint16_t transmit_queue = 1;
inline constexpr uint16_t control_queue = 2;

// struct virtio_net_hdr, in front of each frame in both directions (5.1.6).
struct FrameHeader {
  uint8_t flags = 0;
  uint8_t segmentation = 0;  // gso_type; 0: none
  uint16_t header_bytes = 0;
  uint16_t segment_bytes = 0;
  uint16_t checksum_start = 0;
  uint16_t checksum_offset = 0;
  uint16_t buffers = 0;  // num_buffers: how many receive buffers the frame takes, with VIRTIO_NET_F_MRG_RXBUF
};
static_assert(sizeof(FrameHeader) == 12);

// Commands on the control queue (5.1.6.5): class, command, data; then one byte that the device writes.
namespace control {
inline constexpr uint8_t receive_class = 0;  // 5.1.6.5.1; data: one byte, on or off
inline constexpr uint8_t promiscuous = 0;
inline constexpr uint8_t all_multicast = 1;
inline constexpr uint8_t mac_class = 1;  // 5.1.6.5.2
inline constexpr uint8_t mac_table = 0;  // two tables, unicast and multicast: a 32-bit count, 6 bytes each
inline constexpr uint8_t ok = 0;
inline constexpr uint8_t error = 1;
}  // namespace control

// --- rings ---

inline constexpr unsigned queue_size_max = 32768;  // 2.7, 2.8

namespace descriptor {
inline constexpr uint16_t next = 1;         // the chain goes on
inline constexpr uint16_t write = 2;        // the device writes
inline constexpr uint16_t avail = 1u << 7;  // packed rings (2.8.1): both bits are wrap counters, of who makes
inline constexpr uint16_t used = 1u << 15;  // the descriptor available, and of who has used it
}  // namespace descriptor

// Split rings (2.7): the driver writes the table and the available ring, the device writes the used ring.
struct SplitDescriptor {  // 2.7.5
  uint64_t address;
  uint32_t bytes;
  uint16_t flags;
  uint16_t next;
};
struct UsedElement {  // 2.7.8
  uint32_t id;
  uint32_t bytes;
};
static_assert(sizeof(SplitDescriptor) == 16 && sizeof(UsedElement) == 8);

namespace split {
// Both rings: flags, index, entries, and behind the entries the event index of the other side (2.7.6, 2.7.8).
inline constexpr size_t flags = 0;
inline constexpr size_t index = 2;
inline constexpr size_t entries = 4;
inline constexpr uint16_t no_interrupt = 1;  // in the available ring (2.7.7)
inline constexpr uint16_t no_notify = 1;     // in the used ring (2.7.10)
constexpr size_t available_event(unsigned size) noexcept { return entries + sizeof(UsedElement) * size; }
constexpr size_t used_event(unsigned size) noexcept { return entries + sizeof(uint16_t) * size; }
}  // namespace split

// Packed rings (2.8): one ring that both write, and for each side a structure that says when it wants an event.
struct PackedDescriptor {  // 2.8.13
  uint64_t address;
  uint32_t bytes;
  uint16_t id;
  uint16_t flags;
};
struct EventSuppression {  // 2.8.14
  uint16_t position;       // 15 bits offset and the wrap counter, for `at`
  uint16_t flags;
  static constexpr uint16_t enable = 0;
  static constexpr uint16_t disable = 1;
  static constexpr uint16_t at = 2;  // when the descriptor at `position` is reached; with VIRTIO_F_EVENT_IDX
};
static_assert(sizeof(PackedDescriptor) == 16 && sizeof(EventSuppression) == 4);

}  // namespace weft::nic::virtio_net
