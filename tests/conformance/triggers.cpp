// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// FI_FENCE, FI_TRIGGER with thresholds and the deferred work queue: fi_cq(3) FI_FENCE and fi_trigger(3).
#include <cstring>

#include "fixture.hpp"

namespace weft::conformance {
namespace {

constexpr uint64_t remote_access = FI_REMOTE_READ | FI_REMOTE_WRITE;

// fi_rma(3), FI_FENCE: the fenced operation starts when those before have completed, so a read sees a write without any RAW order,
// and a message that follows a fenced one tells that the write is there.
TEST(Fence, read_after_write__fi_rma_3) {
  WEFT_WORLD(w, {.caps = FI_RMA | FI_FENCE});
  std::vector<uint8_t> target(200'000);
  Region region = w.reg(1, target.data(), target.size(), remote_access);
  for (const size_t len : {size_t{8}, size_t{5000}, size_t{200'000}}) {
    for (uint32_t i = 0; i < 10; ++i) {
      SCOPED_TRACE(std::to_string(len) + ", round " + std::to_string(i));
      const auto out = pattern(len, 500 + i);
      std::vector<uint8_t> back(len, 0);
      Ctx wrote, did_read;
      const iovec to{back.data(), len};
      const fi_rma_iov from{region.at(), len, region.key()};
      const fi_msg_rma msg{&to, nullptr, 1, w[0].peer[1], &from, 1, &did_read, 0};
      WEFT_ASSERT_OK(w.post([&] {
        return fi_write(w[0], out.data(), len, nullptr, w[0].peer[1], region.at(), region.key(), &wrote);
      }));
      WEFT_ASSERT_OK(w.post([&] { return fi_readmsg(w[0], &msg, FI_FENCE); }));
      w.done(w[0].tx, did_read);
      WEFT_EXPECT_PATTERN(back.data(), len, 500 + i);
      bool write_came_before = false;
      for (const auto& c : w[0].tx->inbox) write_came_before |= c.context == &wrote;
      EXPECT_TRUE(write_came_before || !w[0].tx->inbox.empty() || w.done(w[0].tx, wrote).ok());
      w[0].tx->inbox.clear();
    }
  }
}

TEST(Fence, message_after_write__fi_msg_3) {
  WEFT_WORLD(w, {.caps = FI_RMA | FI_MSG | FI_FENCE});
  std::vector<uint8_t> target(200'000);
  Region region = w.reg(1, target.data(), target.size(), remote_access);
  for (const size_t len : {size_t{8}, size_t{5000}, size_t{200'000}}) {
    for (uint32_t i = 0; i < 10; ++i) {
      const auto out = pattern(len, 600 + i);
      uint64_t note = 0;
      Ctx wrote, sent, received;
      const iovec from{&note, 8};
      const fi_msg msg{&from, nullptr, 1, w[0].peer[1], &sent, 0};
      uint64_t in = 0;
      WEFT_ASSERT_OK(fi_recv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, &received));
      WEFT_ASSERT_OK(w.post([&] {
        return fi_write(w[0], out.data(), len, nullptr, w[0].peer[1], region.at(), region.key(), &wrote);
      }));
      WEFT_ASSERT_OK(w.post([&] { return fi_sendmsg(w[0], &msg, FI_FENCE | FI_DELIVERY_COMPLETE); }));
      w.done(w[1].rx, received);
      WEFT_EXPECT_PATTERN(target.data(), len, 600 + i);
      w.done(w[0].tx, sent);
      w.done(w[0].tx, wrote);
    }
  }
}

// ------------------------------------------------------------------------------------------------------------ triggered

// A context of a triggered operation, with room for FI_CONTEXT2.
struct Trigger {
  fi_triggered_context2 space{};
  Trigger(fid_cntr* counter, size_t threshold) {
    space.event_type = FI_TRIGGER_THRESHOLD;
    space.trigger.threshold.cntr = counter;
    space.trigger.threshold.threshold = threshold;
  }
};

Options trigger_options() { return {.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_TRIGGER}; }

Handle<fid_cntr> new_counter(World& w) {
  fi_cntr_attr attr{};
  Handle<fid_cntr> counter;
  WEFT_EXPECT_OK(fi_cntr_open(w.domain(), &attr, counter.out(), nullptr));
  return counter;
}

Completion wait_for(World& w, Cq* cq, const void* context) {
  Completion found;
  found.err = -1;
  w.progress_until([&] {
    for (auto at = cq->inbox.begin(); at != cq->inbox.end(); ++at) {
      if (at->context != context) continue;
      found = *at;
      cq->inbox.erase(at);
      return true;
    }
    return false;
  });
  return found;
}

// fi_trigger(3), FI_TRIGGER_THRESHOLD: held until the counter gets there.
TEST(Trigger, send_waits_for_the_threshold__fi_trigger_3) {
  WEFT_WORLD(w, trigger_options());
  auto counter = new_counter(w);
  uint64_t out = 5, in = 0;
  Ctx received;
  Trigger trigger(counter.get(), 3);
  const iovec from{&out, 8};
  const fi_msg msg{&from, nullptr, 1, w[0].peer[1], &trigger, 0};
  WEFT_ASSERT_OK(fi_recv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, &received));
  WEFT_ASSERT_OK(w.post([&] { return fi_sendmsg(w[0], &msg, FI_TRIGGER); }));
  EXPECT_TRUE(w.quiet(w[1].rx));
  WEFT_ASSERT_OK(fi_cntr_add(counter.get(), 2));
  EXPECT_TRUE(w.quiet(w[1].rx));
  out = 6;  // not read before it is triggered; fi_trigger(3), "the transfer is deferred"
  WEFT_ASSERT_OK(fi_cntr_add(counter.get(), 1));
  w.done(w[1].rx, received);
  EXPECT_EQ(in, 6u);
  EXPECT_EQ(wait_for(w, w[0].tx, &trigger).err, 0);
}

// fi_endpoint(3), fi_ep_alias with FI_TRIGGER: the calls without flags are triggered, those of the endpoint itself are not.
TEST(Trigger, default_flags_of_an_alias__fi_trigger_3) {
  WEFT_WORLD(w, trigger_options());
  Handle<fid_ep> triggering;
  const int rc = fi_ep_alias(w[0].ep.get(), triggering.out(), FI_TRANSMIT | FI_TRIGGER | FI_COMPLETION);
  WEFT_SKIP_IF(rc == -FI_ENOSYS || rc == -FI_EINVAL ? "no aliases: " + error_name(rc) : "");
  WEFT_ASSERT_OK(rc);
  auto counter = new_counter(w);
  std::vector<uint8_t> target(8), source(8, 1);
  Region region = w.reg(1, target.data(), target.size(), remote_access);
  uint64_t out[3] = {1, 2, 3}, in[3] = {};
  Ctx received[3], plain;
  for (size_t i = 0; i < 3; ++i)
    WEFT_ASSERT_OK(fi_trecv(w[1], &in[i], 8, nullptr, FI_ADDR_UNSPEC, i, 0, &received[i]));
  Trigger first(counter.get(), 2), second(counter.get(), 1), third(counter.get(), 3);
  const iovec part{&out[1], 8};
  WEFT_ASSERT_OK(
      w.post([&] { return fi_tsend(triggering.get(), &out[0], 8, nullptr, w[0].peer[1], 0, &first); }));
  WEFT_ASSERT_OK(
      w.post([&] { return fi_tsendv(triggering.get(), &part, nullptr, 1, w[0].peer[1], 1, &second); }));
  WEFT_ASSERT_OK(w.post([&] {
    return fi_write(triggering.get(), source.data(), 8, nullptr, w[0].peer[1], region.at(), region.key(),
                    &third);
  }));
  WEFT_ASSERT_OK(w.post([&] { return fi_tsend(w[0], &out[2], 8, nullptr, w[0].peer[1], 2, &plain); }));
  w.done(w[1].rx, received[2]);
  EXPECT_TRUE(w.quiet(w[1].rx));
  WEFT_ASSERT_OK(fi_cntr_add(counter.get(), 1));
  w.done(w[1].rx, received[1]);
  EXPECT_TRUE(w.quiet(w[1].rx));
  WEFT_ASSERT_OK(fi_cntr_add(counter.get(), 1));
  w.done(w[1].rx, received[0]);
  EXPECT_EQ(target[0], 0);
  WEFT_ASSERT_OK(fi_cntr_add(counter.get(), 1));
  EXPECT_EQ(wait_for(w, w[0].tx, &third).err, 0);
  EXPECT_TRUE(w.progress_until([&] { return target[0] == 1; }));
  WEFT_ASSERT_OK(triggering.close());
}

// The condition holds already: at once.
TEST(Trigger, starts_at_once_when_met__fi_trigger_3) {
  WEFT_WORLD(w, trigger_options());
  auto counter = new_counter(w);
  WEFT_ASSERT_OK(fi_cntr_set(counter.get(), 10));
  uint64_t out = 5, in = 0;
  Ctx received;
  Trigger trigger(counter.get(), 3);
  const iovec from{&out, 8};
  const fi_msg_tagged msg{&from, nullptr, 1, w[0].peer[1], 8, 0, &trigger, 0};
  WEFT_ASSERT_OK(fi_trecv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, 8, 0, &received));
  WEFT_ASSERT_OK(w.post([&] { return fi_tsendmsg(w[0], &msg, FI_TRIGGER); }));
  w.done(w[1].rx, received);
  EXPECT_EQ(in, 5u);
}

// fi_trigger(3): triggered in the order of their thresholds, then of their posting, though the counter jumps.
TEST(Trigger, order_of_thresholds__fi_trigger_3) {
  Options options = trigger_options();
  options.msg_order = FI_ORDER_SAS;
  WEFT_WORLD(w, options);
  auto counter = new_counter(w);
  const size_t thresholds[4] = {3, 1, 2, 1};
  const uint64_t want[4] = {1, 3, 2, 0};  // index of the operation in the order of arrival
  uint64_t out[4] = {0, 1, 2, 3}, in[4] = {9, 9, 9, 9};
  std::vector<Trigger> triggers;
  std::vector<Ctx> received(4);
  for (size_t i = 0; i < 4; ++i) triggers.emplace_back(counter.get(), thresholds[i]);
  for (size_t i = 0; i < 4; ++i)
    WEFT_ASSERT_OK(fi_recv(w[1], &in[i], 8, nullptr, FI_ADDR_UNSPEC, &received[i]));
  for (size_t i = 0; i < 4; ++i) {
    const iovec from{&out[i], 8};
    const fi_msg msg{&from, nullptr, 1, w[0].peer[1], &triggers[i], 0};
    WEFT_ASSERT_OK(w.post([&] { return fi_sendmsg(w[0], &msg, FI_TRIGGER); }));
  }
  WEFT_ASSERT_OK(fi_cntr_add(counter.get(), 5));
  for (size_t i = 0; i < 4; ++i) {
    w.done(w[1].rx, received[i]);
    EXPECT_EQ(in[i], want[i]);
  }
}

// A chain: a receive counted at endpoint 1 triggers its answer. RMA can be triggered as well.
TEST(Trigger, receive_triggers_answer_and_write__fi_trigger_3) {
  Options options = trigger_options();
  options.counters = {FI_RECV};
  WEFT_WORLD(w, options);
  fid_cntr* counter = w[1].counter(FI_RECV);
  uint64_t out = 1, in = 0, answer = 42, got = 0, stored = 0, value = 77;
  Region region = w.reg(0, &stored, 8, remote_access);
  Ctx received, answered;
  Trigger send_trigger(counter, 1), write_trigger(counter, 1);
  const iovec from{&answer, 8}, write_from{&value, 8};
  const fi_msg msg{&from, nullptr, 1, w[1].peer[0], &send_trigger, 0};
  const fi_rma_iov to{region.at(), 8, region.key()};
  const fi_msg_rma write{&write_from, nullptr, 1, w[1].peer[0], &to, 1, &write_trigger, 0};
  WEFT_ASSERT_OK(fi_recv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, &received));
  WEFT_ASSERT_OK(fi_recv(w[0], &got, 8, nullptr, FI_ADDR_UNSPEC, &answered));
  WEFT_ASSERT_OK(w.post([&] { return fi_sendmsg(w[1], &msg, FI_TRIGGER); }));
  WEFT_ASSERT_OK(w.post([&] { return fi_writemsg(w[1], &write, FI_TRIGGER); }));
  EXPECT_TRUE(w.quiet(w[0].rx));
  WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], &out, 8, w[0].peer[1]); }));
  w.done(w[0].rx, answered);
  EXPECT_EQ(got, 42u);
  EXPECT_EQ(wait_for(w, w[1].tx, &write_trigger).err, 0);
  EXPECT_TRUE(w.progress_until([&] { return stored == 77; }));
}

