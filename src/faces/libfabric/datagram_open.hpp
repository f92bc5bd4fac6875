// Opens datagram endpoints over any PacketLink (fi_endpoint(3)). A provider instantiates this.
#pragma once

#include <vector>

#include "faces/libfabric/datagram_control.hpp"
#include "faces/libfabric/datagram_group.hpp"
#include "faces/libfabric/device.hpp"
#include "faces/libfabric/link_name.hpp"
#include "faces/libfabric/traffic_class.hpp"

namespace weft::fi {

template <class L>
struct DatagramOpener {
  using P = DatagramPort<L>;
  using Control = DatagramControl<L>;

  static int open_endpoint(Domain& domain, fi_info* info, fid_ep** ep, void* context) {
    if (info == nullptr || info->ep_attr == nullptr) return -FI_EINVAL;
    if (info->ep_attr->type != FI_EP_DGRAM && info->ep_attr->type != FI_EP_UNSPEC) {
      log_warn(domain.provider->name, FI_LOG_EP_CTRL,
               "ep_attr->type: this provider opens FI_EP_DGRAM endpoints only");
      return -FI_ENOSYS;
    }
    return no_throw([&] {
      [[maybe_unused]] WholeOpening<L> guard(domain.lock);
      proto::DatagramLimits limits;
      if (info->tx_attr != nullptr && info->tx_attr->size != 0) limits.transmit_size = info->tx_attr->size;
      if (info->rx_attr != nullptr && info->rx_attr->size != 0) limits.receive_size = info->rx_attr->size;
      limits.message_bytes = std::min<size_t>(info->ep_attr->max_msg_size, L::packet_bytes_limit);
      auto port = std::make_unique<P>();
      port->domain = &domain;
      port->lock = &domain.lock;
      port->caps = info->caps;
      if ((port->caps & (FI_SEND | FI_RECV)) == 0)
        port->caps |= FI_SEND | FI_RECV;  // fi_getinfo(3), capabilities
      port->owned_core = std::make_unique<DatagramCore<L>>(domain, limits);
      port->core = port->owned_core.get();
      port->engine = &port->core->engine;
      port->engine->want_sources((info->caps & FI_SOURCE) != 0);
      set_device(port->engine->link(), domain);
      port->tx.op_flags = info->tx_attr != nullptr ? info->tx_attr->op_flags : 0;
      port->tx.settle();
      port->rx_op_flags = info->rx_attr != nullptr ? info->rx_attr->op_flags : 0;
      set_traffic_class(port->engine->link(),
                        code_point_of(info->tx_attr, domain.attr.tclass, domain.api_version));
      if constexpr (proto::HasPathMtu<L>) port->engine->link().set_fragments(true);
      auto opened = Control::open_link(*port, source_of(domain, *info));
      if (!opened) {
        log_warn(domain.provider->name, FI_LOG_EP_CTRL, "no endpoint: %s", opened.error().why.c_str());
        return -opened.error().code;
      }
      port->fid.fid = {FI_CLASS_EP, context, &fid_ops};
      port->fid.ops = &ep_ops;
      port->fid.cm = &cm_ops;
      Control::set_data_vectors(*port);
      hold(domain.users);
      *ep = &port.release()->fid;
      return 0;
    });
  }

  // The address to bind: what the program chose, or the one from which the destination that it named is reached, or any.
  static std::vector<std::byte> source_of(const Domain& domain, const fi_info& info) {
    const auto* first = static_cast<const std::byte*>(info.src_addr);
    const bool named =
        !source_name(*domain.provider, domain.addr_format, info.src_addr, info.src_addrlen).empty();
    if (named) return {first, first + info.src_addrlen};
    const auto* dest = static_cast<const std::byte*>(info.dest_addr);
    return L::source_for(domain.addr_format == FI_SOCKADDR_IN6,
                         dest != nullptr ? std::span(dest, info.dest_addrlen) : std::span<const std::byte>());
  }

  static inline const Answer<FI_ENOSYS> no{};
  static fi_ops fid_ops;
  static fi_ops_ep ep_ops;
  static fi_ops_cm cm_ops;
};

template <class L>
fi_ops DatagramOpener<L>::fid_ops = {sizeof(fi_ops), Control::close, Control::bind, Control::control,
                                     no_ops_open,    no_tostr,       no_ops_set};
template <class L>
fi_ops_ep DatagramOpener<L>::ep_ops = {
    sizeof(fi_ops_ep),     Control::cancel,      Control::getopt, Control::setopt, no, no,
    Control::rx_size_left, Control::tx_size_left};
template <class L>
fi_ops_cm DatagramOpener<L>::cm_ops = {
    sizeof(fi_ops_cm), Control::setname, Control::getname, no, no, no, no, no, no, DatagramGroup<L>::join};

}  // namespace weft::fi
