// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What stands around the device in the guest: the kernel's network card on the same hub, the kernel's log, QEMU's monitor. Knows nothing of drivers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "os/fd.hpp"
#include "wire/neighbor.hpp"

namespace weft::vm {

using Frame = std::vector<std::byte>;

// IEEE Std 802: an EtherType for local experiments.
inline constexpr uint16_t ethernet_type = 0x88b5;
inline constexpr size_t head_bytes = 14;

// A frame of so many bytes whose payload follows from `seed`.
Frame make_frame(wire::Mac to, wire::Mac from, size_t bytes, uint32_t seed);

// All frames of our EtherType at an interface of the kernel (packet(7)).
class Wire {
 public:
  explicit Wire(const std::string& interface);

  wire::Mac mac() const noexcept { return mac_; }
  void send(const Frame& frame) const;
  // The next one that came in; nothing: none within the time. Zeros that pad a short frame belong to it.
  std::optional<Frame> receive(int timeout_ms) const;
  void drain() const;
  int fd() const noexcept { return fd_.get(); }

 private:
  os::Fd fd_;
  int index_ = 0;
  wire::Mac mac_{};
};

// Lines that the kernel logs from now on (kmsg).
class KernelLog {
 public:
  KernelLog();
  // Lines of the IOMMU's faults since the last call.
  std::vector<std::string> faults();
  // Waits until there is one; how many.
  size_t wait_for_fault();

 private:
  os::Fd fd_;
};

// Commands for QEMU's monitor, by the console; the host passes them on.
class Monitor {
 public:
  Monitor();
  void say(const std::string& command) const;

 private:
  os::Fd fd_;
};

// What needs rights that an ordinary user lacks, opened before they are dropped.
struct Surroundings {
  Wire wire;
  KernelLog log;
  Monitor monitor;
};

}  // namespace weft::vm
