// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The completion queue: formats, order, errors, a full ring, progress, signals.
#include "core/completion_queue.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace weft::core {
namespace {

Completion numbered(uint64_t n) {
  Completion completion;
  completion.context = reinterpret_cast<void*>(n);
  completion.flags = n + 1;
  completion.len = n + 2;
  completion.buf = reinterpret_cast<void*>(n + 3);
  completion.data = n + 4;
  completion.tag = n + 5;
  completion.source = n + 6;
  return completion;
}

CompletionError failed(int err, uint64_t n = 0) {
  CompletionError error;
  error.base = numbered(n);
  error.err = err;
  return error;
}

struct CountingSignal final : Signal {
  int notified = 0;
  void notify() noexcept override { ++notified; }
};

// Pushes what it was told to, one progress call at a time.
struct Source final : Progressor {
  CompletionQueue* queue = nullptr;
  std::vector<Completion> later;
  int calls = 0;
  void progress() noexcept override {
    ++calls;
    if (later.empty()) return;
    queue->push(later.front());
    later.erase(later.begin());
  }
  int wait_fd() noexcept override { return -1; }
  bool arm() noexcept override { return later.empty(); }
  void disarm() noexcept override {}
};

template <class Format>
ssize_t read(CompletionQueue& queue, std::vector<Format>& out) {
  return queue.read<Format, false>(out.data(), out.size(), nullptr);
}

// fi_cq(3), formats: each is a prefix of the next.
TEST(CompletionQueue, EveryFormatCarriesItsFields) {
  CompletionQueue queue(8);
  for (uint64_t i = 0; i < 4; ++i) queue.push(numbered(100 * i));
  std::vector<fi_cq_entry> context(1);
  ASSERT_EQ(read(queue, context), 1);
  EXPECT_EQ(context[0].op_context, nullptr);
  std::vector<fi_cq_msg_entry> msg(1);
  ASSERT_EQ(read(queue, msg), 1);
  EXPECT_EQ(msg[0].flags, 101u);
  EXPECT_EQ(msg[0].len, 102u);
  std::vector<fi_cq_data_entry> data(1);
  ASSERT_EQ(read(queue, data), 1);
  EXPECT_EQ(data[0].buf, reinterpret_cast<void*>(203));
  EXPECT_EQ(data[0].data, 204u);
  std::vector<fi_cq_tagged_entry> tagged(2);
  fi_addr_t source[2] = {0, 0};
  ASSERT_EQ((queue.read<fi_cq_tagged_entry, true>(tagged.data(), 2, source)), 1);
  EXPECT_EQ(tagged[0].tag, 305u);
  EXPECT_EQ(source[0], 306u);
  EXPECT_EQ(read(queue, tagged), -FI_EAGAIN);
}

TEST(CompletionQueue, ReadsAtMostWhatIsAskedAndInOrder) {
  CompletionQueue queue(8);
  for (uint64_t i = 1; i <= 5; ++i) queue.push(numbered(i));
  std::vector<fi_cq_entry> out(3);
  ASSERT_EQ(read(queue, out), 3);
  EXPECT_EQ(out[2].op_context, reinterpret_cast<void*>(3));
  ASSERT_EQ(read(queue, out), 2);
  EXPECT_EQ(out[0].op_context, reinterpret_cast<void*>(4));
  EXPECT_EQ(out[1].op_context, reinterpret_cast<void*>(5));
}

TEST(CompletionQueue, WrapsAround) {
  CompletionQueue queue(4);
  std::vector<fi_cq_entry> out(1);
  uint64_t next = 1;
  uint64_t expected = 1;
  queue.push(numbered(next++));
  for (int i = 0; i < 100; ++i) {
    queue.push(numbered(next++));
    queue.push(numbered(next++));
    for (int k = 0; k < 2; ++k) {
      ASSERT_EQ(read(queue, out), 1);
      ASSERT_EQ(out[0].op_context, reinterpret_cast<void*>(expected++));
    }
  }
}

TEST(CompletionQueue, SizeIsAtLeastWhatWasAskedAndHasADefault) {
  EXPECT_EQ(CompletionQueue(5).size(), 8u);
  EXPECT_EQ(CompletionQueue(0).size(), CompletionQueue::size_default);
}

TEST(CompletionQueue, FullKeepsEverythingInOrder) {
  CompletionQueue queue(4);
  for (uint64_t i = 1; i <= 4; ++i) {
    EXPECT_FALSE(queue.full());
    queue.push(numbered(i));
  }
  EXPECT_TRUE(queue.full());
  for (uint64_t i = 5; i <= 11; ++i) queue.push(numbered(i));  // operations posted before
  EXPECT_EQ(queue.pending(), 11u);
  std::vector<fi_cq_entry> out(3);
  uint64_t expected = 1;
  while (expected <= 11) {
    const ssize_t n = read(queue, out);
    ASSERT_GT(n, 0) << "at " << expected;
    for (ssize_t i = 0; i < n; ++i) ASSERT_EQ(out[size_t(i)].op_context, reinterpret_cast<void*>(expected++));
  }
  EXPECT_FALSE(queue.full());
  EXPECT_EQ(read(queue, out), -FI_EAGAIN);
}

TEST(CompletionQueue, PushesWhileSomethingIsHeldStayBehindIt) {
  CompletionQueue queue(2);
  for (uint64_t i = 1; i <= 3; ++i) queue.push(numbered(i));
  std::vector<fi_cq_entry> out(1);
  ASSERT_EQ(read(queue, out), 1);
  queue.push(numbered(4));  // the ring has room, but 3 is held
  for (uint64_t i = 2; i <= 4; ++i) {
    ASSERT_EQ(read(queue, out), 1);
    EXPECT_EQ(out[0].op_context, reinterpret_cast<void*>(i));
  }
}

// fi_cq(3), return values: "If the topmost completion is for a failed transfer, returns -FI_EAVAIL."
TEST(CompletionQueue, ErrorsStandInOrder) {
  CompletionQueue queue(8);
  queue.push(numbered(1));
  queue.push_error(failed(FI_EIO, 2));
  queue.push(numbered(3));
  queue.push_error(failed(FI_ECANCELED, 4));
  std::vector<fi_cq_entry> out(8);
  CompletionError error;
  EXPECT_EQ(queue.read_error(error), -FI_EAGAIN) << "a completion stands before it";
  ASSERT_EQ(read(queue, out), 1);
  EXPECT_EQ(read(queue, out), -FI_EAVAIL);
  EXPECT_EQ(read(queue, out), -FI_EAVAIL);
  ASSERT_EQ(queue.read_error(error), 0);
  EXPECT_EQ(error.err, FI_EIO);
  EXPECT_EQ(error.base.context, reinterpret_cast<void*>(2));
  EXPECT_EQ(queue.read_error(error), -FI_EAGAIN);
  ASSERT_EQ(read(queue, out), 1);
  EXPECT_EQ(out[0].op_context, reinterpret_cast<void*>(3));
  EXPECT_EQ(read(queue, out), -FI_EAVAIL);
  ASSERT_EQ(queue.read_error(error), 0);
  EXPECT_EQ(error.err, FI_ECANCELED);
  EXPECT_EQ(read(queue, out), -FI_EAGAIN);
  EXPECT_FALSE(queue.error_pending());
  queue.push(numbered(5));
  EXPECT_EQ(read(queue, out), 1);
}

TEST(CompletionQueue, AnErrorAloneDoesNotMakeItFull) {
  CompletionQueue queue(4);
  queue.push_error(failed(FI_EIO));
  EXPECT_FALSE(queue.full());
  for (uint64_t i = 0; i < 3; ++i) queue.push(numbered(i));
  EXPECT_TRUE(queue.full());
}

TEST(CompletionQueue, AnEmptyReadDrivesItsEndpointsOnce) {
  CompletionQueue queue(4);
  Source source;
  source.queue = &queue;
  queue.add(source);
  queue.add(source);  // bound for both directions
  std::vector<fi_cq_entry> out(4);
  EXPECT_EQ(read(queue, out), -FI_EAGAIN);
  EXPECT_EQ(source.calls, 1);
  source.later = {numbered(7), numbered(8)};
  ASSERT_EQ(read(queue, out), 1) << "what progress brought comes with the same read";
  EXPECT_EQ(out[0].op_context, reinterpret_cast<void*>(7));
  queue.push(numbered(9));
  ASSERT_EQ(read(queue, out), 1);
  EXPECT_EQ(source.calls, 2) << "one read of a queue that is not empty needs no progress";
  EXPECT_FALSE(queue.remove(source));
  EXPECT_TRUE(queue.remove(source));
  EXPECT_EQ(read(queue, out), -FI_EAGAIN);
  EXPECT_EQ(source.calls, 2);
}

// A program that posts, reads and posts finds an entry at every read, and its endpoints make progress all the same.
TEST(CompletionQueue, ReadsThatFindSomethingDriveNowAndThen) {
  CompletionQueue queue(64);
  Source source;
  source.queue = &queue;
  queue.add(source);
  std::vector<fi_cq_entry> one(1);
  std::vector<fi_cq_entry> two(2);
  for (int i = 1; i <= 100; ++i) {
    queue.push(numbered(1));
    ASSERT_EQ(read(queue, one), 1);
    ASSERT_GE(source.calls, i / int(reads_per_drive + 1));
    ASSERT_LE(source.calls, i / int(reads_per_drive)) << "a read that drives each time costs too much";
  }
  // Short reads, each with a read that the program makes because of it.
  source.calls = 0;
  for (int i = 1; i <= 100; ++i) {
    queue.push(numbered(1));
    ASSERT_EQ(read(queue, two), 1);
    ASSERT_EQ(read(queue, two), -FI_EAGAIN);
    ASSERT_GE(source.calls, i / int(reads_per_drive + 1));
  }
  // What a drive brings comes in order, also when the ring has no room for it.
  for (uint64_t i = 0; i < 200; ++i) source.later.push_back(numbered(1000 + i));
  uint64_t expected = 1000;
  queue.push(numbered(7));
  while (expected < 1200) {
    ASSERT_EQ(read(queue, one), 1);
    if (one[0].op_context == reinterpret_cast<void*>(7)) queue.push(numbered(7));
    else ASSERT_EQ(one[0].op_context, reinterpret_cast<void*>(expected++));
  }
  queue.remove(source);
}

// Endpoints take no frames while a queue of theirs is full: a drive finds room, where the call makes any.
TEST(CompletionQueue, AReadOfAFullQueueDrivesWhenItHasMadeRoom) {
  struct Careful final : Progressor {
    CompletionQueue* queue = nullptr;
    int taken = 0;
    void progress() noexcept override { taken += queue->full() ? 0 : 1; }
    int wait_fd() noexcept override { return -1; }
    bool arm() noexcept override { return true; }
    void disarm() noexcept override {}
  };
  for (const size_t size : {1, 4, 16}) {
    CompletionQueue queue(size);
    Careful source;
    source.queue = &queue;
    queue.add(source);
    while (!queue.full()) queue.push(numbered(1));
    std::vector<fi_cq_entry> one(1);
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(read(queue, one), 1);
      queue.push(numbered(1));
    }
    EXPECT_GE(source.taken, 2) << size;
    while (read(queue, one) == 1) {
    }
    source.taken = 0;
    CompletionError error;
    error.err = FI_ECANCELED;
    for (int i = 0; i < 10; ++i) {
      while (!queue.full()) queue.push_error(error);
      ASSERT_EQ(read(queue, one), -FI_EAVAIL);
      ASSERT_EQ(queue.read_error(error), 0);
      ASSERT_GT(source.taken, i) << size;
    }
    queue.remove(source);
  }
}

