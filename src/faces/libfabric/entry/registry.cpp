// The providers of this build as the libfabric face sees them: one line for each type in src/providers/.
#include <array>

#include "faces/libfabric/entry/provider_of.hpp"
#include "providers/loopback.hpp"
#include "providers/shm.hpp"
#include "providers/tcp.hpp"
#include "providers/tcp_rxm.hpp"
#include "providers/udp.hpp"
#include "providers/udp_rxd.hpp"
#include "providers/verbs.hpp"
#include "providers/verbs_rxm.hpp"
#include "providers/weft.hpp"

namespace weft::fi {
namespace {

// In the order in which fi_getinfo returns them.
constexpr std::array<const Provider*, 9> all = {
    &provider_of<providers::Weft>,   &provider_of<providers::Shm>,      &provider_of<providers::Tcp>,
    &provider_of<providers::UdpRxd>, &provider_of<providers::Loopback>, &provider_of<providers::Udp>,
    &provider_of<providers::TcpRxm>, &provider_of<providers::Verbs>,    &provider_of<providers::VerbsRxm>,
};

}  // namespace

std::span<const Provider* const> providers() { return all; }

}  // namespace weft::fi
