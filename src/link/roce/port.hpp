// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Port: one way of an adapter (proto/roce/adapter.hpp) to its peers: a packet link whose packets are UDP datagrams. It
// makes addresses of GIDs, puts the ICRC behind what goes out, and verifies that of what comes in. Knows neither the
// program's interface nor threads. The owner of the adapter passes packets to send() (PacketOutput), brings the time,
// calls poll(), then Adapter::flush(), and then flush().
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/result.hpp"
#include "link/roce/batch.hpp"
#include "link/roce/gid.hpp"
#include "link/roce/headers.hpp"
#include "os/socket_address.hpp"
#include "proto/packet/abilities.hpp"
#include "proto/packet/in_place.hpp"
#include "proto/packet/packet_link.hpp"
#include "proto/roce/adapter.hpp"
#include "wire/bytes.hpp"
#include "wire/roce/icrc.hpp"
#include "wire/roce/opcode.hpp"

namespace weft::link::roce {

struct PortCounters {
  uint64_t wrong_icrc = 0;
  uint64_t solved = 0;  // by a peer whose IP identification the link does not show
};

template <proto::PacketLink P>
class Port {
 public:
  explicit Port(proto::roce::Adapter& adapter) : adapter_(adapter) {}

  // Before open(). False: packets do not say that they are capable of ECN, since nobody slows down for their marks: UD.
  void set_heeds_congestion(bool heeds) noexcept { heeds_congestion_ = heeds; }
  // `address` names a host: the ICRC covers it. Port 0: the system chooses, and peers need gid(). `open_link(link, bytes)`
  // opens the link with what is to stand around it.
  Result<void> open(const os::SocketAddress& address) {
    return open(address, [](P& link, std::span<const std::byte> at) { return link.open(at); });
  }
  template <class OpenLink>
  Result<void> open(const os::SocketAddress& address, OpenLink&& open_link) {
    if (!address || address.is_any())
      return Error{EINVAL, "a RoCEv2 port needs the address of an interface, not the wildcard"};
    if (address.port() != standard_port && !gid_with_port(address))
      return Error{EINVAL,
                   "over IPv6 a RoCEv2 port is 4791 where the address is not of fe80::/64: a GID has no room "
                   "for another"};
    // The kernel's rxe and network cards send a UDP checksum of zero (annex A17): the ICRC covers the bytes.
    if constexpr (proto::HasOptionalChecksum<P>) link_.set_optional_checksum(true);
    if (auto ok = open_link(link_, address.bytes()); !ok) return ok;
    if constexpr (proto::HasCongestionMarks<P>)
      if (heeds_congestion_) link_.set_ecn(proto::Ecn::Capable0);
    const auto own = link_.address();
    own_ = *os::SocketAddress::from(own.data(), own.size());
    return {};
  }
  void close() noexcept { link_.close(); }

  // What peers of ours reach this port by.
  Gid gid() const noexcept {
    return own_.port() == standard_port ? standard_gid(own_) : gid_with_port(own_).value_or(Gid{});
  }
  // The largest path MTU (proto::roce::Attributes::path_mtu) whose packets reach that port in one piece; 0: not even
  // the smallest.
  uint8_t path_mtu_max(const Gid& to) noexcept {
    const os::SocketAddress there = address_on_link(to);
    const size_t bytes = link_.packet_bytes_max(there.bytes());
    uint8_t code = 5;
    while (code > 0 && (size_t{128} << code) + wire::roce::headers_bytes_max + wire::roce::icrc_bytes > bytes)
      --code;
    return code;
  }
  // After open(): what UD queue pairs show of packets has the traffic class, hop limit and flow label that they came with.
  void show_marks() noexcept {
    if constexpr (has_marks) link_.show_marks();
  }
  // A group that is sent to, or with `receives` heard. 0, -EADDRINUSE: it was so already, or another negative errno.
  int join(const Gid& group, bool receives) {
    if constexpr (proto::HasMulticast<P>) {
      const os::SocketAddress there = address_on_link(group_for(group, gid()));
      if (there.family() != own_.family()) return -EAFNOSUPPORT;
      const int status = link_.join(there.bytes(), receives);
      has_groups_ = has_groups_ || status == 0;
      return status;
    } else {
      return -EOPNOTSUPP;
    }
  }
  void leave(const Gid& group) noexcept {
    if constexpr (proto::HasMulticast<P>) link_.leave(address_on_link(group_for(group, gid())).bytes());
  }
  bool has_unsent() const noexcept { return !batch_.empty(); }  // flush() has something to send
  // Likewise, and all of it is of reliable queue pairs: what the packets refer to stays until they are acknowledged.
  bool may_wait() const noexcept { return !batch_.empty() && parts_stay_; }
  P& link() noexcept { return link_; }
  const os::SocketAddress& address() const noexcept { return own_; }
  const PortCounters& counters() const noexcept { return counters_; }

