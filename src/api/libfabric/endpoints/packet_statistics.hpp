// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// WEFT_RELIABLE_OPS of <weft/extensions.h>: what became of the packets of an endpoint. Must not know which link it is.
#pragma once

#include <weft/extensions.h>

#include <mutex>

#include "api/libfabric/endpoints/extension.hpp"
#include "proto/reliable/statistics.hpp"

namespace weft::fi {

inline constexpr size_t statistics_least =
    offsetof(weft_reliable_statistics, round_trip_ns_min) + sizeof(uint64_t);

template <class E>
concept CountsPackets = HasLink<E> && requires(const typename E::Link& link) {
  { link.statistics() }
  noexcept->std::same_as<proto::reliable::Statistics>;
};

template <class E>
struct ReliableOps {
  static int statistics(fid_ep* ep, weft_reliable_statistics* out) {
    if (const int status = check_extension<E>(ep); status != 0) return status;
    if (!can_write_sized(out, statistics_least)) return -FI_EINVAL;
    Port& p = port_of(ep);
    std::scoped_lock guard(*p.lock);
    const proto::reliable::Statistics all = engine_of<E>(p).link().statistics();
    weft_reliable_statistics report{};
    report.sent = all.sent;
    report.sent_again = all.sent_again;
    report.copies = all.copies;
    report.acks_sent = all.acks_sent;
    report.received = all.received;
    report.acks_received = all.acks_received;
    report.duplicates = all.duplicates;
    report.out_of_order = all.out_of_order;
    report.not_taken = all.not_taken;
    report.stale = all.stale;
    report.damaged = all.damaged;
    report.lost = all.lost;
    report.timeouts = all.timeouts;
    report.peers = all.peers;
    report.round_trip_ns = all.round_trip_ns;
    report.round_trip_ns_min = all.round_trip_ns_min;
    write_sized(report, out);
    return 0;
  }
  static inline weft_reliable_ops table = [] {
    weft_reliable_ops made{};
    made.size = sizeof made;
    made.statistics = statistics;
    return made;
  }();
};

}  // namespace weft::fi
