// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The communication manager of InfiniBand (IBTA volume 1, chapter 12; IP addresses: annex A11) without I/O: connections of RC by REQ, REP,
// RTU, and lookups of UD queue pairs by SIDR. It takes messages, calls and times, and gives messages and events. docs/rdmacm.md has the states.
// Must not know sockets, queue pairs or who asks.
//
// A connection is named by a Handle, which is never used again. Of each message that names a connection both communication IDs and the peer's IP
// address have to be right, and the transaction too where it answers one; others are ignored and counted.
// Threads: one at a time. The environment's calls must not call the manager.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "wire/cm.hpp"

namespace weft::proto::cm {

using wire::Bytes;
using wire::cm::Gid;
using wire::cm::Mad;
using wire::cm::Reason;

// An IP address, IPv4 mapped into IPv6, and a UDP port.
struct Address {
  Gid ip{};
  uint16_t port = 0;
  uint32_t scope = 0;  // the interface of a link-local address
  friend bool operator==(const Address&, const Address&) = default;
};

// How messages reach the peer. `socket` is the environment's.
struct Path {
  uint32_t socket = 0;
  Address local;
  Address remote;
  friend bool operator==(const Path&, const Path&) = default;
};

using Handle = uint64_t;  // 0: none

// The part of REQ and REP that is for the queue pairs.
struct Parameters {
  uint32_t qpn = 0;
  uint32_t qkey = 0;
  uint32_t psn = 0;
  Gid gid{};  // where the sender's queue pair is. Of a REP: its guid says it
  uint64_t guid = 0;
  uint8_t mtu = 0;
  uint8_t responder_resources = 0;  // of the sender
  uint8_t initiator_depth = 0;      // of the sender
  uint8_t retry_count = 0;
  uint8_t rnr_retry_count = 0;
  uint8_t ack_timeout = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 64;
  uint32_t flow_label = 0;
  uint16_t pkey = 0xffff;
  bool flow_control = false;
  bool shared_receive_queue = false;
};

enum class EventKind : uint8_t {
  Request,       // to a listener: REQ or SIDR_REQ; `connection` is new
  Response,      // REP: establish() or reject()
  Established,   // RTU, or a SIDR_REP with a queue pair
  Rejected,      // REJ, or a SIDR_REP without one; `status` is the reason or the status
  Unreachable,   // no answer, `status` is -ETIMEDOUT; no socket is there, -ECONNREFUSED
  Disconnected,  // DREQ, or the answer to ours, or none, or the peer's process is gone
  TimeWaitEnds,  // the queue pair's number may be used again
};

struct Event {
  EventKind kind = EventKind::Request;
  Handle connection = 0;
  Handle listener = 0;
  int status = 0;
  Parameters parameters;                    // of Request, Response, Established by SIDR
  std::span<const std::byte> private_data;  // until on_event() returns
};

class Environment {
 public:
  virtual void send(const Path& path, const Mad& mad) noexcept = 0;
  virtual void on_event(const Event& event) noexcept = 0;
  // Not to be guessed by a stranger.
  virtual uint32_t random() noexcept = 0;

 protected:
  ~Environment() = default;
};

// In ns. Response times are those of the kernel's rdma_cm; a message is first repeated after `first_repeat`, each time after twice as long, at most
// after `response`.
struct Times {
  uint64_t first_repeat = 250'000'000;
  uint64_t response = 4'294'967'296;  // 4.096 us * 2^20
  uint64_t time_wait = 1'100'000'000;
  uint64_t keep_alive = 2'000'000'000;  // how often a peer of ours is asked whether its socket is there
  // A request that finds no listener is repeated for a moment before the program hears of it. Programs connect as soon as the server has said over
  // another connection that it is going to listen (perftest), and are in time where resolving takes longer than here.
  uint64_t listener_grace = 300'000'000;
  uint64_t listener_repeat = 10'000'000;
  uint8_t response_exponent = 20;
  uint8_t retries = 15;
};

struct Statistics {
  uint64_t ignored = 0;  // messages that name no connection, or come from elsewhere
  uint64_t duplicates = 0;
  uint64_t repeated = 0;  // by us
  uint64_t refused = 0;   // requests without a listener or without room
};

class Manager {
 public:
  enum class State : uint8_t {
    Idle,
    RequestSent,
    RequestReceived,
    ReplySent,
    ReplyReceived,
    Established,
    DisconnectSent,
    DisconnectReceived,
    TimeWait,
    ServiceRequestSent,
    ServiceRequestReceived,
    Ended,
  };
  static constexpr uint64_t never = std::numeric_limits<uint64_t>::max();
  static constexpr size_t connections_max = size_t{1} << 16;

