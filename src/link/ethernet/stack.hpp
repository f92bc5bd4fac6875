// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Stack: a host with one address on an Ethernet: it answers for it (ARP, Neighbor Discovery), finds the MACs of others,
// keeps packets until they are found, and puts Ethernet, IP and UDP headers around payloads. No I/O: frames come in by
// on_frame(), its own questions and answers wait for send_control(). docs/ethernet.md. Must not know who moves frames.
//
// Not there: fragments (refused; path MTU is the link's), IP options and extension headers, duplicate address detection,
// redirects and router discovery (a gateway is configured), IGMP and MLD reports.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "link/ethernet/frames.hpp"
#include "link/ethernet/neighbor_cache.hpp"
#include "os/ip_marks.hpp"
#include "os/socket_address.hpp"
#include "proto/packet/packet_link.hpp"

namespace weft::link::ethernet {

// What an address alone does not say.
struct Network {
  uint8_t prefix_bits = 0;    // hosts with this much in common are on the link; 0: all are
  os::SocketAddress gateway;  // to the others; its port is ignored
  uint16_t vlan = 0;          // 1 to 4094: all frames carry this tag (IEEE 802.1Q)
};

struct EthernetCounters {
  uint64_t foreign = 0;         // of another protocol, address, port or VLAN
  uint64_t malformed = 0;       // lengths, IP checksum, impossible addresses
  uint64_t wrong_checksum = 0;  // of UDP
  uint64_t fragments = 0;
  uint64_t conflicts = 0;     // somebody else speaks with our address
  uint64_t unreachable = 0;   // packets to hosts that did not answer, or while too many waited
  uint64_t control_lost = 0;  // questions and answers that found no room
};

class Stack {
 public:
  static constexpr size_t head_bytes_max =
      wire::Ethernet::bytes + wire::Ethernet::tag_bytes + wire::Ip6::bytes + wire::Udp::bytes;
  // Packets that wait, for neighbours and from us to us, and their bytes; and of them those for one neighbour. The
  // first burst to somebody is a window of RoCEv2 or udp;ofi_rxd: what does not fit is lost, and is sent again a timeout
  // later.
  static constexpr size_t buffered_max = 512;
  static constexpr size_t buffered_bytes_max = size_t{512} << 10;
  static constexpr size_t buffered_per_host_max = 256;
  static constexpr size_t buffered_bytes_per_host_max = size_t{256} << 10;
  static constexpr size_t control_max = 32;
  static constexpr size_t groups_max = 16;

  struct Head {
    std::array<std::byte, head_bytes_max> bytes;
    size_t count = 0;
  };
  struct Control {
    std::array<std::byte, 96> bytes;
    size_t count = 0;
  };
  // Where a packet goes: into the link; to where packets wait (keep()); or a negative errno.
  static constexpr int goes = 0;
  static constexpr int waits = 1;

  // --- before open() ---
  void set_optional_checksum(bool optional) noexcept { optional_checksum_ = optional; }
  // --- at any time ---
  void set_traffic_class(uint8_t dscp) noexcept {
    traffic_class_ = static_cast<uint8_t>((dscp << 2) | (traffic_class_ & 3));
  }
  void set_ecn(proto::Ecn ecn) noexcept {
    traffic_class_ = static_cast<uint8_t>((traffic_class_ & ~3) | static_cast<uint8_t>(ecn));
  }

  // Of what is sent from now on, but for the ECN bits: those of set_ecn() stay.
  void set_marks(const os::IpMarks& marks) noexcept { marks_ = marks; }

  // `own` has a host; a zero port is drawn from the dynamic ones (RFC 6335) by `random`. Announces the address.
  Result<void> open(const os::SocketAddress& own, const Network& network, const wire::Mac& mac,
                    size_t mtu_bytes, uint64_t random);
  void close() noexcept;
  const os::SocketAddress& own() const noexcept { return own_; }
  size_t packet_bytes_max() const noexcept { return mtu_bytes_ - ip_bytes() - wire::Udp::bytes; }
  const EthernetCounters& counters() const noexcept { return counters_; }

  // The headers of a packet. -EMSGSIZE, -EHOSTUNREACH (nobody answers), -ENETUNREACH (another network, and there is no
  // gateway), -EACCES (a broadcast), -EINVAL (an address of another kind).
  int write_head(std::span<const std::byte> to, const iovec* parts, size_t count, uint16_t identification,
                 uint64_t now, Head& head) noexcept;
  // The packet waits until send_resolved() or deliver_own(), or is lost: more than there is room for waits for that neighbour.
  // False: the owner tries again, packets of ours to us wait.
  bool keep(const Head& head, const iovec* parts, size_t count) noexcept;

  // True: `packet` is one for the owner; its spans are good until the next call, those of the bytes as long as the frame.
  bool on_frame(const ReceivedFrame& frame, uint64_t now, proto::ReceivedPacket& packet) noexcept;

