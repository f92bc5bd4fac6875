// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which drivers there are.
#include "driver_cases.hpp"
#include "nic/e1000e/driver.hpp"
#include "nic/virtio_net/driver.hpp"
#include "os/vfio/device.hpp"

namespace weft::vm {
namespace {

using E1000e = nic::e1000e::Driver<os::vfio::Device>;
using VirtioNet = nic::virtio_net::Driver<os::vfio::Device>;

template <class Use>
void with_driver(const Plan& plan, Use&& use) {
  const auto function = pci::function_at(plan.address);
  if (function && E1000e::drives(function->vendor, function->device)) use.template operator()<E1000e>();
  if (function && VirtioNet::drives(function->vendor, function->device)) use.template operator()<VirtioNet>();
}

}  // namespace

void driver_cases(const Plan& plan, Surroundings& around) {
  with_driver(plan, [&]<class D>() { cases_of<D>(plan, around); });
}

void short_driver_cases(const Plan& plan, Surroundings& around) {
  with_driver(plan, [&]<class D>() { short_cases_of<D>(plan, around); });
}

}  // namespace weft::vm
