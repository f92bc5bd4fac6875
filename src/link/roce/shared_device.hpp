// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One device for all reliable endpoints of a process at one IPv4 address. Must not know what the queue pairs carry.
#pragma once

#include <memory>

#include "base/result.hpp"
#include "link/roce/device.hpp"
#include "os/event.hpp"
#include "os/socket_address.hpp"

namespace weft::link::roce {

struct SharedDevice {
  // CompletionQueue::context is an os::Event*, or null.
  struct Notices final : proto::roce::Events {
    void on_completion(proto::roce::CompletionQueue& cq) noexcept override {
      if (cq.context != nullptr) static_cast<os::Event*>(cq.context)->notify();
    }
    void on_async(const proto::roce::AsyncEvent&) noexcept override {}
  };
  Notices notices;
  std::unique_ptr<Device> device;

  // The one that there is, or a new one with a progress thread, on a UDP port that the system chooses. It goes with its
  // last owner. Any thread.
  static Result<std::shared_ptr<SharedDevice>> at(const os::SocketAddress& host);
};

}  // namespace weft::link::roce
