// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// WEFT_SHM_OPS of <weft/extensions.h>: the calls over an endpoint whose link can be read and written in place. Must not know which link it is.
#pragma once

#include <rdma/fi_endpoint.h>
#include <weft/extensions.h>

#include <cstddef>
#include <cstring>
#include <mutex>

#include "api/libfabric/endpoints/endpoint.hpp"
#include "api/libfabric/endpoints/extension.hpp"
#include "proto/engine/open_table.hpp"

namespace weft::fi {

// The size that a structure had in version 1, by the last member that it had then: programs of that version say no more.
#define WEFT_SIZE_UP_TO(Type, member) (offsetof(Type, member) + sizeof(Type::member))
inline constexpr size_t limits_least = WEFT_SIZE_UP_TO(weft_shm_limits, ring_bytes);
inline constexpr size_t rings_least = WEFT_SIZE_UP_TO(weft_shm_rings, in_taken);
inline constexpr size_t wanted_least = WEFT_SIZE_UP_TO(weft_shm_wanted, ignore);
inline constexpr size_t message_least = WEFT_SIZE_UP_TO(weft_shm_message, source);
inline constexpr size_t room_least = WEFT_SIZE_UP_TO(weft_shm_room, handle);
inline constexpr size_t send_least = WEFT_SIZE_UP_TO(weft_shm_send, cq_data);
inline constexpr size_t copies_least = WEFT_SIZE_UP_TO(weft_shm_copies, lost_ns);
#undef WEFT_SIZE_UP_TO

template <class E>
concept InPlaceEngine = HasLink<E> && proto::HasLoans<typename E::Link>;

template <class E>
struct InPlaceOps {
  using P = Port;

  static int check(fid_ep* ep) noexcept { return check_extension<E>(ep); }
  static bool is_one_kind(uint64_t flags) noexcept { return flags == FI_TAGGED || flags == FI_MSG; }

