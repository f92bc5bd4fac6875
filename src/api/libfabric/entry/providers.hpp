// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The providers of this build by their types, for those who only name them. Each is compiled once, in api/libfabric/providers/, and a library holds
// those that it names. Must not know engines or links.
#pragma once

#include "api/libfabric/discovery/provider.hpp"

namespace weft::providers {
struct Loopback;
struct NicUdp;
struct NicUdpRxd;
struct Shm;
struct Tcp;
struct TcpRxm;
struct Udp;
struct UdpRxd;
struct Verbs;
struct VerbsRxm;
struct Weft;
}  // namespace weft::providers

namespace weft::fi {

// What the front end knows of the provider that P describes. The definition is in provider_of.hpp.
template <class P>
struct Compiled {
  static const Provider provider;
};
extern template struct Compiled<providers::Loopback>;
extern template struct Compiled<providers::NicUdp>;
extern template struct Compiled<providers::NicUdpRxd>;
extern template struct Compiled<providers::Shm>;
extern template struct Compiled<providers::Tcp>;
extern template struct Compiled<providers::TcpRxm>;
extern template struct Compiled<providers::Udp>;
extern template struct Compiled<providers::UdpRxd>;
extern template struct Compiled<providers::Verbs>;
extern template struct Compiled<providers::VerbsRxm>;
extern template struct Compiled<providers::Weft>;

template <class P>
inline constexpr const Provider& provider_of = Compiled<P>::provider;

}  // namespace weft::fi
