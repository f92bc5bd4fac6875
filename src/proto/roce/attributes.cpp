// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The transitions as a table: every row is a line of the table of ibv_modify_qp(3).
#include "proto/roce/attributes.hpp"

#include <array>
#include <cerrno>
#include <string>

namespace weft::proto::roce {
namespace {

constexpr QpState Reset = QpState::Reset;
constexpr QpState Init = QpState::Init;
constexpr QpState ReadyToReceive = QpState::ReadyToReceive;
constexpr QpState ReadyToSend = QpState::ReadyToSend;
constexpr QpState SendDrained = QpState::SendDrained;
constexpr QpState SendError = QpState::SendError;

enum Types : uint8_t { rc = 1, uc = 2, ud = 4, xi = 8, xt = 16 };

uint8_t bit_of(QpType type) {
  switch (type) {
    case QpType::Rc:
      return rc;
    case QpType::Uc:
      return uc;
    case QpType::Ud:
      return ud;
    case QpType::XrcSend:
      return xi;
    case QpType::XrcReceive:
      return xt;
  }
  return 0;
}

struct Row {
  QpState from;
  QpState to;
  uint8_t types;
  uint32_t needed;
  uint32_t allowed;  // beyond those
};

constexpr uint32_t base = attr_pkey_index | attr_port;
constexpr uint32_t connected = attr_path | attr_path_mtu | attr_destination | attr_rq_psn;
constexpr uint32_t responder = attr_max_dest_reads | attr_min_rnr_timer;
constexpr uint32_t requester = attr_timeout | attr_retry_count | attr_rnr_retry | attr_max_reads;
constexpr uint32_t alternate = attr_alternate_path | attr_migration;
constexpr uint32_t early = attr_alternate_path | attr_access | attr_pkey_index;
constexpr uint32_t late = attr_current_state | attr_access | alternate;

constexpr std::array rows{
    Row{Reset, Init, rc | uc | xi | xt, base | attr_access, 0},
    Row{Reset, Init, ud, base | attr_qkey, 0},
    Row{Init, Init, rc | uc | xi | xt, 0, base | attr_access},
    Row{Init, Init, ud, 0, base | attr_qkey},
    Row{Init, ReadyToReceive, rc | xt, connected | responder, early},
    Row{Init, ReadyToReceive, uc | xi, connected, early},
    Row{Init, ReadyToReceive, ud, 0, attr_pkey_index | attr_qkey},
    Row{ReadyToReceive, ReadyToSend, rc, attr_sq_psn | requester, late | attr_min_rnr_timer},
    Row{ReadyToReceive, ReadyToSend, xi, attr_sq_psn | requester, late},
    Row{ReadyToReceive, ReadyToSend, xt, attr_sq_psn | attr_timeout, late | attr_min_rnr_timer},
    Row{ReadyToReceive, ReadyToSend, uc, attr_sq_psn, late},
    Row{ReadyToReceive, ReadyToSend, ud, attr_sq_psn, attr_current_state | attr_qkey},
    Row{ReadyToSend, ReadyToSend, rc | xt, 0, late | attr_min_rnr_timer},
    Row{ReadyToSend, ReadyToSend, uc | xi, 0, late},
    Row{ReadyToSend, ReadyToSend, ud, 0, attr_current_state | attr_qkey},
    Row{ReadyToSend, SendDrained, rc | uc | ud | xi | xt, 0, attr_drain_notify},
    Row{SendDrained, ReadyToSend, rc | xt, 0, late | attr_min_rnr_timer},
    Row{SendDrained, ReadyToSend, uc | xi, 0, late},
    Row{SendDrained, ReadyToSend, ud, 0, attr_current_state | attr_qkey},
    Row{SendDrained, SendDrained, rc, 0, base | attr_path | attr_access | alternate | requester | responder},
    Row{SendDrained, SendDrained, xi, 0, base | attr_path | attr_access | alternate | requester},
    Row{SendDrained, SendDrained, xt, 0,
        base | attr_path | attr_access | alternate | responder | attr_timeout},
    Row{SendDrained, SendDrained, uc, 0, base | attr_path | attr_access | alternate},
    Row{SendDrained, SendDrained, ud, 0, attr_pkey_index | attr_qkey},
    Row{SendError, ReadyToSend, uc, 0, attr_current_state | attr_access},
    Row{SendError, ReadyToSend, ud, 0, attr_current_state | attr_qkey},
};

constexpr std::array<const char*, 21> names{
    "state",          "current state", "drain notify",   "access flags",  "P_Key index", "port",
    "Q_Key",          "path",          "path MTU",       "timeout",       "retry count", "RNR retry",
    "RQ PSN",         "max rd atomic", "alternate path", "min RNR timer", "SQ PSN",      "max dest rd atomic",
    "path migration", "capacities",    "destination QPN"};

std::string list(uint32_t mask) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    if ((mask >> i & 1) != 0) text += (text.empty() ? "" : ", ") + std::string(names[i]);
  return text;
}

}  // namespace

