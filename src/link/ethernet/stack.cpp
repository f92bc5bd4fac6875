// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Ways, headers, what arrives, and packets that wait.
#include "link/ethernet/stack.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "wire/bytes.hpp"
#include "wire/ip.hpp"

namespace weft::link::ethernet {
namespace {

using wire::Bytes;
using wire::Ethernet;
using wire::Ip4;
using wire::Ip6;
using wire::Mac;
using wire::Udp;

constexpr Mac broadcast_mac = {std::byte{0xff}, std::byte{0xff}, std::byte{0xff},
                               std::byte{0xff}, std::byte{0xff}, std::byte{0xff}};
constexpr uint16_t vlan_id_mask = 0x0fff;
constexpr uint16_t dynamic_ports = 49152;  // RFC 6335 section 6
constexpr size_t mtu_bytes_min = 576;      // RFC 791
constexpr size_t mtu_bytes_max = 65535;
constexpr unsigned mapped_bits = 96;  // of ::ffff:0:0/96

bool is_group(const Mac& mac) noexcept { return (mac[0] & std::byte{1}) != std::byte{0}; }
bool is_station(const Mac& mac) noexcept { return !is_group(mac) && mac != Mac{}; }

bool is_mapped(const Host& host) noexcept {
  return std::all_of(host.begin(), host.begin() + 10, [](std::byte b) { return b == std::byte{0}; }) &&
         host[10] == std::byte{0xff} && host[11] == std::byte{0xff};
}
bool is_multicast(const Host& host) noexcept {
  return is_mapped(host) ? (wire::load_byte(&host[12]) & 0xf0) == 0xe0 : host[0] == std::byte{0xff};
}
// Of one host: neither a group, nor a broadcast, nor nobody.
bool is_unicast(const Host& host) noexcept {
  if (is_multicast(host)) return false;
  if (is_mapped(host)) return host[12] != std::byte{0} && wire::load_byte(&host[12]) < 0xf0;
  return !std::all_of(host.begin(), host.end(), [](std::byte b) { return b == std::byte{0}; });
}
bool is_link_local(const Host& host) noexcept {
  return host[0] == std::byte{0xfe} && (host[1] & std::byte{0xc0}) == std::byte{0x80};
}
Host mapped(const std::array<std::byte, 4>& ip) noexcept {
  Host host{};
  host[10] = host[11] = std::byte{0xff};
  std::ranges::copy(ip, host.begin() + 12);
  return host;
}
std::array<std::byte, 4> ip4_of(const Host& host) noexcept {
  std::array<std::byte, 4> ip;
  std::copy_n(host.begin() + 12, 4, ip.begin());
  return ip;
}
bool have_in_common(const Host& a, const Host& b, unsigned bits) noexcept {
  if (!std::equal(a.begin(), a.begin() + bits / 8, b.begin())) return false;
  const unsigned rest = bits % 8;
  return rest == 0 || ((a[bits / 8] ^ b[bits / 8]) >> (8 - rest)) == std::byte{0};
}
// RFC 1112 section 6.4, RFC 2464 section 7.
Mac group_mac(const Host& group) noexcept {
  if (is_mapped(group))
    return {std::byte{0x01}, std::byte{0x00}, std::byte{0x5e}, group[13] & std::byte{0x7f},
            group[14],       group[15]};
  return {std::byte{0x33}, std::byte{0x33}, group[12], group[13], group[14], group[15]};
}
// ff02::1:ffXX:XXXX, RFC 4291 section 2.7.1.
Host solicited_group(const Host& host) noexcept {
  Host group{};
  group[0] = std::byte{0xff};
  group[1] = std::byte{0x02};
  group[11] = std::byte{0x01};
  group[12] = std::byte{0xff};
  std::copy(host.begin() + 13, host.end(), group.begin() + 13);
  return group;
}
Host all_nodes() noexcept {
  Host group{};
  group[0] = std::byte{0xff};
  group[1] = std::byte{0x02};
  group[15] = std::byte{0x01};
  return group;
}
os::SocketAddress socket_address(const Host& host, uint16_t port, uint32_t scope) noexcept {
  if (is_mapped(host)) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = wire::big(port);
    std::memcpy(&in.sin_addr, &host[12], 4);
    return *os::SocketAddress::from(&in, sizeof in);
  }
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  in6.sin6_port = wire::big(port);
  if (is_link_local(host)) in6.sin6_scope_id = scope;
  std::memcpy(&in6.sin6_addr, host.data(), host.size());
  return *os::SocketAddress::from(&in6, sizeof in6);
}

}  // namespace

