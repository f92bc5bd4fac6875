// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the ids of a process share: the communication manager (proto/cm), the UDP sockets of its messages, the devices, one lock and one thread, which
// receives, repeats and reports. docs/rdmacm.md. Must not know ids.
//
// A message travels as a RoCEv2 packet of UD to queue pair 1. Between processes of Weft it goes to the IP address and port that the program
// connects to; the listener has a UDP socket there.
//
// A process that was forked has a service of its own, and the ids of its parent mean nothing there.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

#include "api/rdmacm/library/devices.hpp"
#include "base/result.hpp"
#include "os/answering_socket.hpp"
#include "os/event.hpp"
#include "os/origin.hpp"
#include "os/socket_address.hpp"
#include "os/thread.hpp"
#include "proto/cm/manager.hpp"

namespace weft::rdmacm {

namespace cm = proto::cm;

// Who takes the events of the manager. Called with the service's lock held.
using EventSink = void (*)(const cm::Event& event);

class Service final : cm::Environment {
 public:
  // Of this process; made by the first call, never destroyed.
  static Service& here();
  static void set_sink(EventSink sink) noexcept { sink_ = sink; }

  std::mutex lock;                  // all below, and all ids and channels
  std::condition_variable changed;  // events were acknowledged

  // --- with the lock ---
  cm::Manager& manager() noexcept { return manager_; }
  Devices& devices() noexcept { return devices_; }
  bool is_here() const noexcept { return origin_.is_here(); }
  // A socket bound to this address, which ids of this process share; port 0 chooses one. Each call wants a close_socket().
  Result<uint32_t> open_socket(const os::SocketAddress& address, bool one_family);
  // The one for connections that begin here and are bound to no port.
  Result<uint32_t> open_client_socket(const os::SocketAddress& host);
  void close_socket(uint32_t socket) noexcept;
  const os::SocketAddress& address(uint32_t socket) const noexcept {
    return sockets_.at(socket)->socket.address();
  }
  // A port number for such a connection. Its socket has another one.
  uint16_t next_port() noexcept;
  uint64_t now() const noexcept;
  // The thread looks at its times again. After calls of the manager.
  void wake() noexcept;
  uint32_t random() noexcept override;
  // The process ends: connections are told.
  void say_goodbye() noexcept;

  static cm::Address address_of(const os::SocketAddress& address) noexcept;
  static os::SocketAddress address_of(const cm::Address& address) noexcept;

 private:
  struct Socket {
    os::AnsweringSocket socket;
    bool one_family = false;
    bool is_client = false;
    size_t users = 0;
    uint32_t psn = 0;
  };

  Service();
  void send(const cm::Path& path, const cm::Mad& mad) noexcept override;
  void on_event(const cm::Event& event) noexcept override { sink_(event); }
  Result<uint32_t> add(const os::SocketAddress& address, bool one_family, bool is_client);
  Result<void> start();
  void run() noexcept;
  void receive(uint32_t number) noexcept;

  inline static EventSink sink_ = nullptr;
  os::Origin origin_;
  cm::Manager manager_;
  Devices devices_;
  std::map<uint32_t, std::unique_ptr<Socket>> sockets_;
  uint32_t next_socket_ = 1;
  uint16_t next_port_ = 0;
  os::Fd poll_set_;
  std::optional<os::Event> wake_;
  os::Thread thread_;
  bool has_thread_ = false;
  uint64_t told_time_ = 0;              // what the thread sleeps until
  std::array<uint32_t, 64> numbers_{};  // random ones
  size_t numbers_left_ = 0;
};

}  // namespace weft::rdmacm