  static int limits(fid_ep* ep, weft_shm_limits* out) {
    if (const int status = check(ep); status != 0) return status;
    if (!can_write_sized(out, limits_least)) return -FI_EINVAL;
    weft_shm_limits limits{};
    limits.write_max = E::Link::in_place_bytes_max;
    limits.take_max = proto::open_in_place_max;
    limits.entries = E::Link::ring_entries;
    limits.ring_bytes = E::Link::ring_bytes;
#ifdef WEFT_EXTENSIONS_NEXT
    limits.room_alignment = 64;
#endif
    write_sized(limits, out);
    return 0;
  }
  static int rings(fid_ep* ep, fi_addr_t peer, weft_shm_rings* out) {
    if (const int status = check(ep); status != 0) return status;
    if (!can_write_sized(out, rings_least)) return -FI_EINVAL;
    P& p = port_of(ep);
    std::scoped_lock guard(*p.lock);
    proto::RingUse use{};
    if (const int status = engine_of<E>(p).rings(peer, use); status != 0) return status;
    weft_shm_rings rings{0, use.out_entries, use.out_bytes, use.in_entries, use.in_bytes, use.in_taken};
    write_sized(rings, out);
    return 0;
  }
  static int copies(fid_ep* ep, fi_addr_t source, size_t length, weft_shm_copies* out) {
    if (const int status = check(ep); status != 0) return status;
    if (!can_write_sized(out, copies_least)) return -FI_EINVAL;
    P& p = port_of(ep);
    std::scoped_lock guard(*p.lock);
    proto::CopyUse use;
    if (const int status = engine_of<E>(p).copies(source, length, use); status != 0) return status;
    weft_shm_copies report{};
    report.length_max = use.length_max;
    report.path = static_cast<uint64_t>(use.path);
    report.reason = static_cast<uint64_t>(use.reason);
    static_assert(proto::copy_paths == WEFT_SHM_COPY_PATHS);
    for (size_t i = 0; i < proto::copy_paths; ++i)
      report.ways[i] = {use.paths[i].messages, use.paths[i].bytes, use.paths[i].ns};
    report.measured = use.measured;
    report.trial_messages = use.trial_messages;
    report.trials = use.trials;
    report.changes = use.changes;
    report.measured_ns = use.measured_ns;
    report.lost_ns = use.lost_ns;
    write_sized(report, out);
    return 0;
  }
  static int take(fid_ep* ep, const weft_shm_wanted* wanted, weft_shm_message* out) {
    if (const int status = check(ep); status != 0) return status;
    weft_shm_wanted asked;
    if (const int status = read_sized(wanted, asked, wanted_least); status != 0) return status;
    P& p = port_of(ep);
    if (!can_write_sized(out, message_least) || !is_one_kind(asked.flags) || p.rx == nullptr)
      return -FI_EINVAL;
    proto::ReceiveRequest request;
    request.tagged = asked.flags == FI_TAGGED;
    request.source = asked.source;
    request.tag = asked.tag;
    request.ignore = asked.ignore;
    proto::LoanedMessage taken;
    std::scoped_lock guard(*p.lock);
    const int status = engine_of<E>(p).take(rx_of<E>(p), request, taken);
    if (status != 0 && status != -FI_EMSGSIZE) return status;
    weft_shm_message message{0,
                             taken.data,
                             taken.length,
                             taken.handle,
                             asked.flags | (taken.has_data ? FI_REMOTE_CQ_DATA : 0),
                             taken.in_link ? WEFT_SHM_IN_RING : 0,
                             taken.tag,
                             taken.cq_data,
                             taken.source};
    write_sized(message, out);
    return status;
  }
  static int release(fid_ep* ep, uint64_t handle) {
    if (const int status = check(ep); status != 0) return status;
    P& p = port_of(ep);
    std::scoped_lock guard(*p.lock);
    return engine_of<E>(p).release(handle);
  }
  static int reserve(fid_ep* ep, fi_addr_t dest, size_t length, weft_shm_room* out) {
    if (const int status = check(ep); status != 0) return status;
    P& p = port_of(ep);
    if (!can_write_sized(out, room_least) || p.tx == nullptr) return -FI_EINVAL;
    weft_shm_room room{0, nullptr, length, 0};
    std::byte* at = nullptr;
    std::scoped_lock guard(*p.lock);
    if (const int status = engine_of<E>(p).reserve(dest, length, room.handle, at); status != 0) return status;
    room.data = at;
    write_sized(room, out);
    return 0;
  }
  static int commit(fid_ep* ep, uint64_t handle, const weft_shm_send* send) {
    if (const int status = check(ep); status != 0) return status;
    weft_shm_send how;
    if (const int status = read_sized(send, how, send_least); status != 0) return status;
    P& p = port_of(ep);
    if (!is_one_kind(how.flags & ~FI_REMOTE_CQ_DATA) || p.tx == nullptr) return -FI_EINVAL;
    const proto::WrittenMessage message{(how.flags & FI_TAGGED) != 0, (how.flags & FI_REMOTE_CQ_DATA) != 0,
                                        how.length, how.tag, how.cq_data};
    std::scoped_lock guard(*p.lock);
    return engine_of<E>(p).commit(*p.tx, handle, message);
  }
  static int abandon(fid_ep* ep, uint64_t handle) {
    if (const int status = check(ep); status != 0) return status;
    P& p = port_of(ep);
    std::scoped_lock guard(*p.lock);
    return engine_of<E>(p).abandon_room(handle);
  }

  static inline weft_shm_ops table = [] {
    weft_shm_ops made{};
    if constexpr (InPlaceEngine<E>) {
      made.size = sizeof made;
      made.limits = limits;
      made.rings = rings;
      made.take = take;
      made.release = release;
      made.reserve = reserve;
      made.commit = commit;
      made.abandon = abandon;
      made.copies = copies;
#ifdef WEFT_EXTENSIONS_NEXT
      made.ready = check;
#endif
    }
    return made;
  }();
};

}  // namespace weft::fi