const char* name_of(QpState state) noexcept {
  constexpr std::array<const char*, 7> states{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return states[static_cast<size_t>(state)];
}

Result<void> check_transition(QpType type, QpState from, QpState to, uint32_t mask) {
  mask &= ~uint32_t{attr_state};
  const std::string which = std::string(name_of(from)) + " to " + name_of(to);
  uint32_t needed = 0;
  uint32_t allowed = 0;
  if (to != Reset && to != QpState::Error) {
    const Row* row = nullptr;
    for (const Row& one : rows)
      if (one.from == from && one.to == to && (one.types & bit_of(type)) != 0) row = &one;
    if (row == nullptr) return Error{EINVAL, "a queue pair of this type does not go from " + which};
    needed = row->needed;
    allowed = row->needed | row->allowed;
  }
  if ((needed & ~mask) != 0) return Error{EINVAL, which + " needs " + list(needed & ~mask)};
  if ((mask & ~allowed) != 0) return Error{EINVAL, which + " does not take " + list(mask & ~allowed)};
  return {};
}

Result<void> check_values(const Attributes& a, uint32_t mask) {
  const auto wrong = [&](uint32_t bit, bool bad) { return (mask & bit) != 0 && bad; };
  if (wrong(attr_path_mtu, a.path_mtu < 1 || a.path_mtu > 5)) return Error{EINVAL, "path MTU is 1 to 5"};
  if (wrong(attr_timeout, a.timeout > 31)) return Error{EINVAL, "timeout is 0 to 31"};
  if (wrong(attr_retry_count, a.retry_count > 7)) return Error{EINVAL, "retry count is 0 to 7"};
  if (wrong(attr_rnr_retry, a.rnr_retry > 7)) return Error{EINVAL, "RNR retry is 0 to 7"};
  if (wrong(attr_min_rnr_timer, a.min_rnr_timer > 31)) return Error{EINVAL, "min RNR timer is 0 to 31"};
  if (wrong(attr_max_reads, a.max_reads > reads_max))
    return Error{EINVAL, "max rd atomic is above the limit"};
  if (wrong(attr_max_dest_reads, a.max_dest_reads > reads_max))
    return Error{EINVAL, "max dest rd atomic is above the limit"};
  if (wrong(attr_port, a.port != 1)) return Error{EINVAL, "there is only port 1"};
  if (wrong(attr_pkey_index, a.pkey_index != 0)) return Error{EINVAL, "there is only P_Key index 0"};
  if (wrong(attr_alternate_path | attr_migration, true))
    return Error{ENOTSUP, "automatic path migration is not offered"};
  if (wrong(attr_capacities, true)) return Error{ENOTSUP, "queues are not resized"};
  return {};
}

}  // namespace weft::proto::roce
