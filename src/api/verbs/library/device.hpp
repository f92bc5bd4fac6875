// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Devices as programs see them: struct ibv_device, one for each device of a provider as long as somebody has it. Must not know contexts.
#pragma once

#include "api/verbs/library/providers.hpp"

namespace weft::verbs {

struct Device {
  ibv_device shown;  // first: what programs have is a pointer to it
  const Provider* provider;
  weft_verbs_device reported;
  size_t holders;  // lists and contexts, under the lock of the devices

  static Device& of(ibv_device* device) noexcept { return *reinterpret_cast<Device*>(device); }
};

// ibv_get_device_list(3): ends with null. The same device has the same pointer in every list as long as one list or context holds it.
// Null and errno: ENOMEM.
ibv_device** device_list(int* count) noexcept;
void free_device_list(ibv_device** list) noexcept;

// Of an open context.
void hold(Device& device) noexcept;
void release(Device& device) noexcept;

}  // namespace weft::verbs
