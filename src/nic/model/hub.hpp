// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Hub: the wire between device models: what one station sends, all others that are plugged in and have carrier get, at once and in the
// caller's stack. A cable is a hub with two stations. Must not know devices.
//
// Contract: one thread for all stations. A frame is without preamble and frame check sequence; it is valid during the call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace weft::nic::model {

class Station {
 public:
  virtual void on_wire(std::span<const std::byte> frame) noexcept = 0;
  virtual void on_carrier(bool is_up) noexcept = 0;

 protected:
  Station() = default;
  Station(const Station&) = default;
  Station& operator=(const Station&) = default;
  ~Station() = default;
};

class Hub {
 public:
  // Plugged stations have carrier. They are unplugged before they or the hub go.
  void plug(Station& station) {
    ports_.push_back({&station, true});
    station.on_carrier(true);
  }
  void unplug(Station& station) noexcept {
    std::erase_if(ports_, [&](const Port& port) { return port.station == &station; });
    station.on_carrier(false);
  }
  void set_carrier(Station& station, bool is_up) noexcept {
    for (Port& port : ports_)
      if (port.station == &station) port.has_carrier = is_up;
    station.on_carrier(is_up);
  }
  void send(const Station& from, std::span<const std::byte> frame) noexcept {
    const auto sender =
        std::find_if(ports_.begin(), ports_.end(), [&](const Port& port) { return port.station == &from; });
    if (sender == ports_.end() || !sender->has_carrier || (drop && drop(frame))) return;
    ++frames_;
    for (Port& port : ports_)
      if (port.station != &from && port.has_carrier) port.station->on_wire(frame);
  }
  uint64_t frames() const noexcept { return frames_; }

  // For tests of loss: true: this frame goes nowhere.
  std::function<bool(std::span<const std::byte> frame)> drop;

 private:
  struct Port {
    Station* station;
    bool has_carrier;
  };
  std::vector<Port> ports_;
  uint64_t frames_ = 0;
};

}  // namespace weft::nic::model
