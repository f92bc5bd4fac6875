// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// VFIO below, a driver by vendor and device id.
#include "link/nic/open.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/lasting.hpp"
#include "link/nic/device.hpp"
#include "link/nic/settings.hpp"
#include "nic/e1000e/driver.hpp"
#include "nic/virtio_net/driver.hpp"
#include "os/vfio/device.hpp"

namespace weft::link::nic {
namespace {

using Bus = os::vfio::Device;

std::atomic<CardSource> source{nullptr};

// One driver for a card: the kernel hands a group out once, and says no more than "busy".
class Claim {
 public:
  static Result<Claim> of(const std::string& address) {
    const std::scoped_lock guard(all().mutex);
    if (!all().cards.insert(address).second)
      return Error{EBUSY,
                   "the network card " + address + " is open in this process already: one domain has it"};
    return Claim(address);
  }
  Claim(Claim&& other) noexcept : address_(std::exchange(other.address_, {})) {}
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  Claim& operator=(Claim&&) = delete;
  ~Claim() {
    if (address_.empty()) return;
    const std::scoped_lock guard(all().mutex);
    all().cards.erase(address_);
  }

 private:
  struct All {
    std::mutex mutex;
    std::set<std::string> cards;
  };
  static All& all() {
    static All& the_one = make_lasting<All>();
    return the_one;
  }
  explicit Claim(std::string address) : address_(std::move(address)) {}
  std::string address_;
};

// Goes after the card.
struct Claimed {
  Claim claim;
};

template <template <class> class D>
class VfioCard final : Claimed, public CardOf<D<Bus>> {
 public:
  VfioCard(std::unique_ptr<Bus> bus, Claim mine) : Claimed{std::move(mine)}, CardOf<D<Bus>>(std::move(bus)) {}
};

std::string hexadecimal(uint16_t value) {
  char text[5];
  std::snprintf(text, sizeof text, "%04x", value);
  return text;
}

// The first driver that is for the card.
template <template <class> class First, template <class> class... Others>
Result<std::unique_ptr<Card>> with_driver(std::unique_ptr<Bus> bus, Claim claim) {
  const pci::Function& function = bus->function();
  if (First<Bus>::drives(function.vendor, function.device))
    return std::unique_ptr<Card>(std::make_unique<VfioCard<First>>(std::move(bus), std::move(claim)));
  if constexpr (sizeof...(Others) != 0) return with_driver<Others...>(std::move(bus), std::move(claim));
  else
    return Error{ENOTSUP,
                 "the card " + function.address + " is " + hexadecimal(function.vendor) + ':' +
                     hexadecimal(function.device) +
                     ", for which there is no driver: Intel 82574 (8086:10d3) and virtio_net (1af4:1041, "
                     "1af4:1000) have one"};
}

}  // namespace

void take_cards_from(CardSource from) noexcept { source.store(from); }

Result<std::unique_ptr<Card>> open_card(std::string_view address) {
  if (const CardSource from = source.load(); from != nullptr) {
    auto card = from(address);
    if (card || card.error().code != ENOENT) return card;
  }
  auto claim = Claim::of(std::string(address));
  if (!claim) return claim.error();
  auto bus = Bus::open(address);
  if (!bus) return bus.error();
  return with_driver<weft::nic::e1000e::Driver, weft::nic::virtio_net::Driver>(std::move(*bus),
                                                                               std::move(*claim));
}

Result<void> Device::open(const proto::DeviceRequest& request) {
  const Cards configured = configured_cards();
  const auto is_it = [&](const Configuration& card) { return domain_name(card) == request.domain; };
  const auto found = std::ranges::find_if(configured.cards, is_it);
  if (found == configured.cards.end())
    return Error{ENODEV, "WEFT_NIC has no card with the domain " + std::string(request.domain)};
  auto card = open_card(found->card);
  if (!card) return card.error();
  return open(std::move(*card), *found);
}

}  // namespace weft::link::nic
