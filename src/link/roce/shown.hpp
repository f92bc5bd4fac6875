// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Shown: what others see of a device and its queue pairs in the statistics page (docs/statistics.md), and what is told of
// its faults. Must not know how packets travel.
//
// Copies of counters that are kept anyway: show() is called now and then, and the data path pays nothing.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "link/roce/fault_log.hpp"
#include "link/roce/gid.hpp"
#include "os/statistics.hpp"
#include "proto/roce/adapter.hpp"

namespace weft::link::roce {

struct DeviceCounters;
struct PortCounters;

class Shown final : public proto::roce::QueuePairObserver {
 public:
  // Faults are told to the audience.
  Shown(const std::string& name, const std::string& addresses, const packet::Audience& audience) noexcept;

  // `lost`: frames that packet sockets had no room for.
  void show(const proto::roce::AdapterCounters& adapter, const DeviceCounters& device,
            const PortCounters& ports, uint64_t lost) noexcept;
  // `is_shm`: its packets go through shared memory.
  void show(const proto::roce::QueuePair& qp, bool is_shm) noexcept;

  void on_create(const proto::roce::QueuePair& qp) noexcept override;
  void on_destroy(const proto::roce::QueuePair& qp) noexcept override;
  void on_fault(const proto::roce::QueuePair* qp, const proto::roce::Fault& fault) noexcept override;

 private:
  struct Line {
    os::StatisticsEntry entry;
    Gid to{};
    bool is_shm = false;
    uint8_t cause = 0;  // why it has failed
  };
  static void show(Line& line, const proto::roce::QueuePair& qp) noexcept;

  FaultLog faults_;
  os::StatisticsEntry device_;
  std::unordered_map<uint32_t, Line> lines_;  // by number of the queue pair
};

}  // namespace weft::link::roce