Host host_of(const os::SocketAddress& address) noexcept {
  if (address.family() == AF_INET) {
    std::array<std::byte, 4> ip;
    std::memcpy(ip.data(), &reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr, ip.size());
    return mapped(ip);
  }
  Host host{};
  if (address.family() == AF_INET6)
    std::memcpy(host.data(), &reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr, host.size());
  return host;
}

// --- opening ---

Result<void> Stack::open(const os::SocketAddress& own, const Network& network, const Mac& mac,
                         size_t mtu_bytes, uint64_t random) {
  host_ = host_of(own);
  network_ = network;
  const bool is_ip6 = own.family() == AF_INET6;
  const unsigned bits_max = is_ip6 ? 128 : 32;
  if (!is_unicast(host_) || (is_ip6 && is_mapped(host_)))
    return Error{EINVAL, "an endpoint on an Ethernet needs the address of one host"};
  if (!is_station(mac)) return Error{EINVAL, "the network device has no MAC address of a station"};
  if (network.prefix_bits > bits_max || network.vlan > 4094)
    return Error{EINVAL, "a prefix has at most 32 bits (IPv6: 128), a VLAN is at most 4094"};
  if (mtu_bytes < mtu_bytes_min) return Error{EINVAL, "the MTU of the network device is below 576"};
  own_ = own;
  if (own_.port() == 0)
    own_.set_port(static_cast<uint16_t>(dynamic_ports + (random >> 32) % (65536 - dynamic_ports)));
  gateway_ = network.gateway ? host_of(network.gateway) : Host{};
  if (network.gateway && (network.gateway.family() != own.family() || !is_unicast(gateway_) ||
                          !is_on_link(gateway_) || gateway_ == host_))
    return Error{EINVAL, "the gateway is not a neighbour of the address"};
  mac_ = mac;
  mtu_bytes_ = std::min(mtu_bytes, mtu_bytes_max);
  neighbors_ = NeighborCache(random);
  route_ = {};
  counters_ = {};
  slots_.clear();
  slots_.resize(buffered_max);
  order_.clear();
  order_.reserve(buffered_max);
  free_.clear();
  for (size_t slot = buffered_max; slot-- > 0;) free_.push_back(static_cast<uint16_t>(slot));
  buffered_bytes_ = 0;
  control_count_ = own_count_ = found_ = 0;
  announce();
  return {};
}

void Stack::close() noexcept {
  order_.clear();
  groups_.clear();
  control_count_ = own_count_ = found_ = buffered_bytes_ = 0;
  slots_.clear();
  free_.clear();
}

bool Stack::is_on_link(const Host& host) const noexcept {
  if (is_ip6() && is_link_local(host)) return true;
  return have_in_common(host, host_, network_.prefix_bits + (is_ip6() ? 0 : mapped_bits));
}

std::optional<Mac> Stack::solicited_mac() const noexcept {
  if (!is_ip6()) return {};
  return group_mac(solicited_group(host_));
}

// --- out ---