// A drive that has to be, and entries that are held: the drive is made.
TEST(CompletionQueue, HeldEntriesDoNotHideThatAnEndpointHasDeferredSends) {
  CompletionQueue queue(1);
  Source source;
  source.queue = &queue;
  queue.add(source);
  std::vector<fi_cq_entry> one(1);
  for (int i = 0; i < 3; ++i) queue.push(numbered(1));
  ASSERT_EQ(read(queue, one), 1);
  queue.drive_at_next_read();
  ASSERT_EQ(read(queue, one), 1);
  EXPECT_EQ(source.calls, 1);
  queue.remove(source);
}

// While many entries wait, what drives bring does not make them more.
TEST(CompletionQueue, ReadsOfManyEntriesDriveSeldom) {
  CompletionQueue queue(1024);
  Source source;
  source.queue = &queue;
  queue.add(source);
  std::vector<fi_cq_entry> one(1);
  for (uint64_t i = 0; i < 1000; ++i) queue.push(numbered(i));
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(read(queue, one), 1);
  EXPECT_GE(source.calls, int(1000 / reads_per_drive_max));
  EXPECT_LE(source.calls, int(1000 / reads_per_drive_max) + 2);
  queue.remove(source);
}

// As above, while the ring is too small for what waits, and for errors that the program does not read.
TEST(CompletionQueue, ReadsOfHeldEntriesAndOfErrorsDriveToo) {
  CompletionQueue queue(1);
  Source source;
  source.queue = &queue;
  queue.add(source);
  std::vector<fi_cq_entry> one(1);
  for (uint64_t i = 0; i < 3; ++i) queue.push(numbered(i));
  for (int i = 1; i <= 100; ++i) {
    queue.push(numbered(1));
    ASSERT_EQ(read(queue, one), 1);
    ASSERT_GE(source.calls, i / int(2 * reads_per_drive));
  }
  for (int i = 0; i < 3; ++i) ASSERT_EQ(read(queue, one), 1);
  source.calls = 0;
  CompletionError error;
  for (int i = 1; i <= 100; ++i) {
    queue.push_error(failed(FI_EIO));
    ASSERT_EQ(queue.read_error(error), 0);
    ASSERT_GE(source.calls, i / int(reads_per_drive + 1));
  }
  source.calls = 0;
  for (int i = 1; i <= 100; ++i) ASSERT_EQ(queue.read_error(error), -FI_EAGAIN);
  EXPECT_GE(source.calls, 100 / int(reads_per_drive + 1));
  queue.remove(source);
}

