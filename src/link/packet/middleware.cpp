// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// From settings to an observer.
#include "link/packet/middleware.hpp"

#include <sys/auxv.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "base/settings.hpp"
#include "link/packet/capture.hpp"
#include "os/origin.hpp"

namespace weft::link::packet {
namespace {

class Observer final : public proto::PacketObserver {
 public:
  bool is_here() const noexcept override { return origin_.is_here(); }

 private:
  os::Origin origin_;
};

}  // namespace

Result<Middleware> middleware_of_settings() {
  Middleware wanted;
  if (const char* text = settings::text("WEFT_PACKET_FAULTS"); text != nullptr && *text != 0) {
    auto plan = proto::FaultPlan::parse(text);
    if (!plan) return Error{plan.error().code, "WEFT_PACKET_FAULTS=" + plan.error().why};
    wanted.faults = *plan;
  }
  // A program that runs with more rights than its user writes no file that the user names.
  const char* path = ::getauxval(AT_SECURE) == 0 ? settings::text("WEFT_PCAP") : nullptr;
  if (path != nullptr && *path != 0) {
    // The file is made with the first packet, and the program may have changed its directory by then.
    const std::unique_ptr<char, decltype([](char* text) { std::free(text); })> folder(
        *path == '/' ? nullptr : ::getcwd(nullptr, 0));
    wanted.capture_path = folder != nullptr ? std::string(folder.get()) + '/' + path : path;
  }
  return wanted;
}

std::unique_ptr<proto::PacketObserver> make_observer(const Middleware& wanted,
                                                     const proto::PacketLinkTraits& traits,
                                                     const Audience& audience) {
  auto observer = std::make_unique<Observer>();
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
