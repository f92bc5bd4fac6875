// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Triggered operations and deferred work, driven by one thread: each kind of operation, order, chains,
// endings, refusals. Each kind over every provider that stays in one process.
#include "api/libfabric/endpoints/trigger_fixture.hpp"

namespace weft::fi::test {
namespace {

using namespace std::chrono_literals;

constexpr fi_op_type transfers[] = {FI_OP_RECV,   FI_OP_SEND,         FI_OP_TRECV,
                                    FI_OP_TSEND,  FI_OP_READ,         FI_OP_WRITE,
                                    FI_OP_ATOMIC, FI_OP_FETCH_ATOMIC, FI_OP_COMPARE_ATOMIC};

// What the other side does for the operation, and whether the data arrived.
class EachTransfer : public Trigger, public testing::WithParamInterface<std::tuple<const char*, fi_op_type>> {
 protected:
  EachTransfer() { provider_name = std::get<0>(GetParam()); }
  void prepare() {
    mr = region(&cell, sizeof cell);
    switch (type) {
      case FI_OP_RECV:
        ASSERT_EQ(fi_inject(nodes[1].ep, &cell, 8, nodes[1].peer), 0);
        break;
      case FI_OP_TRECV:
        ASSERT_EQ(fi_tinject(nodes[1].ep, &cell, 8, nodes[1].peer, 77), 0);
        break;
      case FI_OP_SEND:
        ASSERT_EQ(fi_recv(nodes[1].ep, &cell, 8, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
        break;
      case FI_OP_TSEND:
        ASSERT_EQ(fi_trecv(nodes[1].ep, &cell, 8, nullptr, FI_ADDR_UNSPEC, 77, 0, nullptr), 0);
        break;
      default:
        break;
    }
  }
  void expect_nothing_happened() {
    drive_for_a_while();
    EXPECT_EQ(cell, 40u);
    EXPECT_EQ(op.local, 5u);
    EXPECT_EQ(op.old, 0u);
  }
  bool done() const {
    switch (type) {
      case FI_OP_RECV:
      case FI_OP_TRECV:
      case FI_OP_READ:
        return op.local == 40;
      case FI_OP_SEND:
      case FI_OP_TSEND:
      case FI_OP_WRITE:
        return cell == 5;
      case FI_OP_ATOMIC:
        return cell == 45;
      case FI_OP_FETCH_ATOMIC:
        return cell == 45 && op.old == 40;
      default:
        return cell == 5 && op.old == 40;
    }
  }
  bool is_receive() const { return type == FI_OP_RECV || type == FI_OP_TRECV; }

  const fi_op_type type = std::get<1>(GetParam());
  uint64_t cell = 40;
  fid_mr* mr = nullptr;
  Operation op{type};
};

TEST_P(EachTransfer, WaitsForItsCounterAndCompletesWithItsContext) {
  open();
  prepare();
  fid_cntr* trigger = counter();
  auto when = context(trigger, 2);
  op.build(nodes[0], &when, remote_address(&cell), fi_mr_key(mr));
  ASSERT_EQ(op.post(FI_TRIGGER | FI_COMPLETION), 0);
  op.scribble();
  ASSERT_EQ(fi_cntr_add(trigger, 1), 0);
  expect_nothing_happened();
  ASSERT_EQ(fi_cntr_add(trigger, 1), 0);
  auto& completions = is_receive() ? received : sent;
  const auto mine = [&] {
    return std::count_if(completions.begin(), completions.end(),
                         [&](const Entry& e) { return e.context == &when; });
  };
  EXPECT_TRUE(drive_until([&] { return done() && mine() == 1; }));
  EXPECT_EQ(fi_cntr_read(is_receive() ? nodes[0].receives : nodes[0].sends), 1u);
}

TEST_P(EachTransfer, StartsAtOnceWhenTheValueIsThere) {
  open();
  prepare();
  fid_cntr* trigger = counter();
  fi_cntr_add(trigger, 7);
  auto when = context(trigger, 7);
  op.build(nodes[0], &when, remote_address(&cell), fi_mr_key(mr));
  ASSERT_EQ(op.post(FI_TRIGGER), 0);
  op.scribble();
  EXPECT_TRUE(drive_until([&] { return done(); }));
}

// fi_trigger(3), deferred work queues: no completions at the endpoint, one on the completion counter.
TEST_P(EachTransfer, AsDeferredWorkTellsOnlyItsCompletionCounter) {
  open();
  prepare();
  fid_cntr* trigger = counter();
  fid_cntr* completion = counter();
  op.build(nodes[0], &op, remote_address(&cell), fi_mr_key(mr));
  auto work = op.work(trigger, 1, completion);
  ASSERT_EQ(queue(work), 0);
  op.scribble();
  expect_nothing_happened();
  ASSERT_EQ(fi_cntr_add(trigger, 1), 0);
  // Reading the completion counter alone drives the endpoint that works; the other one is the peer's
  // business.
  EXPECT_TRUE(drive_until([&] { return fi_cntr_read(completion) == 1; }));
  EXPECT_TRUE(drive_until([&] { return done(); }));
  drive_for_a_while();
  EXPECT_EQ(fi_cntr_read(completion), 1u);
  EXPECT_EQ(fi_cntr_readerr(completion), 0u);
  for (const Entry& entry : sent) EXPECT_NE(entry.context, &op);
  for (const Entry& entry : received) EXPECT_NE(entry.context, &op);
  EXPECT_EQ(fi_cntr_read(nodes[0].sends), 0u);
  EXPECT_EQ(fi_cntr_read(nodes[0].receives), 0u);
}

TEST_P(EachTransfer, AsDeferredWorkCompletesAtTheEndpointWhenAsked) {
  open(FI_THREAD_SAFE, all_caps, 0, FI_SELECTIVE_COMPLETION);
  prepare();
  fid_cntr* trigger = counter();
  fid_cntr* completion = counter();
  op.build(nodes[0], &op, remote_address(&cell), fi_mr_key(mr), FI_COMPLETION);
  auto work = op.work(trigger, 1, completion);
  ASSERT_EQ(queue(work), 0);
  ASSERT_EQ(fi_cntr_add(trigger, 1), 0);
  auto& completions = is_receive() ? received : sent;
  EXPECT_TRUE(drive_until([&] { return fi_cntr_read(completion) == 1 && !completions.empty(); }));
  ASSERT_FALSE(completions.empty());
  EXPECT_EQ(completions.front().context, &op);
  EXPECT_EQ(fi_cntr_read(is_receive() ? nodes[0].receives : nodes[0].sends), 1u);
}

TEST_P(EachTransfer, WorksWithoutALockAndUnderCompletionThreading) {
  for (const fi_threading threading : {FI_THREAD_DOMAIN, FI_THREAD_COMPLETION}) {
    cell = 40;
    op = Operation(type);
    open(threading);
    prepare();
    fid_cntr* trigger = counter();
    fid_cntr* completion = counter();
    op.build(nodes[0], &op, remote_address(&cell), fi_mr_key(mr));
    auto work = op.work(trigger, 1, completion);
    ASSERT_EQ(queue(work), 0);
    ASSERT_EQ(fi_cntr_add(trigger, 1), 0);
    EXPECT_TRUE(drive_until([&] { return fi_cntr_read(completion) == 1 && done(); }));
    TearDown();
    nodes = {};
    counters.clear();
    regions.clear();
    domain = nullptr;
    fabric = nullptr;
  }
}

INSTANTIATE_TEST_SUITE_P(Trigger, EachTransfer,
                         testing::Combine(testing::Values("loopback", "shm"), testing::ValuesIn(transfers)),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param)) + "_op" +
                                  std::to_string(static_cast<int>(std::get<1>(each.param)));
                         });

// fi_trigger(3): in the order of the thresholds, and of submission where they are equal.
TEST_F(Trigger, OrderIsThatOfThresholdsThenOfSubmission) {
  open();
  fid_cntr* trigger = counter();
  const uint64_t at[] = {5, 2, 5, 9, 2};
  std::vector<fi_triggered_context> when;
  for (const uint64_t each : at) when.push_back(context(trigger, each));
  std::array<uint64_t, 5> value{0, 1, 2, 3, 4};
  std::array<uint64_t, 5> in{};
  for (uint64_t& each : in) ASSERT_EQ(fi_recv(nodes[1].ep, &each, 8, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  for (size_t i = 0; i < 5; ++i) {
    const iovec iov{&value[i], 8};
    const fi_msg msg{&iov, nullptr, 1, nodes[0].peer, &when[i], 0};
    ASSERT_EQ(fi_sendmsg(nodes[0].ep, &msg, FI_TRIGGER), 0);
  }
  fi_cntr_add(trigger, 8);
  EXPECT_TRUE(drive_until([&] { return received.size() == 4; }));
  fi_cntr_set(trigger, 100);
  EXPECT_TRUE(drive_until([&] { return received.size() == 5; }));
  EXPECT_EQ(in, (std::array<uint64_t, 5>{1, 4, 0, 2, 3}));
}

// A receive's counter starts a send on the other endpoint, whose completion starts a counter operation, and
// so on.
TEST_F(Trigger, AChainRunsByItself) {
  open();
  fid_cntr* start = counter();
  fid_cntr* middle = counter();
  fid_cntr* end = counter();
  uint64_t to_one = 11, to_zero = 22, at_one = 0, at_zero = 0;
  ASSERT_EQ(fi_recv(nodes[1].ep, &at_one, 8, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  ASSERT_EQ(fi_recv(nodes[0].ep, &at_zero, 8, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  const iovec first{&to_one, 8};
  const iovec second{&to_zero, 8};
  fi_op_msg send_one{nodes[0].ep, {&first, nullptr, 1, nodes[0].peer, nullptr, 0}, 0};
  fi_op_msg send_zero{nodes[1].ep, {&second, nullptr, 1, nodes[1].peer, nullptr, 0}, 0};
  fi_op_cntr add{end, 1000};
  fi_deferred_work a{}, b{}, c{};
  a.threshold = 1, a.triggering_cntr = start, a.completion_cntr = nullptr, a.op_type = FI_OP_SEND,
  a.op.msg = &send_one;
  b.threshold = 1, b.triggering_cntr = nodes[1].receives, b.completion_cntr = middle, b.op_type = FI_OP_SEND,
  b.op.msg = &send_zero;
  c.threshold = 1, c.triggering_cntr = middle, c.op_type = FI_OP_CNTR_ADD, c.op.cntr = &add;
  ASSERT_EQ(queue(c), 0);
  ASSERT_EQ(queue(b), 0);
  ASSERT_EQ(queue(a), 0);
  fi_cntr_add(start, 1);
  EXPECT_TRUE(drive_until([&] { return fi_cntr_read(end) == 1000 && at_zero == 22; }));
  EXPECT_EQ(at_one, 11u);
}

void on_small_stack(std::function<void()> body) {
  pthread_attr_t attr;
  pthread_t thread;
  ASSERT_EQ(pthread_attr_init(&attr), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attr, 512 << 10), 0);
  const auto run = [](void* what) -> void* {
    (*static_cast<std::function<void()>*>(what))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attr, run, &body), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attr);
}

TEST_F(Trigger, CounterOperationsNeedNoEndpointAndNoStack) {
  open();
  constexpr size_t length = 60'000;
  std::vector<fid_cntr*> ring{counter(), counter(), counter()};
  std::vector<fi_op_cntr> ops(length);
  std::vector<fi_deferred_work> works(length);
  for (size_t i = 0; i < length; ++i) {
    ops[i] = {ring[(i + 1) % 3], 1};
    works[i].threshold = i / 3 + 1;
    works[i].triggering_cntr = ring[i % 3];
    works[i].op_type = FI_OP_CNTR_ADD;
    works[i].op.cntr = &ops[i];
    ASSERT_EQ(queue(works[i]), 0);
  }
  on_small_stack([&] { fi_cntr_add(ring[0], 1); });
  EXPECT_EQ(fi_cntr_read(ring[0]), length / 3 + 1);
  EXPECT_EQ(fi_cntr_read(ring[1]), length / 3);
  fi_op_cntr set{ring[2], 3};
  fi_deferred_work work{};
  work.triggering_cntr = ring[1];
  work.op_type = FI_OP_CNTR_SET;
  work.op.cntr = &set;
  EXPECT_EQ(queue(work), 0);
  EXPECT_EQ(fi_cntr_read(ring[2]), 3u);
}

// fi_trigger(3), deferred work queues: the threshold is of successes and errors together.
TEST_F(Trigger, ErrorsCountForDeferredWorkOnly) {
  open();
  fid_cntr* trigger = counter();
  fid_cntr* target = counter();
  fi_op_cntr add{target, 1};
  fi_deferred_work work{};
  work.threshold = 5;
  work.triggering_cntr = trigger;
  work.op_type = FI_OP_CNTR_ADD;
  work.op.cntr = &add;
  ASSERT_EQ(queue(work), 0);
  uint64_t value = 1;
  auto when = context(trigger, 5);
  const iovec iov{&value, 8};
  const fi_msg msg{&iov, nullptr, 1, nodes[0].peer, &when, 0};
  ASSERT_EQ(fi_sendmsg(nodes[0].ep, &msg, FI_TRIGGER), 0);
  fi_cntr_adderr(trigger, 2);
  fi_cntr_add(trigger, 2);
  EXPECT_EQ(fi_cntr_read(target), 0u);
  fi_cntr_adderr(trigger, 1);
  EXPECT_EQ(fi_cntr_read(target), 1u);
  drive_for_a_while();
  EXPECT_TRUE(sent.empty());
  fi_cntr_add(trigger, 3);
  EXPECT_TRUE(drive_until([&] { return sent.size() == 1; }));
}

TEST_F(Trigger, CancelledAndFlushedWorkNeverRuns) {
  open();
  fid_cntr* trigger = counter();
  fid_cntr* other = counter();
  fid_cntr* completion = counter();
  std::deque<Operation> ops;
  std::deque<fi_deferred_work> works;
  for (fid_cntr* each : {trigger, trigger, other, other}) {
    ops.emplace_back(FI_OP_SEND).build(nodes[0], nullptr, 0, 0);
    works.push_back(ops.back().work(each, 1, completion));
    ASSERT_EQ(queue(works.back()), 0);
  }
  EXPECT_EQ(cancel(works[0]), 0);
  EXPECT_EQ(cancel(works[0]), -FI_ENOENT);
  fi_deferred_work which{};
  which.triggering_cntr = other;
  EXPECT_EQ(fi_control(&domain->fid, FI_FLUSH_WORK, &which), 0);
  EXPECT_EQ(cancel(works[2]), -FI_ENOENT);
  fi_cntr_add(other, 1);
  fi_cntr_add(trigger, 1);
  EXPECT_TRUE(drive_until([&] { return fi_cntr_read(completion) == 1; }));
  EXPECT_EQ(cancel(works[1]), -FI_ENOENT) << "it has run";
  ASSERT_EQ(queue(works[0] = ops[0].work(trigger, 5, completion)), 0);
  EXPECT_EQ(fi_control(&domain->fid, FI_FLUSH_WORK, nullptr), 0);
  fi_cntr_add(trigger, 5);
  drive_for_a_while();
  EXPECT_EQ(fi_cntr_read(completion), 1u);
}

// A triggered operation is cancelled like any other: fi_endpoint(3), fi_cancel.
TEST_F(Trigger, ATriggeredOperationIsCancelledByItsContext) {
  open();
  fid_cntr* trigger = counter();
  auto when = context(trigger, 1);
  Operation send(FI_OP_TSEND);
  send.build(nodes[0], &when, 0, 0);
  ASSERT_EQ(send.post(FI_TRIGGER), 0);
  EXPECT_EQ(fi_cancel(&nodes[1].ep->fid, &when), -FI_ENOENT) << "another endpoint";
  EXPECT_EQ(fi_cancel(&nodes[0].ep->fid, &when), 0);
  EXPECT_EQ(fi_cancel(&nodes[0].ep->fid, &when), -FI_ENOENT);
  fi_cntr_add(trigger, 1);
  EXPECT_TRUE(drive_until([&] { return !sent.empty(); }));
  EXPECT_EQ(sent.front().context, &when);
  EXPECT_EQ(sent.front().err, FI_ECANCELED);
  EXPECT_EQ(fi_cntr_readerr(nodes[0].sends), 1u);
}

TEST_F(Trigger, AnEndpointClosesOverWaitingAndPostedWork) {
  open();
  fid_cntr* trigger = counter();
  fid_cntr* completion = counter();
  Operation send(FI_OP_SEND);
  Operation receive(FI_OP_TRECV);
  send.build(nodes[0], nullptr, 0, 0);
  receive.build(nodes[0], nullptr, 0, 0);
  auto waits = send.work(trigger, 10, completion);
  auto posted = receive.work(trigger, 1, completion);
  ASSERT_EQ(queue(waits), 0);
  ASSERT_EQ(queue(posted), 0);
  auto when = context(trigger, 11);
  send.msg.msg.context = &when;
  ASSERT_EQ(send.post(FI_TRIGGER), 0);
  fi_cntr_add(trigger, 1);
  drive_for_a_while();
  EXPECT_EQ(cancel(posted), -FI_ENOENT) << "it is posted";
  EXPECT_EQ(fi_close(&trigger->fid), -FI_EBUSY);
  close(nodes[0].ep);
  EXPECT_EQ(cancel(waits), -FI_ENOENT);
  fi_cntr_add(trigger, 20);
  EXPECT_EQ(fi_cntr_read(completion), 0u);
}

TEST_F(Trigger, CountersAreLetGoOfWhenTheirWorkIsDone) {
  open();
  fid_cntr* trigger = counter();
  fid_cntr* completion = counter();
  Operation send(FI_OP_SEND);
  send.build(nodes[0], nullptr, 0, 0);
  auto work = send.work(trigger, 1, completion);
  ASSERT_EQ(queue(work), 0);
  EXPECT_EQ(links_of(trigger), 1u);
  EXPECT_EQ(links_of(completion), 1u);
  EXPECT_EQ(fi_close(&completion->fid), -FI_EBUSY);
  fi_cntr_add(trigger, 1);
  EXPECT_TRUE(drive_until([&] { return fi_cntr_read(completion) == 1; }));
  for (fid_cntr* each : {trigger, completion}) {
    EXPECT_EQ(fi_close(&each->fid), 0);
    std::erase(counters, each);
  }
}

// More than the endpoint and the peer's mailbox take at once: what finds no room waits, in order.
TEST_F(Trigger, WhatFindsNoRoomIsTriedAgain) {
  open(FI_THREAD_SAFE, all_caps, 64);
  constexpr size_t count = 3000;
  ASSERT_LT(info->tx_attr->size, count / 2);
  fid_cntr* trigger = counter();
  fid_cntr* completion = counter();
  std::vector<uint64_t> value(count);
  std::vector<iovec> iov(count);
  std::vector<fi_op_msg> ops(count);
  std::vector<fi_deferred_work> works(count);
  for (size_t i = 0; i < count; ++i) {
    value[i] = i;
    iov[i] = {&value[i], 8};
    ops[i] = {nodes[0].ep, {&iov[i], nullptr, 1, nodes[0].peer, nullptr, 0}, 0};
    works[i].threshold = 1;
    works[i].triggering_cntr = trigger;
    works[i].completion_cntr = completion;
    works[i].op_type = FI_OP_SEND;
    works[i].op.msg = &ops[i];
    ASSERT_EQ(queue(works[i]), 0);
  }
  fi_cntr_add(trigger, 1);
  EXPECT_LT(fi_cntr_read(completion), count);
  for (size_t i = 0; i < count; ++i) {
    uint64_t in = 0;
    ASSERT_EQ(fi_recv(nodes[1].ep, &in, 8, nullptr, FI_ADDR_UNSPEC, &in), 0);
    ASSERT_TRUE(drive_until([&] { return !received.empty(); }));
    received.pop_front();
    ASSERT_EQ(in, i);
  }
  EXPECT_TRUE(drive_until([&] { return fi_cntr_read(completion) == count; }));
}

// fi_msg(3), FI_INJECT: the buffer is the program's again when the call returns, though the operation waits.
TEST_F(Trigger, AnInjectedBufferIsTheProgramsAtOnce) {
  open();
  uint64_t cell[2] = {100, 0};
  fid_mr* mr = region(cell, sizeof cell);
  fid_cntr* trigger = counter();
  auto when = context(trigger, 1);
  Operation send(FI_OP_SEND), add(FI_OP_ATOMIC), swap(FI_OP_COMPARE_ATOMIC);
  uint64_t in = 0;
  ASSERT_EQ(fi_recv(nodes[1].ep, &in, 8, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  for (Operation* each : {&send, &add, &swap}) {
    each->build(nodes[0], &when, remote_address(&cell[0]), fi_mr_key(mr));
    if (each == &swap) each->expected = 105;
    ASSERT_EQ(each->post(FI_TRIGGER | FI_INJECT | FI_COMPLETION), 0);
    each->local = 0xdead;
    each->expected = 0xdead;
  }
  std::vector<char> large(info->tx_attr->inject_size + 1);
  send.iov = {large.data(), large.size()};
  EXPECT_EQ(send.post(FI_TRIGGER | FI_INJECT), -FI_EMSGSIZE);
  fi_cntr_add(trigger, 1);
  EXPECT_TRUE(drive_until([&] { return sent.size() == 3 && !received.empty(); }));
  EXPECT_EQ(in, 5u);
  EXPECT_EQ(swap.old, 105u);
  EXPECT_EQ(cell[0], 5u);
}

TEST_F(Trigger, AFailedStartIsAnErrorCompletion) {
  open();
  fid_cntr* trigger = counter();
  fid_cntr* completion = counter();
  Operation bad(FI_OP_SEND);
  bad.build(nodes[0], &bad, 0, 0);
  bad.msg.msg.addr = 12345;
  auto work = bad.work(trigger, 1, completion);
  ASSERT_EQ(queue(work), 0);
  fi_cntr_add(trigger, 1);
  EXPECT_TRUE(drive_until([&] { return fi_cntr_readerr(completion) == 1 && !sent.empty(); }));
  EXPECT_EQ(sent.front().context, &bad);
  EXPECT_EQ(sent.front().err, FI_EINVAL);
  EXPECT_EQ(fi_cntr_readerr(nodes[0].sends), 0u);
  EXPECT_EQ(fi_cntr_read(completion), 0u);
}

TEST_F(Trigger, WhatCannotWaitIsRefused) {
  open();
  fid_cntr* trigger = counter();
  auto when = context(trigger, 1);
  Operation op(FI_OP_SEND);
  op.build(nodes[0], nullptr, 0, 0);
  EXPECT_EQ(op.post(FI_TRIGGER), -FI_EINVAL) << "no context";
  op.msg.msg.context = &when;
  when.event_type = FI_TRIGGER_XPU;
  EXPECT_EQ(op.post(FI_TRIGGER), -FI_ENOSYS);
  when = context(nullptr, 1);
  EXPECT_EQ(op.post(FI_TRIGGER), -FI_EINVAL);
  when = context(trigger, 1);
  op.msg.msg.iov_count = 100;
  EXPECT_EQ(op.post(FI_TRIGGER), -FI_EINVAL);
  EXPECT_EQ(fi_control(&domain->fid, FI_QUEUE_WORK, nullptr), -FI_EINVAL);
  op.build(nodes[0], nullptr, 0, 0);
  auto work = op.work(nullptr, 1, nullptr);
  EXPECT_EQ(queue(work), -FI_EINVAL);
  work = op.work(trigger, 1, nullptr);
  op.msg.ep = nullptr;
  EXPECT_EQ(queue(work), -FI_EINVAL);
  fi_op_cntr add{trigger, 1};
  work.op_type = FI_OP_CNTR_ADD;
  work.op.cntr = &add;
  work.completion_cntr = trigger;
  EXPECT_EQ(queue(work), -FI_EINVAL) << "an operation on a counter has no completion counter";
  Operation receive(FI_OP_RECV);
  receive.build(nodes[0], &when, 0, 0, FI_MULTI_RECV);
  work = receive.work(trigger, 1, nullptr);
  EXPECT_EQ(queue(work), -FI_ENOSYS);
  EXPECT_EQ(receive.post(FI_TRIGGER | FI_PEEK), -FI_ENOSYS);
  fid_ep* shared = nullptr;
  ASSERT_EQ(fi_srx_context(domain, info->rx_attr, &shared, nullptr), 0);
  receive.msg.ep = shared;
  receive.msg.flags = 0;
  EXPECT_EQ(queue(work), -FI_ENOSYS);
  EXPECT_EQ(fi_close(&shared->fid), 0);
}

TEST_F(Trigger, ALargeMessageGoesOnAfterItWasTriggered) {
  open();
  fid_cntr* trigger = counter();
  fid_cntr* completion = counter();
  std::vector<char> out(1 << 20, 'x');
  std::vector<char> in(out.size());
  const iovec from{out.data(), out.size()};
  const iovec to{in.data(), in.size()};
  fi_op_tagged send{nodes[0].ep, {&from, nullptr, 1, nodes[0].peer, 3, 0, nullptr, 0}, 0};
  fi_op_tagged receive{nodes[1].ep, {&to, nullptr, 1, FI_ADDR_UNSPEC, 3, 0, nullptr, 0}, 0};
  fi_deferred_work works[2] = {};
  works[0].op.tagged = &send;
  works[0].op_type = FI_OP_TSEND;
  works[1].op.tagged = &receive;
  works[1].op_type = FI_OP_TRECV;
  for (fi_deferred_work& each : works) {
    each.threshold = 1;
    each.triggering_cntr = trigger;
    each.completion_cntr = completion;
    ASSERT_EQ(queue(each), 0);
  }
  fi_cntr_add(trigger, 1);
  // No queue of the endpoints is read.
  for (const auto end = std::chrono::steady_clock::now() + 10s;
       fi_cntr_read(completion) < 2 && std::chrono::steady_clock::now() < end;) {
  }
  EXPECT_EQ(fi_cntr_read(completion), 2u);
  EXPECT_EQ(in, out);
}

// Nothing has to be driven first.
TEST_F(Trigger, WorkStartsInTheCallThatReachesItsCounter) {
  open();
  fid_cntr* trigger = counter();
  fid_cntr* completion = counter();
  const core::Counter& value = reinterpret_cast<Cntr*>(completion)->counter;
  Operation send(FI_OP_SEND);
  send.build(nodes[0], nullptr, 0, 0);
  fi_deferred_work works[4];
  for (size_t i = 0; i < 4; ++i) {
    works[i] = send.work(trigger, i + 1, completion);
    ASSERT_EQ(queue(works[i]), 0);
  }
  ASSERT_EQ(fi_cntr_add(trigger, 1), 0);
  EXPECT_EQ(value.value(), 1u);
  ASSERT_EQ(fi_cntr_set(trigger, 2), 0);
  EXPECT_EQ(value.value(), 2u);
  ASSERT_EQ(fi_cntr_adderr(trigger, 1), 0);
  EXPECT_EQ(value.value(), 3u);
  ASSERT_EQ(fi_cntr_seterr(trigger, 2), 0);
  EXPECT_EQ(value.value(), 4u);
}

// Contexts of a scalable endpoint share one engine; each is a place of its own.
TEST_F(Trigger, ContextsOfAScalableEndpointTakeWork) {
  open();
  fid_ep* sep = nullptr;
  fid_ep* tx = nullptr;
  fi_info* base = dup_info(info.get());
  InfoPtr wide(base);
  wide->ep_attr->tx_ctx_cnt = 2;
  wide->ep_attr->rx_ctx_cnt = 1;
  ASSERT_EQ(fi_scalable_ep(domain, wide.get(), &sep, nullptr), 0);
  ASSERT_EQ(fi_scalable_ep_bind(sep, &nodes[0].av->fid, 0), 0);
  ASSERT_EQ(fi_tx_context(sep, 1, wide->tx_attr, &tx, nullptr), 0);
  ASSERT_EQ(fi_ep_bind(tx, &nodes[0].tx->fid, FI_TRANSMIT), 0);
  ASSERT_EQ(fi_enable(sep), 0);
  ASSERT_EQ(fi_enable(tx), 0);
  fid_cntr* trigger = counter();
  fid_cntr* completion = counter();
  uint64_t in = 0;
  ASSERT_EQ(fi_recv(nodes[1].ep, &in, 8, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  Operation send(FI_OP_SEND);
  send.build(nodes[0], nullptr, 0, 0);
  send.msg.ep = tx;
  auto first = send.work(trigger, 1, completion);
  auto second = send.work(trigger, 2, completion);
  ASSERT_EQ(queue(first), 0);
  ASSERT_EQ(queue(second), 0);
  fi_cntr_add(trigger, 1);
  EXPECT_TRUE(drive_until([&] { return in == 5 && fi_cntr_read(completion) == 1; }));
  close(tx);
  EXPECT_EQ(cancel(second), -FI_ENOENT);
  close(sep);
}

}  // namespace
}  // namespace weft::fi::test
