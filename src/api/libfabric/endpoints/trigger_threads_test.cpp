// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Triggered operations and deferred work with several threads: sleeping, adding, cancelling, closing.
#include "api/libfabric/endpoints/trigger_fixture.hpp"

namespace weft::fi::test {
namespace {

using namespace std::chrono_literals;

TEST_F(Trigger, AWaitForTheCompletionCounterEndsWhenAnotherThreadTriggers) {
  open();
  fid_cntr* trigger = counter();
  fid_cntr* completion = counter(FI_WAIT_UNSPEC);
  Operation send(FI_OP_SEND);
  send.build(nodes[0], nullptr, 0, 0);
  auto work = send.work(trigger, 1, completion);
  ASSERT_EQ(queue(work), 0);
  std::thread starter([&] {
    std::this_thread::sleep_for(30ms);
    fi_cntr_add(trigger, 1);
  });
  EXPECT_EQ(fi_cntr_wait(completion, 1, 10'000), 0);
  starter.join();
}

TEST_F(Trigger, TwoThreadsAddWhileAThirdDrives) {
  open();
  constexpr size_t count = 400;
  fid_cntr* trigger = counter();
  fid_cntr* completion = counter();
  uint64_t value = 9;
  std::vector<uint64_t> in(count);
  const iovec iov{&value, 8};
  fi_op_tagged op{nodes[0].ep, {&iov, nullptr, 1, nodes[0].peer, 1, 0, nullptr, 0}, 0};
  std::vector<fi_deferred_work> works(count);
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(fi_trecv(nodes[1].ep, &in[i], 8, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
    works[i].threshold = i + 1;
    works[i].triggering_cntr = trigger;
    works[i].completion_cntr = completion;
    works[i].op_type = FI_OP_TSEND;
    works[i].op.tagged = &op;
  }
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  threads.reserve(2);
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      for (size_t i = 0; i < count / 2; ++i) fi_cntr_add(trigger, 1);
    });
  threads.emplace_back([&] {
    while (!stop) fi_cntr_read(completion);
  });
  size_t cancelled = 0;
  for (fi_deferred_work& each : works) {
    EXPECT_EQ(queue(each), 0);
    if (&each - works.data() > int(count) / 2 && cancel(each) == 0) ++cancelled;
  }
  EXPECT_TRUE(drive_until([&] { return fi_cntr_read(completion) + cancelled == count; }));
  stop = true;
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(fi_cntr_read(completion) + cancelled, count);
}

// FI_THREAD_COMPLETION has no lock: the counter belongs to one thread, the endpoint to another.
TEST_F(Trigger, AThreadTriggersAnEndpointOfAnother) {
  open(FI_THREAD_COMPLETION);
  constexpr size_t count = 500;
  fid_cntr* trigger = counter();
  std::vector<fi_triggered_context> when;
  for (size_t i = 0; i < count; ++i) when.push_back(context(trigger, i + 1));
  uint64_t value = 3;
  uint64_t in = 0;
  std::thread other([&] {
    for (size_t i = 0; i < count; ++i) fi_cntr_add(trigger, 1);
  });
  size_t queued = 0;
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(fi_recv(nodes[1].ep, &in, 8, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
    const iovec iov{&value, 8};
    const fi_msg msg{&iov, nullptr, 1, nodes[0].peer, &when[i], 0};
    EXPECT_EQ(fi_sendmsg(nodes[0].ep, &msg, FI_TRIGGER), 0);
    ++queued;
    if (i % 10 == 0) drive();
  }
  EXPECT_TRUE(drive_until([&] { return sent.size() == queued && received.size() == queued; }));
  other.join();
}

// The endpoint closes while another thread's additions reach its work.
TEST_F(Trigger, ClosingRacesWithReaching) {
  for (const fi_threading threading : {FI_THREAD_SAFE, FI_THREAD_COMPLETION}) {
    for (int round = 0; round < 20; ++round) {
      open(threading);
      fid_cntr* trigger = counter();
      std::deque<Operation> ops;
      std::deque<fi_deferred_work> works;
      for (size_t i = 0; i < 50; ++i) {
        ops.emplace_back(FI_OP_TRECV).build(nodes[0], nullptr, 0, 0);
        works.push_back(ops.back().work(trigger, i + 1, nullptr));
        ASSERT_EQ(queue(works.back()), 0);
      }
      std::thread other([&] {
        for (size_t i = 0; i < 50; ++i) fi_cntr_add(trigger, 1);
      });
      close(nodes[0].ep);
      other.join();
      TearDown();
      nodes = {};
      counters.clear();
      domain = nullptr;
      fabric = nullptr;
    }
  }
}

}  // namespace
}  // namespace weft::fi::test