int Stack::find_route(std::span<const std::byte> to) noexcept {
  route_.neighbor = nullptr;
  const auto address = os::SocketAddress::from(to.data(), to.size());
  route_.to = {};
  if (!address || address->family() != own_.family() || address->port() == 0) return -EINVAL;
  route_.destination = host_of(*address);
  if (is_ip6() && is_mapped(route_.destination)) return -EINVAL;
  route_.loops = false;
  if (is_multicast(route_.destination)) {
    route_.where = Where::Multicast;
    route_.mac = group_mac(route_.destination);
    route_.loops = std::ranges::any_of(
        groups_, [&](const Group& group) { return group.address == *address && group.receives; });
  } else if (!is_unicast(route_.destination)) {
    return -EACCES;
  } else if (route_.destination == host_) {
    route_.where = address->port() == own_.port() ? Where::Own : Where::LocalHost;
  } else {
    route_.where = Where::Link;
    route_.next_hop = route_.destination;
    if (!is_on_link(route_.destination)) {
      if (!network_.gateway) return -ENETUNREACH;
      route_.next_hop = gateway_;
    }
  }
  route_.to = *address;
  return 0;
}

int Stack::write_head(std::span<const std::byte> to, const iovec* parts, size_t count,
                      uint16_t identification, uint64_t now, Head& head) noexcept {
  size_t payload = 0;
  for (size_t i = 0; i < count; ++i) payload += parts[i].iov_len;
  if (payload > packet_bytes_max()) return -EMSGSIZE;
  const auto last = route_.to.bytes();
  if (last.empty() || to.size() < last.size() || std::memcmp(last.data(), to.data(), last.size()) != 0) {
    if (const int status = find_route(to); status != 0) return status;
  }
  if (route_.where == Where::Own) {
    fill(head, mac_, payload, parts, count, identification);
    return waits;
  }
  if (route_.where == Where::Multicast || route_.where == Where::LocalHost) {
    fill(head, route_.where == Where::LocalHost ? mac_ : route_.mac, payload, parts, count, identification);
    return goes;
  }
  NeighborEntry* neighbor = route_.neighbor;
  if (neighbor == nullptr || !neighbor->is_known() || neighbor->host != route_.next_hop ||
      now >= neighbor->fresh_until) [[unlikely]] {
    neighbor = route_.neighbor = neighbors_.use(route_.next_hop, now);
    if (neighbor == nullptr || neighbor->state == NeighborEntry::State::Failed) {
      ++counters_.unreachable;
      return -EHOSTUNREACH;
    }
  }
  fill(head, neighbor->mac, payload, parts, count, identification);
  // Behind packets that wait, for they went first.
  return neighbor->is_known() && neighbor->waiting == 0 ? goes : waits;
}

size_t Stack::write_ethernet(std::byte* out, const Mac& to, uint16_t type) const noexcept {
  Ethernet ethernet;
  ethernet.destination = to;
  ethernet.source = mac_;
  ethernet.type = network_.vlan == 0 ? type : Ethernet::type_vlan;
  ethernet.write(out);
  if (network_.vlan == 0) return Ethernet::bytes;
  wire::store_big(out + Ethernet::bytes, network_.vlan);
  wire::store_big(out + Ethernet::bytes + 2, type);
  return Ethernet::bytes + Ethernet::tag_bytes;
}

void Stack::fill(Head& head, const Mac& mac, size_t payload, const iovec* parts, size_t count,
                 uint16_t identification) const noexcept {
  std::byte* const out = head.bytes.data();
  const size_t at = write_ethernet(out, mac, is_ip6() ? Ethernet::type_ip6 : Ethernet::type_ip4);
  const auto datagram = static_cast<uint16_t>(payload + Udp::bytes);
  const bool is_to_group = route_.where == Where::Multicast;
  const auto traffic_class = static_cast<uint8_t>(traffic_class_ | (marks_.traffic_class & ~3));
  if (is_ip6()) {
    Ip6 ip;
    ip.traffic_class = traffic_class;
    ip.flow_label = marks_.flow_label & 0xfffff;
    ip.payload_bytes = datagram;
    ip.hops = is_to_group ? uint8_t{1} : marks_.hops;
    ip.source = host_;
    ip.destination = route_.destination;
    ip.write(out + at);
  } else {
    Ip4 ip;
    ip.traffic_class = traffic_class;
    ip.total_bytes = static_cast<uint16_t>(datagram + Ip4::bytes);
    ip.identification = identification;
    ip.hops = is_to_group ? uint8_t{1} : marks_.hops;
    ip.source = ip4_of(host_);
    ip.destination = ip4_of(route_.destination);
    ip.write(out + at);
  }
  const Udp udp{own_.port(), route_.to.port(), datagram, 0};
  std::byte* const udp_at = out + at + ip_bytes();
  udp.write(udp_at);
  head.count = at + ip_bytes() + Udp::bytes;
  if (optional_checksum_) return;
  wire::InternetSum sum = wire::udp_sum({out + at, ip_bytes() + Udp::bytes});
  for (size_t i = 0; i < count; ++i)
    sum.add({static_cast<const std::byte*>(parts[i].iov_base), parts[i].iov_len});
  const uint16_t checksum = sum.checksum();
  wire::store_big(udp_at + 6, checksum == 0 ? uint16_t{0xffff} : checksum);
}

