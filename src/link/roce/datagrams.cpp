// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Opening, posting, completions.
#include "link/roce/datagrams.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "link/roce/gid.hpp"
#include "os/udp_socket.hpp"
#include "wire/roce/packet.hpp"

namespace weft::link::roce {

using namespace proto::roce;

namespace {

// The largest path MTU whose packets have at most so many bytes.
size_t path_mtu_in(size_t bytes) noexcept {
  size_t mtu = mtu_bytes_max;
  while (mtu > 256 && mtu + wire::roce::headers_bytes_max + wire::roce::icrc_bytes > bytes) mtu /= 2;
  return mtu;
}

}  // namespace

size_t Datagrams::interface_bytes() noexcept { return path_mtu_in(os::udp_interface_bytes(AF_INET)); }

std::vector<std::byte> Datagrams::source_for(bool, std::span<const std::byte> destination) {
  os::SocketAddress source;
  if (const auto to = os::SocketAddress::from(destination.data(), destination.size());
      to && to->family() == AF_INET)
    source = os::source_toward(*to);
  if (!source) source = os::SocketAddress::any(AF_INET);
  const auto bytes = source.bytes();
  return {bytes.begin(), bytes.end()};
}

Result<void> Datagrams::open(std::span<const std::byte> address) {
  const auto wanted = os::SocketAddress::from(address.data(), address.size());
  if (!wanted || wanted->family() != AF_INET) return Error{EINVAL, "verbs datagrams need an IPv4 address"};
  if (wanted->port() == standard_port)
    return Error{
        EADDRINUSE,
        "port 4791 belongs to all verbs programs of a host; datagram endpoints have ports of their own"};
  DeviceSettings settings;
  settings.ipv4 = wanted->is_any() ? os::outgoing_address(AF_INET) : *wanted;
  settings.port = wanted->port();
  settings.has_standard = false;
  settings.has_thread = false;
  settings.heeds_congestion = false;
  settings.has_shm = false;  // who sleeps here sleeps on the socket alone
  settings.datagram_bytes = packet_bytes_ = interface_bytes();
  auto device = Device::open(settings, events_);
  if (!device) return device.error();
  device_ = std::move(*device);
  own_ = address_of(device_->gid(0));
  auto made = make_queues();
  if (!made) close();
  return made;
}

Result<void> Datagrams::make_queues() {
  const std::scoped_lock guard(device_->lock());
  Adapter& adapter = device_->adapter();
  slot_bytes_ = grh_bytes + packet_bytes_;
  memory_.resize(slot_bytes_ * (receive_slots + send_slots) + mtu_bytes_max - packet_bytes_);
  auto region = adapter.memory().add(1, memory_.data(), reinterpret_cast<uint64_t>(memory_.data()),
                                     memory_.size(), local_write);
  if (!region) return region.error();
  key_ = (*region)->key;
  auto received = adapter.create_cq(receive_slots);
  if (!received) return received.error();
  received_ = *received;
  auto sent = adapter.create_cq(send_slots);
  if (!sent) return sent.error();
  sent_ = *sent;
  QueuePairRequest request;
  request.type = QpType::Ud;
  request.pd = 1;
  request.send_cq = sent_;
  request.receive_cq = received_;
  request.capacities = {send_slots, receive_slots, 1, 2, 0};
  request.signal_all = true;
  request.number = queue_pair_number;
  auto qp = adapter.create_qp(request);
  if (!qp) return qp.error();
  qp_ = *qp;
  const uint64_t now = device_->now();
  Attributes a;
  a.qkey = queue_key;
  const auto step = [&](QpState state, uint32_t mask) {
    a.state = state;
    return adapter.modify(*qp_, a, mask | attr_state, now);
  };
  if (auto ok = step(QpState::Init, attr_pkey_index | attr_port | attr_qkey); !ok) return ok;
  for (uint32_t slot = 0; slot < receive_slots; ++slot)
    if (post_receive(slot) != 0) return Error{ENOMEM, "the queue pair takes no more receives"};
  if (auto ok = step(QpState::ReadyToReceive, 0); !ok) return ok;
  return step(QpState::ReadyToSend, attr_sq_psn);
}

void Datagrams::close() noexcept {
  device_.reset();
  qp_ = nullptr;
  received_ = sent_ = nullptr;
  memory_ = {};
  next_send_ = sends_in_flight_ = 0;
}

size_t Datagrams::packet_bytes_max(std::span<const std::byte> address) noexcept {
  const auto to = os::SocketAddress::from(address.data(), address.size());
  const auto gid = to ? gid_with_port(*to) : std::nullopt;
  if (!gid || device_ == nullptr) return packet_bytes_;
  const std::scoped_lock guard(device_->lock());
  const uint8_t code = device_->path_mtu_max(0, *gid);
  return code == 0 ? packet_bytes_ : std::min(packet_bytes_, size_t{128} << code);
}

// --- sending ---

void Datagrams::collect_sent() noexcept {
  std::array<Completion, send_slots> done;
  const int count = sent_->poll(done);
  if (count > 0) sends_in_flight_ -= static_cast<uint32_t>(count);
}

int Datagrams::try_send(std::span<const std::byte> address, const iovec* parts, size_t count) noexcept {
  if (device_ == nullptr || !device_->is_here()) [[unlikely]]
    return 0;  // a forked child says nothing in its parent's name
  const auto to = os::SocketAddress::from(address.data(), address.size());
  const auto gid = to ? gid_with_port(*to) : std::nullopt;
  if (!gid || to->family() != AF_INET || to->port() == 0 || to->port() == standard_port) return -EINVAL;
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) bytes += parts[i].iov_len;
  if (bytes > packet_bytes_) return -EMSGSIZE;
  const std::scoped_lock guard(device_->lock());
  if (sends_in_flight_ == send_slots) {
    device_->adapter().serve_ready(device_->now());
    collect_sent();
    if (sends_in_flight_ == send_slots) return -EAGAIN;
  }
  std::byte* const slot = send_slot(next_send_);
  size_t at = 0;
  for (size_t i = 0; i < count; ++i) {
    if (parts[i].iov_len != 0) std::memcpy(slot + at, parts[i].iov_base, parts[i].iov_len);
    at += parts[i].iov_len;
  }
  const Element element{reinterpret_cast<uint64_t>(slot), static_cast<uint32_t>(bytes), key_};
  SendRequest request;
  request.flags = signaled;
  if (bytes != 0) request.elements = {&element, 1};
  request.to.destination = *gid;
  request.remote_qpn = queue_pair_number;
  request.remote_qkey = queue_key;
  const int status = device_->adapter().post_send(*qp_, request, device_->now());
  device_->posted();
  if (status != 0) return status == -ENOMEM ? -EAGAIN : status;
  next_send_ = (next_send_ + 1) % send_slots;
  ++sends_in_flight_;
  collect_sent();
  return 0;
}

