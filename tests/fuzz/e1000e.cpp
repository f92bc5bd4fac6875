// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The e1000e driver over a hostile card (hostile_nic.hpp): descriptor write-backs of any contents, at any place, registers of any value.
#include "nic/model/e1000e.hpp"
#include "hostile_nic.hpp"
#include "nic/e1000e/driver.hpp"

namespace {

using namespace weft;
using Stand = nic::model::Stand<nic::model::E1000e, nic::e1000e::Driver>;

// A word that a descriptor may have, written where a descriptor is.
void scribble(FuzzedDataProvider& in, Stand& stand) {
  const bool is_receive = in.ConsumeBool();
  const size_t low = is_receive ? nic::e1000e::Rdbal::at : nic::e1000e::Tdbal::at;
  const uint64_t ring = uint64_t{stand.model->peek(low + 4)} << 32 | stand.model->peek(low);
  const unsigned first = in.ConsumeIntegralInRange<unsigned>(0, 63);
  const unsigned count = in.ConsumeIntegralInRange<unsigned>(1, 8);
  const uint64_t status = in.ConsumeIntegral<uint16_t>();
  for (unsigned i = 0; i < count; ++i) {
    const uint64_t bytes =
        in.ConsumeBool() ? in.ConsumeIntegralInRange<uint64_t>(0, 2048) : in.ConsumeIntegral<uint16_t>();
    stand.bus.host().write_object(ring + (first + i) % 64 * sizeof(nic::e1000e::Descriptor) + 8,
                                  status << 32 | bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 8) return 0;
  const nic::model::E1000e::Settings settings{.mac = nic::model::mac_of(1),
                                              .has_msix = (data[0] & 1) != 0,
                                              .loads_mac = (data[0] & 2) != 0,
                                              .is_phy_powered_down = (data[0] & 4) != 0};
  const auto make = [&](nic::model::Hub& hub) { return std::make_unique<nic::model::E1000e>(hub, settings); };
  const fuzz::HostileNic<Stand> run(data + 1, size - 1, make, scribble);
  return 0;
}