bool Stack::keep(const Head& head, const iovec* parts, size_t count) noexcept {
  const bool is_own = route_.where != Where::Link;
  if (is_own && route_.where == Where::Multicast && !route_.loops) return true;
  size_t bytes = head.count;
  for (size_t i = 0; i < count; ++i) bytes += parts[i].iov_len;
  const auto has_room = [&] {
    if (free_.empty() || buffered_bytes_ + bytes > buffered_bytes_max) return false;
    return is_own || (route_.neighbor->waiting < buffered_per_host_max &&
                      route_.neighbor->waiting_bytes + bytes <= buffered_bytes_per_host_max);
  };
  std::unique_ptr<std::byte[]> memory(has_room() ? new (std::nothrow) std::byte[bytes] : nullptr);
  if (memory == nullptr) {
    if (is_own && route_.where == Where::Own) return false;
    ++counters_.unreachable;
    return true;
  }
  std::byte* at = std::copy_n(head.bytes.begin(), head.count, memory.get());
  for (size_t i = 0; i < count; ++i)
    at = std::copy_n(static_cast<const std::byte*>(parts[i].iov_base), parts[i].iov_len, at);
  const uint16_t slot = free_.back();
  free_.pop_back();
  order_.push_back(slot);
  slots_[slot] = {std::move(memory), route_.next_hop, bytes, is_own};
  buffered_bytes_ += bytes;
  if (is_own) {
    ++own_count_;
  } else {
    ++route_.neighbor->waiting;
    route_.neighbor->waiting_bytes += static_cast<uint32_t>(bytes);
    if (route_.neighbor->is_known()) ++found_;
  }
  return true;
}

Bytes Stack::ready(size_t slot) noexcept {
  if (slots_[slot].is_own) return {};
  const NeighborEntry* const neighbor = neighbors_.find(slots_[slot].host);
  if (neighbor == nullptr || !neighbor->is_known()) return {};
  std::ranges::copy(neighbor->mac, slots_[slot].memory.get());
  return {slots_[slot].memory.get(), slots_[slot].bytes};
}

void Stack::release_slot(size_t slot) noexcept {
  buffered_bytes_ -= slots_[slot].bytes;
  slots_[slot].memory.reset();
  free_.push_back(static_cast<uint16_t>(slot));
}

void Stack::release(size_t index) noexcept {
  const size_t slot = order_[index];
  if (NeighborEntry* const neighbor = neighbors_.find(slots_[slot].host); neighbor != nullptr) {
    --neighbor->waiting;
    neighbor->waiting_bytes -= static_cast<uint32_t>(slots_[slot].bytes);
  }
  order_.erase(order_.begin() + static_cast<std::ptrdiff_t>(index));
  release_slot(slot);
}

size_t Stack::pop_own() noexcept {
  const auto index = std::ranges::find_if(order_, [&](uint16_t slot) { return slots_[slot].is_own; });
  const size_t slot = *index;
  order_.erase(index);
  --own_count_;
  return slot;
}

