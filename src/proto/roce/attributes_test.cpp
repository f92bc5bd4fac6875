// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Transitions, values, numbers, time; and that values are those of <infiniband/verbs.h>.
#include "proto/roce/attributes.hpp"

#include <gtest/gtest.h>

#include <string>

#include "proto/roce/psn.hpp"
#include "proto/roce/queues.hpp"
#include "proto/roce/sim_pair.hpp"

#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>
#endif

namespace weft::proto::roce {
namespace {

TEST(RoceAttributes, WhatIsMissingOrTooMuchIsNamed) {
  const auto refused = check_transition(QpType::Rc, QpState::Init, QpState::ReadyToReceive,
                                        attr_path | attr_path_mtu | attr_destination);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().why, "INIT to RTR needs RQ PSN, min RNR timer, max dest rd atomic");
  const auto more = check_transition(QpType::Ud, QpState::Reset, QpState::Init,
                                     attr_pkey_index | attr_port | attr_qkey | attr_path);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().why, "RESET to INIT does not take path");
}

TEST(RoceAttributes, OnlyTheTransitionsOfTheSpecification) {
  using enum QpState;
  int allowed = 0;
  for (const QpType type : {QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcSend, QpType::XrcReceive})
    for (int from = 0; from <= 6; ++from)
      for (int to = 0; to <= 6; ++to) {
        bool any = false;  // with some mask
        for (uint32_t mask :
             {0u, uint32_t{attr_pkey_index | attr_port | attr_access},
              uint32_t{attr_pkey_index | attr_port | attr_qkey},
              uint32_t{attr_path | attr_path_mtu | attr_destination | attr_rq_psn},
              uint32_t{attr_path | attr_path_mtu | attr_destination | attr_rq_psn | attr_max_dest_reads |
                       attr_min_rnr_timer},
              uint32_t{attr_sq_psn}, uint32_t{attr_sq_psn | attr_timeout},
              uint32_t{attr_sq_psn | attr_timeout | attr_retry_count | attr_rnr_retry | attr_max_reads}})
          any |= bool(check_transition(type, QpState(from), QpState(to), mask | attr_state));
        if (to == int(Reset) || to == int(QpState::Error)) {
          EXPECT_TRUE(any);
        } else if (any) {
          ++allowed;
        }
        if (to == int(ReadyToSend) && from < int(ReadyToReceive)) {
          EXPECT_FALSE(any);
        }
      }
  EXPECT_EQ(
      allowed,
      5 * 8 +
          2);  // RESET-INIT, INIT-INIT, INIT-RTR, RTR-RTS, RTS-RTS, RTS-SQD, SQD-RTS, SQD-SQD; SQE-RTS of UC and UD
}

TEST(RoceAttributes, ValuesAreChecked) {
  Attributes a;
  EXPECT_TRUE(check_values(a, attr_path_mtu | attr_timeout | attr_retry_count | attr_rnr_retry | attr_port));
  a.path_mtu = 6;
  EXPECT_FALSE(check_values(a, attr_path_mtu));
  EXPECT_TRUE(check_values(a, attr_timeout));
  a.retry_count = 8;
  EXPECT_FALSE(check_values(a, attr_retry_count));
  EXPECT_FALSE(check_values(a, attr_alternate_path));
}

TEST(RoceAttributes, WhatIsRefusedChangesNothing) {
  sim::Pair p;
  Attributes x = p.common;
  x.state = QpState::Init;
  x.qkey = 99;
  EXPECT_FALSE(p.a.adapter.modify(*p.a.qp, x, attr_state | attr_pkey_index, 1));
  EXPECT_EQ(p.a.qp->state, QpState::Reset);
  EXPECT_EQ(p.a.qp->attributes.qkey, 0u);
  x.current_state = QpState::ReadyToSend;
  EXPECT_FALSE(p.a.adapter.modify(*p.a.qp, x, attr_current_state, 1));
}

