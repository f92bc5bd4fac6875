// Makes providers out of MessageLink over what was found at run time.
#include "faces/libfabric/foreign_layer.hpp"

#include <rdma/fi_errno.h>

#include <deque>
#include <string>

#include "faces/libfabric/endpoint_open.hpp"
#include "faces/libfabric/info.hpp"
#include "faces/libfabric/offer.hpp"
#include "link/message/link.hpp"
#include "providers/socket_address.hpp"

namespace weft::fi {

using link::foreign::Source;
using MessagesLink = link::message::MessageLink<link::foreign::Messages>;
static_assert(link::message::Endpoints<link::foreign::Messages>);

// The source comes first: it is what links get as their context.
class Layered : public Source {
 public:
  explicit Layered(Source source) : Source(std::move(source)), full_name_(name + ";ofi_rxm") {}

  bool settle() {
    for (const uint32_t format : {uint32_t{FI_SOCKADDR_IN}, uint32_t{FI_SOCKADDR_IN6}})
      if (providers::SocketAddresses::available(format)) add_offer(format);
    if (offers_.empty()) return false;
    provider_ = {
        .name = full_name_.c_str(),
        .version = FI_VERSION(118, 0),
        .offers = [](const Provider& provider) -> const fi_info* {
          return &static_cast<const Layered*>(static_cast<const Source*>(provider.context))
                      ->offers_.front()
                      .info;
        },
        .addrlen =
            [](uint32_t format) {
              return format == FI_ADDR_STR ? size_t{0} : providers::SocketAddresses::addrlen(format);
            },
        .resolve = providers::SocketAddresses::resolve,
        .normalise = providers::SocketAddresses::normalise,
        .to_string = providers::SocketAddresses::to_string,
        .endpoint = Opener<MessagesLink>::open_endpoint,
        .scalable_endpoint = Opener<MessagesLink>::open_scalable,
        .stx = Opener<MessagesLink>::open_stx,
        .srx = Opener<MessagesLink>::open_srx,
    };
    provider_.context = static_cast<const Source*>(this);
    return true;
  }

  const Provider& provider() const noexcept { return provider_; }

 private:
  // Whether the provider below has endpoints for us with these addresses that reach so far.
  bool answers(uint32_t format, uint64_t reach) const {
    fi_info* hints = link::foreign::message_hints(*this, format);
    if (hints == nullptr) return false;
    hints->caps |= reach;
    fi_info* found = nullptr;
    const int status = getinfo(version, nullptr, nullptr, 0, hints, &found);
    free_info(hints);
    if (status != 0 || found == nullptr) return false;
    const bool fits = found->addr_format == format && found->ep_attr->type == FI_EP_MSG &&
                      found->ep_attr->max_msg_size >= link::foreign::Messages::message_bytes_max;
    free_info(found);
    return fits;
  }

  // One offer for each format in which the provider below answers. Providers need not name what they were not asked for, so how far they
  // reach is asked.
  void add_offer(uint32_t format) {
    if (!answers(format, 0)) return;
    uint64_t reach = 0;
    for (const uint64_t far : {FI_LOCAL_COMM, FI_REMOTE_COMM})
      if (answers(format, far)) reach |= far;
    const providers::EndpointKind kind{FI_EP_RDM, FI_PROTO_RXM, 1, reach};
    Offer& offer = offers_.emplace_back(full_name_.c_str(), FI_VERSION(118, 0), kind, format);
    if (offers_.size() > 1) offers_[offers_.size() - 2].info.next = &offer.info;
  }

  std::string full_name_;
  std::deque<Offer> offers_;  // do not move: they point into themselves
  Provider provider_{};
};

void DropLayered::operator()(Layered* layered) const noexcept { delete layered; }

LayeredPtr layer_messages(Source source) {
  source.dup_info = [](const fi_info* info) { return dup_info(info); };
  source.free_info = [](fi_info* info) { free_info(info); };
  LayeredPtr layered(new Layered(std::move(source)));
  return layered->settle() ? std::move(layered) : nullptr;
}

const Provider& provider_of(const Layered& layered) noexcept { return layered.provider(); }

}  // namespace weft::fi