// Open MPI reads again as long as there is something, and answers a message only then.
TEST(CompletionQueue, AReadThatFindsAfterAShortOneThatNothingIsThereLooksNoFurther) {
  CompletionQueue queue(4);
  Source source;
  source.queue = &queue;
  queue.add(source);
  std::vector<fi_cq_entry> out(2);
  source.later = {numbered(1), numbered(2)};
  ASSERT_EQ(read(queue, out), 1);
  EXPECT_EQ(read(queue, out), -FI_EAGAIN) << "the read before has said so";
  EXPECT_EQ(source.calls, 1);
  ASSERT_EQ(read(queue, out), 1) << "once only";
  queue.push(numbered(9));
  ASSERT_EQ(read(queue, out), 1) << "what is there comes at once";
  EXPECT_EQ(out[0].op_context, reinterpret_cast<void*>(9));
  EXPECT_EQ(source.calls, 2);
  (void)queue.read<fi_cq_entry, false>(nullptr, 0, nullptr);
  EXPECT_GT(source.calls, 2) << "a count of 0 drives always";
  EXPECT_EQ(read(queue, out), -FI_EAGAIN);
  std::vector<fi_cq_entry> one(1);
  source.later = {numbered(3), numbered(4)};
  ASSERT_EQ(read(queue, one), 1);
  ASSERT_EQ(read(queue, one), 1) << "a read that got all it asked for says nothing";
  source.later = {numbered(5), numbered(6)};
  ASSERT_EQ(read(queue, out), 1);
  queue.drive_at_next_read();
  ASSERT_EQ(read(queue, out), 1) << "an endpoint that keeps something back is driven";
  queue.remove(source);
}

