// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The providers of this build as the libfabric front end sees them: one line for each type in src/providers/.
#include <array>
#include <span>
#include <string>

#include "api/libfabric/entry/providers.hpp"
#include "api/libfabric/text/log.hpp"
#include "api/libfabric/text/setting_report.hpp"
#include "link/nic/settings.hpp"

namespace weft::fi {
namespace {

#ifdef WEFT_CHOSEN_PROVIDERS  // for editing (cmake/modules.cmake)
constexpr size_t on_cards = 0;
constexpr std::array all{WEFT_CHOSEN_PROVIDERS};
#else
// In the order in which fi_getinfo returns them. The last ones are there where WEFT_NIC names a network card.
constexpr size_t on_cards = 2;
constexpr std::array<const Provider*, 9 + on_cards> all = {
    &provider_of<providers::Weft>,      &provider_of<providers::Shm>,      &provider_of<providers::Tcp>,
    &provider_of<providers::UdpRxd>,    &provider_of<providers::Loopback>, &provider_of<providers::Udp>,
    &provider_of<providers::TcpRxm>,    &provider_of<providers::Verbs>,    &provider_of<providers::VerbsRxm>,
    &provider_of<providers::NicUdpRxd>, &provider_of<providers::NicUdp>,
};
#endif

bool has_cards() {
  read_settings();  // this is asked before anything else looks at the configuration file
  const link::nic::Cards configured = link::nic::configured_cards();
  for (const std::string& mistake : configured.mistakes)
    log_warn(kCore, FI_LOG_CORE, "WEFT_NIC: %s", mistake.c_str());
  return !configured.cards.empty();
}

}  // namespace

std::span<const Provider* const> providers() {
  static const size_t count = has_cards() ? all.size() : all.size() - on_cards;
  return std::span<const Provider* const>(all).first(count);
}

}  // namespace weft::fi
