// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "api/rdmacm/library/service.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "api/rdmacm/library/log.hpp"
#include "link/roce/headers.hpp"
#include "os/clock.hpp"
#include "wire/roce/icrc.hpp"
#include "wire/roce/packet.hpp"

namespace weft::rdmacm {
namespace {

namespace roce = wire::roce;

constexpr size_t headers_bytes = roce::bth_bytes + 8;  // BTH and DETH
constexpr size_t packet_bytes = headers_bytes + wire::cm::mad_bytes + roce::icrc_bytes;
constexpr uint32_t wake_number = 0;                        // no socket has it
constexpr uint16_t first_port = 32768, last_port = 60999;  // of ephemeral ones

std::atomic<Service*> current{nullptr};

}  // namespace

cm::Address Service::address_of(const os::SocketAddress& address) noexcept {
  return {link::roce::standard_gid(address), address.port(), address.scope()};
}

os::SocketAddress Service::address_of(const cm::Address& address) noexcept {
  os::SocketAddress found = link::roce::address_of(address.ip);
  found.set_port(address.port);
  if (found.is_link_local()) found.set_scope(address.scope);
  return found;
}

Service& Service::here() {
  static std::mutex making;
  Service* service = current.load(std::memory_order_acquire);
  if (service != nullptr && service->is_here()) return *service;
  const std::lock_guard guard(making);
  service = current.load(std::memory_order_acquire);
  if (service == nullptr || !service->is_here()) {
    // A parent's is left as it is: its lock may be held by a thread that is not here.
    service = new Service;
    current.store(service, std::memory_order_release);
  }
  return *service;
}

Service::Service() : manager_(*this) {
  next_port_ = static_cast<uint16_t>(first_port + random() % (last_port - first_port));
}

uint64_t Service::now() const noexcept { return os::monotonic_ns(); }

uint32_t Service::random() noexcept {
  if (numbers_left_ == 0) {
    if (!os::random_bytes(numbers_.data(), sizeof numbers_)) {
      std::mt19937_64 from_time(os::monotonic_ns() ^ reinterpret_cast<uintptr_t>(this));
      for (uint32_t& number : numbers_) number = static_cast<uint32_t>(from_time());
    }
    numbers_left_ = numbers_.size();
  }
  return numbers_[--numbers_left_];
}

uint16_t Service::next_port() noexcept {
  next_port_ = next_port_ >= last_port ? first_port : static_cast<uint16_t>(next_port_ + 1);
  return next_port_;
}

// --- sockets ---

Result<void> Service::start() {
  if (has_thread_) return {};
  poll_set_ = os::Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!poll_set_) return Error{errno, "no epoll descriptor for the communication manager"};
  auto event = os::Event::create();
  if (!event) return event.error();
  wake_.emplace(std::move(*event));
  epoll_event want{};
  want.events = EPOLLIN;
  want.data.u32 = wake_number;
  if (::epoll_ctl(poll_set_.get(), EPOLL_CTL_ADD, wake_->fd(), &want) != 0)
    return Error{errno, "no epoll entry for the communication manager"};
  if (!thread_.start(
          "weft-cm", [](void* self) { static_cast<Service*>(self)->run(); }, this))
    return Error{EAGAIN, "the system gives no thread for the communication manager"};
  has_thread_ = true;
  return {};
}

Result<uint32_t> Service::add(const os::SocketAddress& address, bool one_family, bool is_client) {
  if (auto started = start(); !started) return started.error();
  auto socket = os::AnsweringSocket::open(address, one_family);
  if (!socket) return socket.error();
  const uint32_t number = next_socket_++;
  epoll_event want{};
  want.events = EPOLLIN;
  want.data.u32 = number;
  if (::epoll_ctl(poll_set_.get(), EPOLL_CTL_ADD, socket->fd(), &want) != 0)
    return Error{errno, "no epoll entry for a UDP socket"};
  sockets_.emplace(number,
                   std::make_unique<Socket>(Socket{std::move(*socket), one_family, is_client, 1, random()}));
  return number;
}

Result<uint32_t> Service::open_socket(const os::SocketAddress& address, bool one_family) {
  if (address.port() != 0) {
    for (auto& [number, socket] : sockets_) {
      if (socket->socket.address() == address && socket->one_family == one_family && !socket->is_client) {
        ++socket->users;
        return number;
      }
    }
  }
  return add(address, one_family, false);
}

Result<uint32_t> Service::open_client_socket(const os::SocketAddress& host) {
  for (auto& [number, socket] : sockets_) {
    if (socket->is_client && os::same_neighbour(socket->socket.address(), host)) {
      ++socket->users;
      return number;
    }
  }
  os::SocketAddress address = host;
  address.set_port(0);
  return add(address, true, true);
}