  // --- after on_frame() and as time goes on: what the link is to send ---
  void tick(uint64_t now) noexcept;
  // send(frame) is false when there is no room; then it is offered again.
  template <class Send>
  void send_control(Send&& send) noexcept {
    while (control_count_ != 0) {
      const Control& next = control_[control_first_];
      if (!send(wire::Bytes(next.bytes.data(), next.count))) return;
      control_first_ = (control_first_ + 1) % control_max;
      --control_count_;
    }
  }
  // Packets whose neighbour was found, in their order.
  template <class Send>
  void send_resolved(Send&& send) noexcept {
    if (found_ == 0) return;
    for (size_t i = 0; i < order_.size();) {
      const wire::Bytes frame = ready(order_[i]);
      if (frame.empty()) {
        ++i;
        continue;
      }
      if (!send(frame)) return;
      release(i);
    }
    found_ = 0;
  }
  // Packets of ours to us, as frames for on_frame(); at most as many as there are when it is called.
  template <class Deliver>
  void deliver_own(Deliver&& deliver) noexcept {
    for (size_t left = own_count_; left != 0; --left) {
      const size_t slot = pop_own();
      deliver(wire::Bytes(slots_[slot].memory.get(), slots_[slot].bytes));
      release_slot(slot);
    }
  }
  // The last packet that goes into the link is to arrive here, too (keep()).
  bool loops() const noexcept { return route_.where == Where::Multicast && route_.loops; }
  // Something is left that needs a call: the owner must not sleep.
  bool is_busy() const noexcept {
    return control_count_ != 0 || own_count_ != 0 || found_ != 0 || neighbors_.is_asking();
  }

  // Multicast: 0, -EADDRINUSE (it was so already), -EINVAL, -ENOSPC. `mac` is the group's.
  int join(std::span<const std::byte> group, bool receives, wire::Mac& mac) noexcept;
  bool leave(std::span<const std::byte> group, wire::Mac& mac) noexcept;  // true: it received
  // The MACs under which Neighbor Solicitations for the own address come; nothing for IPv4.
  std::optional<wire::Mac> solicited_mac() const noexcept;

 private:
  struct Slot {
    std::unique_ptr<std::byte[]> memory;
    Host host{};  // that waits for its MAC
    size_t bytes = 0;
    bool is_own = false;
  };
  struct Group {
    os::SocketAddress address;
    Host host{};
    wire::Mac mac{};
    bool receives = false;
  };
  enum class Where : uint8_t { Link, Own, LocalHost, Multicast };  // LocalHost: another port of this host
  // The last destination, whose route is known.
  struct Route {
    os::SocketAddress to;
    Host destination{};
    Host next_hop{};
    wire::Mac mac{};  // of a group
    Where where = Where::Link;
    NeighborEntry* neighbor = nullptr;
    bool loops = false;  // a group that we receive
  };

  bool is_ip6() const noexcept { return own_.family() == AF_INET6; }
  size_t ip_bytes() const noexcept { return is_ip6() ? wire::Ip6::bytes : wire::Ip4::bytes; }
  bool is_on_link(const Host& host) const noexcept;
  int find_route(std::span<const std::byte> to) noexcept;
  void fill(Head& head, const wire::Mac& mac, size_t payload, const iovec* parts, size_t count,
            uint16_t identification) const noexcept;

  bool on_arp(const wire::Ethernet& ethernet, wire::Bytes bytes, uint64_t now) noexcept;
  bool on_icmp6(const wire::Ethernet& ethernet, const wire::Ip6& ip, wire::Bytes bytes,
                uint64_t now) noexcept;
  bool on_datagram(const ReceivedFrame& frame, wire::Bytes bytes, proto::ReceivedPacket& packet) noexcept;
  bool is_for_us(const wire::Ethernet& ethernet) const noexcept;

  void ask(const NeighborEntry& neighbor, bool directly) noexcept;
  void announce() noexcept;
  void say_arp(const wire::Mac& to, const wire::Arp& arp) noexcept;
  void say_neighbor(const wire::Mac& to, const Host& destination, const wire::Neighbor& message) noexcept;
  Control* new_control(const wire::Mac& to, uint16_t type) noexcept;
  size_t write_ethernet(std::byte* out, const wire::Mac& to, uint16_t type) const noexcept;
  void lose(const Host& host) noexcept;

  wire::Bytes ready(size_t slot) noexcept;
  void release_slot(size_t slot) noexcept;
  void release(size_t index) noexcept;
  size_t pop_own() noexcept;

  os::SocketAddress own_;
  Host host_{};
  wire::Mac mac_{};
  Network network_;
  Host gateway_{};
  size_t mtu_bytes_ = 0;
  uint8_t traffic_class_ = 0;
  os::IpMarks marks_;
  bool optional_checksum_ = false;
  Route route_;
  NeighborCache neighbors_;
  EthernetCounters counters_;
  os::SocketAddress source_;  // of the packet that is shown
  std::vector<Group> groups_;

  size_t found_ = 0;      // neighbours that may have been found since the last send_resolved()
  size_t own_count_ = 0;  // packets of ours to us
  size_t buffered_bytes_ = 0;
  std::vector<Slot> slots_;
  std::vector<uint16_t> order_;  // slots with packets, the oldest first
  std::vector<uint16_t> free_;
  std::array<Control, control_max> control_;
  size_t control_first_ = 0;
  size_t control_count_ = 0;
};

// ::ffff:a.b.c.d or the IPv6 address.
Host host_of(const os::SocketAddress& address) noexcept;

}  // namespace weft::link::ethernet