// fi_cq(3), fi_cq_read: "A count value of 0 may be used to drive progress".
TEST(CompletionQueue, ACountOfZeroDrivesProgressEvenWhenItIsNotEmpty) {
  CompletionQueue queue(4);
  Source source;
  source.queue = &queue;
  queue.add(source);
  queue.push(numbered(1));
  EXPECT_EQ((queue.read<fi_cq_entry, false>(nullptr, 0, nullptr)), 0);
  EXPECT_EQ(source.calls, 1);
  queue.remove(source);
}

TEST(CompletionQueue, AnErrorFromProgressIsSeenByTheSameRead) {
  struct Failing final : Progressor {
    CompletionQueue* queue = nullptr;
    void progress() noexcept override { queue->push_error(failed(FI_EIO)); }
    int wait_fd() noexcept override { return -1; }
    bool arm() noexcept override { return true; }
    void disarm() noexcept override {}
  } failing;
  CompletionQueue queue(4);
  failing.queue = &queue;
  queue.add(failing);
  std::vector<fi_cq_entry> out(1);
  EXPECT_EQ(read(queue, out), -FI_EAVAIL);
  queue.remove(failing);
}

TEST(CompletionQueue, TheSignalIsNotifiedOncePerArming) {
  CompletionQueue queue(4);
  CountingSignal signal;
  queue.push(numbered(1));
  queue.set_signal(&signal);
  queue.push(numbered(2));
  EXPECT_EQ(signal.notified, 0);
  queue.arm();
  queue.push(numbered(3));
  queue.push(numbered(4));
  EXPECT_EQ(signal.notified, 1);
  queue.arm();
  queue.push_error(failed(FI_EIO));
  EXPECT_EQ(signal.notified, 2);
  queue.arm();
  queue.disarm();
  queue.push(numbered(5));
  EXPECT_EQ(signal.notified, 2);
}

