// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "proto/cm/manager.hpp"

#include <algorithm>
#include <cerrno>

#include "base/assert.hpp"

namespace weft::proto::cm {
namespace {

namespace mad = wire::cm;
using mad::About;
using mad::Kind;

constexpr uint32_t guid_mark = 0x57454654;  // "WEFT"
constexpr uint8_t orphan_retries = 4;

Parameters parameters_of(const mad::Request& m) {
  Parameters p;
  p.qpn = m.qpn;
  p.qkey = m.qkey;
  p.psn = m.psn;
  p.gid = m.local_gid;
  p.guid = m.guid;
  p.mtu = m.mtu;
  p.responder_resources = m.responder_resources;
  p.initiator_depth = m.initiator_depth;
  p.retry_count = m.retry_count;
  p.rnr_retry_count = m.rnr_retry_count;
  p.ack_timeout = m.ack_timeout;
  p.traffic_class = m.traffic_class;
  p.hop_limit = m.hop_limit;
  p.flow_label = m.flow_label;
  p.pkey = m.pkey;
  p.flow_control = m.flow_control;
  p.shared_receive_queue = m.shared_receive_queue;
  return p;
}

Parameters parameters_of(const mad::Reply& m) {
  Parameters p;
  p.qpn = m.qpn;
  p.qkey = m.qkey;
  p.psn = m.psn;
  p.guid = m.guid;
  p.responder_resources = m.responder_resources;
  p.initiator_depth = m.initiator_depth;
  p.rnr_retry_count = m.rnr_retry_count;
  p.flow_control = m.flow_control;
  p.shared_receive_queue = m.shared_receive_queue;
  return p;
}

}  // namespace

uint64_t guid_with_port(uint16_t port) noexcept { return uint64_t{guid_mark} << 32 | 0x10000u | port; }
std::optional<uint16_t> port_of_guid(uint64_t guid) noexcept {
  if (guid >> 16 != (uint64_t{guid_mark} << 16 | 1)) return {};
  return static_cast<uint16_t>(guid);
}

Manager::Manager(Environment& environment, Times times) : environment_(&environment), times_(times) {}
Manager::~Manager() = default;

// --- the table ---

Manager::Connection* Manager::find(Handle handle) noexcept {
  const auto at = connections_.find(handle);
  return at == connections_.end() || at->second->is_orphan ? nullptr : at->second.get();
}
const Manager::Connection* Manager::find(Handle handle) const noexcept {
  return const_cast<Manager*>(this)->find(handle);
}

Manager::Connection* Manager::add(const Path& path) {
  if (connections_.size() >= connections_max) return nullptr;
  uint32_t id = 0;
  while (id == 0 || by_local_id_.contains(id)) id = environment_->random();
  auto made = std::make_unique<Connection>();
  Connection& c = *made;
  c.self = next_handle_++;
  c.local_id = id;
  c.path = path;
  by_local_id_.emplace(id, &c);
  ++peers_[{path.remote.ip, path.remote.port}].connections;
  connections_.emplace(c.self, std::move(made));
  return &c;
}

void Manager::remove(Connection& c) noexcept {
  no_longer_waits(c);
  set_due(c, never);
  by_local_id_.erase(c.local_id);
  if (c.is_passive) {
    const auto at = by_remote_name_.find(remote_name(c));
    if (at != by_remote_name_.end() && at->second == &c) by_remote_name_.erase(at);
  }
  const auto peer = peers_.find({c.path.remote.ip, c.path.remote.port});
  WEFT_ASSERT(peer != peers_.end() && peer->second.connections > 0);
  if (--peer->second.connections == 0) peers_.erase(peer);
  connections_.erase(c.self);
}

Manager::RemoteName Manager::remote_name(const Connection& c) const noexcept {
  return {c.path.remote.ip, c.path.remote.port, c.remote_id, c.remote_guid, c.is_lookup};
}

Manager::Connection* Manager::named(const Path& path, uint32_t our_id, uint32_t their_id) noexcept {
  const auto at = by_local_id_.find(our_id);
  if (at == by_local_id_.end()) return nullptr;
  Connection* c = at->second;
  if (c->is_lookup || c->path.remote.ip != path.remote.ip) return nullptr;
  return c->remote_id == 0 || c->remote_id == their_id ? c : nullptr;
}

void Manager::no_longer_waits(Connection& c) noexcept {
  if (c.listener == 0) return;
  const auto at = listeners_.find(c.listener);
  if (at != listeners_.end()) {
    WEFT_ASSERT(at->second.waiting > 0);
    --at->second.waiting;
  }
  c.listener = 0;
}

Manager::Listener* Manager::listener_of(uint32_t socket, uint64_t service, Handle& handle) noexcept {
  auto at = by_service_.find({service, socket});
  if (at == by_service_.end()) at = by_service_.find({service, any_socket});
  if (at == by_service_.end()) return nullptr;
  handle = at->second;
  return &listeners_.at(handle);
}

Manager::State Manager::state(Handle connection) const noexcept {
  const Connection* c = find(connection);
  return c == nullptr ? State::Idle : c->state;
}
const Path* Manager::path(Handle connection) const noexcept {
  const Connection* c = find(connection);
  return c == nullptr ? nullptr : &c->path;
}

// --- what leaves ---

void Manager::set_due(Connection& c, uint64_t when) {
  if (c.due != never) due_.erase({c.due, c.self});
  c.due = when;
  if (when != never) due_.emplace(when, c.self);
}

void Manager::send_until_answered(Connection& c, uint64_t now) {
  c.retries_left = times_.retries;
  c.interval = times_.first_repeat;
  c.begun = now;
  set_due(c, now + c.interval);
  send_once(c);
}

bool Manager::waits_for_listener(Connection& c, uint64_t now) {
  if (now - c.begun >= times_.listener_grace) return false;
  if (!c.was_refused) set_due(c, now + times_.listener_repeat);
  c.was_refused = true;
  return true;
}

void Manager::send_reject(const Path& path, uint64_t transaction, uint32_t local_id, uint32_t remote_id,
                          About about, Reason reason, Bytes data) noexcept {
  environment_->send(path, mad::write(transaction, mad::Reject{local_id, remote_id, about, reason}, data));
}

void Manager::raise(Connection& c, EventKind kind, int status, const Parameters* parameters, Bytes data) {
  if (c.is_orphan) return;
  Event event;
  event.kind = kind;
  event.connection = c.self;
  event.listener = kind == EventKind::Request ? c.listener : 0;
  event.status = status;
  if (parameters != nullptr) event.parameters = *parameters;
  event.private_data = data;
  environment_->on_event(event);
}

void Manager::end(Connection& c, EventKind kind, int status, Bytes data) {
  set_due(c, never);
  c.state = State::Ended;
  if (c.is_orphan) return remove(c);
  raise(c, kind, status, nullptr, data);
}

void Manager::enter_time_wait(Connection& c, uint64_t now) {
  c.state = State::TimeWait;
  set_due(c, now + times_.time_wait);
}

void Manager::become_established(Connection& c, uint64_t now) {
  c.state = State::Established;
  c.was_refused = false;
  set_due(c, c.keeps_alive ? now + times_.keep_alive : never);
}

// --- the passive side ---

Handle Manager::listen(uint32_t socket, uint64_t service, size_t backlog) {
  const Handle handle = next_handle_;
  if (!by_service_.try_emplace({service, socket}, handle).second) return 0;
  ++next_handle_;
  listeners_.emplace(handle, Listener{socket, service, backlog, 0});
  return handle;
}

void Manager::on_request(const Path& path, const mad::Header& header, const Mad& bytes, uint64_t now) {
  const mad::Request m = mad::read_request(bytes);
  const RemoteName name{path.remote.ip, path.remote.port, m.local_id, m.guid, false};
  if (const auto known = by_remote_name_.find(name); known != by_remote_name_.end()) {
    ++statistics_.duplicates;
    Connection& c = *known->second;
    if (c.state == State::ReplySent) send_once(c);
    if (c.state == State::RequestReceived) acknowledge_receipt(c.self, now);
    if (c.state == State::Ended && c.has_rejected) send_once(c);
    return;
  }
  const auto refuse = [&](Reason reason) {
    ++statistics_.refused;
    send_reject(path, header.transaction, 0, m.local_id, About::Request, reason);
  };
  if (m.local_id == 0) return static_cast<void>(++statistics_.ignored);
  Handle listener = 0;
  Listener* l = listener_of(path.socket, m.service, listener);
  if (l == nullptr) return refuse(Reason::InvalidServiceId);
  if (m.transport != mad::Transport::ReliableConnection) return refuse(Reason::InvalidTransport);
  if (!mad::read_ip_header(mad::private_data(bytes, Kind::Request))) return refuse(Reason::InvalidServiceId);
  // Without room: silence, and the sender comes again.
  if (l->waiting >= l->backlog) return static_cast<void>(++statistics_.refused);
  Connection* c = add(path);
  if (c == nullptr) return refuse(Reason::NoResources);
  c->is_passive = true;
  c->state = State::RequestReceived;
  c->remote_id = m.local_id;
  c->remote_guid = m.guid;
  c->remote_qpn = m.qpn;
  c->remote_transaction = header.transaction;
  c->keeps_alive = port_of_guid(m.guid).has_value();
  c->listener = listener;
  ++l->waiting;
  by_remote_name_.emplace(name, c);
  const Parameters parameters = parameters_of(m);
  raise(*c, EventKind::Request, 0, &parameters, mad::private_data(bytes, Kind::Request));
}

void Manager::on_service_request(const Path& path, const mad::Header& header, const Mad& bytes, uint64_t) {
  const mad::ServiceRequest m = mad::read_service_request(bytes);
  const RemoteName name{path.remote.ip, path.remote.port, m.request_id, 0, true};
  if (const auto known = by_remote_name_.find(name); known != by_remote_name_.end()) {
    ++statistics_.duplicates;
    if (known->second->state == State::Ended) send_once(*known->second);
    return;
  }
  const auto refuse = [&](mad::ServiceStatus status) {
    ++statistics_.refused;
    environment_->send(path, mad::write(header.transaction,
                                        mad::ServiceReply{m.request_id, status, 0, m.service, 0, 0}, {}));
  };
  Handle listener = 0;
  Listener* l = listener_of(path.socket, m.service, listener);
  if (l == nullptr || !mad::read_ip_header(mad::private_data(bytes, Kind::ServiceRequest)))
    return refuse(mad::ServiceStatus::NotSupported);
  if (l->waiting >= l->backlog) return static_cast<void>(++statistics_.refused);
  Connection* c = add(path);
  if (c == nullptr) return refuse(mad::ServiceStatus::Rejected);
  c->is_passive = c->is_lookup = true;
  c->state = State::ServiceRequestReceived;
  c->remote_id = m.request_id;
  c->remote_transaction = header.transaction;
  c->service = m.service;
  c->listener = listener;
  ++l->waiting;
  by_remote_name_.emplace(name, c);
  Parameters parameters;
  parameters.pkey = m.pkey;
  raise(*c, EventKind::Request, 0, &parameters, mad::private_data(bytes, Kind::ServiceRequest));
}

void Manager::take(Handle connection) noexcept {
  if (Connection* c = find(connection); c != nullptr) no_longer_waits(*c);
}

int Manager::accept(Handle connection, const Parameters& p, Bytes data, uint64_t now) {
  Connection* c = find(connection);
  if (c == nullptr) return EINVAL;
  if (c->state == State::ServiceRequestReceived) {
    no_longer_waits(*c);
    c->last = mad::write(
        c->remote_transaction,
        mad::ServiceReply{c->remote_id, mad::ServiceStatus::Valid, p.qpn, c->service, p.qkey, p.guid}, data);
    c->state = State::Ended;
    send_once(*c);
    return 0;
  }
  if (c->state != State::RequestReceived) return EINVAL;
  no_longer_waits(*c);
  mad::Reply m;
  m.local_id = c->local_id;
  m.remote_id = c->remote_id;
  m.qkey = p.qkey;
  m.qpn = c->local_qpn = p.qpn;
  m.psn = p.psn;
  m.responder_resources = p.responder_resources;
  m.initiator_depth = p.initiator_depth;
  m.flow_control = p.flow_control;
  m.rnr_retry_count = p.rnr_retry_count;
  m.shared_receive_queue = p.shared_receive_queue;
  m.guid = p.guid;
  c->last = mad::write(c->remote_transaction, m, data);
  c->state = State::ReplySent;
  send_until_answered(*c, now);
  return 0;
}

int Manager::notify_established(Handle connection, uint64_t now) {
  Connection* c = find(connection);
  if (c == nullptr) return EINVAL;
  if (c->state == State::Established) return EISCONN;
  if (c->state != State::ReplySent) return EINVAL;
  become_established(*c, now);
  raise(*c, EventKind::Established);
  return 0;
}

void Manager::on_ready_to_use(const Path& path, const mad::Header& header, const Mad& bytes, uint64_t now) {
  const mad::Pair m = mad::read_pair(bytes);
  Connection* c = named(path, m.remote_id, m.local_id);
  if (c == nullptr || !c->is_passive) {
    ++statistics_.ignored;
    // The peer takes itself for connected with a process that is gone.
    if (!by_local_id_.contains(m.remote_id))
      send_reject(path, header.transaction, m.remote_id, m.local_id, About::Other,
                  Reason::InvalidCommunicationId);
    return;
  }
  if (c->state == State::Established) c->was_refused = false;
  if (c->state != State::ReplySent) return static_cast<void>(++statistics_.duplicates);
  become_established(*c, now);
  raise(*c, EventKind::Established, 0, nullptr, mad::private_data(bytes, Kind::ReadyToUse));
}

// --- the active side ---

Handle Manager::connect(const Path& path, uint64_t service, const Parameters& p, const Gid& remote_gid,
                        Bytes data, uint64_t now) {
  Connection* c = add(path);
  if (c == nullptr) return 0;
  c->transaction = uint64_t{environment_->random()} << 32 | environment_->random();
  c->local_qpn = p.qpn;
  mad::Request m;
  m.local_id = c->local_id;
  m.service = service;
  m.guid = p.guid;
  m.qkey = p.qkey;
  m.qpn = p.qpn;
  m.responder_resources = p.responder_resources;
  m.initiator_depth = p.initiator_depth;
  m.remote_response_timeout = m.local_response_timeout = times_.response_exponent;
  m.flow_control = p.flow_control;
  m.psn = p.psn;
  m.retry_count = p.retry_count;
  m.pkey = p.pkey;
  m.mtu = p.mtu;
  m.rnr_retry_count = p.rnr_retry_count;
  m.max_retries = times_.retries;
  m.shared_receive_queue = p.shared_receive_queue;
  m.local_gid = p.gid;
  m.remote_gid = remote_gid;
  m.flow_label = p.flow_label;
  m.traffic_class = p.traffic_class;
  m.hop_limit = p.hop_limit;
  m.ack_timeout = p.ack_timeout;
  c->last = mad::write(c->transaction, m, data);
  c->state = State::RequestSent;
  send_until_answered(*c, now);
  return c->self;
}

Handle Manager::look_up(const Path& path, uint64_t service, Bytes data, uint64_t now) {
  Connection* c = add(path);
  if (c == nullptr) return 0;
  c->transaction = uint64_t{environment_->random()} << 32 | environment_->random();
  c->is_lookup = true;
  c->service = service;
  c->last = mad::write(c->transaction, mad::ServiceRequest{c->local_id, 0xffff, service}, data);
  c->state = State::ServiceRequestSent;
  send_until_answered(*c, now);
  return c->self;
}

void Manager::on_reply(const Path& path, const mad::Header& header, const Mad& bytes, uint64_t now) {
  const mad::Reply m = mad::read_reply(bytes);
  Connection* c = named(path, m.remote_id, m.local_id);
  if (c == nullptr || c->is_passive || header.transaction != c->transaction || m.local_id == 0) {
    ++statistics_.ignored;
    // A connection that was given up here must not stay open there. To an unknown ID alone: the answer is as large as the question.
    if (!by_local_id_.contains(m.remote_id))
      send_reject(path, header.transaction, m.remote_id, m.local_id, About::Reply,
                  Reason::InvalidCommunicationId);
    return;
  }
  if (c->state == State::Established) {
    ++statistics_.duplicates;
    c->was_refused = false;
    return send_once(*c);
  }
  if (c->state == State::ReplyReceived) {
    ++statistics_.duplicates;
    acknowledge_receipt(c->self, now);
    return;
  }
  if (c->state != State::RequestSent) return static_cast<void>(++statistics_.ignored);
  c->state = State::ReplyReceived;
  c->remote_id = m.local_id;
  c->remote_guid = m.guid;
  c->remote_qpn = m.qpn;
  c->keeps_alive = port_of_guid(m.guid).has_value();
  set_due(*c, never);
  const Parameters parameters = parameters_of(m);
  raise(*c, EventKind::Response, 0, &parameters, mad::private_data(bytes, Kind::Reply));
}

int Manager::establish(Handle connection, uint64_t now) {
  Connection* c = find(connection);
  if (c == nullptr || c->state != State::ReplyReceived) return EINVAL;
  c->last = mad::write_ready_to_use(c->transaction, {c->local_id, c->remote_id}, {});
  send_once(*c);
  become_established(*c, now);
  return 0;
}

void Manager::on_service_reply(const Path& path, const mad::Header& header, const Mad& bytes, uint64_t now) {
  const mad::ServiceReply m = mad::read_service_reply(bytes);
  const auto at = by_local_id_.find(m.request_id);
  Connection* c = at == by_local_id_.end() ? nullptr : at->second;
  if (c == nullptr || !c->is_lookup || c->is_passive || c->state != State::ServiceRequestSent ||
      c->path.remote.ip != path.remote.ip || header.transaction != c->transaction || m.service != c->service)
    return static_cast<void>(++statistics_.ignored);
  const Bytes data = mad::private_data(bytes, Kind::ServiceReply);
  if (m.status == mad::ServiceStatus::NotSupported && waits_for_listener(*c, now)) return;
  if (m.status != mad::ServiceStatus::Valid)
    return end(*c, EventKind::Unreachable, static_cast<int>(m.status), data);
  set_due(*c, never);
  c->state = State::Ended;
  Parameters p;
  p.qpn = m.qpn;
  p.qkey = m.qkey;
  p.guid = m.guid;
  raise(*c, EventKind::Established, 0, &p, data);
}

// --- both ---

int Manager::acknowledge_receipt(Handle connection, uint64_t) {
  Connection* c = find(connection);
  if (c == nullptr) return EINVAL;
  constexpr uint8_t service_timeout = 24;  // 69 s, as the kernel's
  if (c->state == State::RequestReceived) {
    send(*c, mad::write(c->remote_transaction,
                        mad::Acknowledgement{c->local_id, c->remote_id, About::Request, service_timeout}));
  } else if (c->state == State::ReplyReceived) {
    send(*c, mad::write(c->transaction,
                        mad::Acknowledgement{c->local_id, c->remote_id, About::Reply, service_timeout}));
  } else {
    return EINVAL;
  }
  return 0;
}

void Manager::on_acknowledgement(const Path& path, const mad::Header& header, const Mad& bytes,
                                 uint64_t now) {
  const mad::Acknowledgement m = mad::read_acknowledgement(bytes);
  Connection* c = named(path, m.remote_id, m.local_id);
  const bool fits = c != nullptr && ((m.about == About::Request && c->state == State::RequestSent &&
                                      header.transaction == c->transaction) ||
                                     (m.about == About::Reply && c->state == State::ReplySent &&
                                      header.transaction == c->remote_transaction));
  if (!fits) return static_cast<void>(++statistics_.ignored);
  set_due(*c, now + (uint64_t{4096} << m.service_timeout) + times_.response);
}

int Manager::reject(Handle connection, Reason reason, Bytes data, uint64_t) {
  Connection* c = find(connection);
  if (c == nullptr) return EINVAL;
  switch (c->state) {
    case State::ServiceRequestReceived:
      no_longer_waits(*c);
      c->last = mad::write(c->remote_transaction,
                           mad::ServiceReply{c->remote_id, mad::ServiceStatus::Rejected, 0, c->service, 0, 0},
                           data);
      c->state = State::Ended;
      send_once(*c);
      return 0;
    case State::RequestReceived:
      c->last = mad::write(c->remote_transaction,
                           mad::Reject{c->local_id, c->remote_id, About::Request, reason}, data);
      c->has_rejected = true;
      send_once(*c);
      break;
    case State::ReplySent:
      send_reject(c->path, c->remote_transaction, c->local_id, c->remote_id, About::Other, reason, data);
      break;
    case State::ReplyReceived:
      send_reject(c->path, c->transaction, c->local_id, c->remote_id, About::Reply, reason, data);
      break;
    default:
      return EINVAL;
  }
  no_longer_waits(*c);
  set_due(*c, never);
  c->state = State::Ended;
  return 0;
}

void Manager::on_reject(const Path& path, const mad::Header& header, const Mad& bytes, uint64_t now) {
  const mad::Reject m = mad::read_reject(bytes);
  Connection* c = named(path, m.remote_id, m.local_id);
  if (m.remote_id == 0 && m.about == About::Request) {
    // Of a sender that gives up before it has heard our ID.
    const auto at = by_remote_name_.lower_bound({path.remote.ip, path.remote.port, m.local_id, 0, false});
    if (at != by_remote_name_.end() && at->first.ip == path.remote.ip && at->first.port == path.remote.port &&
        at->first.id == m.local_id && !at->first.is_lookup)
      c = at->second;
  }
  if (c == nullptr) return static_cast<void>(++statistics_.ignored);
  const Bytes data = mad::private_data(bytes, Kind::Reject);
  switch (c->state) {
    case State::RequestSent:
      if (header.transaction != c->transaction) break;
      if (m.reason == Reason::InvalidServiceId && waits_for_listener(*c, now)) return;
      return end(*c, EventKind::Rejected, static_cast<int>(m.reason), data);
    case State::RequestReceived:  // the active side gives up
    case State::ReplySent:
      if (header.transaction != c->remote_transaction) break;
      return end(*c, EventKind::Rejected, static_cast<int>(m.reason), data);
    case State::ReplyReceived:
      if (header.transaction != c->transaction) break;
      return end(*c, EventKind::Rejected, static_cast<int>(m.reason), data);
    case State::Established:
      // The peer has no such connection any more.
      if (header.transaction != (c->is_passive ? c->remote_transaction : c->transaction)) break;
      enter_time_wait(*c, now);
      return raise(*c, EventKind::Disconnected);
    default:
      break;
  }
  ++statistics_.ignored;
}

int Manager::disconnect(Handle connection, uint64_t now) {
  Connection* c = find(connection);
  if (c == nullptr) return EINVAL;
  if (c->state == State::DisconnectReceived) {
    c->last = mad::write_disconnect_reply(c->remote_transaction, {c->local_id, c->remote_id}, {});
    send_once(*c);
    enter_time_wait(*c, now);
    return 0;
  }
  if (c->state != State::Established && c->state != State::ReplySent) return EINVAL;
  c->transaction = uint64_t{environment_->random()} << 32 | environment_->random();
  c->last = mad::write(c->transaction, mad::DisconnectRequest{c->local_id, c->remote_id, c->remote_qpn}, {});
  c->state = State::DisconnectSent;
  send_until_answered(*c, now);
  return 0;
}

void Manager::on_disconnect_request(const Path& path, const mad::Header& header, const Mad& bytes,
                                    uint64_t now) {
  const mad::DisconnectRequest m = mad::read_disconnect_request(bytes);
  Connection* c = named(path, m.remote_id, m.local_id);
  if (c == nullptr || c->remote_id != m.local_id) {
    ++statistics_.ignored;
    // Gone here already: the answer lets the peer end, too (12.9.8).
    if (!by_local_id_.contains(m.remote_id))
      environment_->send(path,
                         mad::write_disconnect_reply(header.transaction, {m.remote_id, m.local_id}, {}));
    return;
  }
  if (m.remote_qpn != c->local_qpn) return static_cast<void>(++statistics_.ignored);
  switch (c->state) {
    case State::ReplySent:
    case State::Established:
      c->state = State::DisconnectReceived;
      c->remote_transaction = header.transaction;
      set_due(*c, never);
      return raise(*c, EventKind::Disconnected, 0, nullptr,
                   mad::private_data(bytes, Kind::DisconnectRequest));
    case State::DisconnectSent:  // both at once
      c->remote_transaction = header.transaction;
      c->last = mad::write_disconnect_reply(header.transaction, {c->local_id, c->remote_id}, {});
      send_once(*c);
      enter_time_wait(*c, now);
      return raise(*c, EventKind::Disconnected);
    case State::TimeWait:
      ++statistics_.duplicates;
      environment_->send(path,
                         mad::write_disconnect_reply(header.transaction, {c->local_id, c->remote_id}, {}));
      return;
    default:
      ++statistics_.ignored;
  }
}

void Manager::on_disconnect_reply(const Path& path, const mad::Header& header, const Mad& bytes,
                                  uint64_t now) {
  const mad::Pair m = mad::read_pair(bytes);
  Connection* c = named(path, m.remote_id, m.local_id);
  if (c == nullptr || c->state != State::DisconnectSent || header.transaction != c->transaction)
    return static_cast<void>(++statistics_.ignored);
  enter_time_wait(*c, now);
  raise(*c, EventKind::Disconnected);
}

void Manager::destroy(Handle connection, uint64_t now) {
  if (const auto at = listeners_.find(connection); at != listeners_.end()) {
    // Requests that wait for the program are refused, and told of no more.
    std::vector<Connection*> waiting;
    for (const auto& [handle, c] : connections_)
      if (c->listener == connection) waiting.push_back(c.get());
    for (Connection* c : waiting) {
      reject(c->self, Reason::ConsumerDefined, {}, now);
      remove(*c);
    }
    by_service_.erase({at->second.service, at->second.socket});
    listeners_.erase(at);
    return;
  }
  Connection* c = find(connection);
  if (c == nullptr) return;
  switch (c->state) {
    case State::RequestSent:
      send_reject(c->path, c->transaction, c->local_id, 0, About::Request, Reason::Timeout);
      break;
    case State::RequestReceived:
    case State::ReplySent:
    case State::ReplyReceived:
    case State::ServiceRequestReceived:
      reject(connection, Reason::ConsumerDefined, {}, now);
      break;
    case State::Established:
      disconnect(connection, now);
      c->retries_left = orphan_retries;
      c->is_orphan = true;
      return;
    case State::DisconnectReceived:
      disconnect(connection, now);
      [[fallthrough]];
    case State::DisconnectSent:
    case State::TimeWait:
      c->retries_left = std::min(c->retries_left, orphan_retries);
      c->is_orphan = true;
      return;
    default:
      break;
  }
  // A lookup that was answered stays a moment: the answer may have been lost.
  if (c->is_lookup && c->is_passive) {
    c->is_orphan = true;
    set_due(*c, now + times_.time_wait);
    return;
  }
  remove(*c);
}

void Manager::destroy_all(uint64_t now) {
  std::vector<Handle> handles;
  for (const auto& [handle, listener] : listeners_) handles.push_back(handle);
  for (const auto& [handle, c] : connections_) handles.push_back(handle);
  for (const Handle handle : handles) destroy(handle, now);
}

// --- input ---

void Manager::receive(const Path& path, Bytes bytes, uint64_t now) {
  const auto header = mad::read_header(bytes);
  if (!header) return static_cast<void>(++statistics_.ignored);
  Mad m;
  std::copy(bytes.begin(), bytes.end(), m.begin());
  switch (header->kind) {
    case Kind::Request:
      return on_request(path, *header, m, now);
    case Kind::MessageReceiptAcknowledgement:
      return on_acknowledgement(path, *header, m, now);
    case Kind::Reject:
      return on_reject(path, *header, m, now);
    case Kind::Reply:
      return on_reply(path, *header, m, now);
    case Kind::ReadyToUse:
      return on_ready_to_use(path, *header, m, now);
    case Kind::DisconnectRequest:
      return on_disconnect_request(path, *header, m, now);
    case Kind::DisconnectReply:
      return on_disconnect_reply(path, *header, m, now);
    case Kind::ServiceRequest:
      return on_service_request(path, *header, m, now);
    case Kind::ServiceReply:
      return on_service_reply(path, *header, m, now);
    case Kind::LoadAlternatePath: {
      const mad::Pair pair = mad::read_pair(m);
      const Connection* c = named(path, pair.remote_id, pair.local_id);
      if (c == nullptr || c->state != State::Established) break;
      environment_->send(path,
                         mad::write_alternate_path_refusal(header->transaction, {c->local_id, c->remote_id}));
      return;
    }
    case Kind::AlternatePathResponse:
      break;
  }
  ++statistics_.ignored;
}

void Manager::unreachable(uint32_t socket, const Address& remote, uint64_t now) {
  std::vector<Connection*> gone;
  for (const auto& [handle, c] : connections_)
    if (c->path.socket == socket && c->path.remote == remote) gone.push_back(c.get());
  for (Connection* c : gone) {
    switch (c->state) {
      case State::RequestSent:
        if (!waits_for_listener(*c, now))
          end(*c, EventKind::Rejected, static_cast<int>(Reason::InvalidServiceId));
        break;
      case State::ServiceRequestSent:
        if (!waits_for_listener(*c, now))
          end(*c, EventKind::Unreachable, static_cast<int>(mad::ServiceStatus::NotSupported));
        break;
      case State::ReplySent:
        end(*c, EventKind::Unreachable, -ECONNREFUSED);
        break;
      case State::Established:
        if (!c->was_refused) {
          c->was_refused = true;
          send_once(*c);
          break;
        }
        [[fallthrough]];
      case State::DisconnectSent:
        enter_time_wait(*c, now);
        raise(*c, EventKind::Disconnected);
        break;
      default:
        break;
    }
  }
}

uint64_t Manager::next_time() const noexcept { return due_.empty() ? never : due_.begin()->first; }

void Manager::run(uint64_t now) {
  while (!due_.empty() && due_.begin()->first <= now) {
    Connection& c = *connections_.at(due_.begin()->second);
    set_due(c, never);
    on_timer(c, now);
  }
}

void Manager::keep_alive(Connection& c, uint64_t now) {
  set_due(c, now + times_.keep_alive);
  Peer& peer = peers_.at({c.path.remote.ip, c.path.remote.port});
  if (now - peer.asked < times_.keep_alive / 2) return;
  peer.asked = now;
  // A duplicate of the last message of the handshake, which the peer takes for one. If its socket is gone, its host says so.
  send_once(c);
}

void Manager::on_timer(Connection& c, uint64_t now) {
  switch (c.state) {
    case State::Established:
      return keep_alive(c, now);
    case State::TimeWait:
      c.state = State::Ended;
      if (c.is_orphan) return remove(c);
      return raise(c, EventKind::TimeWaitEnds);
    case State::Ended:
      return remove(c);  // a lookup that was answered
    case State::RequestSent:
    case State::ReplySent:
    case State::ServiceRequestSent:
    case State::DisconnectSent:
      if (c.was_refused) {
        c.was_refused = false;
        set_due(c, now + c.interval);
        return send_once(c);
      }
      if (c.retries_left > 0) {
        --c.retries_left;
        ++statistics_.repeated;
        c.interval = std::min(c.interval * 2, times_.response);
        set_due(c, now + c.interval);
        return send_once(c);
      }
      break;
    default:
      return;
  }
  if (c.state == State::DisconnectSent) {
    enter_time_wait(c, now);
    return raise(c, EventKind::Disconnected, -ETIMEDOUT);
  }
  // The peer may have sent the message that did not come.
  if (c.state == State::RequestSent)
    send_reject(c.path, c.transaction, c.local_id, 0, About::Request, Reason::Timeout);
  if (c.state == State::ReplySent)
    send_reject(c.path, c.remote_transaction, c.local_id, c.remote_id, About::Reply, Reason::Timeout);
  end(c, EventKind::Unreachable, -ETIMEDOUT);
}

}  // namespace weft::proto::cm