TEST(RocePsn, WrapsAndCompares) {
  EXPECT_EQ(psn_add(0xffffff, 1), 0u);
  EXPECT_EQ(psn_diff(0, 0xffffff), 1);
  EXPECT_EQ(psn_diff(0xffffff, 0), -1);
  EXPECT_EQ(psn_diff(psn_half, 0), -static_cast<int32_t>(psn_half));
  EXPECT_EQ(rnr_timer_ns(0), 655'360'000u);
  EXPECT_EQ(rnr_timer_ns(1), 10'000u);
  EXPECT_EQ(rnr_timer_ns(31), 491'520'000u);
  EXPECT_EQ(ack_timeout_ns(14), 67'108'864u);
  EXPECT_EQ(ack_timeout_ns(0), UINT64_MAX);
}

TEST(RoceNumberTable, FindsWhatIsThereAndNothingElse) {
  struct Thing {
    uint32_t number = 0;
  };
  NumberTable<Thing> table(5000, sim::test_random);
  std::vector<Thing> things(5000);
  for (Thing& one : things) one.number = *table.add(one);
  Thing beyond;
  EXPECT_FALSE(table.add(beyond));
  for (size_t i = 0; i < things.size(); i += 2) table.remove(things[i].number);
  for (size_t i = 0; i < things.size(); ++i)
    EXPECT_EQ(table.find(things[i].number), i % 2 == 0 ? nullptr : &things[i]);
  EXPECT_EQ(table.size(), 2500u);
}

TEST(RoceTimers, TheEarliestComesFirst) {
  std::vector<std::unique_ptr<QueuePair>> qps;
  Timers timers;
  timers.reserve(200);
  std::mt19937 random(3);
  qps.reserve(200);
  for (int i = 0; i < 200; ++i) qps.push_back(std::make_unique<QueuePair>());
  for (int round = 0; round < 5000; ++round) {
    QueuePair& one = *qps[random() % qps.size()];
    timers.set(one, random() % 4 == 0 ? UINT64_MAX : random() % 1000);
    uint64_t least = UINT64_MAX;
    for (const auto& qp : qps) least = std::min(least, qp->due);
    ASSERT_EQ(timers.next_due(), least);
  }
}

#if __has_include(<infiniband/verbs.h>)
template <class A, class B>
constexpr bool same(A a, B b) {
  return static_cast<uint64_t>(a) == static_cast<uint64_t>(b);
}
static_assert(same(SendOpcode::Write, IBV_WR_RDMA_WRITE) && same(SendOpcode::Read, IBV_WR_RDMA_READ) &&
              same(SendOpcode::CompareSwap, IBV_WR_ATOMIC_CMP_AND_SWP) &&
              same(SendOpcode::LocalInvalidate, IBV_WR_LOCAL_INV) &&
              same(SendOpcode::BindWindow, IBV_WR_BIND_MW) &&
              same(SendOpcode::SendInvalidate, IBV_WR_SEND_WITH_INV));
static_assert(same(fence, IBV_SEND_FENCE) && same(signaled, IBV_SEND_SIGNALED) &&
              same(solicited, IBV_SEND_SOLICITED) && same(inline_data, IBV_SEND_INLINE));
static_assert(same(local_write, IBV_ACCESS_LOCAL_WRITE) && same(remote_write, IBV_ACCESS_REMOTE_WRITE) &&
              same(remote_read, IBV_ACCESS_REMOTE_READ) && same(remote_atomic, IBV_ACCESS_REMOTE_ATOMIC) &&
              same(window_bind, IBV_ACCESS_MW_BIND) && same(zero_based, IBV_ACCESS_ZERO_BASED));
static_assert(same(Status::LocalLength, IBV_WC_LOC_LEN_ERR) &&
              same(Status::LocalOperation, IBV_WC_LOC_QP_OP_ERR) &&
              same(Status::LocalProtection, IBV_WC_LOC_PROT_ERR) &&
              same(Status::Flushed, IBV_WC_WR_FLUSH_ERR) && same(Status::WindowBind, IBV_WC_MW_BIND_ERR) &&
              same(Status::BadResponse, IBV_WC_BAD_RESP_ERR) &&
              same(Status::LocalAccess, IBV_WC_LOC_ACCESS_ERR) &&
              same(Status::RemoteInvalidRequest, IBV_WC_REM_INV_REQ_ERR) &&
              same(Status::RemoteAccess, IBV_WC_REM_ACCESS_ERR) &&
              same(Status::RemoteOperation, IBV_WC_REM_OP_ERR) &&
              same(Status::RetryExceeded, IBV_WC_RETRY_EXC_ERR) &&
              same(Status::RnrRetryExceeded, IBV_WC_RNR_RETRY_EXC_ERR));
static_assert(same(CompletionOpcode::Send, IBV_WC_SEND) && same(CompletionOpcode::Write, IBV_WC_RDMA_WRITE) &&
              same(CompletionOpcode::Read, IBV_WC_RDMA_READ) &&
              same(CompletionOpcode::FetchAdd, IBV_WC_FETCH_ADD) &&
              same(CompletionOpcode::BindWindow, IBV_WC_BIND_MW) &&
              same(CompletionOpcode::LocalInvalidate, IBV_WC_LOCAL_INV) &&
              same(CompletionOpcode::Receive, IBV_WC_RECV) &&
              same(CompletionOpcode::ReceiveWriteImmediate, IBV_WC_RECV_RDMA_WITH_IMM));
static_assert(same(has_grh, IBV_WC_GRH) && same(with_immediate, IBV_WC_WITH_IMM) &&
              same(with_invalidate, IBV_WC_WITH_INV));
static_assert(same(QpType::Rc, IBV_QPT_RC) && same(QpType::Ud, IBV_QPT_UD) &&
              same(QpType::XrcSend, IBV_QPT_XRC_SEND) && same(QpType::XrcReceive, IBV_QPT_XRC_RECV));
static_assert(same(QpState::ReadyToSend, IBV_QPS_RTS) && same(QpState::SendDrained, IBV_QPS_SQD) &&
              same(QpState::SendError, IBV_QPS_SQE) && same(QpState::Error, IBV_QPS_ERR));
static_assert(same(attr_drain_notify, IBV_QP_EN_SQD_ASYNC_NOTIFY) && same(attr_access, IBV_QP_ACCESS_FLAGS) &&
              same(attr_qkey, IBV_QP_QKEY) && same(attr_path, IBV_QP_AV) &&
              same(attr_path_mtu, IBV_QP_PATH_MTU) && same(attr_timeout, IBV_QP_TIMEOUT) &&
              same(attr_retry_count, IBV_QP_RETRY_CNT) && same(attr_rnr_retry, IBV_QP_RNR_RETRY) &&
              same(attr_rq_psn, IBV_QP_RQ_PSN) && same(attr_max_reads, IBV_QP_MAX_QP_RD_ATOMIC) &&
              same(attr_min_rnr_timer, IBV_QP_MIN_RNR_TIMER) && same(attr_sq_psn, IBV_QP_SQ_PSN) &&
              same(attr_max_dest_reads, IBV_QP_MAX_DEST_RD_ATOMIC) && same(attr_capacities, IBV_QP_CAP) &&
              same(attr_destination, IBV_QP_DEST_QPN));
static_assert(same(AsyncKind::QpFatal, IBV_EVENT_QP_FATAL) &&
              same(AsyncKind::CommunicationEstablished, IBV_EVENT_COMM_EST) &&
              same(AsyncKind::SendQueueDrained, IBV_EVENT_SQ_DRAINED) &&
              same(AsyncKind::SharedLimitReached, IBV_EVENT_SRQ_LIMIT_REACHED) &&
              same(AsyncKind::LastRequestReached, IBV_EVENT_QP_LAST_WQE_REACHED));
#endif

}  // namespace
}  // namespace weft::proto::roce