// Nobody answered: what waits for that host is lost.
void Stack::lose(const Host& host) noexcept {
  for (size_t i = 0; i < order_.size();) {
    if (slots_[order_[i]].is_own || slots_[order_[i]].host != host) {
      ++i;
      continue;
    }
    ++counters_.unreachable;
    release(i);
  }
}

void Stack::tick(uint64_t now) noexcept {
  neighbors_.tick(
      now, [&](const NeighborEntry& neighbor, bool directly) { ask(neighbor, directly); },
      [&](const NeighborEntry& neighbor) { lose(neighbor.host); });
}

// --- questions and answers ---

Stack::Control* Stack::new_control(const Mac& to, uint16_t type) noexcept {
  if (control_count_ == control_max) {
    ++counters_.control_lost;
    return nullptr;
  }
  Control& control = control_[(control_first_ + control_count_++) % control_max];
  control.count = write_ethernet(control.bytes.data(), to, type);
  return &control;
}

void Stack::say_arp(const Mac& to, const wire::Arp& arp) noexcept {
  Control* const control = new_control(to, wire::Arp::ethernet_type);
  if (control == nullptr) return;
  arp.write(control->bytes.data() + control->count);
  control->count += wire::Arp::bytes;
}

void Stack::say_neighbor(const Mac& to, const Host& destination, const wire::Neighbor& message) noexcept {
  Control* const control = new_control(to, Ethernet::type_ip6);
  if (control == nullptr) return;
  Ip6 ip;
  ip.next_header = wire::Neighbor::protocol;
  ip.hops = wire::Neighbor::hops;
  ip.source = host_;
  ip.destination = destination;
  std::byte* const at = control->bytes.data() + control->count;
  ip.payload_bytes = static_cast<uint16_t>(message.write(ip, at + Ip6::bytes));
  ip.write(at);
  control->count += Ip6::bytes + ip.payload_bytes;
}

void Stack::ask(const NeighborEntry& neighbor, bool directly) noexcept {
  if (!is_ip6()) {
    wire::Arp arp;
    arp.sender = mac_;
    arp.sender_ip = ip4_of(host_);
    arp.target_ip = ip4_of(neighbor.host);
    say_arp(directly ? neighbor.mac : broadcast_mac, arp);
    return;
  }
  wire::Neighbor message;
  message.target = neighbor.host;
  message.has_mac = true;
  message.mac = mac_;
  const Host to = directly ? neighbor.host : solicited_group(neighbor.host);
  say_neighbor(directly ? neighbor.mac : group_mac(to), to, message);
}

// Who knows another MAC of this address hears of ours (RFC 5227 section 2.3, RFC 4861 section 7.2.6).
void Stack::announce() noexcept {
  if (!is_ip6()) {
    wire::Arp arp;
    arp.sender = mac_;
    arp.sender_ip = arp.target_ip = ip4_of(host_);
    say_arp(broadcast_mac, arp);
    return;
  }
  wire::Neighbor message;
  message.is_advertisement = message.overrides = message.has_mac = true;
  message.target = host_;
  message.mac = mac_;
  say_neighbor(group_mac(all_nodes()), all_nodes(), message);
}

bool Stack::on_arp(const Ethernet& ethernet, Bytes bytes, uint64_t now) noexcept {
  wire::Arp arp;
  if (!wire::Arp::read(bytes, arp) || !is_station(arp.sender)) return false;
  if (arp.sender == mac_) return true;  // our own, from a hub
  const Host sender = mapped(arp.sender_ip);
  const bool is_for_us = mapped(arp.target_ip) == host_;
  if (sender == host_) {
    ++counters_.conflicts;
    return true;
  }
  // A probe (RFC 5227) has no sender; it is answered, and nothing is learned.
  if (is_unicast(sender) && is_on_link(sender)) {
    const bool answers = arp.operation == wire::Arp::reply && is_for_us && ethernet.destination == mac_;
    if (answers) neighbors_.answered(sender, arp.sender, true, now);
    else neighbors_.heard(sender, arp.sender, is_for_us && arp.operation == wire::Arp::request, now);
    ++found_;
  }
  if (arp.operation == wire::Arp::request && is_for_us) {
    wire::Arp answer;
    answer.operation = wire::Arp::reply;
    answer.sender = mac_;
    answer.sender_ip = ip4_of(host_);
    answer.target = arp.sender;
    answer.target_ip = arp.sender_ip;
    say_arp(arp.sender, answer);
  }
  return true;
}

