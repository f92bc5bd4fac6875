// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Opening, multicast, path MTU, sending.
#include "link/udp/packets.hpp"

#include <netinet/in.h>

#include <cerrno>
#include <cstring>

#include "base/hash.hpp"
#include "os/traffic_class.hpp"

namespace weft::link::udp {

Result<void> Packets::open(std::span<const std::byte> address) {
  auto socket = os::open_udp(address, {fragments_, optional_checksum_, buffer_bytes});
  if (!socket) return socket.error();
  os::mark_traffic(socket->get(), dscp_);
  auto own = os::udp_address(*socket);
  if (!own) return own.error();
  auto receiver = os::UdpReceiver::create();
  if (!receiver) return receiver.error();
  paths_.resize(paths);
  send_errors_.resize(send_errors_max);
  taken_errors_.resize(send_errors_max);
  send_error_count_ = 0;
  receiver_.emplace(std::move(*receiver));
  address_ = *own;
  receive_buffer_bytes_ = os::udp_receive_buffer(*socket);
  socket_ = std::move(*socket);
  return {};
}

void Packets::set_ecn(proto::Ecn ecn) noexcept {
  shows_ecn_ = true;
  ecn_ = static_cast<uint8_t>(ecn);
  const auto dscp = static_cast<uint8_t>(dscp_ | socket_marks_.traffic_class >> 2);
  os::mark_traffic(socket_.get(), dscp, static_cast<uint8_t>(ecn));
  os::show_traffic_class(socket_);
  for (const Group& group : groups_)
    if (group.socket) os::show_traffic_class(group.socket);
}

// A program that talks to one peer pays for marks no more than without.
const os::IpMarks* Packets::other_marks(os::IpMarks& with_ecn) noexcept {
  with_ecn = marks_;
  with_ecn.traffic_class = static_cast<uint8_t>((marks_.traffic_class & ~3) | ecn_);
  if (last_marks_ != marks_) {
    last_marks_ = marks_;
    marked_ = 0;
  }
  if (marks_.flow_label != 0 || ++marked_ < marked_max) return &with_ecn;
  marked_ = 0;
  socket_marks_ = marks_;
  os::mark_packets(socket_, with_ecn);
  return nullptr;
}

void Packets::show_marks() noexcept {
  shows_marks_ = true;
  os::show_marks(socket_);
  for (const Group& group : groups_)
    if (group.socket) os::show_marks(group.socket);
}

std::vector<std::byte> Packets::source_for(bool ipv6, std::span<const std::byte> destination) {
  const int family = ipv6 ? AF_INET6 : AF_INET;
  os::SocketAddress source;
  if (const auto to = os::SocketAddress::from(destination.data(), destination.size());
      to && to->family() == family)
    source = os::source_toward(*to);
  if (!source) source = os::SocketAddress::any(family);
  const auto bytes = source.bytes();
  return {bytes.begin(), bytes.end()};
}

void Packets::close() noexcept {
  groups_.clear();
  wait_.reset();
  watched_ = false;
  armed_ = false;
  socket_.reset();
  receiver_.reset();
}

int Packets::wait_fd() noexcept {
  if (!wait_) {
    auto made = os::PollSet::create();
    if (!made) {
      errno = made.error().code;
      return -1;
    }
    wait_ = std::move(*made);
    if (armed_) (void)watch();
  }
  return wait_.get();
}

bool Packets::watch() noexcept {
  if (!wait_) return true;  // nobody has asked for the descriptor
  watched_ = wait_.add(socket_.get()) || wait_.watch(socket_.get());
  for (const Group& group : groups_)
    if (group.socket) watched_ = wait_.watch(group.socket.get()) && watched_;
  return watched_;
}

void Packets::unwatch() noexcept {
  watched_ = false;
  wait_.remove(socket_.get());
  for (const Group& group : groups_) wait_.remove(group.socket.get());
}

// --- multicast ---

int Packets::join(std::span<const std::byte> group, bool receives) {
  if (!os::is_group(group)) return -EINVAL;
  for (const Group& other : groups_)
    if (std::ranges::equal(other.address, group)) return -EADDRINUSE;
  Group joined{{group.begin(), group.end()}, {}};
  if (receives) {
    auto socket = os::open_group(socket_, group);
    if (!socket) return -socket.error().code;
    joined.socket = std::move(*socket);
    if (shows_ecn_) os::show_traffic_class(joined.socket);
    if (shows_marks_) os::show_marks(joined.socket);
  }
  os::route_groups(socket_);
  groups_.push_back(std::move(joined));
  if (watched_ && groups_.back().socket) (void)wait_.add(groups_.back().socket.get());
  return 0;
}

void Packets::leave(std::span<const std::byte> group) noexcept {
  for (const Group& other : groups_)
    if (wait_ && other.socket && std::ranges::equal(other.address, group)) wait_.remove(other.socket.get());
  std::erase_if(groups_, [&](const Group& other) { return std::ranges::equal(other.address, group); });
}

// --- path MTU ---

Packets::Path Packets::path_to(std::span<const std::byte> address) noexcept {
  Path path;
  if (address.size() == sizeof(sockaddr_in6)) {
    sockaddr_in6 to;
    std::memcpy(&to, address.data(), sizeof to);
    std::memcpy(path.host.data(), &to.sin6_addr, sizeof to.sin6_addr);
    path.scope = to.sin6_scope_id;
  } else if (address.size() == sizeof(sockaddr_in)) {
    sockaddr_in to;
    std::memcpy(&to, address.data(), sizeof to);
    path.host[0] = to.sin_addr.s_addr;
  }
  return path;
}

// The place of that host, filled.
Packets::Path& Packets::place_of(std::span<const std::byte> address) noexcept {
  Path path = path_to(address);
  Path& place = paths_[hash_pair(path.host[0], path.host[1], path.scope) % paths];
  if (place.bytes != 0 && place.host == path.host && place.scope == path.scope) return place;
  const size_t bytes = os::udp_path_bytes(address);
  path.bytes = static_cast<uint32_t>(bytes != 0 ? bytes : unknown_path_bytes);
  place = path;
  return place;
}

size_t Packets::packet_bytes_max(std::span<const std::byte> address) noexcept {
  return place_of(address).bytes;
}

// --- sending ---

int Packets::try_send(std::span<const std::byte> address, const iovec* parts, size_t count) noexcept {
  if (!origin_.is_here()) [[unlikely]]
    return 0;  // a forked child says nothing in its parent's name
  os::IpMarks marks;
  const int status = os::send_udp(socket_, address, parts, count, 0, marks_of_next(marks));
  if (status == 0) return 0;
  if (status == -ENOBUFS || status == -ENOMEM || status == -EAGAIN) return -EAGAIN;
  if (status == -EMSGSIZE) place_of(address).bytes = 0;
  else note_error(address, -status);
  return status;
}

// The last error of each destination.
void Packets::note_error(std::span<const std::byte> address, int error) noexcept {
  const auto place = os::SocketAddress::from(address.data(), address.size());
  if (!place) return;
  for (SendError& known : std::span(send_errors_).first(send_error_count_)) {
    if (!(known.place == *place)) continue;
    known.error = error;
    return;
  }
  if (send_error_count_ < send_errors_.size()) send_errors_[send_error_count_++] = {*place, error};
}

static bool not_segmented(int status) noexcept {
  return status == -EINVAL || status == -EIO || status == -EMSGSIZE || status == -EOPNOTSUPP ||
         status == -ENOPROTOOPT;
}

// Sends [offset, offset + bytes) of `parts`, in packets of packet_bytes. At most parts_max parts, like the kernel itself.
int Packets::send_pieces(std::span<const std::byte> address, const iovec* parts, size_t count, size_t offset,
                         size_t bytes, size_t packet_bytes) noexcept {
  constexpr size_t parts_max = 128;
  std::array<iovec, parts_max> piece;
  size_t pieces = 0;
  size_t left = bytes;
  for (size_t i = 0; i < count && left != 0; ++i) {
    if (offset >= parts[i].iov_len) {
      offset -= parts[i].iov_len;
      continue;
    }
    if (pieces == parts_max) return -EMSGSIZE;
    const size_t n = std::min(left, parts[i].iov_len - offset);
    piece[pieces++] = {static_cast<std::byte*>(parts[i].iov_base) + offset, n};
    offset = 0;
    left -= n;
  }
  if (bytes <= packet_bytes) return try_send(address, piece.data(), pieces);
  os::IpMarks marks;
  const int status = os::send_udp(socket_, address, piece.data(), pieces, packet_bytes, marks_of_next(marks));
  return status == -ENOBUFS ? -EAGAIN : status;
}

bool Packets::send_segmented(std::span<const std::byte> address, const iovec* parts, size_t count,
                             size_t packet_bytes) noexcept {
  size_t total = 0;
  for (size_t i = 0; i < count; ++i) total += parts[i].iov_len;
  if (packet_bytes == 0 || !origin_.is_here()) return true;
  bool together = place_of(address).segmentation;
  const size_t packets = std::clamp<size_t>(segmented_bytes_max / packet_bytes, 1, segments_max);
  bool any = false;
  os::IpMarks marks;
  for (size_t at = 0; at < total;) {
    const size_t bytes = std::min((together ? packets : 1) * packet_bytes, total - at);
    const int status = bytes == total && bytes > packet_bytes
                           ? os::send_udp(socket_, address, parts, count, packet_bytes, marks_of_next(marks))
                           : send_pieces(address, parts, count, at, bytes, packet_bytes);
    if (status == -EAGAIN || status == -ENOBUFS) return any;
    if (bytes > packet_bytes && not_segmented(status)) {
      // A path MTU that has shrunk, no checksum offload below, or an old kernel: these packets go one by one, and for the latter two reasons
      // all others, too.
      together = false;
      place_of(address).bytes = 0;
      Path& path = place_of(address);
      if (packet_bytes <= path.bytes) path.segmentation = false;
      continue;
    }
    if (bytes > packet_bytes && status != 0)
      note_error(address, -status);  // try_send() has noted that of one packet
    any = true;
    at += bytes;
  }
  return true;
}

}  // namespace weft::link::udp
