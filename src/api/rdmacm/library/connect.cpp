// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connecting, accepting, refusing and disconnecting: rdma_conn_param into messages of the communication manager.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "api/rdmacm/library/calls.hpp"
#include "api/rdmacm/library/log.hpp"
#include "api/rdmacm/library/objects.hpp"
#include "wire/roce/headers.hpp"

namespace weft::rdmacm {
namespace {

constexpr uint8_t retries_most = 7;
constexpr uint16_t reason_ece = 35;  // the peer's options of enhanced connection establishment are refused

bool usable(const Id* id, const char* call) noexcept {
  if (id != nullptr && id->service->is_here()) return true;
  refuse(EINVAL, "%s: no id, or one that was made before fork(2)", call);
  return false;
}

std::span<const std::byte> data_of(const void* data, size_t bytes) noexcept {
  return data == nullptr ? std::span<const std::byte>()
                         : std::span(static_cast<const std::byte*>(data), bytes);
}

// The program's value, the largest for "as many as possible". False: the device has fewer.
bool resources(uint8_t asked, int most, uint8_t& out) noexcept {
  const auto limit = static_cast<uint8_t>(std::clamp(most, 0, 255));
  if (asked == RDMA_MAX_RESP_RES) {
    out = limit;
    return true;
  }
  out = asked;
  return asked <= limit;
}

wire::cm::IpHeader header_of(const Id& id) noexcept {
  wire::cm::IpHeader header;
  header.version = id.source.family() == AF_INET ? 4 : 6;
  header.source_port = id.source.port();
  const auto put = [&](Gid& out, const os::SocketAddress& address) {
    out = link::roce::standard_gid(address);
    // An IPv4 address stands alone here (A11.4).
    if (header.version == 4) std::fill_n(out.begin(), 12, std::byte{0});
  };
  put(header.source, id.source);
  put(header.destination, id.destination);
  return header;
}

uint64_t guid_of(const Id& id) noexcept {
  if (id.local_gid != nullptr && id.local_gid->has_port)
    return cm::guid_with_port(id.local_gid->address.port());
  return wire::big(ibv_get_device_guid(id.shown.verbs->device));
}

// Of the id's queue pair, or what the program says of its own.
void take_queue_pair(Id& id, const rdma_conn_param* p) noexcept {
  if (id.shown.qp != nullptr) id.qpn = id.shown.qp->qp_num;
  else if (p != nullptr) id.qpn = p->qp_num & wire::roce::mask24;
}
bool has_shared_queue(const Id& id, const rdma_conn_param* p) noexcept {
  return id.shown.qp != nullptr ? id.shown.qp->srq != nullptr : p != nullptr && p->srq != 0;
}

cm::Parameters parameters_of(const Id& id, const rdma_conn_param* p) noexcept {
  cm::Parameters out;
  out.qpn = id.qpn;
  out.qkey = is_datagram(id) ? id.qkey : 0;
  out.psn = id.psn;
  if (id.local_gid != nullptr) out.gid = id.local_gid->gid;
  out.guid = guid_of(id);
  out.mtu = id.mtu;
  out.responder_resources = id.responder_resources;
  out.initiator_depth = id.initiator_depth;
  out.retry_count = id.retry_count;
  out.rnr_retry_count = std::min(p != nullptr ? p->rnr_retry_count : id.rnr_retry_count, retries_most);
  out.ack_timeout = id.ack_timeout.value_or(ack_timeout_of_path);
  out.traffic_class = id.traffic_class;
  out.flow_control = p != nullptr && p->flow_control != 0;
  out.shared_receive_queue = has_shared_queue(id, p);
  return out;
}

}  // namespace

int connect(rdma_cm_id* raw, const rdma_conn_param* p) noexcept {
  Id* id = of(raw);
  if (!usable(id, "rdma_connect")) return -1;
  Service& service = *id->service;
  {
    const std::lock_guard guard(service.lock);
    if (raw->route.path_rec == nullptr) return refuse(EINVAL, "rdma_connect before the route is resolved");
    if (id->handle != 0) {
      const auto state = service.manager().state(id->handle);
      if (state != cm::Manager::State::Ended) return refuse(EINVAL, "rdma_connect: the id is connected");
      const cm::Handle before = id->handle;
      forget_handle(*id);
      service.manager().destroy(before, service.now());
    }
    const bool ud = is_datagram(*id);
    const size_t most = ud ? wire::cm::program_service_request_bytes : wire::cm::program_request_bytes;
    // What rdma_create_ep was given comes first.
    std::vector<std::byte> data = id->connect_data;
    if (p != nullptr) {
      const auto more = data_of(p->private_data, p->private_data_len);
      data.insert(data.end(), more.begin(), more.end());
    }
    if (data.size() > most)
      return refuse(EINVAL, "rdma_connect: private data of %zu bytes, at most %zu travel", data.size(), most);
    std::array<std::byte, wire::cm::service_request_data_bytes> bytes{};
    wire::cm::write_ip_header(header_of(*id), bytes.data());
    std::copy(data.begin(), data.end(), bytes.begin() + wire::cm::IpHeader::bytes);
    const cm::Path path{id->socket, Service::address_of(id->source), Service::address_of(id->destination)};
    cm::Path from_socket = path;
    from_socket.local.port = service.address(id->socket).port();
    const uint64_t wanted = wire::cm::service_of(static_cast<uint16_t>(raw->ps), id->destination.port());
    take_queue_pair(*id, p);
    cm::Handle handle;
    if (ud) {
      handle = service.manager().look_up(from_socket, wanted, bytes, service.now());
    } else {
      const ibv_device_attr& device = id->device->attributes();
      if (!resources(p != nullptr ? p->responder_resources : uint8_t{RDMA_MAX_RESP_RES},
                     device.max_qp_rd_atom, id->responder_resources) ||
          !resources(p != nullptr ? p->initiator_depth : uint8_t{RDMA_MAX_INIT_DEPTH},
                     device.max_qp_init_rd_atom, id->initiator_depth))
        return refuse(EINVAL, "rdma_connect: the device responds to %d READs at once and begins %d",
                      device.max_qp_rd_atom, device.max_qp_init_rd_atom);
      id->retry_count = p != nullptr ? std::min(p->retry_count, retries_most) : retries_most;
      id->psn = service.random() & wire::roce::mask24;
      handle = service.manager().connect(from_socket, wanted, parameters_of(*id, p),
                                         link::roce::standard_gid(id->destination),
                                         std::span(bytes).first(wire::cm::request_data_bytes), service.now());
    }
    if (handle == 0)
      return refuse(ENOMEM, "rdma_connect: %zu connections are the most", cm::Manager::connections_max);
    register_handle(*id, handle);
    id->connect_data.clear();
    service.wake();
  }
  return complete(*id);
}

int accept(rdma_cm_id* raw, const rdma_conn_param* p) noexcept {
  Id* id = of(raw);
  if (!usable(id, "rdma_accept")) return -1;
  Service& service = *id->service;
  const bool ud = is_datagram(*id);
  {
    const std::lock_guard guard(service.lock);
    if (!id->is_passive || id->handle == 0) return refuse(EINVAL, "rdma_accept: the id came with no request");
    const size_t most = ud ? wire::cm::service_reply_data_bytes : wire::cm::reply_data_bytes;
    const auto data =
        p != nullptr ? data_of(p->private_data, p->private_data_len) : std::span<const std::byte>();
    if (data.size() > most)
      return refuse(EINVAL, "rdma_accept: private data of %zu bytes, at most %zu travel", data.size(), most);
    take_queue_pair(*id, p);
    if (!ud) {
      const ibv_device_attr& device = id->device->attributes();
      if (p == nullptr) {
        id->responder_resources =
            static_cast<uint8_t>(std::min<int>(id->responder_resources, device.max_qp_rd_atom));
        id->initiator_depth =
            static_cast<uint8_t>(std::min<int>(id->initiator_depth, device.max_qp_init_rd_atom));
      } else {
        uint8_t responder = 0, initiator = 0;
        if (!resources(p->responder_resources, device.max_qp_rd_atom, responder) ||
            !resources(p->initiator_depth, device.max_qp_init_rd_atom, initiator))
          return refuse(EINVAL, "rdma_accept: the device responds to %d READs at once and begins %d",
                        device.max_qp_rd_atom, device.max_qp_init_rd_atom);
        id->responder_resources = p->responder_resources == RDMA_MAX_RESP_RES
                                      ? std::min(responder, id->remote.initiator_depth)
                                      : responder;
        id->initiator_depth = p->initiator_depth == RDMA_MAX_INIT_DEPTH
                                  ? std::min(initiator, id->remote.responder_resources)
                                  : initiator;
      }
      if (raw->qp != nullptr && make_ready(*id) != 0) {
        const int code = errno;
        service.manager().reject(id->handle, cm::Reason::ConsumerDefined, {}, service.now());
        return refuse(code, "rdma_accept: the queue pair cannot be made ready");
      }
    }
    const int error = service.manager().accept(id->handle, parameters_of(*id, p), data, service.now());
    if (error != 0)
      return refuse(error, "rdma_accept: the request was answered already, or its sender has given up");
    service.wake();
  }
  if (!ud) return complete(*id);
  // Nothing follows that would take its place.
  if (id->is_sync && raw->event != nullptr) {
    acknowledge_event(raw->event);
    raw->event = nullptr;
  }
  return 0;
}

int establish(rdma_cm_id* raw) noexcept {
  Id* id = of(raw);
  if (!usable(id, "rdma_establish")) return -1;
  if (raw->qp != nullptr)
    return refuse(EINVAL, "rdma_establish is for ids without a queue pair; the library does it for others");
  const std::lock_guard guard(id->service->lock);
  const int error = id->service->manager().establish(id->handle, id->service->now());
  if (error != 0) return refuse(error, "rdma_establish: no reply has come");
  id->service->wake();
  return 0;
}

int reject(rdma_cm_id* raw, const void* data, uint8_t bytes, bool for_ece) noexcept {
  Id* id = of(raw);
  if (!usable(id, "rdma_reject")) return -1;
  const std::lock_guard guard(id->service->lock);
  const auto why = for_ece ? static_cast<cm::Reason>(reason_ece) : cm::Reason::ConsumerDefined;
  const size_t most = is_datagram(*id) ? wire::cm::service_reply_data_bytes : wire::cm::reject_data_bytes;
  if (bytes > most)
    return refuse(EINVAL, "rdma_reject: private data of %u bytes, at most %zu travel", bytes, most);
  const int error = id->service->manager().reject(id->handle, why, data_of(data, bytes), id->service->now());
  if (error != 0) return refuse(error, "rdma_reject: no request waits for an answer");
  return 0;
}

int disconnect(rdma_cm_id* raw) noexcept {
  Id* id = of(raw);
  if (!usable(id, "rdma_disconnect")) return -1;
  {
    const std::lock_guard guard(id->service->lock);
    if (id->handle == 0 || id->is_listening)
      return refuse(EINVAL, "rdma_disconnect: the id is not connected");
    if (!is_datagram(*id)) modify_to_error(*id);
    // One that is over already is no mistake: both ends call this.
    const int error = id->service->manager().disconnect(id->handle, id->service->now());
    id->service->wake();
    if (error != 0 && id->channel->events.empty()) return 0;  // a synchronous id would wait for nothing
  }
  return complete(*id);
}

int notify(rdma_cm_id* raw, ibv_event_type event) noexcept {
  Id* id = of(raw);
  if (!usable(id, "rdma_notify")) return -1;
  if (event != IBV_EVENT_COMM_EST) return 0;  // what else there is concerns migration
  const std::lock_guard guard(id->service->lock);
  const int error = id->service->manager().notify_established(id->handle, id->service->now());
  if (error != 0) return refuse(error, "rdma_notify: the connection is established already, or not accepted");
  id->service->wake();
  return 0;
}

int init_qp_attr(rdma_cm_id* raw, ibv_qp_attr* attr, int* mask) noexcept {
  Id* id = of(raw);
  if (!usable(id, "rdma_init_qp_attr")) return -1;
  if (attr == nullptr || mask == nullptr)
    return refuse(EINVAL, "rdma_init_qp_attr without attributes or a mask");
  const std::lock_guard guard(id->service->lock);
  const int error = init_attributes(*id, *attr, *mask);
  if (error != 0)
    return refuse(error, "rdma_init_qp_attr: the id has no device yet, or no attributes lead to state %d",
                  static_cast<int>(attr->qp_state));
  return 0;
}

int set_local_ece(rdma_cm_id* raw, const ibv_ece* ece) noexcept {
  Id* id = of(raw);
  if (!usable(id, "rdma_set_local_ece")) return -1;
  if (ece == nullptr || ece->vendor_id == 0 || ece->options == 0)
    return refuse(EINVAL, "rdma_set_local_ece without a vendor or options");
  const std::lock_guard guard(id->service->lock);
  id->local_ece = *ece;
  return 0;
}

int get_remote_ece(rdma_cm_id* raw, ibv_ece* ece) noexcept {
  if (!usable(of(raw), "rdma_get_remote_ece")) return -1;
  if (ece == nullptr) return refuse(EINVAL, "rdma_get_remote_ece without a place for the options");
  *ece = {};  // no device here has any
  return 0;
}

}  // namespace weft::rdmacm