bool Stack::on_icmp6(const Ethernet& ethernet, const Ip6& ip, Bytes bytes, uint64_t now) noexcept {
  wire::Neighbor message;
  if (!wire::Neighbor::read(ip, bytes, message) || !is_station(ethernet.source)) return false;
  if (ethernet.source == mac_) return true;
  if (ip.destination != host_ && ip.destination != solicited_group(host_) && ip.destination != all_nodes())
    return false;
  const Mac mac = message.has_mac ? message.mac : ethernet.source;
  if (!is_station(mac)) return false;
  if (message.is_advertisement) {
    if (message.target == host_) {
      ++counters_.conflicts;
    } else if (is_unicast(message.target) && is_on_link(message.target)) {
      // Unasked, it may only correct what is known (RFC 4861 section 7.2.5).
      if (message.is_solicited && ip.destination == host_)
        neighbors_.answered(message.target, mac, message.overrides, now);
      else if (message.overrides) neighbors_.heard(message.target, mac, false, now);
      ++found_;
    }
    return true;
  }
  if (message.target != host_) return true;
  wire::Neighbor answer;
  answer.is_advertisement = answer.overrides = answer.has_mac = true;
  answer.target = host_;
  answer.mac = mac_;
  const bool has_sender = is_unicast(ip.source);
  if (has_sender) {
    if (ip.source == host_ || !is_on_link(ip.source)) return false;
    neighbors_.heard(ip.source, mac, true, now);
    ++found_;
    answer.is_solicited = true;
    say_neighbor(mac, ip.source, answer);
  } else {
    // Duplicate address detection: everybody is to hear that it is ours.
    say_neighbor(group_mac(all_nodes()), all_nodes(), answer);
  }
  return true;
}

// --- in ---

bool Stack::is_for_us(const Ethernet& ethernet) const noexcept {
  if (ethernet.destination == mac_) return true;
  if (!is_group(ethernet.destination)) return false;
  if (ethernet.destination == broadcast_mac) return !is_ip6();
  if (is_ip6() && (ethernet.destination == group_mac(solicited_group(host_)) ||
                   ethernet.destination == group_mac(all_nodes())))
    return true;
  return std::ranges::any_of(
      groups_, [&](const Group& group) { return group.receives && group.mac == ethernet.destination; });
}

bool Stack::on_frame(const ReceivedFrame& frame, uint64_t now, proto::ReceivedPacket& packet) noexcept {
  Ethernet ethernet;
  Bytes rest;
  if (!Ethernet::read(frame.bytes, ethernet, rest)) {
    ++counters_.malformed;
    return false;
  }
  // A tag with identifier 0 is a priority alone (IEEE 802.1Q clause 9.6).
  const uint16_t vlan = (frame.vlan != 0 ? frame.vlan : ethernet.vlan) & vlan_id_mask;
  if (!is_for_us(ethernet) || vlan != network_.vlan) {
    ++counters_.foreign;
    return false;
  }
  if (ethernet.type == (is_ip6() ? Ethernet::type_ip6 : Ethernet::type_ip4)) {
    if (is_ip6()) {
      Ip6 ip;
      Bytes above;
      if (!Ip6::read(rest, ip, above)) {
        ++counters_.malformed;
        return false;
      }
      if (ip.next_header == wire::Neighbor::protocol) {
        if (!on_icmp6(ethernet, ip, above, now)) ++counters_.foreign;
        return false;
      }
    }
    return on_datagram(frame, rest, packet);
  }
  if (ethernet.type == wire::Arp::ethernet_type && !is_ip6()) {
    if (!on_arp(ethernet, rest, now)) ++counters_.malformed;
    return false;
  }
  ++counters_.foreign;
  return false;
}

