// From settings to an observer.
#include "link/packet/middleware.hpp"

#include "base/settings.hpp"
#include "link/packet/capture.hpp"

namespace weft::link::packet {

Result<Middleware> middleware_of_settings() {
  Middleware wanted;
  if (const char* text = settings::text("WEFT_PACKET_FAULTS"); text != nullptr && *text != 0) {
    auto plan = proto::FaultPlan::parse(text);
    if (!plan) return Error{plan.error().code, "WEFT_PACKET_FAULTS=" + plan.error().why};
    wanted.faults = *plan;
  }
  if (const char* path = settings::text("WEFT_PCAP"); path != nullptr) wanted.capture_path = path;
  return wanted;
}

std::unique_ptr<proto::PacketObserver> make_observer(const Middleware& wanted,
                                                     const proto::PacketLinkTraits& traits,
                                                     const Audience& audience) {
  auto observer = std::make_unique<proto::PacketObserver>();
  observer->is_checked = traits.checks_packets;
  observer->note = audience.note;
  observer->noted = audience.noted;
  if (wanted.faults) observer->faults.emplace(*wanted.faults);
  if (!wanted.capture_path.empty())
    observer->capture = std::make_unique<CaptureFile>(wanted.capture_path, traits.ip_addresses,
                                                      audience.warning, audience.warned);
  return observer;
}

}  // namespace weft::link::packet
