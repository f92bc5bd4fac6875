// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The device of a domain (proto/device.hpp) as the domain holds it. Must not know which devices exist.
#pragma once

#include <vector>

#include "core/progress.hpp"
#include "core/registrar.hpp"
#include "proto/device.hpp"

namespace weft::fi {

// A device whose type is forgotten. The destructor closes it.
class DomainDevice {
 public:
  DomainDevice() = default;
  DomainDevice(const DomainDevice&) = delete;
  DomainDevice& operator=(const DomainDevice&) = delete;
  virtual ~DomainDevice() = default;
  // Null where the device is none.
  virtual core::Registrar* registrar() noexcept = 0;
  virtual core::Progressor* progressor() noexcept = 0;
  virtual std::vector<proto::DeviceCounter> counters() const = 0;
};

}  // namespace weft::fi