// --- receiving ---

// There is room for the longest datagram that anybody can send, beyond the slot in memory that all requests share and
// nobody reads: so the length of each is known, and one that is too long is dropped with its receive.
int Datagrams::post_receive(uint32_t slot) noexcept {
  const std::array<Element, 2> elements = {
      {{reinterpret_cast<uint64_t>(receive_slot(slot)), static_cast<uint32_t>(slot_bytes_), key_},
       {reinterpret_cast<uint64_t>(send_slot(send_slots)),
        static_cast<uint32_t>(mtu_bytes_max - packet_bytes_), key_}}};
  ReceiveRequest request;
  request.id = slot;
  request.elements = std::span(elements).first(packet_bytes_ < mtu_bytes_max ? 2 : 1);
  return device_->adapter().post_receive(*qp_, request, device_->now());
}

size_t Datagrams::collect(std::span<Arrived> out, bool takes_packets) noexcept {
  std::array<Completion, 64> done;
  const std::scoped_lock guard(device_->lock());
  if (takes_packets) (void)device_->poll();
  collect_sent();
  const int count = received_->poll(std::span(done).first(std::min(out.size(), done.size())));
  for (int i = 0; i < count; ++i) {
    const Completion& completion = done[static_cast<size_t>(i)];
    Arrived& one = out[static_cast<size_t>(i)];
    one = {static_cast<uint32_t>(completion.id), false, {}, {}};
    // Answers go to the queue pair that all of us have.
    if (completion.status != Status::Success || completion.source_qpn != queue_pair_number ||
        completion.bytes > slot_bytes_)
      continue;
    const std::byte* const slot = receive_slot(one.slot);
    Gid source;
    std::memcpy(source.data(), slot + 8, source.size());  // IBTA 8.3: the source GID
    one.source = address_of(source);
    one.bytes = {slot + grh_bytes, completion.bytes - grh_bytes};
    one.is_valid = one.source.family() == AF_INET;
  }
  return static_cast<size_t>(std::max(count, 0));
}

void Datagrams::release_slots(std::span<const Arrived> slots) noexcept {
  const std::scoped_lock guard(device_->lock());
  for (const Arrived& one : slots) (void)post_receive(one.slot);
}

// --- sleeping ---

int Datagrams::wait_fd() noexcept { return device_ == nullptr ? -1 : device_->ports().wait_fd(); }

bool Datagrams::arm() noexcept {
  if (device_ == nullptr) return true;
  const std::scoped_lock guard(device_->lock());
  return device_->ports().arm() && received_->size() == 0 && !device_->has_unsent();
}

void Datagrams::disarm() noexcept {
  if (device_ == nullptr) return;
  const std::scoped_lock guard(device_->lock());
  device_->ports().disarm();
}

}  // namespace weft::link::roce