// fi_endpoint(3), fi_cancel of what was not triggered; and a close with one pending.
TEST(Trigger, cancel_and_close__fi_endpoint_3) {
  WEFT_WORLD(w, trigger_options());
  auto counter = new_counter(w);
  uint64_t out = 5;
  Trigger canceled(counter.get(), 3), left(counter.get(), 4);
  const iovec from{&out, 8};
  fi_msg msg{&from, nullptr, 1, w[0].peer[1], &canceled, 0};
  WEFT_ASSERT_OK(w.post([&] { return fi_sendmsg(w[0], &msg, FI_TRIGGER); }));
  msg.context = &left;
  WEFT_ASSERT_OK(w.post([&] { return fi_sendmsg(w[0], &msg, FI_TRIGGER); }));
  if (fi_cancel(w[0].ep.fid(), &canceled) == 0) {
    EXPECT_EQ(wait_for(w, w[0].tx, &canceled).err, FI_ECANCELED);
  }
  WEFT_EXPECT_OK(w.close_endpoint(0));
}

// -------------------------------------------------------------------------------------------------------- deferred work

struct Work {
  fi_deferred_work work{};
  Work(fi_op_type type, fid_cntr* triggering, uint64_t threshold, fid_cntr* completion) {
    work.op_type = type;
    work.triggering_cntr = triggering;
    work.threshold = threshold;
    work.completion_cntr = completion;
  }
};

