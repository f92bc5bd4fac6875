// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Event channels, ids and events: the public structures of rdma_cma.h and what the library keeps behind them. All of it, but for the public
// fields that the program's thread owns, is under the service's lock.
#pragma once

#include <rdma/rdma_cma.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "api/rdmacm/library/service.hpp"

namespace weft::rdmacm {

struct Id;

struct QueuedEvent {
  rdma_cm_event event{};  // first: the program has its address
  Id* id = nullptr;       // whose count of events it belongs to
  Service* service = nullptr;
  Id* listener = nullptr;
  cm::Parameters parameters;
  cm::Handle connection = 0;  // of a request
  bool send_only = false;     // of a group
  std::array<std::byte, wire::cm::data_bytes_max> data{};
};

struct Channel {
  rdma_event_channel shown{};  // first
  Service* service = nullptr;
  size_t ids = 0;                                   // that report here
  bool is_closed = false;                           // by the program; its last id ends it
  std::deque<std::unique_ptr<QueuedEvent>> events;  // unread; the descriptor, an eventfd, counts them
};
inline Channel* of(rdma_event_channel* channel) noexcept { return reinterpret_cast<Channel*>(channel); }

struct Group {
  ibv_gid gid{};
  bool attached = false;
};

struct Id {
  rdma_cm_id shown{};  // first
  Service* service = nullptr;
  Channel* channel = nullptr;
  bool is_sync = false;  // the channel is the id's own, and calls wait
  bool is_listening = false;
  bool is_bound = false;
  bool is_resolved = false;
  bool is_passive = false;
  bool reuse_address = false;
  bool one_family = false;
  bool owns_queues = false;  // completion queues that the library made for the queue pair
  bool owns_srq = false;
  uint32_t socket = 0;    // 0: none
  cm::Handle handle = 0;  // of the connection, or the listener
  Device* device = nullptr;
  os::SocketAddress source, destination;
  const LocalGid* local_gid = nullptr;
  Gid remote_gid{};
  cm::Parameters request;  // passive: what the peer wants; active: what was asked, then what was agreed
  cm::Parameters remote;   // of the peer
  uint32_t psn = 0;
  uint8_t responder_resources = 0, initiator_depth = 0;
  uint8_t retry_count = 7, rnr_retry_count = 7;
  uint8_t mtu = 0;
  uint8_t traffic_class = 0;
  std::optional<uint8_t> ack_timeout;
  uint32_t qpn = 0;
  uint32_t qkey = RDMA_UDP_QKEY;
  ibv_sa_path_rec path{};
  size_t events_given = 0;                        // to the program, not yet acknowledged
  std::unique_ptr<ibv_qp_init_attr> listener_qp;  // of rdma_create_ep: for rdma_get_request
  std::vector<std::byte> connect_data;            // of rdma_create_ep
  std::map<std::array<uint8_t, 16>, Group> groups;
  ibv_ece local_ece{};
};
inline constexpr uint8_t ack_timeout_of_path =
    17;  // one more than the life time of a packet (IBTA 12.7.34): 537 ms
inline bool is_datagram(const Id& id) noexcept { return id.shown.qp_type == IBV_QPT_UD; }
inline Id* of(rdma_cm_id* id) noexcept { return reinterpret_cast<Id*>(id); }

// --- channels and events (events.cpp) ---
Channel* create_channel() noexcept;
void destroy_channel(Channel* channel) noexcept;  // takes the lock
// With the lock.
void attach(Id& id, Channel& channel) noexcept;
void detach(Id& id) noexcept;
// For the program; takes the lock.
int get_event(Channel* channel, rdma_cm_event** event) noexcept;
int acknowledge_event(rdma_cm_event* event) noexcept;
// With the lock.
// `fill` completes it before it is queued.
void queue_event(Id& id, rdma_cm_event_type type, int status = 0, void (*fill)(QueuedEvent&, void*) = nullptr,
                 void* argument = nullptr);
void drop_events(Id& id) noexcept;
void move_events(Id& id, Channel& to) noexcept;
void take_manager_event(const cm::Event& event);
// A synchronous id waits for what its call began. 0, or -1 with the errno of the event.
int complete(Id& id) noexcept;

// --- ids by the handle of their connection or listener (ids.cpp), with the lock ---
void register_handle(Id& id, cm::Handle handle);
void forget_handle(Id& id) noexcept;
Id* find_id(cm::Handle handle) noexcept;
// A new id that came with a request to `listener`.
Id* create_accepted(Id& listener, const QueuedEvent& event) noexcept;
Id* create(Channel* channel, void* context, rdma_port_space space, ibv_qp_type type) noexcept;
void destroy(Id& id) noexcept;
void bind_to_device(Id& id, Device& device, const os::SocketAddress& source) noexcept;
void show_address(sockaddr_storage& out, const os::SocketAddress& address) noexcept;

// --- queue pairs (queue_pairs.cpp), without the lock but for the fields of the id ---
int modify_to_error(Id& id) noexcept;
int make_ready(Id& id) noexcept;  // RC: to RTR and RTS, by what was agreed
int init_attributes(const Id& id, ibv_qp_attr& attr, int& mask) noexcept;  // for attr.qp_state

}  // namespace weft::rdmacm
