// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// FI_EP_MSG through function vectors: fi_endpoint(3), fi_cm(3), fi_msg(3).
#include "link/foreign/messages.hpp"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "os/event.hpp"
#include "os/socket_address.hpp"

namespace weft::link::foreign {

namespace {

constexpr int64_t kCloseMs = 500;  // for what was committed to leave
constexpr size_t kTurnEntries = 64;

}  // namespace

// --- opening ---

Result<void> Messages::open(std::string_view source) {
  if (source_ == nullptr) return Error{ENODEV, "there is no provider below"};
  if (auto asked = ask(*source_, FI_EP_MSG, addr_format_, source, info_); !asked) return asked;
  if (info_->ep_attr->max_msg_size < message_bytes_max) return fail("its messages are too short", -EMSGSIZE);
  // As few operations as we have, so that providers which keep memory for each take little.
  if (info_->tx_attr->size != 0) info_->tx_attr->size = 2 * send_count;
  if (info_->rx_attr->size != 0) info_->rx_attr->size = receive_count;
  inject_bytes_ = info_->tx_attr->inject_size;
  registers_ = (info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0;

  int status = 0;
  if (status = source_->fabric(info_->fabric_attr, &fabric_, nullptr); status != 0)
    return fail("fi_fabric", status);
  if (status = fi_domain(fabric_, info_, &domain_, nullptr); status != 0) return fail("fi_domain", status);
  fi_eq_attr eq_attr{};
  eq_attr.wait_obj = FI_WAIT_FD;
  fi_cq_attr cq_attr{};
  cq_attr.wait_obj = FI_WAIT_FD;
  cq_attr.format = FI_CQ_FORMAT_MSG;
  cq_attr.size = 8192;
  can_sleep_ =
      fi_eq_open(fabric_, &eq_attr, &eq_, nullptr) == 0 && fi_cq_open(domain_, &cq_attr, &cq_, nullptr) == 0;
  if (!can_sleep_) {  // then whoever waits polls
    shut(eq_);
    eq_attr.wait_obj = cq_attr.wait_obj = FI_WAIT_NONE;
    if (status = fi_eq_open(fabric_, &eq_attr, &eq_, nullptr); status != 0) return fail("fi_eq_open", status);
    if (status = fi_cq_open(domain_, &cq_attr, &cq_, nullptr); status != 0) return fail("fi_cq_open", status);
  }
  if (status = fi_passive_ep(fabric_, info_, &pep_, nullptr); status != 0)
    return fail("fi_passive_ep", status);
  if (status = fi_pep_bind(pep_, &eq_->fid, 0); status != 0) return fail("fi_pep_bind", status);
  if (status = fi_listen(pep_); status != 0) return fail("fi_listen", status);

  std::byte name[64];
  size_t length = sizeof name;
  if (status = fi_getname(&pep_->fid, name, &length); status != 0) return fail("fi_getname", status);
  auto own = os::SocketAddress::from(name, length);
  if (!own) return fail("its address is none of IP", -EAFNOSUPPORT);
  if (own->is_any()) {  // a peer needs one that it can reach
    const uint16_t port = own->port();
    own = os::outgoing_address(own->family());
    own->set_port(port);
  }
  address_.assign(reinterpret_cast<const char*>(own->bytes().data()), own->bytes().size());
  return {};
}

// The receives of a connection stand before it begins, so nothing that comes finds none.
bool Messages::post_buffers(Connection& connection) {
  constexpr size_t count = receive_count + send_count;
  connection.memory =
      std::make_unique_for_overwrite<std::byte[]>(count * message_bytes_max);  // pages come with use
  connection.arrived.reserve(receive_count);
  connection.unposted.reserve(receive_count);
  connection.waiting.reserve(send_count);
  connection.free.reserve(send_count);
  if (registers_) {
    if (const int status = fi_mr_reg(domain_, connection.memory.get(), count * message_bytes_max,
                                     FI_SEND | FI_RECV, 0, next_key_++, 0, &connection.region, nullptr);
        status != 0) {
      warn_(*source_, "fi_mr_reg", status);
      return false;
    }
  }
  for (size_t i = 0; i < count; ++i) {
    auto buffer = std::make_unique<Buffer>();
    buffer->connection = &connection;
    buffer->bytes = connection.memory.get() + i * message_bytes_max;
    buffer->receives = i < receive_count;
    if (!buffer->receives) connection.free.push_back(buffer.get());
    connection.buffers.push_back(std::move(buffer));
  }
  for (size_t i = 0; i < receive_count; ++i) post(connection, *connection.buffers[i]);
  return connection.unposted.empty();
}

// `info` stays the caller's.
Messages::Connection* Messages::open_connection(fi_info* info, bool incoming, int& error) {
  auto made = std::make_unique<Connection>();
  Connection& connection = *made;
  connection.incoming = incoming;
  int status = fi_endpoint(domain_, info, &connection.ep, nullptr);
  if (status == 0) status = fi_ep_bind(connection.ep, &eq_->fid, 0);
  if (status == 0) status = fi_ep_bind(connection.ep, &cq_->fid, FI_TRANSMIT | FI_RECV);
  if (status == 0) status = fi_enable(connection.ep);
  if (status == 0 && !post_buffers(connection)) status = -FI_ENOMEM;
  if (status != 0) {
    release(connection);
    warn_(*source_, "a connection cannot be opened", status);
    error = -status;
    return nullptr;
  }
  const fid* key = &connection.ep->fid;
  news_.reserve(news_.size() + connections_.size() + 2);
  waiting_.reserve(connections_.size() + 1);
  deferred_free_.reserve(deferred_free_.size() + connections_.size() + 1);
  connections_.emplace(key, std::move(made));
  ++connecting_count_;
  return &connection;
}

Messages::Connection* Messages::connect(std::span<const std::byte> address, int& error) {
  fi_info* info = source_->dup_info(info_);
  if (info == nullptr) {
    error = ENOMEM;
    return nullptr;
  }
  // From whichever port: ours is the one that we listen on.
  free(info->src_addr);
  info->src_addr = nullptr;
  info->src_addrlen = 0;
  free(info->dest_addr);
  info->dest_addr = malloc(address.size());
  info->dest_addrlen = info->dest_addr != nullptr ? address.size() : 0;
  if (info->dest_addr != nullptr) memcpy(info->dest_addr, address.data(), address.size());
  Connection* connection = open_connection(info, false, error);
  source_->free_info(info);
  if (connection == nullptr) return nullptr;
  if (const int status = fi_connect(connection->ep, address.data(), nullptr, 0); status != 0) {
    error = -status;
    close(*connection);
    return nullptr;
  }
  return connection;
}

// --- moving ---

std::span<const std::byte> Messages::bytes_of(const Buffer& buffer) noexcept {
  return {buffer.bytes, buffer.used};
}

void Messages::mark(Connection& connection) noexcept {
  if (connection.listed) return;
  connection.listed = true;
  news_.push_back(&connection);  // reserved
}

void Messages::fail_connection(Connection& connection) noexcept {
  if (connection.lost || connection.closed) return;
  connection.lost = true;
  mark(connection);
}

// False: no room now.
bool Messages::try_post(Connection& connection, Buffer& buffer) noexcept {
  buffer.used = 0;
  void* desc = connection.region != nullptr ? fi_mr_desc(connection.region) : nullptr;
  const ssize_t status =
      fi_recv(connection.ep, buffer.bytes, message_bytes_max, desc, FI_ADDR_UNSPEC, &buffer.context);
  if (status == -FI_EAGAIN) return false;
  if (status != 0) fail_connection(connection);
  return true;
}

void Messages::post(Connection& connection, Buffer& buffer) noexcept {
  if (connection.unposted.empty() && try_post(connection, buffer)) return;
  await_room(connection);
  connection.unposted.push_back(&buffer);  // reserved
}

void Messages::await_room(Connection& connection) noexcept {
  if (connection.unposted.empty() && connection.waiting.empty()) waiting_.push_back(&connection);  // reserved
}

// False: no room now.
bool Messages::send(Connection& connection, Buffer& buffer) noexcept {
  ssize_t status = 0;
  if (buffer.used <= inject_bytes_) {
    status = fi_inject(connection.ep, buffer.bytes, buffer.used, FI_ADDR_UNSPEC);
    if (status == 0) {
      connection.free.push_back(&buffer);
      if (connection.in_flight_sends == 0) connection.left = buffer.order;
    }
  } else {
    void* desc = connection.region != nullptr ? fi_mr_desc(connection.region) : nullptr;
    status = fi_send(connection.ep, buffer.bytes, buffer.used, desc, FI_ADDR_UNSPEC, &buffer.context);
    if (status == 0) ++connection.in_flight_sends;
  }
  if (status == 0) return true;
  if (status == -FI_EAGAIN) return false;
  connection.free.push_back(&buffer);
  fail_connection(connection);
  return true;
}

std::byte* Messages::reserve(Connection& connection) noexcept {
  if (connection.closed || connection.lost || connection.free.empty()) return nullptr;
  connection.reserved = connection.free.back();
  return connection.reserved->bytes;
}

void Messages::commit(Connection& connection, size_t bytes) noexcept {
  Buffer& buffer = *std::exchange(connection.reserved, nullptr);
  connection.free.pop_back();
  buffer.used = bytes;
  buffer.order = ++connection.committed;
  if (connection.waiting.empty() && send(connection, buffer)) return;
  await_room(connection);
  connection.waiting.push_back(&buffer);  // reserved
}

// What the provider had no room for, in order.
void Messages::retry(Connection& connection) noexcept {
  size_t posted = 0;
  while (posted < connection.unposted.size() && try_post(connection, *connection.unposted[posted])) ++posted;
  connection.unposted.erase(connection.unposted.begin(),
                            connection.unposted.begin() + std::ptrdiff_t(posted));
  size_t sent = 0;
  while (sent < connection.waiting.size() && send(connection, *connection.waiting[sent])) ++sent;
  connection.waiting.erase(connection.waiting.begin(), connection.waiting.begin() + std::ptrdiff_t(sent));
}

void Messages::collect() noexcept {
  if (fabric_ == nullptr) return;
  collect_completions(kTurnEntries);
  if (check_events_ || connecting_count_ != 0 || ++polls_ >= polls_between_events)
    collect_events(kTurnEntries);
  if (waiting_.empty()) return;
  std::erase_if(waiting_, [this](Connection* connection) {
    if (!connection->lost) retry(*connection);
    return connection->lost || (connection->unposted.empty() && connection->waiting.empty());
  });
}

// At most receive_count messages lie here, so the room that was reserved is enough.
void Messages::arrive(Connection& connection, Buffer& buffer) noexcept {
  auto& arrived = connection.arrived;
  if (arrived.size() == arrived.capacity()) {
    arrived.erase(arrived.begin(), arrived.begin() + std::ptrdiff_t(connection.shown));
    connection.shown = 0;
  }
  arrived.push_back(&buffer);
  mark(connection);
}

void Messages::collect_completions(size_t most) noexcept {
  read_completions(
      cq_, most,
      [this](const fi_cq_msg_entry& entry) {
        auto& buffer = *static_cast<Buffer*>(entry.op_context);
        if (buffer.receives) {
          buffer.used = std::min(entry.len, message_bytes_max);
          arrive(*buffer.connection, buffer);
        } else {
          release_buffer(buffer);
        }
      },
      // What fails takes the connection with it. Receives end like this when it goes, too.
      [this](const fi_cq_err_entry& entry) {
        auto& buffer = *static_cast<Buffer*>(entry.op_context);
        if (!buffer.receives) release_buffer(buffer);
        fail_connection(*buffer.connection);
      });
}

// Has been sent from.
void Messages::release_buffer(Buffer& buffer) noexcept {
  Connection& connection = *buffer.connection;
  // Sends of a connection end in their order; injected ones behind the last have no end of their own.
  connection.left = --connection.in_flight_sends == 0 ? connection.committed - connection.waiting.size()
                                                      : std::max(connection.left, buffer.order);
  connection.free.push_back(&buffer);  // reserved
}

void Messages::collect_events(size_t most) noexcept {
  polls_ = 0;
  check_events_ = false;
  for (size_t seen = 0; seen < most; ++seen) {
    union {
      fi_eq_cm_entry entry;
      std::byte room[sizeof(fi_eq_cm_entry) + 256];
    } news{};
    uint32_t event = 0;
    const ssize_t size = fi_eq_read(eq_, &event, &news, sizeof news, 0);
    const fid* who = nullptr;
    if (size == -FI_EAVAIL) {
      fi_eq_err_entry error{};
      if (fi_eq_readerr(eq_, &error, 0) < 0) return;
      who = error.fid;
    } else if (size < static_cast<ssize_t>(sizeof(fi_eq_cm_entry))) {
      return;
    } else if (event == FI_CONNREQ) {
      on_request(news.entry.info);
      continue;
    } else {
      who = news.entry.fid;
    }
    // What is said of an endpoint that was closed meanwhile is passed over.
    const auto found = connections_.find(who);
    if (found == connections_.end()) continue;
    Connection& connection = *found->second;
    if (!connection.established) {
      connection.established = true;
      --connecting_count_;
    }
    if (size > 0 && event == FI_CONNECTED) {
      (connection.incoming ? connection.incoming_pending : connection.connected_pending) = true;
      mark(connection);
    } else {
      collect_completions(SIZE_MAX);  // what arrived before it ended
      fail_connection(connection);
    }
  }
}

// Whoever comes is taken; the information is ours to free.
void Messages::on_request(fi_info* info) noexcept {
  int error = 0;
  Connection* connection = nullptr;
  try {
    if (!closing_) connection = open_connection(info, true, error);
  } catch (const std::bad_alloc&) {
  }
  if (connection == nullptr) (void)fi_reject(pep_, info->handle, nullptr, 0);
  source_->free_info(info);
  if (connection == nullptr) return;
  if (const int status = fi_accept(connection->ep, nullptr, 0); status != 0) {
    warn_(*source_, "fi_accept", status);
    close(*connection);
  }
}

void Messages::end_turn() noexcept {
  std::erase_if(news_, [](Connection* connection) {
    if (!connection->closed && connection->shown < connection->arrived.size()) return false;
    connection->arrived.clear();
    connection->shown = 0;
    connection->listed = false;
    return true;
  });
  deferred_free_.clear();
}

// --- closing ---

void Messages::release(Connection& connection) noexcept {
  shut(connection.ep);
  shut(connection.region);
}

// The object stays until the turn is over: callers up the stack may be looking at it.
void Messages::close(Connection& connection) noexcept {
  if (connection.closed) return;
  connection.closed = true;
  if (!connection.established) --connecting_count_;
  connection.established = true;
  (void)fi_shutdown(connection.ep, 0);
  const auto found = connections_.find(&connection.ep->fid);
  std::erase(waiting_, &connection);
  collect_completions(SIZE_MAX);
  release(connection);
  collect_completions(
      SIZE_MAX);  // providers may end what was posted only now; none shall name its buffers later
  deferred_free_.push_back(std::move(found->second));  // reserved
  connections_.erase(found);
  if (!connection.listed) {
    connection.listed = true;
    news_.push_back(&connection);
  }
  // What the queue still says of this endpoint must not be taken for the next one at its address.
  if (!closing_) collect_events(SIZE_MAX);
}

void Messages::close() noexcept {
  const auto unsent = [this] {
    return std::any_of(connections_.begin(), connections_.end(), [](const auto& entry) {
      const Connection& c = *entry.second;
      return !c.lost && c.established && (c.in_flight_sends != 0 || !c.waiting.empty());
    });
  };
  const int64_t until = os::now_ms() + kCloseMs;
  while (fabric_ != nullptr && unsent() && os::now_ms() < until) {
    check_events_ = true;
    collect();
  }
  closing_ = true;
  while (!connections_.empty()) close(*connections_.begin()->second);
  news_.clear();
  waiting_.clear();
  deferred_free_.clear();
  connecting_count_ = 0;
  sleep_.reset();
  shut(pep_);
  shut(cq_);
  shut(eq_);
  shut(domain_);
  shut(fabric_);
  if (info_ != nullptr) source_->free_info(info_);
  info_ = nullptr;
  closing_ = false;
}

// --- sleeping ---

int Messages::wait_fd() noexcept {
  if (!can_sleep_) return -1;
  if (sleep_) return sleep_.get();
  int cq_fd = -1;
  int eq_fd = -1;
  can_sleep_ = false;
  if (fi_control(&cq_->fid, FI_GETWAIT, &cq_fd) != 0 || fi_control(&eq_->fid, FI_GETWAIT, &eq_fd) != 0)
    return -1;
  auto made = os::PollSet::create();
  if (!made || !made->watch(cq_fd) || !made->watch(eq_fd)) return -1;
  sleep_ = std::move(*made);
  can_sleep_ = true;
  return sleep_.get();
}

bool Messages::arm() noexcept {
  if (wait_fd() < 0 || !news_.empty() || !waiting_.empty()) return false;
  fid* both[] = {&cq_->fid, &eq_->fid};
  check_events_ = true;
  return fi_trywait(fabric_, both, 2) == 0;
}

}  // namespace weft::link::foreign