int queue(World& w, Work& work) { return fi_control(&w.domain()->fid, FI_QUEUE_WORK, &work.work); }

#define WEFT_QUEUE(w, item)                                                     \
  do {                                                                          \
    const int weft_rc = queue((w), (item));                                     \
    WEFT_SKIP_IF(weft_rc == -FI_ENOSYS ? "no deferred work of this kind" : ""); \
    WEFT_ASSERT_OK(weft_rc);                                                    \
  } while (false)

// fi_trigger(3), DEFERRED WORK QUEUES: a send, a tagged send, both receives; the completion counter alone tells.
TEST(DeferredWork, messages__fi_trigger_3) {
  WEFT_WORLD(w, trigger_options());
  auto trigger = new_counter(w), sends = new_counter(w), receives = new_counter(w);
  uint64_t out[2] = {5, 6}, in[2] = {};
  iovec from[2] = {{&out[0], 8}, {&out[1], 8}}, to[2] = {{&in[0], 8}, {&in[1], 8}};
  fi_op_msg send{w[0], {&from[0], nullptr, 1, w[0].peer[1], nullptr, 0}, 0};
  fi_op_tagged tsend{w[0], {&from[1], nullptr, 1, w[0].peer[1], 9, 0, nullptr, 0}, 0};
  fi_op_msg recv{w[1], {&to[0], nullptr, 1, FI_ADDR_UNSPEC, nullptr, 0}, 0};
  fi_op_tagged trecv{w[1], {&to[1], nullptr, 1, FI_ADDR_UNSPEC, 9, 0, nullptr, 0}, 0};
  Work a(FI_OP_SEND, trigger.get(), 2, sends.get()), b(FI_OP_TSEND, trigger.get(), 2, sends.get());
  Work c(FI_OP_RECV, trigger.get(), 1, receives.get()), d(FI_OP_TRECV, trigger.get(), 1, receives.get());
  a.work.op.msg = &send;
  b.work.op.tagged = &tsend;
  c.work.op.msg = &recv;
  d.work.op.tagged = &trecv;
  for (Work* item : {&a, &b, &c, &d}) WEFT_QUEUE(w, *item);
  w.progress_for(quiet_time);
  EXPECT_EQ(fi_cntr_read(sends.get()), 0u);
  WEFT_ASSERT_OK(fi_cntr_add(trigger.get(), 1));
  w.progress_for(quiet_time);
  EXPECT_EQ(fi_cntr_read(sends.get()), 0u);
  WEFT_ASSERT_OK(fi_cntr_add(trigger.get(), 1));
  EXPECT_TRUE(
      w.progress_until([&] { return fi_cntr_read(sends.get()) == 2 && fi_cntr_read(receives.get()) == 2; }));
  EXPECT_EQ(in[0], 5u);
  EXPECT_EQ(in[1], 6u);
  EXPECT_TRUE(w.quiet(w[0].tx)) << "no entry at the endpoint by default";
  EXPECT_TRUE(w.quiet(w[1].rx));
}