bool Stack::on_datagram(const ReceivedFrame& frame, Bytes bytes, proto::ReceivedPacket& packet) noexcept {
  wire::Datagram datagram;
  if (!wire::Datagram::read(bytes, datagram) || datagram.is_ip6 != is_ip6()) {
    Ip4 ip;
    Bytes rest;
    if (!is_ip6() && Ip4::read(bytes, ip, rest))
      ++(ip.is_fragment() ? counters_.fragments : counters_.foreign);
    else ++counters_.malformed;
    return false;
  }
  const Host source = is_ip6() ? datagram.ip6.source : mapped(datagram.ip4.source);
  const Host destination = is_ip6() ? datagram.ip6.destination : mapped(datagram.ip4.destination);
  Mac frame_source;
  std::copy_n(frame.bytes.begin() + 6, frame_source.size(), frame_source.begin());
  if (!is_unicast(source) || datagram.udp.source == 0 || (source == host_ && frame_source != mac_)) {
    ++counters_.malformed;
    return false;
  }
  const os::SocketAddress* shown = &own_;
  if (destination != host_ || datagram.udp.destination != own_.port()) {
    const auto group = std::ranges::find_if(groups_, [&](const Group& one) {
      return one.receives && one.host == destination && one.address.port() == datagram.udp.destination;
    });
    if (group == groups_.end()) {
      ++counters_.foreign;
      return false;
    }
    shown = &group->address;
  }
  // RFC 8200 section 8.1 has no UDP without a checksum, RFC 6936 has for those who check by themselves.
  const bool is_without = datagram.udp.checksum == 0;
  const bool may_be_without = !is_ip6() || optional_checksum_;
  if ((is_without && !may_be_without) || (!is_without && !frame.is_checksum_good)) {
    wire::InternetSum sum = wire::udp_sum(datagram.headers);
    sum.add(datagram.payload);
    if (is_without || sum.checksum() != 0) {
      ++counters_.wrong_checksum;
      return false;
    }
  }
  source_ = socket_address(source, datagram.udp.source, own_.scope());
  packet.source = source_.bytes();
  packet.destination = shown->bytes();
  packet.bytes = datagram.payload;
  packet.headers = datagram.headers;
  packet.ip_identification = is_ip6() ? uint16_t{0} : datagram.ip4.identification;
  packet.ecn =
      static_cast<proto::Ecn>((is_ip6() ? datagram.ip6.traffic_class : datagram.ip4.traffic_class) & 3);
  return true;
}

// --- multicast ---

int Stack::join(std::span<const std::byte> group, bool receives, Mac& mac) noexcept {
  const auto address = os::SocketAddress::from(group.data(), group.size());
  if (!address || address->family() != own_.family() || !is_multicast(host_of(*address))) return -EINVAL;
  route_.to = {};  // it may loop from now on
  mac = group_mac(host_of(*address));
  const auto known = std::ranges::find_if(groups_, [&](const Group& one) { return one.address == *address; });
  if (known != groups_.end()) {
    if (known->receives || !receives) return -EADDRINUSE;
    known->receives = true;
    return 0;
  }
  if (groups_.size() == groups_max) return -ENOSPC;
  groups_.push_back({*address, host_of(*address), mac, receives});
  return 0;
}

bool Stack::leave(std::span<const std::byte> group, Mac& mac) noexcept {
  const auto address = os::SocketAddress::from(group.data(), group.size());
  if (!address) return false;
  route_.to = {};
  const auto known = std::ranges::find_if(groups_, [&](const Group& one) { return one.address == *address; });
  if (known == groups_.end()) return false;
  mac = known->mac;
  const bool received = known->receives;
  groups_.erase(known);
  // Another group may have the same MAC.
  return received &&
         std::ranges::none_of(groups_, [&](const Group& one) { return one.receives && one.mac == mac; });
}

}  // namespace weft::link::ethernet