// A model in parallel: random pushes, errors and reads.
TEST(CompletionQueue, AgreesWithAPlainListUnderRandomUse) {
  uint64_t state = 88172645463325252u;
  auto random = [&state] {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
  };
  CompletionQueue queue(8);
  std::vector<std::pair<uint64_t, bool>> model;
  uint64_t next = 1;
  for (int step = 0; step < 20000; ++step) {
    const uint64_t dice = random() % 10;
    if (dice < 5) {
      queue.push(numbered(next));
      model.emplace_back(next++, false);
    } else if (dice < 6) {
      queue.push_error(failed(FI_EIO, next));
      model.emplace_back(next++, true);
    } else if (dice < 7) {
      CompletionError error;
      const bool is_error = !model.empty() && model.front().second;
      ASSERT_EQ(queue.read_error(error), is_error ? 0 : -FI_EAGAIN);
      if (!is_error) continue;
      ASSERT_EQ(error.base.context, reinterpret_cast<void*>(model.front().first));
      model.erase(model.begin());
    } else {
      std::vector<fi_cq_entry> out(1 + random() % 5);
      const ssize_t n = read(queue, out);
      if (model.empty() || model.front().second) {
        ASSERT_EQ(n, model.empty() ? -FI_EAGAIN : -FI_EAVAIL);
        continue;
      }
      ASSERT_GT(n, 0);
      for (ssize_t i = 0; i < n; ++i) {
        ASSERT_FALSE(model.front().second);
        ASSERT_EQ(out[size_t(i)].op_context, reinterpret_cast<void*>(model.front().first));
        model.erase(model.begin());
      }
    }
    ASSERT_EQ(queue.pending(), model.size());
    ASSERT_EQ(queue.full(), model.size() >= 8);
  }
}