TEST(DeferredWork, rma__fi_trigger_3) {
  WEFT_WORLD(w, trigger_options());
  auto trigger = new_counter(w), completed = new_counter(w);
  std::vector<uint8_t> target(100'000), back(100'000);
  auto out = pattern(100'000, 3);
  Region region = w.reg(1, target.data(), target.size(), remote_access);
  const iovec from{out.data(), out.size()}, to{back.data(), back.size()};
  const fi_rma_iov remote{region.at(), target.size(), region.key()};
  fi_op_rma write{w[0], {&from, nullptr, 1, w[0].peer[1], &remote, 1, nullptr, 0}, FI_DELIVERY_COMPLETE};
  fi_op_rma read{w[0], {&to, nullptr, 1, w[0].peer[1], &remote, 1, nullptr, 0}, 0};
  Work a(FI_OP_WRITE, trigger.get(), 1, completed.get());
  // The read waits for the write: its trigger is the completion counter.
  Work b(FI_OP_READ, completed.get(), 1, completed.get());
  a.work.op.rma = &write;
  b.work.op.rma = &read;
  WEFT_QUEUE(w, b);
  WEFT_QUEUE(w, a);
  WEFT_ASSERT_OK(fi_cntr_add(trigger.get(), 1));
  EXPECT_TRUE(w.progress_until([&] { return fi_cntr_read(completed.get()) == 2; }));
  WEFT_EXPECT_PATTERN(target.data(), target.size(), 3);
  WEFT_EXPECT_PATTERN(back.data(), back.size(), 3);
}

TEST(DeferredWork, atomics__fi_trigger_3) {
  Options options = trigger_options();
  options.caps |= FI_ATOMIC;
  WEFT_WORLD(w, options);
  auto trigger = new_counter(w), completed = new_counter(w);
  uint64_t target = 10, source = 5, got = 0, swapped = 0, compare = 15, fresh = 100;
  Region region = w.reg(1, &target, 8, remote_access);
  const fi_ioc from{&source, 1}, new_value{&fresh, 1}, with{&compare, 1};
  fi_ioc result{&got, 1}, swap_result{&swapped, 1};
  const fi_rma_ioc remote{region.at(), 1, region.key()};
  const fi_msg_atomic sum{&from, nullptr, 1, w[0].peer[1], &remote, 1, FI_UINT64, FI_SUM, nullptr, 0};
  const fi_msg_atomic look{&from,          nullptr, 1, w[0].peer[1], &remote, 1, FI_UINT64,
                           FI_ATOMIC_READ, nullptr, 0};
  const fi_msg_atomic swap{&new_value, nullptr, 1, w[0].peer[1], &remote, 1, FI_UINT64, FI_CSWAP, nullptr, 0};
  fi_op_atomic base{w[0], sum, FI_DELIVERY_COMPLETE};
  fi_op_fetch_atomic fetch{w[0], look, {&result, nullptr, 1}, 0};
  fi_op_compare_atomic compare_swap{w[0], swap, {&swap_result, nullptr, 1}, {&with, nullptr, 1}, 0};
  Work a(FI_OP_ATOMIC, trigger.get(), 1, completed.get());
  Work b(FI_OP_FETCH_ATOMIC, completed.get(), 1, completed.get());
  Work c(FI_OP_COMPARE_ATOMIC, completed.get(), 2, completed.get());
  a.work.op.atomic = &base;
  b.work.op.fetch_atomic = &fetch;
  c.work.op.compare_atomic = &compare_swap;
  for (Work* item : {&a, &b, &c}) WEFT_QUEUE(w, *item);
  WEFT_ASSERT_OK(fi_cntr_add(trigger.get(), 1));
  EXPECT_TRUE(w.progress_until([&] { return fi_cntr_read(completed.get()) == 3; }));
  EXPECT_EQ(got, 15u);
  EXPECT_EQ(swapped, 15u);
  EXPECT_EQ(target, 100u);
}

TEST(DeferredWork, counters__fi_trigger_3) {
  WEFT_WORLD(w, trigger_options());
  auto trigger = new_counter(w), moved = new_counter(w);
  fi_op_cntr add{moved.get(), 5}, set{moved.get(), 100};
  Work a(FI_OP_CNTR_ADD, trigger.get(), 1, nullptr), b(FI_OP_CNTR_SET, trigger.get(), 2, nullptr);
  a.work.op.cntr = &add;
  b.work.op.cntr = &set;
  WEFT_QUEUE(w, a);
  WEFT_QUEUE(w, b);
  WEFT_ASSERT_OK(fi_cntr_add(trigger.get(), 1));
  EXPECT_TRUE(w.progress_until([&] { return fi_cntr_read(moved.get()) == 5; }));
  WEFT_ASSERT_OK(fi_cntr_add(trigger.get(), 1));
  EXPECT_TRUE(w.progress_until([&] { return fi_cntr_read(moved.get()) == 100; }));
  // fi_trigger(3): errors of the triggering counter count towards the threshold.
  auto failing = new_counter(w);
  Work c(FI_OP_CNTR_ADD, failing.get(), 2, nullptr);
  c.work.op.cntr = &add;
  WEFT_QUEUE(w, c);
  WEFT_ASSERT_OK(fi_cntr_add(failing.get(), 1));
  WEFT_ASSERT_OK(fi_cntr_adderr(failing.get(), 1));
  EXPECT_TRUE(w.progress_until([&] { return fi_cntr_read(moved.get()) == 105; }));
}

// fi_trigger(3), FI_CANCEL_WORK and FI_FLUSH_WORK.
TEST(DeferredWork, cancel_and_flush__fi_trigger_3) {
  WEFT_WORLD(w, trigger_options());
  auto trigger = new_counter(w), moved = new_counter(w);
  fi_op_cntr add{moved.get(), 1};
  std::vector<Work> works;
  for (int i = 0; i < 4; ++i) {
    works.emplace_back(FI_OP_CNTR_ADD, trigger.get(), 1, nullptr);
    works.back().work.op.cntr = &add;
  }
  for (auto& work : works) WEFT_QUEUE(w, work);
  WEFT_ASSERT_OK(fi_control(&w.domain()->fid, FI_CANCEL_WORK, &works[1].work));
  WEFT_ASSERT_OK(fi_cntr_add(trigger.get(), 1));
  EXPECT_TRUE(w.progress_until([&] { return fi_cntr_read(moved.get()) == 3; }));
  w.progress_for(quiet_time);
  EXPECT_EQ(fi_cntr_read(moved.get()), 3u);
  for (auto& work : works) {
    work.work.threshold = 50;
    WEFT_ASSERT_OK(queue(w, work));
  }
  WEFT_ASSERT_OK(fi_control(&w.domain()->fid, FI_FLUSH_WORK, nullptr));
  WEFT_ASSERT_OK(fi_cntr_add(trigger.get(), 100));
  w.progress_for(quiet_time);
  EXPECT_EQ(fi_cntr_read(moved.get()), 3u) << "flushed work ran";
}

}  // namespace
}  // namespace weft::conformance
