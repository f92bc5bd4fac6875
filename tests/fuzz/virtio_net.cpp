// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The virtio_net driver over a hostile card (hostile_nic.hpp), with split and packed rings: used buffers of any id and
// length, queue memory of any contents, registers of any value. And any bytes as the capabilities in configuration
// space.
#include "nic/model/virtio_net.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "hostile_nic.hpp"
#include "nic/virtio_net/driver.hpp"

namespace {

using namespace weft;
namespace feature = nic::virtio_net::feature;

// A device that does not answer costs a second otherwise.
template <class Bus>
struct Driver : nic::virtio_net::Driver<Bus> {
  explicit Driver(Bus& bus) : nic::virtio_net::Driver<Bus>(bus, 100) {}
};
using Stand = nic::model::Stand<nic::model::VirtioNet, Driver>;

void scribble(FuzzedDataProvider& in, Stand& stand) {
  const auto queue = in.ConsumeIntegralInRange<unsigned>(0, 2);
  if (in.ConsumeBool()) {
    const auto id =
        in.ConsumeBool() ? in.ConsumeIntegralInRange<uint16_t>(0, 70) : in.ConsumeIntegral<uint16_t>();
    const auto bytes =
        in.ConsumeBool() ? in.ConsumeIntegralInRange<uint32_t>(0, 4096) : in.ConsumeIntegral<uint32_t>();
    stand.model->use(queue, id, bytes, in.ConsumeIntegralInRange<unsigned>(0, 20));
  } else {
    const auto area = in.ConsumeIntegralInRange<unsigned>(0, 2);
    const auto at = in.ConsumeIntegralInRange<size_t>(0, area == 0 ? 16 * 64 : 600);
    const auto bytes = in.ConsumeBytes<uint8_t>(in.ConsumeIntegralInRange<size_t>(1, 16));
    stand.model->scribble(queue, area, at, std::as_bytes(std::span(bytes)));
  }
}

void parse(const uint8_t* data, size_t size) {
  std::array<std::byte, nic::virtio_net::pci_config_bytes> config{};
  std::memcpy(config.data(), data, std::min(size, config.size()));
  const auto found = nic::virtio_net::find_regions(config);
  if (!found) return;
  for (const auto* region : {&found->common, &found->notify, &found->device})
    if (region->bar > 5 || region->bytes == 0 || uint64_t{region->offset} + region->bytes > UINT32_MAX)
      std::abort();
  if (found->common.bytes < nic::virtio_net::common::bytes || found->common.offset % 4 != 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 8) return 0;
  if ((data[0] & 0xf0) == 0xf0) {
    parse(data + 1, size - 1);
    return 0;
  }
  nic::model::VirtioNet::Settings settings;
  settings.mac = nic::model::mac_of(1);
  settings.mtu = 9000;
  settings.reset_reads = data[0] >> 5;
  settings.queue_size_max = (data[1] & 1) != 0 ? 256 : 2 + (data[1] >> 1);
  settings.uses_backwards = (data[2] & 1) != 0;
  const auto without = [&](unsigned bit, uint64_t features) {
    if ((data[0] & bit) != 0) settings.features &= ~features;
  };
  without(1, feature::packed_ring);
  without(2, feature::mergeable_buffers);
  without(4, feature::event_index);
  without(8, feature::control_receive);
  without(16, feature::mtu);
  const auto make = [&](nic::model::Hub& hub) {
    return std::make_unique<nic::model::VirtioNet>(hub, settings);
  };
  const fuzz::HostileNic<Stand> run(data + 3, size - 3, make, scribble);
  return 0;
}