  explicit Manager(Environment& environment, Times times = {});
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;
  ~Manager();

  // --- the passive side ---
  // Of requests that come through `socket` (of any, where it is any_socket) for a service. At most `backlog` of them wait for take(), accept() or
  // reject(); further ones are dropped, and their senders repeat them. 0: another listener has the service.
  static constexpr uint32_t any_socket = std::numeric_limits<uint32_t>::max();
  Handle listen(uint32_t socket, uint64_t service, size_t backlog);
  // The program has heard of the request: it counts against no backlog, and the listener's end does not concern it. Until then it counts, also if
  // its sender gives up.
  void take(Handle connection) noexcept;
  // Sends a REP or, for a lookup, a SIDR_REP. 0 or a positive errno: EINVAL, not in that state.
  int accept(Handle connection, const Parameters& parameters, Bytes data, uint64_t now);

  // --- the active side ---
  // Sends a REQ; `data` begins with the IP header. 0: there are connections_max.
  Handle connect(const Path& path, uint64_t service, const Parameters& parameters, const Gid& remote_gid,
                 Bytes data, uint64_t now);
  Handle look_up(const Path& path, uint64_t service, Bytes data, uint64_t now);
  int establish(Handle connection, uint64_t now);  // RTU

  // --- both ---
  int reject(Handle connection, Reason reason, Bytes data, uint64_t now);
  int disconnect(Handle connection, uint64_t now);  // DREQ, or the DREP that the peer waits for
  // The queue pair has heard of the peer: the connection is established although its RTU is lost (12.9.6).
  int notify_established(Handle connection, uint64_t now);
  // The program waits longer than the peer's timeout: an MRA.
  int acknowledge_receipt(Handle connection, uint64_t now);
  // Ends what it is in: REJ, DREQ or DREP as its state wants. No event follows. Listeners too.
  void destroy(Handle connection, uint64_t now);
  void destroy_all(uint64_t now);

  // --- input ---
  void receive(const Path& path, Bytes mad, uint64_t now);
  // The system says that no socket is there.
  // An established connection ends with the second time: one forged answer of a host does not end it.
  void unreachable(uint32_t socket, const Address& remote, uint64_t now);
  uint64_t next_time() const noexcept;  // when run() has something to do; `never`
  void run(uint64_t now);

  State state(Handle connection) const noexcept;
  const Path* path(Handle connection) const noexcept;
  size_t connections() const noexcept { return connections_.size(); }
  const Statistics& statistics() const noexcept { return statistics_; }

 private:
  struct Listener {
    uint32_t socket = 0;
    uint64_t service = 0;
    size_t backlog = 0;
    size_t waiting = 0;
  };
  struct Connection {
    Handle self = 0;
    Handle listener = 0;  // which counts it, while it is waiting
    State state = State::Idle;
    bool is_passive = false;
    bool is_lookup = false;
    bool is_orphan = false;  // destroyed: no more events
    bool keeps_alive = false;
    bool was_refused = false;   // by a host without a socket or a listener; asked once more
    bool has_rejected = false;  // the REJ is `last`
    uint8_t retries_left = 0;
    uint32_t local_id = 0;
    uint32_t remote_id = 0;
    uint32_t remote_qpn = 0;
    uint32_t local_qpn = 0;
    uint64_t remote_guid = 0;
    uint64_t transaction = 0;         // of ours
    uint64_t remote_transaction = 0;  // of the message that is answered
    uint64_t begun = 0;
    uint64_t due = never;
    uint64_t interval = 0;
    uint64_t service = 0;
    Path path;
    Mad last{};  // what is repeated, or sent again to a duplicate
  };
  struct Peer {  // what has connections here
    size_t connections = 0;
    uint64_t asked = 0;
  };
  // A request is known by its sender and the sender's name for the connection.
  struct RemoteName {
    Gid ip;
    uint16_t port;
    uint32_t id;
    uint64_t guid;
    bool is_lookup;
    auto operator<=>(const RemoteName&) const = default;
  };

