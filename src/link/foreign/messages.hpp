// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connected endpoints of a provider that is known at run time only, as MessageLink wants them (link/message/endpoints.hpp): FI_EP_MSG through the
// function vectors of libfabric's interface. Must not know frames.
//
// Each opened object has a fabric, a domain, a completion queue, an event queue and a passive endpoint of its own; all of it is driven by
// poll(). Memory for each connection: receive_count buffers at once and send_count more as they are needed.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "link/foreign/source.hpp"
#include "os/poll_set.hpp"

namespace weft::link::foreign {

class Messages {
 public:
  static constexpr size_t message_bytes_max = (size_t{1} << 14) + 512;
  static constexpr size_t receive_count = 32;
  static constexpr size_t send_count = 16;
  static constexpr size_t address_length = 28;  // sockaddr_in6

  struct Connection;

 private:
  // One message's memory. Providers may want to keep notes of their own behind the context of an operation (FI_CONTEXT2).
  struct Buffer {
    fi_context2 context{};  // first: completions give its address
    Connection* connection = nullptr;
    std::byte* bytes = nullptr;
    size_t used = 0;
    uint64_t order = 0;  // of a send, in its connection
    bool receives = false;
  };

 public:
  struct Connection {
    void* owner = nullptr;

   private:
    friend class Messages;
    fid_ep* ep = nullptr;
    fid_mr* region = nullptr;
    std::unique_ptr<std::byte[]> memory;  // of all buffers
    std::vector<std::unique_ptr<Buffer>> buffers;
    std::vector<Buffer*> free;  // to send from
    Buffer* reserved = nullptr;
    std::vector<Buffer*> arrived;  // messages to show, oldest first, from `shown` on
    size_t shown = 0;
    std::vector<Buffer*> waiting;   // committed, the provider had no room, oldest first
    std::vector<Buffer*> unposted;  // receives that the provider had no room for
    size_t in_flight_sends = 0;     // sends without completion yet
    uint64_t left = 0;              // order of the last that needs us no more
    uint64_t committed = 0;         // messages
    bool incoming = false, established = false;
    bool incoming_pending = false, connected_pending = false, lost = false;
    bool listed = false;    // in news_
    bool reported = false;  // that it is there
    bool closed = false;
  };

  Messages() = default;
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  ~Messages() { close(); }

  void set_context(const void* source) noexcept { source_ = static_cast<const Source*>(source); }
  void set_address_format(uint32_t format) noexcept { addr_format_ = format; }
  void set_warning(void (*warning)(const void* who, const char* what), const void* who) noexcept {
    warn_ = {warning, who};
  }

  Result<void> open(std::string_view source);
  std::span<const std::byte> address() const noexcept { return std::as_bytes(std::span(address_)); }
  Connection* connect(std::span<const std::byte> address, int& error);
  std::byte* reserve(Connection& connection) noexcept;
  void commit(Connection& connection, size_t bytes) noexcept;
  // Messages that were committed, and those that the provider is done with: until then it may want to be driven, before it sends them.
  static uint64_t taken(const Connection& connection) noexcept { return connection.committed; }
  static uint64_t completed(const Connection& connection) noexcept {
    return connection.lost ? 0 : connection.left;
  }
  void close(Connection& connection) noexcept;
  void close() noexcept;

  template <class Handler>
  int poll(Handler& handler) noexcept {
    collect();
    int taken = 0;
    for (size_t i = 0; i < news_.size(); ++i) taken += show(*news_[i], handler);
    end_turn();
    return taken;
  }

  int wait_fd() noexcept;
  bool arm() noexcept;
  void disarm() noexcept { check_events_ = true; }

 private:
  static constexpr unsigned polls_between_events = 64;

  template <class Handler>
  int show(Connection& connection, Handler& handler) noexcept {
    int taken = 0;
    if (connection.incoming_pending && !connection.closed) {
      connection.incoming_pending = false;
      connection.reported = true;
      handler.on_incoming(connection);
    }
    if (connection.connected_pending && !connection.closed) {
      connection.connected_pending = false;
      connection.reported = true;
      handler.on_connected(connection);
    }
    // What comes before it is said to be connected waits.
    while (connection.reported && !connection.closed && connection.shown < connection.arrived.size()) {
      if (!handler.on_message(connection, bytes_of(*connection.arrived[connection.shown]))) return taken;
      ++taken;
      if (connection.closed) break;
      post(connection, *connection.arrived[connection.shown++]);
    }
    if (connection.lost && !connection.closed) {
      handler.on_lost(connection);
      close(connection);
    }
    return taken;
  }

  Error fail(const char* what, int status) const { return failure(*source_, what, status); }
  Connection* open_connection(fi_info* info, bool incoming, int& error);
  bool post_buffers(Connection& connection);
  static std::span<const std::byte> bytes_of(const Buffer& buffer) noexcept;
  bool try_post(Connection& connection, Buffer& buffer) noexcept;
  void post(Connection& connection, Buffer& buffer) noexcept;
  void await_room(Connection& connection) noexcept;
  bool send(Connection& connection, Buffer& buffer) noexcept;
  void collect() noexcept;
  void collect_completions(size_t most) noexcept;
  void arrive(Connection& connection, Buffer& buffer) noexcept;
  static void release_buffer(Buffer& buffer) noexcept;
  void collect_events(size_t most) noexcept;
  void on_request(fi_info* info) noexcept;
  void retry(Connection& connection) noexcept;
  void mark(Connection& connection) noexcept;
  void fail_connection(Connection& connection) noexcept;
  void end_turn() noexcept;
  void release(Connection& connection) noexcept;

  const Source* source_ = nullptr;
  uint32_t addr_format_ = FI_FORMAT_UNSPEC;
  Warning warn_;

  fi_info* info_ = nullptr;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_eq* eq_ = nullptr;
  fid_cq* cq_ = nullptr;
  fid_pep* pep_ = nullptr;
  bool registers_ = false;  // the provider wants memory of ours registered (FI_MR_LOCAL)
  size_t inject_bytes_ = 0;
  uint64_t next_key_ = 1;
  std::string address_;
  std::unordered_map<const fid*, std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> news_;     // have something to tell
  std::vector<Connection*> waiting_;  // have something to try again
  std::vector<std::unique_ptr<Connection>> deferred_free_;
  size_t connecting_count_ = 0;  // connections that are being made
  unsigned polls_ = 0;
  bool closing_ = false;
  bool check_events_ = true;
  bool can_sleep_ = false;
  os::PollSet sleep_;
};

}  // namespace weft::link::foreign
