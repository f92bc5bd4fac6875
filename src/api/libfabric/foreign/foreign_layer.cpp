// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Makes providers out of MessageLink and Reliable over what was found at run time.
#include "api/libfabric/foreign/foreign_layer.hpp"

#include <rdma/fi_errno.h>

#include <cstdlib>
#include <deque>
#include <string>
#include <utility>

#include "api/libfabric/discovery/info.hpp"
#include "api/libfabric/discovery/offer.hpp"
#include "api/libfabric/endpoints/endpoint_open.hpp"
#include "link/foreign/messages.hpp"
#include "link/foreign/packets.hpp"
#include "link/message/link.hpp"
#include "link/reliable/ip_names.hpp"
#include "link/reliable/link.hpp"
#include "proto/engine/engine.hpp"
#include "providers/socket_address.hpp"

namespace weft::fi {

using link::foreign::Source;
using providers::SocketAddresses;
static_assert(link::message::Endpoints<link::foreign::Messages>);

namespace {

// What a layer is: its link, and the endpoints below that it stands on.
struct MessagesLayer {
  using Link = link::message::MessageLink<link::foreign::Messages>;
  static constexpr const char* name = "ofi_rxm";
  static constexpr uint32_t protocol = FI_PROTO_RXM;
  static constexpr fi_ep_type below = FI_EP_MSG;
  static constexpr size_t message_bytes_min = link::foreign::Messages::message_bytes_max;
};
struct PacketsLayer {
  using Link = link::reliable::Reliable<link::foreign::Packets, link::reliable::IpNames>;
  static constexpr const char* name = "ofi_rxd";
  static constexpr uint32_t protocol = FI_PROTO_RXD;
  static constexpr fi_ep_type below = FI_EP_DGRAM;
  static constexpr size_t message_bytes_min = link::foreign::Packets::datagram_bytes_min;
};

}  // namespace

// The source comes first: it is what links get as their context.
class Layered : public Source {
 public:
  Layered(Source source, const char* layer) : Source(std::move(source)), full_name_(name + ";" + layer) {}

  template <class Layer>
  bool make_offers() {
    for (const uint32_t format : {uint32_t{FI_SOCKADDR_IN}, uint32_t{FI_SOCKADDR_IN6}})
      if (SocketAddresses::available(format)) add_offer<Layer>(format);
    if (offers_.empty()) return false;
    using Open = Opener<proto::Engine<typename Layer::Link>>;
    provider_ = {
        .name = full_name_.c_str(),
        .version = FI_VERSION(207, 0),
        .offers = [](const Provider& provider) -> const fi_info* {
          return &static_cast<const Layered*>(static_cast<const Source*>(provider.context))
                      ->offers_.front()
                      .info;
        },
        .addrlen =
            [](uint32_t format) {
              return format == FI_ADDR_STR ? size_t{0} : SocketAddresses::addrlen(format);
            },
        .resolve = SocketAddresses::resolve,
        .unnamed = SocketAddresses::unnamed,
        .normalise = SocketAddresses::normalise,
        .to_string = SocketAddresses::to_string,
        .endpoint = Open::open_endpoint,
        .scalable_endpoint = Open::open_scalable,
        .stx = Open::open_stx,
        .srx = Open::open_srx,
    };
    provider_.context = static_cast<const Source*>(this);
    return true;
  }

  const Provider& provider() const noexcept { return provider_; }

 private:
  // Whether the provider below has endpoints for us with these addresses that reach so far.
  template <class Layer>
  bool answers(uint32_t format, uint64_t reach) const {
    fi_info* hints = link::foreign::hints_for(*this, Layer::below, format);
    if (hints == nullptr) return false;
    hints->caps |= reach;
    free(
        std::exchange(hints->fabric_attr->prov_name, nullptr));  // plugins complain only when they were meant
    fi_info* found = nullptr;
    const int status = getinfo(version, nullptr, nullptr, 0, hints, &found);
    free_info(hints);
    if (status != 0 || found == nullptr) return false;
    const bool fits = found->addr_format == format && found->ep_attr->type == Layer::below &&
                      found->ep_attr->max_msg_size >= Layer::message_bytes_min;
    free_info(found);
    return fits;
  }

  // One offer for each format in which the provider below answers. Providers need not name what they were not asked for, so how far they
  // reach is asked.
  template <class Layer>
  void add_offer(uint32_t format) {
    if (!answers<Layer>(format, 0)) return;
    uint64_t reach = 0;
    for (const uint64_t far : {FI_LOCAL_COMM, FI_REMOTE_COMM})
      if (answers<Layer>(format, far)) reach |= far;
    const providers::EndpointKind kind{FI_EP_RDM, Layer::protocol, 1, reach};
    Offer& offer = offers_.emplace_back(full_name_.c_str(), FI_VERSION(207, 0), kind, format,
                                        proto::Engine<typename Layer::Link>::abilities);
    if (offers_.size() > 1) offers_[offers_.size() - 2].info.next = &offer.info;
  }

  std::string full_name_;
  std::deque<Offer> offers_;  // do not move: they point into themselves
  Provider provider_{};
};

namespace {

template <class Layer>
LayeredPtr layer_with(Source source) {
  source.dup_info = [](const fi_info* info) { return dup_info(info); };
  source.free_info = [](fi_info* info) { free_info(info); };
  LayeredPtr layered(new Layered(std::move(source), Layer::name));
  return layered->make_offers<Layer>() ? std::move(layered) : nullptr;
}

}  // namespace

void DropLayered::operator()(Layered* layered) const noexcept { delete layered; }

LayeredPtr layer_messages(Source source) { return layer_with<MessagesLayer>(std::move(source)); }
LayeredPtr layer_packets(Source source) { return layer_with<PacketsLayer>(std::move(source)); }

const Provider& provider_of(const Layered& layered) noexcept { return layered.provider(); }

}  // namespace weft::fi
