// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// States and attributes of queue pairs, and ibv_modify_qp(3): which attributes each transition needs and takes, by
// type of QP. IBTA 10.3.1. Values are those of <infiniband/verbs.h>. Stateless.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.hpp"
#include "proto/roce/work.hpp"

namespace weft::proto::roce {

enum class QpType : uint8_t { Rc = 2, Uc = 3, Ud = 4, XrcSend = 9, XrcReceive = 10 };
enum class QpState : uint8_t {
  Reset = 0,
  Init = 1,
  ReadyToReceive = 2,
  ReadyToSend = 3,
  SendDrained = 4,
  SendError = 5,
  Error = 6,
};

enum AttributeMask : uint32_t {
  attr_state = 1u << 0,
  attr_current_state = 1u << 1,
  attr_drain_notify = 1u << 2,
  attr_access = 1u << 3,
  attr_pkey_index = 1u << 4,
  attr_port = 1u << 5,
  attr_qkey = 1u << 6,
  attr_path = 1u << 7,
  attr_path_mtu = 1u << 8,
  attr_timeout = 1u << 9,
  attr_retry_count = 1u << 10,
  attr_rnr_retry = 1u << 11,
  attr_rq_psn = 1u << 12,
  attr_max_reads = 1u << 13,
  attr_alternate_path = 1u << 14,
  attr_min_rnr_timer = 1u << 15,
  attr_sq_psn = 1u << 16,
  attr_max_dest_reads = 1u << 17,
  attr_migration = 1u << 18,
  attr_capacities = 1u << 19,
  attr_destination = 1u << 20,
};

struct Attributes {
  QpState state = QpState::Reset;
  QpState current_state = QpState::Reset;
  bool drain_notify = false;
  uint32_t access = 0;  // remote rights of the QP: those of its regions count only as far as these
  uint16_t pkey_index = 0;
  uint8_t port = 1;
  uint32_t qkey = 0;
  AddressVector path;
  uint8_t path_mtu = 3;  // 1 to 5: 256 to 4,096 bytes
  uint8_t timeout = 14;
  uint8_t retry_count = 7;
  uint8_t rnr_retry = 7;
  uint32_t rq_psn = 0;
  uint32_t sq_psn = 0;
  uint8_t max_reads = 1;       // READs and atomics that we have under way
  uint8_t max_dest_reads = 1;  // and the peer
  uint8_t min_rnr_timer = 0;
  uint32_t destination = 0;  // QPN

  // Ours alone.
  uint32_t window_packets = 128;  // requests under way

  size_t mtu_bytes() const noexcept { return size_t{128} << path_mtu; }
};

// Whether a QP of this type may go from `from` to `to` with the attributes in `mask`; the sentence names what is
// missing or too much. attr_state itself is not looked at.
Result<void> check_transition(QpType type, QpState from, QpState to, uint32_t mask);
// Whether the values that `mask` names are ones that a QP can have.
Result<void> check_values(const Attributes& attributes, uint32_t mask);

const char* name_of(QpState state) noexcept;

}  // namespace weft::proto::roce
