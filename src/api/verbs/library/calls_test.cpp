// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The checks of calls, the fields that the library fills, and the order of destruction, over a provider that does nothing.
#include "api/verbs/library/calls.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "api/verbs/library/fake_provider.hpp"

namespace weft::verbs {
namespace {

using fake::knobs;
using fake::Opened;

class VerbsCalls : public testing::Test {
 protected:
  VerbsCalls() : pd_(alloc_pd(context())) {}
  ~VerbsCalls() override { dealloc_pd(pd_); }
  ibv_context* context() { return opened_.context; }
  ibv_cq* cq(ibv_comp_channel* channel = nullptr) { return create_cq(context(), 4, this, channel, 0); }
  ibv_qp* qp(ibv_cq* cq, ibv_srq* srq = nullptr) {
    ibv_qp_init_attr attr{this, cq, cq, srq, {}, IBV_QPT_RC, 1};
    return create_qp(pd_, &attr);
  }
  ibv_qp_init_attr_ex qp_attr(ibv_cq* cq) {
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.qp_type = IBV_QPT_RC;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = pd_;
    return attr;
  }
  // What errno is after a call that returns null.
  template <class T>
  static int refusal(T* object) {
    return object == nullptr ? errno : 0;
  }

  Opened opened_;
  ibv_pd* pd_;
};

TEST_F(VerbsCalls, TheStandardFieldsAreFilled) {
  ibv_comp_channel* channel = events_of(context()).create_channel(context());
  ibv_cq* queue = cq(channel);
  EXPECT_EQ(queue->context, context());
  EXPECT_EQ(queue->channel, channel);
  EXPECT_EQ(queue->cq_context, this);
  EXPECT_EQ(channel->context, context());
  ibv_srq_init_attr srq_attr{this, {3, 1, 0}};
  ibv_srq* srq = create_srq(pd_, &srq_attr);
  EXPECT_EQ(srq->pd, pd_);
  EXPECT_EQ(srq->srq_context, this);
  EXPECT_EQ(srq_attr.attr.max_wr, 6U);  // what was granted
  ibv_qp_init_attr attr{this, queue, queue, srq, {}, IBV_QPT_RC, 1};
  ibv_qp* pair = create_qp(pd_, &attr);
  EXPECT_EQ(pair->pd, pd_);
  EXPECT_EQ(pair->send_cq, queue);
  EXPECT_EQ(pair->srq, srq);
  EXPECT_EQ(pair->qp_type, IBV_QPT_RC);
  EXPECT_EQ(attr.cap.max_send_wr, 77U);
  char memory[8];
  ibv_mr* mr = reg_mr(pd_, memory, sizeof memory, 4096, 0);
  EXPECT_EQ(mr->addr, memory);
  EXPECT_EQ(mr->length, sizeof memory);
  EXPECT_EQ(mr->pd, pd_);
  EXPECT_EQ(context()->num_comp_vectors, 2);
  EXPECT_NE(context()->cmd_fd, -1);
  EXPECT_EQ(fake::services->state(context()), &knobs);
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  EXPECT_EQ(modify_qp(pair, &to, IBV_QP_STATE), 0);
  EXPECT_EQ(pair->state, IBV_QPS_INIT);
  EXPECT_EQ(destroy_cq(queue), EBUSY);
  EXPECT_EQ(destroy_srq(srq), EBUSY);
  EXPECT_EQ(dereg_mr(mr), 0);
  EXPECT_EQ(destroy_qp(pair), 0);
  EXPECT_EQ(destroy_srq(srq), 0);
  EXPECT_EQ(destroy_cq(queue), 0);
  EXPECT_EQ(events_of(context()).destroy_channel(Channel::of(channel)), 0);
}

// ibv_create_qp(3), ibv_create_qp_ex(3): the provider is not told of what the library ignores.
TEST_F(VerbsCalls, ReceiveCapacitiesBesideASharedQueueAreIgnored) {
  ibv_cq* queue = cq();
  ibv_srq_init_attr srq_attr{this, {3, 1, 0}};
  ibv_srq* srq = create_srq(pd_, &srq_attr);
  for (ibv_srq* shared : {srq, static_cast<ibv_srq*>(nullptr)}) {
    ibv_qp_init_attr attr{this, queue, queue, shared, {4, 1U << 31, 1, 1U << 30, 0}, IBV_QPT_RC, 1};
    ibv_qp* pair = create_qp(pd_, &attr);
    EXPECT_EQ(knobs.qp.cap.max_send_wr, 4U);
    EXPECT_EQ(knobs.qp.cap.max_recv_wr, shared != nullptr ? 0 : 1U << 31);
    EXPECT_EQ(knobs.qp.cap.max_recv_sge, shared != nullptr ? 0 : 1U << 30);
    EXPECT_EQ(attr.cap.max_recv_wr, knobs.qp.cap.max_recv_wr);
    EXPECT_EQ(destroy_qp(pair), 0);
    ibv_qp_init_attr_ex extended = qp_attr(queue);
    extended.srq = shared;
    extended.cap = {4, 1U << 31, 1, 1U << 30, 0};
    pair = create_qp_ex(context(), &extended);
    EXPECT_EQ(knobs.qp.cap.max_recv_wr, shared != nullptr ? 0 : 1U << 31);
    EXPECT_EQ(knobs.qp.cap.max_recv_sge, shared != nullptr ? 0 : 1U << 30);
    EXPECT_EQ(destroy_qp(pair), 0);
  }
  EXPECT_EQ(destroy_srq(srq), 0);
  EXPECT_EQ(destroy_cq(queue), 0);
}

TEST_F(VerbsCalls, DestroyingWaitsForAcknowledgements) {
  ibv_comp_channel* channel = events_of(context()).create_channel(context());
  ibv_cq* queue = cq(channel);
  ibv_async_event error{};
  error.element.cq = queue;
  error.event_type = IBV_EVENT_CQ_ERR;
  fake::services->completion_event(queue);
  fake::services->completion_event(queue);
  fake::services->async_event(context(), &error);
  ibv_cq* got = nullptr;
  void* with = nullptr;
  ASSERT_EQ(events_of(context()).next_completion(Channel::of(channel), &got, &with), 0);
  ASSERT_EQ(events_of(context()).next_completion(Channel::of(channel), &got, &with), 0);
  ibv_async_event read{};
  ASSERT_EQ(events_of(context()).next_async(&read), 0);
  std::atomic<bool> gone{false};
  std::thread destroyer([&] {
    EXPECT_EQ(destroy_cq(queue), 0);
    gone = true;
  });
  using namespace std::chrono_literals;
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(gone);
  ack_cq_events(queue, 2);
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(gone);
  ack_async_event(&read);
  destroyer.join();
  EXPECT_EQ(knobs.destroyed, 1);
}

TEST_F(VerbsCalls, ARefusedDestroyLeavesTheObject) {
  ibv_cq* queue = cq();
  knobs.destroy = EBUSY;
  EXPECT_EQ(destroy_cq(queue), EBUSY);
  knobs.destroy = 0;
  EXPECT_EQ(destroy_cq(queue), 0);
}

TEST_F(VerbsCalls, UnknownBitsOfCompletionQueuesAreRefused) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 4;
  const auto with = [&](auto change) {
    ibv_cq_init_attr_ex changed = attr;
    change(changed);
    return refusal(create_cq_ex(context(), &changed));
  };
  EXPECT_EQ(with([](auto& a) { a.comp_mask = 4; }), EINVAL);
  EXPECT_EQ(with([](auto& a) { a.wc_flags = 1ULL << 40; }), EOPNOTSUPP);
  EXPECT_EQ(with([](auto& a) { a.wc_flags = IBV_WC_EX_WITH_CVLAN; }), EOPNOTSUPP);
  EXPECT_EQ(with([](auto& a) { a.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, a.flags = 4; }), EINVAL);
  EXPECT_EQ(with([](auto& a) { a.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD; }), EINVAL);
  EXPECT_EQ(with([](auto& a) { a.comp_vector = 2; }), EINVAL);
  EXPECT_EQ(with([](auto& a) { a.cqe = 0; }), EINVAL);
  EXPECT_EQ(refusal(create_cq(context(), -1, nullptr, nullptr, 0)), EINVAL);
  EXPECT_EQ(refusal(create_cq(context(), 1, nullptr, nullptr, -1)), EINVAL);
  ibv_cq_ex* good = nullptr;
  attr.flags = 99;  // not read: comp_mask does not name it
  attr.wc_flags = IBV_WC_EX_WITH_BYTE_LEN;
  EXPECT_NE(good = create_cq_ex(context(), &attr), nullptr);
  EXPECT_EQ(knobs.cq.flags, 0U);
  ibv_modify_cq_attr modify{IBV_CQ_ATTR_RESERVED, {}};
  EXPECT_EQ(modify_cq(ibv_cq_ex_to_cq(good), &modify), EINVAL);
  modify.attr_mask = IBV_CQ_ATTR_MODERATE;
  EXPECT_EQ(modify_cq(ibv_cq_ex_to_cq(good), &modify), EOPNOTSUPP);
  EXPECT_EQ(destroy_cq(ibv_cq_ex_to_cq(good)), 0);
}

TEST_F(VerbsCalls, UnknownBitsOfQueuePairsAreRefused) {
  ibv_cq* queue = cq();
  const auto with = [&](auto change) {
    ibv_qp_init_attr_ex changed = qp_attr(queue);
    change(changed);
    return refusal(create_qp_ex(context(), &changed));
  };
  EXPECT_EQ(with([](auto& a) { a.comp_mask |= 1U << 7; }), EINVAL);
  EXPECT_EQ(with([](auto& a) { a.comp_mask |= IBV_QP_INIT_ATTR_RX_HASH; }), EOPNOTSUPP);
  EXPECT_EQ(with([](auto& a) { a.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS, a.create_flags = 1; }), EINVAL);
  EXPECT_EQ(with([](auto& a) {
              a.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
              a.create_flags = IBV_QP_CREATE_SCATTER_FCS;
            }),
            EOPNOTSUPP);
  EXPECT_EQ(with([](auto& a) {
              a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
              a.send_ops_flags = IBV_QP_EX_WITH_TSO;
            }),
            EOPNOTSUPP);
  EXPECT_EQ(with([](auto& a) { a.comp_mask = 0; }), EINVAL);  // no PD
  EXPECT_EQ(with([](auto& a) { a.recv_cq = nullptr; }), EINVAL);
  EXPECT_EQ(with([](auto& a) { a.qp_type = static_cast<ibv_qp_type>(77); }), EINVAL);
  EXPECT_EQ(with([](auto& a) { a.qp_type = IBV_QPT_XRC_RECV; }), EINVAL);
  ibv_qp_init_attr_ex attr = qp_attr(queue);
  attr.source_qpn = 5;  // not read: create_flags does not name it
  attr.send_ops_flags = ~0ULL;
  ibv_qp* pair = create_qp_ex(context(), &attr);
  ASSERT_NE(pair, nullptr);
  EXPECT_EQ(knobs.qp.source_qpn, 0U);
  EXPECT_EQ(knobs.qp.send_ops_flags, 0U);
  EXPECT_EQ(qp_to_qp_ex(pair), nullptr);
  ibv_qp_attr to{};
  EXPECT_EQ(modify_qp(pair, &to, 1 << 21), EINVAL);
  EXPECT_EQ(modify_qp(pair, &to, 1 << 30), EINVAL);
  EXPECT_EQ(destroy_qp(pair), 0);
  EXPECT_EQ(destroy_cq(queue), 0);
}

TEST_F(VerbsCalls, ObjectsOfAnotherContextAreRefused) {
  Opened other;
  ibv_pd* theirs = alloc_pd(other.context);
  ibv_cq* queue = cq();
  ibv_qp_init_attr attr{nullptr, queue, queue, nullptr, {}, IBV_QPT_RC, 0};
  EXPECT_EQ(refusal(create_qp(theirs, &attr)), EINVAL);
  ibv_comp_channel* channel = events_of(other.context).create_channel(other.context);
  EXPECT_EQ(refusal(create_cq(context(), 1, nullptr, channel, 0)), EINVAL);
  ibv_parent_domain_init_attr parent{theirs, nullptr, 0, nullptr, nullptr, nullptr};
  EXPECT_EQ(refusal(alloc_parent_domain(context(), &parent)), EINVAL);
  EXPECT_EQ(destroy_cq(queue), 0);
  EXPECT_EQ(dealloc_pd(theirs), 0);
}

TEST_F(VerbsCalls, SharedReceiveQueuesAndDomainsAreChecked) {
  ibv_cq* queue = cq();
  ibv_xrcd_init_attr domain{IBV_XRCD_INIT_ATTR_FD, -1, 0};
  EXPECT_EQ(refusal(open_xrcd(context(), &domain)), EINVAL);
  domain.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  ibv_xrcd* xrcd = open_xrcd(context(), &domain);
  ASSERT_NE(xrcd, nullptr);
  ibv_srq_init_attr_ex attr{};
  attr.attr.max_wr = 4;
  attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  attr.srq_type = IBV_SRQT_XRC;
  attr.pd = pd_;
  attr.xrcd = xrcd;
  attr.cq = queue;
  EXPECT_EQ(refusal(create_srq_ex(context(), &attr)), EINVAL);  // comp_mask names neither xrcd nor cq
  attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  ibv_srq* srq = create_srq_ex(context(), &attr);
  ASSERT_NE(srq, nullptr);
  EXPECT_EQ(destroy_cq(queue), EBUSY);
  attr.comp_mask |= IBV_SRQ_INIT_ATTR_RESERVED;
  EXPECT_EQ(refusal(create_srq_ex(context(), &attr)), EINVAL);
  ibv_srq_attr limit{};
  EXPECT_EQ(modify_srq(srq, &limit, 4), EINVAL);
  EXPECT_EQ(modify_srq(srq, &limit, IBV_SRQ_LIMIT), EOPNOTSUPP);
  ibv_qp_open_attr open{IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD, 7, xrcd, nullptr, IBV_QPT_XRC_RECV};
  EXPECT_EQ(refusal(open_qp(context(), &open)), EINVAL);
  open.comp_mask |= IBV_QP_OPEN_ATTR_TYPE;
  ibv_qp* pair = open_qp(context(), &open);
  ASSERT_NE(pair, nullptr);
  EXPECT_EQ(destroy_qp(pair), 0);
  EXPECT_EQ(destroy_srq(srq), 0);
  EXPECT_EQ(close_xrcd(xrcd), 0);
  EXPECT_EQ(destroy_cq(queue), 0);
}

TEST_F(VerbsCalls, AccessOfMemoryIsChecked) {
  char memory[64];
  const auto with = [&](unsigned access) {
    ibv_mr* mr = reg_mr(pd_, memory, sizeof memory, 4096, access);
    const int code = mr == nullptr ? errno : 0;
    if (mr != nullptr) dereg_mr(mr);
    return code;
  };
  EXPECT_EQ(with(IBV_ACCESS_REMOTE_WRITE), EINVAL);
  EXPECT_EQ(with(IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
  EXPECT_EQ(with(1U << 10), EINVAL);
  EXPECT_EQ(with(1U << 31), EINVAL);
  EXPECT_EQ(with(IBV_ACCESS_REMOTE_READ), 0);
  EXPECT_EQ(knobs.iova, 4096U);
  EXPECT_EQ(with(IBV_ACCESS_RELAXED_ORDERING | 1U << 29), 0);  // an option nobody knows
  EXPECT_EQ(knobs.access, static_cast<unsigned>(IBV_ACCESS_RELAXED_ORDERING));
  EXPECT_EQ(with(IBV_ACCESS_ZERO_BASED), 0);
  EXPECT_EQ(knobs.iova, 0U);
  EXPECT_EQ(refusal(reg_mr(pd_, memory, SIZE_MAX, 0, 0)), EINVAL);
  EXPECT_EQ(refusal(reg_mr(pd_, memory, 64, UINT64_MAX - 8, 0)), EINVAL);
  ibv_mr* all = reg_mr(pd_, nullptr, SIZE_MAX, 0, IBV_ACCESS_ON_DEMAND);
  EXPECT_NE(all, nullptr);
  EXPECT_EQ(dereg_mr(all), 0);
}

TEST_F(VerbsCalls, RegisteringAgainIsChecked) {
  char memory[64];
  ibv_mr* mr = reg_mr(pd_, memory, 32, 0, 0);
  ibv_pd* second = alloc_pd(context());
  EXPECT_EQ(rereg_mr(mr, 0, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(rereg_mr(mr, 8, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 5, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(rereg_mr(mr, IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_TRANSLATION, second, memory + 8, 16, 0),
            0);
  EXPECT_EQ(mr->pd, second);
  EXPECT_EQ(mr->addr, memory + 8);
  EXPECT_EQ(mr->length, 16U);
  EXPECT_EQ(dereg_mr(mr), 0);
  EXPECT_EQ(dealloc_pd(second), 0);
}

TEST_F(VerbsCalls, AllocatorsOfDomainsAreTakenAndNotCalled) {
  ibv_td_init_attr td_attr{1};
  EXPECT_EQ(refusal(alloc_td(context(), &td_attr)), EINVAL);
  td_attr.comp_mask = 0;
  ibv_td* td = alloc_td(context(), &td_attr);
  ASSERT_NE(td, nullptr);
  ibv_parent_domain_init_attr attr{pd_,     td,      IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS,
                                   nullptr, nullptr, nullptr};
  ibv_pd* with_allocators = alloc_parent_domain(context(), &attr);
  ASSERT_NE(with_allocators, nullptr);
  EXPECT_EQ(dealloc_pd(with_allocators), 0);
  attr.comp_mask = 8;
  EXPECT_EQ(refusal(alloc_parent_domain(context(), &attr)), EINVAL);
  attr.comp_mask = layout::parent_domain_unprotected;
  ibv_pd* unprotected = alloc_parent_domain(context(), &attr);
  ASSERT_NE(unprotected, nullptr);
  ibv_buf* buf = nullptr;
  EXPECT_NE(alloc_buf(unprotected, 100, &buf), nullptr);
  free_buf(buf);
  EXPECT_EQ(dealloc_pd(unprotected), 0);
  attr.comp_mask = 0;
  ibv_pd* domain = alloc_parent_domain(context(), &attr);
  ASSERT_NE(domain, nullptr);
  EXPECT_EQ(domain->context, context());
  EXPECT_EQ(dealloc_pd(domain), 0);
  EXPECT_EQ(dealloc_td(td), 0);
}

// ibv_query_port_speed(3): active_speed_ex counts where it is set, whichever header the library was built with.
TEST_F(VerbsCalls, SpeedIsLanesTimesSpeedOfALane) {
  uint64_t speed = 7;
  EXPECT_EQ(query_port_speed(context(), 0, &speed), EINVAL);
  EXPECT_EQ(query_port_speed(context(), 257, &speed), EINVAL);
  EXPECT_EQ(query_port_speed(context(), 9, &speed), EINVAL);
  EXPECT_EQ(query_port_speed(context(), 1, nullptr), EINVAL);
  EXPECT_EQ(speed, 7U);
  EXPECT_EQ(query_port_speed(context(), 1, &speed), 0);
  EXPECT_EQ(speed, 1000U);
  knobs.width = 16;  // two lanes
  knobs.speed = 128;
  EXPECT_EQ(query_port_speed(context(), 2, &speed), 0);
  EXPECT_EQ(speed, 2000U);
  knobs.speed_ex = 256;
  EXPECT_EQ(query_port_speed(context(), 1, &speed), 0);
  EXPECT_EQ(speed, 4000U);
  layout::PortAttr port{};
  EXPECT_EQ(query_port(context(), 1, &port.attr, layout::active_speed_ex_at + 4), 0);
  EXPECT_EQ(active_speed_ex(port), 256U);
  EXPECT_EQ(port.attr.active_speed, 128);
  port = {};
  EXPECT_EQ(query_port(context(), 1, &port.attr, layout::active_speed_ex_at), 0);
  EXPECT_EQ(active_speed_ex(port), 0U);
  knobs.width = 3;
  EXPECT_EQ(query_port_speed(context(), 1, &speed), EOPNOTSUPP);
}

TEST_F(VerbsCalls, DmaHandlesAreOfAContext) {
  layout::DmahInitAttr attr{layout::dmah_cpu_id | layout::dmah_hint | layout::dmah_memory_type, 3, 3, 1};
  layout::Dmah* handle = alloc_dmah(context(), &attr);
  ASSERT_NE(handle, nullptr);
  EXPECT_EQ(handle->context, context());
  for (const layout::DmahInitAttr bad :
       {layout::DmahInitAttr{8, 0, 0, 0}, {layout::dmah_hint, 0, 4, 0}, {layout::dmah_memory_type, 0, 0, 2}})
    EXPECT_EQ(refusal(alloc_dmah(context(), &bad)), EINVAL);
  EXPECT_EQ(refusal(alloc_dmah(context(), nullptr)), EINVAL);
  char memory[8];
  layout::MrInitAttr region{};
  region.length = sizeof memory;
  region.addr = memory;
  region.comp_mask = layout::mr_addr | layout::mr_dmah;
  EXPECT_EQ(refusal(reg_mr_ex(pd_, &region)), EINVAL);  // no handle
  layout::Dmah foreign{context()};
  region.dmah = &foreign;
  EXPECT_EQ(refusal(reg_mr_ex(pd_, &region)), EINVAL);
  region.dmah = handle;
  ibv_mr* mr = reg_mr_ex(pd_, &region);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(dereg_mr(mr), 0);
  EXPECT_EQ(dealloc_dmah(&foreign), EINVAL);
  EXPECT_EQ(dealloc_dmah(nullptr), EINVAL);
  EXPECT_EQ(dealloc_dmah(handle), 0);
  EXPECT_EQ(dealloc_dmah(handle), EINVAL);
  EXPECT_EQ(refusal(reg_mr_ex(pd_, &region)), EINVAL);
  EXPECT_NE(alloc_dmah(context(), &attr), nullptr);  // closing the context frees it
}

// ibv_reg_mr(3): fields count only where comp_mask names them, and exactly one of address and descriptor is given.
TEST_F(VerbsCalls, ExtendedRegistrationTakesWhatItsMaskNames) {
  char memory[64];
  layout::MrInitAttr attr{};
  attr.length = sizeof memory;
  attr.access = IBV_ACCESS_LOCAL_WRITE;
  attr.iova = 4096;
  attr.addr = memory;
  attr.dmah = reinterpret_cast<layout::Dmah*>(memory);
  attr.buf = reinterpret_cast<ibv_buf*>(memory);
  attr.comp_mask = layout::mr_addr;
  ibv_mr* mr = reg_mr_ex(pd_, &attr);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, memory);
  EXPECT_EQ(mr->length, sizeof memory);
  EXPECT_EQ(knobs.iova, reinterpret_cast<uintptr_t>(memory));
  EXPECT_EQ(knobs.access, unsigned{IBV_ACCESS_LOCAL_WRITE});
  EXPECT_EQ(dereg_mr(mr), 0);
  attr.comp_mask = layout::mr_addr | layout::mr_iova;
  mr = reg_mr_ex(pd_, &attr);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(knobs.iova, 4096U);
  EXPECT_EQ(dereg_mr(mr), 0);
  for (const uint64_t mask :
       {uint64_t{0}, layout::mr_iova, layout::mr_addr | 64, layout::mr_addr | layout::mr_fd,
        layout::mr_addr | layout::mr_fd_offset, layout::mr_fd | layout::mr_buf}) {
    attr.comp_mask = mask;
    EXPECT_EQ(refusal(reg_mr_ex(pd_, &attr)), EINVAL) << mask;
  }
  attr.comp_mask = layout::mr_fd | layout::mr_fd_offset | layout::mr_iova;
  EXPECT_EQ(refusal(reg_mr_ex(pd_, &attr)), EOPNOTSUPP);
  attr.comp_mask = layout::mr_addr;
  attr.access = IBV_ACCESS_REMOTE_WRITE;
  EXPECT_EQ(refusal(reg_mr_ex(pd_, &attr)), EINVAL);
  EXPECT_EQ(refusal(reg_mr_ex(pd_, nullptr)), EINVAL);
  EXPECT_EQ(refusal(reg_mr_ex(nullptr, &attr)), EINVAL);
}

// ibv_alloc_buf(3)
TEST_F(VerbsCalls, BuffersAreOfADomain) {
  ibv_buf* buf = nullptr;
  EXPECT_EQ(refusal(alloc_buf(pd_, 0, &buf)), EINVAL);
  EXPECT_EQ(refusal(alloc_buf(nullptr, 1, &buf)), EINVAL);
  EXPECT_EQ(refusal(alloc_buf(pd_, 1, nullptr)), EINVAL);
  EXPECT_EQ(refusal(alloc_buf(pd_, SIZE_MAX, &buf)), ENOMEM);
  EXPECT_EQ(refusal(alloc_buf(pd_, SIZE_MAX / 2, &buf)), ENOMEM);
  auto* base = static_cast<char*>(alloc_buf(pd_, 5000, &buf));
  ASSERT_NE(base, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(base) % 4096, 0U);
  std::memset(base, 1, 5000);
  ibv_mr* mr = reg_buf_mr(pd_, buf, base + 5000 - 8, 8, 0);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, base + 5000 - 8);
  EXPECT_EQ(dereg_mr(mr), 0);
  EXPECT_EQ(refusal(reg_buf_mr(pd_, buf, base + 5000 - 8, 9, 0)), EINVAL);
  EXPECT_EQ(refusal(reg_buf_mr(pd_, buf, base - 1, 8, 0)), EINVAL);
  EXPECT_EQ(refusal(reg_buf_mr(pd_, buf, base + 8, SIZE_MAX, 0)), EINVAL);
  EXPECT_EQ(refusal(reg_buf_mr(pd_, nullptr, base, 8, 0)), EINVAL);
  ibv_pd* other = alloc_pd(context());
  EXPECT_EQ(refusal(reg_buf_mr(other, buf, base, 8, 0)), EINVAL);
  EXPECT_EQ(dealloc_pd(other), 0);
  free_buf(buf);
  free_buf(nullptr);
}

TEST_F(VerbsCalls, ValuesAreCopiedAsFarAsTheCallerHasRoom) {
  union {
    ibv_port_attr port;
    unsigned char bytes[sizeof(ibv_port_attr) + 8];
  } room;
  std::memset(&room, 0x55, sizeof room);
  constexpr size_t old = offsetof(ibv_port_attr, port_cap_flags2);
  EXPECT_EQ(query_port(context(), 1, &room.port, old), 0);
  EXPECT_EQ(room.port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(room.bytes[old], 0x55);
  EXPECT_EQ(query_port(context(), 1, &room.port, sizeof room), 0);
  EXPECT_EQ(room.port.port_cap_flags2, 0xabcd);
  EXPECT_EQ(room.bytes[sizeof room - 1], 0);
  EXPECT_EQ(query_port(context(), 9, &room.port, sizeof room), EINVAL);
  ibv_device_attr_ex device;
  EXPECT_EQ(query_device_ex(context(), nullptr, &device, sizeof device.orig_attr), EINVAL);
  const ibv_query_device_ex_input input{1};
  EXPECT_EQ(query_device_ex(context(), &input, &device, sizeof device), EINVAL);
  std::memset(static_cast<void*>(&device), 0x55, sizeof device);
  EXPECT_EQ(query_device_ex(context(), nullptr, &device, offsetof(ibv_device_attr_ex, phys_port_cnt_ex)), 0);
  EXPECT_EQ(device.orig_attr.phys_port_cnt, 2);
  EXPECT_EQ(device.phys_port_cnt_ex, 0x55555555U);
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RESERVED;
  EXPECT_EQ(query_values(context(), &values), EINVAL);
}

TEST_F(VerbsCalls, GidsOfAllPortsAndEmptyOnes) {
  knobs.gids[0].raw[15] = 1;
  knobs.gids[2].raw[15] = 3;
  ibv_gid gid;
  EXPECT_EQ(query_gid(context(), 1, 1, &gid), 0);
  EXPECT_EQ(gid.raw[15], 0);
  EXPECT_EQ(query_gid(context(), 1, 3, &gid), -1);
  EXPECT_EQ(query_gid(context(), 1, -1, &gid), -1);
  ibv_gid_entry entries[4];
  EXPECT_EQ(query_gid_ex(context(), 1, 1, entries, 0, sizeof *entries), ENODATA);
  EXPECT_EQ(query_gid_ex(context(), 1, 0, entries, 1, sizeof *entries), EOPNOTSUPP);
  EXPECT_EQ(query_gid_ex(context(), 300, 0, entries, 0, sizeof *entries), EINVAL);
  EXPECT_EQ(query_gid_table(context(), entries, 4, 0, sizeof *entries), 4);
  EXPECT_EQ(entries[3].port_num, 2U);
  EXPECT_EQ(entries[3].gid_index, 2U);
  EXPECT_EQ(query_gid_table(context(), entries, 3, 0, sizeof *entries), -EINVAL);
  struct Longer {
    ibv_gid_entry entry;
    uint64_t more;
  } longer[4];
  std::memset(static_cast<void*>(longer), 0x55, sizeof longer);
  EXPECT_EQ(query_gid_table(context(), &longer[0].entry, 4, 0, sizeof *longer), 4);
  EXPECT_EQ(longer[1].entry.gid.raw[15], 3);
  EXPECT_EQ(longer[1].more, 0U);
  int type = 0;
  EXPECT_EQ(query_gid_type(context(), 1, 0, &type), 0);
  EXPECT_EQ(type, 1);
  EXPECT_EQ(query_gid_type(context(), 1, 1, &type), 0);
  EXPECT_EQ(type, 0);
  EXPECT_EQ(pkey_index(context(), 1, 1), 1);
  EXPECT_EQ(pkey_index(context(), 1, 5), -1);
}

TEST(VerbsProviders, AShorterTableOfAnOlderProviderHasTheRestEmpty) {
  fake::Knobs old;
  old.ops_bytes = offsetof(weft_verbs_ops, destroy_qp);
  const Opened opened(old);
  ASSERT_NE(opened.context, nullptr);
  EXPECT_EQ(opened.context->num_comp_vectors, 1);
  EXPECT_NE(opened.context->ops.post_send, nullptr);
  ibv_send_wr wr{}, *bad = nullptr;
  EXPECT_EQ(opened.context->ops.post_send(nullptr, &wr, &bad), EOPNOTSUPP);
  EXPECT_EQ(bad, &wr);
  EXPECT_LT(opened.context->ops.poll_cq(nullptr, 0, nullptr), 0);
  ibv_pd* pd = alloc_pd(opened.context);
  ibv_ah_attr attr{};
  EXPECT_EQ(create_ah(pd, &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(dealloc_pd(pd), 0);
}

TEST(VerbsProviders, IncompleteAndSecondOnesAreRefused) {
  register_provider(&fake::provider);
  EXPECT_EQ(register_provider(&fake::provider), EEXIST);
  EXPECT_EQ(register_provider(nullptr), EINVAL);
  weft_verbs_provider other = fake::provider;
  other.name = "other";
  other.size = offsetof(weft_verbs_provider, close);
  EXPECT_EQ(register_provider(&other), EINVAL);
  other.size = sizeof other;
  other.name = nullptr;
  EXPECT_EQ(register_provider(&other), EINVAL);
}

TEST(VerbsProviders, OneThatDoesNotStartIsLeftOut) {
  static weft_verbs_provider broken = fake::provider;
  broken.name = "broken";
  broken.start = [](const weft_verbs_services*) { return EIO; };
  broken.list_devices = [](void (*)(void*, const weft_verbs_device*), void*) -> int {
    ADD_FAILURE() << "it did not start";
    return 0;
  };
  EXPECT_EQ(register_provider(&broken), 0);
  ibv_device** list = device_list(nullptr);
  ASSERT_NE(list, nullptr);
  free_device_list(list);
}

TEST(VerbsDevices, StayAsLongAsSomebodyHasThem) {
  register_provider(&fake::provider);
  int count = 0;
  ibv_device** first = device_list(&count);
  ASSERT_GE(count, 1);
  ibv_device* device = nullptr;
  int same = 0;
  for (ibv_device** at = first; *at != nullptr; ++at) {
    if (std::strcmp((*at)->name, "fake0") != 0) continue;
    device = *at;
    ++same;
  }
  EXPECT_EQ(same, 1);
  ibv_context* context = open_device(device);
  ASSERT_NE(context, nullptr);
  free_device_list(first);
  EXPECT_STREQ(context->device->name, "fake0");
  ibv_device** second = device_list(nullptr);
  bool found = false;
  for (ibv_device** at = second; *at != nullptr; ++at) found = found || *at == device;
  EXPECT_TRUE(found);
  const int closed = knobs.closed;
  EXPECT_EQ(close_device(context), 0);
  EXPECT_EQ(knobs.closed, closed + 1);
  free_device_list(second);
}

}  // namespace
}  // namespace weft::verbs
