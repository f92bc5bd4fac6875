// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connecting, being connected to, closing.
#include "link/roce/messages.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "os/clock.hpp"
#include "os/socket_address.hpp"

namespace weft::link::roce {
namespace {

constexpr int backlog = 4096;

}  // namespace

Result<void> Messages::open(std::string_view source) {
  auto set = os::PollSet::create();
  if (!set) return set.error();
  listener_.set_address_format(format_);
  listener_.set_traffic_class(dscp_);
  if (auto opened = listener_.open(source); !opened) return opened;
  if (auto listening = listener_.listen(backlog); !listening) return listening;
  if (!set->add(listener_.control_fd())) return Error{errno, "the system watches no more descriptors"};
  set_ = std::move(*set);
  owner_pid_ = os::process_id();
  return {};
}

Messages::Connection& Messages::add() {
  auto made = std::make_unique<Connection>();
  Connection& connection = *made;
  connection.link_.set_address_format(format_);
  connection.link_.set_traffic_class(dscp_);
  all_.push_back(std::move(made));
  return connection;
}

bool Messages::watch(Connection& connection) noexcept {
  return set_.watch(connection.link_.control_fd()) && set_.watch(connection.link_.wait_fd());
}

Messages::Connection* Messages::connect(std::span<const std::byte> address, int& error) {
  Connection& connection = add();
  const std::string_view name(reinterpret_cast<const char*>(address.data()), address.size());
  Result<void> started = connection.link_.open({}, connection, connection);
  if (started) started = connection.link_.start(name, {});
  if (started && watch(connection)) return &connection;
  error = started ? ENOMEM : started.error().code;
  close(connection);
  return nullptr;
}

void Messages::poll_requests() noexcept try {
  checks_ = false;
  listener_.poll();
  while (auto request = listener_.next()) {
    Connection& connection = add();
    connection.is_incoming_ = true;
    const bool taken = connection.link_.open({}, connection, connection) &&
                       connection.link_.accept(std::move(request), {}) && watch(connection);
    if (!taken) close(connection);
  }
} catch (const std::bad_alloc&) {  // who asked is refused
}

bool Messages::speaks_for(const Connection& connection, std::span<const std::byte> address,
                          const Connection& before) noexcept {
  const auto at = [](std::span<const std::byte> bytes) {
    return os::SocketAddress::from(bytes.data(), bytes.size()).value_or(os::SocketAddress{});
  };
  const os::SocketAddress caller = at(connection.link_.peer_address());
  return os::same_host(caller, at(address)) || os::same_host(caller, at(before.link_.peer_address()));
}

// The object stays until the next poll is over: callers up the stack may be looking at it, and at its messages.
void Messages::close(Connection& connection) noexcept {
  connection.is_closed_ = true;
  has_closed_ = true;
}

// Those that are closed now have one deadline: while one waits, the device's thread serves the others.
void Messages::linger_together() noexcept {
  const uint64_t until = os::monotonic_ns() + roce::Connection::linger_ns;
  for (auto& connection : all_) connection->link_.linger_until(until);
}

void Messages::drop_closed() noexcept {
  has_closed_ = false;
  linger_together();
  std::erase_if(all_, [](const auto& one) { return one->is_closed_; });
}

void Messages::close() noexcept {
  if (!set_) return;
  linger_together();
  all_.clear();
  listener_.close();
  set_.reset();
}

// --- sleeping ---

bool Messages::arm() noexcept {
  bool armed = !has_closed_;
  for (auto& connection : all_) armed = !connection->is_lost_ && connection->link_.arm() && armed;
  return armed;
}

void Messages::disarm() noexcept {
  checks_ = true;
  for (auto& connection : all_) connection->link_.disarm();
}

}  // namespace weft::link::roce