void Service::close_socket(uint32_t socket) noexcept {
  const auto at = sockets_.find(socket);
  if (at == sockets_.end() || --at->second->users != 0) return;
  // A forked child may have the descriptor, too, and then closing it here does not end its entry.
  ::epoll_ctl(poll_set_.get(), EPOLL_CTL_DEL, at->second->socket.fd(), nullptr);
  sockets_.erase(at);
}

// --- messages ---

void Service::send(const cm::Path& path, const cm::Mad& mad) noexcept {
  const auto at = sockets_.find(path.socket);
  if (at == sockets_.end()) return;
  const os::SocketAddress source = address_of(path.local), destination = address_of(path.remote);
  roce::Packet packet;
  packet.bth.opcode = roce::opcode(roce::Transport::Datagram, roce::Operation::SendOnly);
  packet.bth.destination = wire::cm::gsi_qpn;
  packet.bth.psn = at->second->psn++ & roce::mask24;
  packet.deth = {wire::cm::gsi_qkey, wire::cm::gsi_qpn};
  std::array<std::byte, packet_bytes> bytes;
  roce::write_headers(packet, bytes.data());
  std::copy(mad.begin(), mad.end(), bytes.begin() + headers_bytes);
  const auto headers = link::roce::headers_between(source, destination, packet_bytes);
  const uint32_t icrc = roce::icrc(headers.span(), std::span(bytes).first(packet_bytes - roce::icrc_bytes));
  wire::store_big(&bytes[packet_bytes - roce::icrc_bytes], wire::swap_bytes(icrc));
  const int error = at->second->socket.send(source, destination, bytes);
  if (error != 0)
    log(Level::Information, "a message to %s was not sent: %s", destination.text().c_str(),
        strerrordesc_np(-error));
}

void Service::receive(uint32_t number) noexcept {
  constexpr int packets_max = 256;  // then other sockets, and calls, have their turn
  std::array<std::byte, packet_bytes + 1> bytes;
  const auto at = sockets_.find(number);
  if (at == sockets_.end()) return;
  os::AnsweringSocket& socket = at->second->socket;
  os::SocketAddress source, destination;
  const uint64_t time = now();
  for (int i = 0; i < packets_max; ++i) {
    const size_t count = socket.receive(bytes, source, destination);
    if (count == 0) break;
    if (count != packet_bytes) continue;
    const auto datagram = std::span<const std::byte>(bytes).first(packet_bytes);
    roce::Packet packet;
    if (!roce::parse(datagram.first(packet_bytes - roce::icrc_bytes), packet) ||
        packet.bth.opcode != roce::opcode(roce::Transport::Datagram, roce::Operation::SendOnly) ||
        packet.bth.destination != wire::cm::gsi_qpn || packet.deth.qkey != wire::cm::gsi_qkey ||
        packet.deth.source != wire::cm::gsi_qpn)
      continue;
    if (!roce::icrc_is_right(link::roce::headers_between(source, destination, packet_bytes).span(), datagram))
      continue;
    manager_.receive({number, address_of(destination), address_of(source)}, packet.payload, time);
  }
  os::SocketAddress refused;
  while (socket.take_refusal(refused)) manager_.unreachable(number, address_of(refused), time);
}

void Service::wake() noexcept {
  if (wake_ && manager_.next_time() < told_time_) wake_->notify();
}

void Service::run() noexcept {
  constexpr uint64_t never = cm::Manager::never;
  std::array<epoll_event, 16> events;
  while (true) {
    int timeout_ms = -1;
    {
      const std::lock_guard guard(lock);
      manager_.run(now());
      told_time_ = manager_.next_time();
      if (told_time_ != never) {
        const uint64_t time = now();
        timeout_ms =
            told_time_ <= time
                ? 0
                : static_cast<int>(std::min<uint64_t>((told_time_ - time + 999'999) / 1'000'000, 60'000));
      }
    }
    const int count =
        ::epoll_wait(poll_set_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
    const std::lock_guard guard(lock);
    for (int i = 0; i < count; ++i) {
      const uint32_t number = events[static_cast<size_t>(i)].data.u32;
      if (number == wake_number) wake_->drain();
      else receive(number);
    }
  }
}

void Service::say_goodbye() noexcept {
  constexpr int attempts = 100;  // a thread that was ended with the lock must not hold up the process
  for (int i = 0; i < attempts; ++i) {
    const std::unique_lock guard(lock, std::try_to_lock);
    if (guard.owns_lock()) return manager_.destroy_all(now());
    ::usleep(1000);
  }
}

namespace {

// Peers hear at once that the process ends by exit(3); of other ends they hear from the host.
__attribute__((destructor)) void say_goodbye() {
  Service* service = current.load(std::memory_order_acquire);
  if (service != nullptr && service->is_here()) service->say_goodbye();
}

}  // namespace

}  // namespace weft::rdmacm