  // Gives what came to the adapter; returns how many packets.
  int poll(uint64_t now) noexcept {
    Handler handler{*this, now};
    return link_.poll(handler);
  }

  // PacketOutput::send(). What was taken may wait for flush(), to leave in one segmented send.
  bool send(const proto::roce::AddressVector& to, const iovec* parts, size_t count) noexcept {
    const os::SocketAddress there = address_on_link(to.destination);
    if (there.family() != own_.family() || count >= parts_max) return true;  // it cannot get there
    size_t bytes = wire::roce::icrc_bytes;
    for (size_t i = 0; i < count; ++i) bytes += parts[i].iov_len;
    const os::IpMarks marks = marks_of(to);
    if (!batch_.takes(there, bytes, count, marks) && !flush()) return false;
    if (batch_.empty()) parts_stay_ = true;
    // Who has such a packet drops what comes again, and a reader takes nothing whose ICRC is wrong: the payload is as it is
    // until the peer has it. UC and UD are complete when they are sent.
    parts_stay_ = parts_stay_ && is_of_reliable(parts[0]);
    batch_.add(own_, there, parts, count, bytes, marks);
    if (is_flush(parts[0]) && !has_port(to.destination)) [[unlikely]]
      add_flush_for_rxe(there, parts, count, bytes, marks);
    // Strangers may have a network card on their way that numbers segments differently.
    if (batch_.is_full() || !segments || !(has_port(to.destination) || numbers_segments())) (void)flush();
    return true;
  }
  // Before the owner returns to the program, whose memory the packets are in. False: the link has no room now, and this
  // has to be called again.
  bool flush() noexcept {
    if (batch_.empty()) return true;
    const std::span<const std::byte> to = batch_.destination().bytes();
    if constexpr (proto::HasPartsThatStay<P>) link_.set_parts_stay(parts_stay_);
    if constexpr (has_marks) link_.set_marks(batch_.marks());
    bool sent = false;
    if constexpr (segments) {
      sent = batch_.packet_count() == 1
                 ? link_.send(to, batch_.parts(), batch_.part_count())
                 : link_.send_segmented(to, batch_.parts(), batch_.part_count(), batch_.packet_bytes());
    } else {
      sent = link_.send(to, batch_.parts(), batch_.part_count());
    }
    if constexpr (segments && proto::HasLostSegments<P>) {
      if (const size_t lost = sent && batch_.packet_count() > 1 ? link_.lost_segments() : 0; lost != 0)
          [[unlikely]] {
        batch_.keep_last(own_, lost);
        return false;
      }
    }
    if (sent) batch_.clear();
    else batch_.keep();
    return sent;
  }

 private:
  // A GID has no scope: a link-local one is on this port's interface.
  os::SocketAddress address_on_link(const Gid& gid) const noexcept {
    os::SocketAddress address = address_of(gid);
    address.set_scope(own_.scope());
    if (gid[0] == std::byte{0xff} && own_.port() != standard_port) address.set_port(group_port);
    return address;
  }

  // The same FLUSH once more, as rxe wants it: a peer drops the one whose ICRC is wrong for it. What does not fit is sent when the
  // requester sends the FLUSH again.
  [[gnu::noinline, gnu::cold]] void add_flush_for_rxe(const os::SocketAddress& there, const iovec* parts,
                                                      size_t count, size_t bytes,
                                                      const os::IpMarks& marks) noexcept {
    if (count != 1 || !flush()) return;
    batch_.add(own_, there, parts, count, bytes, marks);
    batch_.use_icrc_of_rxe();
  }

  static constexpr size_t parts_max = proto::roce::elements_max + 3;
  static constexpr bool segments = proto::HasSegmentationOffload<P>;
  // Packets have a traffic class, a hop limit and a flow label each.
  static constexpr bool has_marks = requires(P & link, const os::IpMarks& marks) {
    link.show_marks();
    link.set_marks(marks);
    { link.received_marks() } -> std::convertible_to<os::IpMarks>;
  };

  bool numbers_segments() const noexcept {
    if constexpr (proto::HasNumberedSegments<P>) return link_.numbers_segments();
    else return false;
  }

  struct Handler {
    Port& port;
    uint64_t now;
    void on_packet(const proto::ReceivedPacket& packet) noexcept { port.on_packet(packet, now); }
  };

