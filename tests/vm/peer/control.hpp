// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The TCP connection by which the two programs of a pair tell each other names and verdicts. Knows no verbs.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft::vm {

// A check that did not hold, here or at the peer.
struct Failure : std::runtime_error {
  using runtime_error::runtime_error;
};
// The scenario needs what one of the devices has not; thrown at both sides.
struct Skipped : std::runtime_error {
  using runtime_error::runtime_error;
};
// printf(3) into a string.
[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...);
// Throws Failure with that text.
[[gnu::format(printf, 2, 3)]] void require(bool holds, const char* format, ...);

class Control {
 public:
  // Waits at most 30 s for the other side. Throws Failure.
  static Control listen(const std::string& address, uint16_t port);
  static Control connect(const std::string& address, uint16_t port);
  Control(Control&& from) noexcept : socket_(from.socket_) { from.socket_ = -1; }
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  ~Control();

  // Both sides call these in the same order. Throws Failure when the peer ended its scenario, or after 60 s.
  void barrier() { swap<uint8_t>(0); }
  template <class T>
  T swap(const T& own) {
    send_frame('d', &own, sizeof own);
    return receive<T>();
  }
  template <class T>
  void send(const T& value) {
    send_frame('d', &value, sizeof value);
  }
  template <class T>
  T receive() {
    T value;
    receive_data(&value, sizeof value);
    return value;
  }
  // Ends a scenario at both sides: gives the own verdict ("" is good), returns the peer's.
  std::string finish(const std::string& verdict);

 private:
  explicit Control(int socket) : socket_(socket) {}
  void send_frame(char kind, const void* bytes, size_t count);
  char receive_frame(std::vector<char>& bytes);
  void receive_data(void* bytes, size_t count);

  int socket_;
  std::string peer_verdict_;
  bool peer_finished_ = false;
};

}  // namespace weft::vm