struct CountedIdlePolls final : IdlePolls {
  CompletionQueue* queue = nullptr;  // another thread pushes to it while the lock is let go
  bool fails = false;
  int calls = 0;
  bool arrived = false;  // of the last call
  uint32_t idle(bool has_arrived) noexcept override {
    ++calls;
    arrived = has_arrived;
    if (queue != nullptr && !fails) queue->push(numbered(1));
    if (queue != nullptr && fails) queue->push_error(failed(FI_EIO));
    return 10;
  }
};

TEST(CompletionQueue, PollsInVainAreCounted) {
  CompletionQueue queue(8);
  CountedIdlePolls polls;
  queue.set_idle_polls(&polls);
  std::vector<fi_cq_entry> out(2);
  for (int i = 0; i < 63; ++i) ASSERT_EQ(read(queue, out), -FI_EAGAIN);
  EXPECT_EQ(polls.calls, 0);
  EXPECT_EQ(read(queue, out), -FI_EAGAIN);
  EXPECT_EQ(polls.calls, 1);
  EXPECT_TRUE(polls.arrived);
  for (int i = 0; i < 10; ++i) ASSERT_EQ(read(queue, out), -FI_EAGAIN);
  EXPECT_EQ(polls.calls, 2);
  EXPECT_FALSE(polls.arrived);
}

// What endpoints bring starts the count again; so do errors.
TEST(CompletionQueue, WhatComesEndsTheCountOfPollsInVain) {
  CompletionQueue queue(8);
  CountedIdlePolls polls;
  Source source;
  source.queue = &queue;
  queue.add(source);
  queue.set_idle_polls(&polls);
  std::vector<fi_cq_entry> out(1);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 60; ++i) ASSERT_EQ(read(queue, out), -FI_EAGAIN);
    source.later.push_back(numbered(1));
    ASSERT_EQ(read(queue, out), 1);
  }
  for (int i = 0; i < 60; ++i) ASSERT_EQ(read(queue, out), -FI_EAGAIN);
  queue.push_error(failed(FI_EIO));
  ASSERT_EQ(read(queue, out), -FI_EAVAIL);
  CompletionError error;
  ASSERT_EQ(queue.read_error(error), 0);
  for (int i = 0; i < 60; ++i) ASSERT_EQ(read(queue, out), -FI_EAGAIN);
  EXPECT_EQ(polls.calls, 0);
}

TEST(CompletionQueue, WhatComesWhileTheLockIsLetGoIsRead) {
  for (const bool fails : {false, true}) {
    CompletionQueue queue(8);
    CountedIdlePolls polls;
    polls.queue = &queue;
    polls.fails = fails;
    queue.set_idle_polls(&polls);
    std::vector<fi_cq_entry> out(1);
    for (int i = 0; i < 63; ++i) ASSERT_EQ(read(queue, out), -FI_EAGAIN);
    EXPECT_EQ(read(queue, out), fails ? -FI_EAVAIL : 1);
    if (!fails) continue;
    CompletionError error;
    ASSERT_EQ(queue.read_error(error), 0);
    EXPECT_EQ(error.err, FI_EIO);
  }
}

// A program that knows the endpoint's type looks by itself (count_idle_poll) and reads when it is told.
TEST(CompletionQueue, PollsInVainOfAnotherAreCountedToo) {
  CompletionQueue queue(8);
  CountedIdlePolls polls;
  queue.set_idle_polls(&polls);
  std::vector<fi_cq_entry> out(1);
  for (int round = 0; round < 3; ++round) {
    while (queue.count_idle_poll()) {
    }
    EXPECT_EQ(read(queue, out), -FI_EAGAIN);
    EXPECT_EQ(polls.calls, round + 1);
    EXPECT_EQ(polls.arrived, round == 0);
  }
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(queue.count_idle_poll());
  queue.count_arrival();  // nine polls count no more
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(queue.count_idle_poll());
  EXPECT_FALSE(queue.count_idle_poll());
  EXPECT_EQ(read(queue, out), -FI_EAGAIN);
  EXPECT_TRUE(polls.arrived);
}

}  // namespace
}  // namespace weft::core
