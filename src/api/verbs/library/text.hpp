// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Names of values, and rates. The words are those that programs compare and print. Knows no device.
#pragma once

#include <infiniband/verbs.h>

namespace weft::verbs {

// "unknown" for a value that <infiniband/verbs.h> of rdma-core 65 does not have.
const char* status_text(int status) noexcept;
const char* event_text(int type) noexcept;
const char* opcode_text(int opcode) noexcept;  // of enum ibv_wr_opcode
const char* node_text(int type) noexcept;
const char* state_text(int state) noexcept;

// Multiples of 2.5 Gbit/s, and Mbit/s; -1: the rate has none. The other way: IBV_RATE_MAX where no rate is exactly that.
int rate_to_mult(int rate) noexcept;
ibv_rate mult_to_rate(int mult) noexcept;
int rate_to_mbps(int rate) noexcept;
ibv_rate mbps_to_rate(int mbps) noexcept;

}  // namespace weft::verbs
