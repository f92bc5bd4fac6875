// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "api/verbs/library/text.hpp"

#include <iterator>

namespace weft::verbs {
namespace {

constexpr const char* statuses[] = {"success",
                                    "local length error",
                                    "local QP operation error",
                                    "local EE context operation error",
                                    "local protection error",
                                    "Work Request Flushed Error",
                                    "memory management operation error",
                                    "bad response error",
                                    "local access error",
                                    "remote invalid request error",
                                    "remote access error",
                                    "remote operation error",
                                    "transport retry counter exceeded",
                                    "RNR retry counter exceeded",
                                    "local RDD violation error",
                                    "remote invalid RD request",
                                    "aborted error",
                                    "invalid EE context number",
                                    "invalid EE context state",
                                    "fatal error",
                                    "response timeout error",
                                    "general error",
                                    "TM error",
                                    "TM software rendezvous"};

constexpr const char* events[] = {"CQ error",
                                  "local work queue catastrophic error",
                                  "invalid request local work queue error",
                                  "local access violation work queue error",
                                  "communication established",
                                  "send queue drained",
                                  "path migrated",
                                  "path migration request error",
                                  "local catastrophic error",
                                  "port active",
                                  "port error",
                                  "LID change",
                                  "P_Key change",
                                  "SM change",
                                  "SRQ catastrophic error",
                                  "SRQ limit reached",
                                  "last WQE reached",
                                  "client reregistration",
                                  "GID table change",
                                  "WQ fatal",
                                  "Device link speed change"};

constexpr const char* opcodes[] = {"rdma-write",
                                   "rdma-write-with-imm",
                                   "send",
                                   "send-with-imm",
                                   "rdma-read",
                                   "atomic-cmp-and-swp",
                                   "atomic-fetch-and-add",
                                   "local-inv",
                                   "bind-mw",
                                   "send-with-inv",
                                   "tso",
                                   "driver1",
                                   "unknown",
                                   "unknown",
                                   "flush",
                                   "atomic-write"};

constexpr const char* nodes[] = {"unknown",           "InfiniBand channel adapter",
                                 "InfiniBand switch", "InfiniBand router",
                                 "iWARP NIC",         "usNIC",
                                 "usNIC UDP",         "unspecified"};

constexpr const char* states[] = {"no state change (NOP)", "down", "init", "armed", "active", "active defer"};

template <size_t n>
const char* name(const char* const (&names)[n], int value) noexcept {
  return value >= 0 && static_cast<size_t>(value) < n ? names[value] : "unknown";
}

struct Rate {
  ibv_rate rate;
  int mult;  // -1: not a multiple that ibv_rate_to_mult(3) has
  int mbps;  // what the lanes carry
};

constexpr Rate rates[] = {
    {IBV_RATE_2_5_GBPS, 1, 2500},     {IBV_RATE_5_GBPS, 2, 5000},        {IBV_RATE_10_GBPS, 4, 10000},
    {IBV_RATE_20_GBPS, 8, 20000},     {IBV_RATE_30_GBPS, 12, 30000},     {IBV_RATE_40_GBPS, 16, 40000},
    {IBV_RATE_60_GBPS, 24, 60000},    {IBV_RATE_80_GBPS, 32, 80000},     {IBV_RATE_120_GBPS, 48, 120000},
    {IBV_RATE_14_GBPS, -1, 14062},    {IBV_RATE_56_GBPS, -1, 56250},     {IBV_RATE_112_GBPS, -1, 112500},
    {IBV_RATE_168_GBPS, -1, 168750},  {IBV_RATE_25_GBPS, -1, 25781},     {IBV_RATE_100_GBPS, -1, 103125},
    {IBV_RATE_200_GBPS, -1, 206250},  {IBV_RATE_300_GBPS, -1, 309375},   {IBV_RATE_28_GBPS, 11, 28125},
    {IBV_RATE_50_GBPS, 20, 53125},    {IBV_RATE_400_GBPS, 160, 425000},  {IBV_RATE_600_GBPS, 240, 637500},
    {IBV_RATE_800_GBPS, 320, 850000}, {IBV_RATE_1200_GBPS, 480, 1275000}};

const Rate* find(int Rate::*field, int value) noexcept {
  for (const Rate& rate : rates) {
    if (rate.*field == value) return &rate;
  }
  return nullptr;
}

const Rate* find(int value) noexcept {
  for (const Rate& rate : rates) {
    if (rate.rate == value) return &rate;
  }
  return nullptr;
}

}  // namespace

const char* status_text(int status) noexcept { return name(statuses, status); }
const char* event_text(int type) noexcept { return name(events, type); }
const char* opcode_text(int opcode) noexcept { return name(opcodes, opcode); }
const char* node_text(int type) noexcept { return name(nodes, type); }
const char* state_text(int state) noexcept { return name(states, state); }

int rate_to_mult(int rate) noexcept {
  const Rate* found = find(rate);
  return found != nullptr ? found->mult : -1;
}

int rate_to_mbps(int rate) noexcept {
  const Rate* found = find(rate);
  return found != nullptr ? found->mbps : -1;
}

ibv_rate mult_to_rate(int mult) noexcept {
  const Rate* found = mult > 0 ? find(&Rate::mult, mult) : nullptr;
  return found != nullptr ? found->rate : IBV_RATE_MAX;
}

ibv_rate mbps_to_rate(int mbps) noexcept {
  const Rate* found = find(&Rate::mbps, mbps);
  return found != nullptr ? found->rate : IBV_RATE_MAX;
}

}  // namespace weft::verbs