  void on_packet(const proto::ReceivedPacket& packet, uint64_t now) noexcept {
    const auto source = os::SocketAddress::from(packet.source.data(), packet.source.size());
    if (!source || source->family() != own_.family() || packet.bytes.size() < wire::roce::icrc_bytes) return;
    if (has_groups_ && !std::ranges::equal(packet.destination, own_.bytes())) [[unlikely]]
      return on_group_packet(packet, *source, now);
    accept(packet, *source, own_, nullptr, now);
  }

  // What is sent to a group's address is for the QPN of groups, and nothing else is (IBTA 9.6.1.4).
  [[gnu::noinline]] void on_group_packet(const proto::ReceivedPacket& packet, const os::SocketAddress& source,
                                         uint64_t now) noexcept {
    const auto to = os::SocketAddress::from(packet.destination.data(), packet.destination.size());
    if (!to || packet.bytes.size() < wire::roce::bth_bytes + wire::roce::icrc_bytes ||
        wire::roce::Bth::read(packet.bytes.data()).destination != proto::roce::group_qpn)
      return;
    const Gid group = standard_gid(*to);
    accept(packet, source, *to, &group, now);
  }

  [[gnu::always_inline]] void accept(const proto::ReceivedPacket& packet, const os::SocketAddress& source,
                                     const os::SocketAddress& destination, const Gid* group,
                                     uint64_t now) noexcept {
    Headers rebuilt;
    std::span<const std::byte> headers = packet.headers;
    if (headers.empty()) {
      os::IpMarks marks;
      if constexpr (has_marks) marks = link_.received_marks();
      rebuilt = headers_between(source, destination, packet.bytes.size(), packet.ip_identification, marks);
      headers = rebuilt.span();
    }
    if (!wire::roce::icrc_is_right(headers, packet.bytes)) {
      // Its identification may be another than that of a socket.
      const bool is_solved =
          packet.headers.empty() && wire::roce::solve_identification(headers, packet.bytes);
      if (!is_solved && !wire::roce::is_flush_of_rxe(headers, packet.bytes, !packet.headers.empty())) {
        ++counters_.wrong_icrc;
        return;
      }
      counters_.solved += is_solved;
    }
    proto::roce::Arrival arrival;
    arrival.source = gid_with_port(source).value_or(standard_gid(source));
    arrival.alias = standard_gid(source);
    arrival.group = group;
    arrival.bytes = packet.bytes.first(packet.bytes.size() - wire::roce::icrc_bytes);
    arrival.is_marked = packet.ecn == proto::Ecn::CongestionExperienced;
    const std::array<std::byte, proto::roce::grh_bytes> grh = grh_of(arrival, headers);
    arrival.grh = grh;
    adapter_.on_packet(arrival, now);
  }

  static os::IpMarks marks_in(std::span<const std::byte> headers) noexcept {
    os::IpMarks marks;
    const auto byte = [&](size_t at) { return wire::load_byte(headers.data() + at); };
    if (headers.size() == wire::Ip4::bytes + wire::Udp::bytes) {
      marks.traffic_class = byte(1);
      marks.hops = byte(8);
    } else if (headers.size() == wire::Ip6::bytes + wire::Udp::bytes) {
      marks.traffic_class = static_cast<uint8_t>(byte(0) << 4 | byte(1) >> 4);
      marks.flow_label = static_cast<uint32_t>((byte(1) & 15) << 16 | byte(2) << 8 | byte(3));
      marks.hops = byte(7);
    }
    return marks;
  }

  // What a UD queue pair shows of the headers. At the standard port that is the IP header, of IPv4 in the second half of
  // the GRH's place (annex A17). Elsewhere the peer is one of ours, and only its GID tells the port: a GRH with both GIDs.
  std::array<std::byte, proto::roce::grh_bytes> grh_of(const proto::roce::Arrival& arrival,
                                                       std::span<const std::byte> headers) const noexcept {
    if (own_.port() != standard_port)
      return grh_between(arrival.source, arrival.group != nullptr ? *arrival.group : gid(),
                         arrival.bytes.size() + wire::roce::icrc_bytes, marks_in(headers));
    std::array<std::byte, proto::roce::grh_bytes> grh{};
    const std::span<const std::byte> ip = headers.first(headers.size() - wire::Udp::bytes);
    std::ranges::copy(ip, grh.end() - static_cast<std::ptrdiff_t>(ip.size()));
    return grh;
  }

  proto::roce::Adapter& adapter_;
  P link_;
  os::SocketAddress own_;
  bool has_groups_ = false;  // one was joined once
  bool heeds_congestion_ = true;
  Batch batch_;
  bool parts_stay_ = false;  // all of the batch
  PortCounters counters_;
};

}  // namespace weft::link::roce