  Connection* find(Handle handle) noexcept;
  const Connection* find(Handle handle) const noexcept;
  Connection* add(const Path& path);
  void remove(Connection& c) noexcept;
  // The connection that a message names: both IDs, or ours alone where the peer's is not known yet, and the peer's address.
  Connection* named(const Path& path, uint32_t our_id, uint32_t their_id) noexcept;
  RemoteName remote_name(const Connection& c) const noexcept;
  void no_longer_waits(Connection& c) noexcept;

  void set_due(Connection& c, uint64_t when);
  void send(Connection& c, const Mad& mad) noexcept { environment_->send(c.path, mad); }
  void send_until_answered(Connection& c, uint64_t now);  // c.last
  void send_once(Connection& c) noexcept { send(c, c.last); }
  void send_reject(const Path& path, uint64_t transaction, uint32_t local_id, uint32_t remote_id,
                   wire::cm::About about, Reason reason, Bytes data = {}) noexcept;
  void enter_time_wait(Connection& c, uint64_t now);
  void end(Connection& c, EventKind kind, int status, Bytes data = {});  // no handshake any more
  void raise(Connection& c, EventKind kind, int status = 0, const Parameters* parameters = nullptr,
             Bytes data = {});
  void become_established(Connection& c, uint64_t now);
  bool waits_for_listener(Connection& c, uint64_t now);
  void keep_alive(Connection& c, uint64_t now);

  void on_request(const Path& path, const wire::cm::Header& header, const Mad& mad, uint64_t now);
  void on_acknowledgement(const Path& path, const wire::cm::Header& header, const Mad& mad, uint64_t now);
  void on_reject(const Path& path, const wire::cm::Header& header, const Mad& mad, uint64_t now);
  void on_reply(const Path& path, const wire::cm::Header& header, const Mad& mad, uint64_t now);
  void on_ready_to_use(const Path& path, const wire::cm::Header& header, const Mad& mad, uint64_t now);
  void on_disconnect_request(const Path& path, const wire::cm::Header& header, const Mad& mad, uint64_t now);
  void on_disconnect_reply(const Path& path, const wire::cm::Header& header, const Mad& mad, uint64_t now);
  void on_service_request(const Path& path, const wire::cm::Header& header, const Mad& mad, uint64_t now);
  void on_service_reply(const Path& path, const wire::cm::Header& header, const Mad& mad, uint64_t now);
  void on_timer(Connection& c, uint64_t now);
  Listener* listener_of(uint32_t socket, uint64_t service, Handle& handle) noexcept;

  Environment* environment_;
  Times times_;
  Statistics statistics_;
  Handle next_handle_ = 1;
  std::unordered_map<Handle, std::unique_ptr<Connection>> connections_;
  std::unordered_map<uint32_t, Connection*> by_local_id_;
  std::map<RemoteName, Connection*> by_remote_name_;  // of the passive side
  std::map<std::pair<uint64_t, uint32_t>, Handle> by_service_;
  std::map<std::pair<Gid, uint16_t>, Peer> peers_;
  std::unordered_map<Handle, Listener> listeners_;
  std::set<std::pair<uint64_t, Handle>> due_;
};

// The Local CA GUID by which a peer of ours says the UDP port of its device's GID (docs/rdmacm.md, "Between processes of Weft").
uint64_t guid_with_port(uint16_t port) noexcept;
std::optional<uint16_t> port_of_guid(uint64_t guid) noexcept;

}  // namespace weft::proto::cm
