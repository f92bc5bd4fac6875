// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of matching: the rules one by one, then random histories against a model that searches plain vectors.
#include "core/matching.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace weft::core {
namespace {

struct Receive : PostedBase {
  Receive() = default;
  Receive(uint64_t t, uint64_t i = 0, uint64_t s = any_source) {
    tag = t;
    ignore = i;
    source = s;
  }
  int id = 0;
};

struct Message : UnexpectedBase {
  Message() = default;
  Message(uint64_t t, uint64_t s) {
    tag = t;
    source = s;
  }
  int id = 0;
};

TEST(TagMatcher, TakesTheOldestOfOneTag) {
  TagMatcher matcher;
  std::deque<Receive> receives;
  for (int i = 0; i < 1000; ++i) matcher.post(receives.emplace_back(5));
  EXPECT_EQ(matcher.match_arrival(6, 0), nullptr);
  for (Receive& receive : receives) {
    EXPECT_EQ(matcher.peek_arrival(5, 3), &receive);
    EXPECT_EQ(matcher.match_arrival(5, 3), &receive);
    EXPECT_FALSE(receive.posted());
  }
  EXPECT_EQ(matcher.match_arrival(5, 3), nullptr);
  EXPECT_TRUE(matcher.empty());
}

TEST(TagMatcher, PostingOrderCountsAcrossKindsOfReceives) {
  TagMatcher matcher;
  Receive masked(0x50, 0xf), exact(0x55), directed(0x55, 0, 9), masked_directed(0x50, 0xff, 9),
      late(0x50, 0xff);
  for (Receive* receive : {&directed, &masked, &exact, &masked_directed, &late}) matcher.post(*receive);
  EXPECT_EQ(matcher.match_arrival(0x55, 8), &masked);
  EXPECT_EQ(matcher.match_arrival(0x55, 9), &directed);
  EXPECT_EQ(matcher.match_arrival(0x55, 9), &exact);
  EXPECT_EQ(matcher.match_arrival(0x55, 8), &late);
  EXPECT_EQ(matcher.match_arrival(0x55, 8), nullptr);
  EXPECT_EQ(matcher.match_arrival(0x00, 9), &masked_directed);
  EXPECT_TRUE(matcher.empty());
}

TEST(TagMatcher, AnUnknownSenderMatchesOnlyReceivesFromAnySource) {
  TagMatcher matcher;
  Receive directed(1, 0, 4), masked_directed(1, 2, 4), open(1);
  for (Receive* receive : {&directed, &masked_directed, &open}) matcher.post(*receive);
  EXPECT_EQ(matcher.match_arrival(1, any_source), &open);
  EXPECT_EQ(matcher.match_arrival(1, any_source), nullptr);
  Message message(1, any_source);
  matcher.add_unexpected(message);
  EXPECT_EQ(matcher.match_posted(1, 0, 4), nullptr);
  EXPECT_EQ(matcher.match_posted(1, 2, 4), nullptr);
  EXPECT_EQ(matcher.match_posted(1, 0, any_source), &message);
}

TEST(TagMatcher, PeekLeavesAndRemoveClaims) {
  TagMatcher matcher;
  Message a(1, 2), b(1, 3), c(2, 3);
  for (Message* message : {&a, &b, &c}) matcher.add_unexpected(*message);
  EXPECT_EQ(matcher.peek(1, 0, any_source), &a);
  EXPECT_EQ(matcher.peek(1, 0, 3), &b);
  EXPECT_EQ(matcher.peek(0, UINT64_MAX, 3), &b);
  EXPECT_EQ(matcher.unexpected_count(), 3u);
  matcher.remove(a);
  EXPECT_FALSE(a.unexpected());
  EXPECT_EQ(matcher.peek(1, 0, any_source), &b);
  EXPECT_EQ(matcher.match_posted(0, UINT64_MAX, any_source), &b);
  EXPECT_EQ(matcher.match_posted(2, 0, 3), &c);
  EXPECT_TRUE(matcher.empty());
}

TEST(TagMatcher, CancelByContextFindsTheOldest) {
  TagMatcher matcher;
  Receive a(900), b(3, 1), c(17);
  a.id = b.id = c.id = 7;
  for (Receive* receive : {&a, &b, &c}) matcher.post(*receive);
  const auto by_id = [](const PostedBase& receive) { return static_cast<const Receive&>(receive).id == 7; };
  for (Receive* receive : {&a, &b, &c}) {
    EXPECT_EQ(matcher.find_posted(by_id), receive);
    EXPECT_TRUE(matcher.remove(*receive));
    EXPECT_FALSE(matcher.remove(*receive));
  }
  EXPECT_EQ(matcher.find_posted(by_id), nullptr);
  EXPECT_TRUE(matcher.empty());
}

TEST(TagMatcher, AMessageKeepsItsPlaceWhenItsSenderBecomesKnown) {
  TagMatcher matcher;
  Message a(1, any_source), b(1, 5), c(1, any_source);
  for (Message* message : {&a, &b, &c}) matcher.add_unexpected(*message);
  matcher.for_each_unexpected([&](UnexpectedBase& message) {
    if (message.source == any_source) matcher.set_source(message, 5);
  });
  for (Message* message : {&a, &b, &c}) EXPECT_EQ(matcher.match_posted(1, 0, 5), message);
  EXPECT_TRUE(matcher.empty());
}

TEST(TagMatcher, ManyTagsSurviveTheWideningOfTheTable) {
  constexpr uint64_t count = 100'000;
  TagMatcher matcher;
  std::vector<Receive> receives(count);
  std::vector<Message> messages(count);
  for (uint64_t i = 0; i < count; ++i) {
    receives[i].tag = (i / 2) << 20;  // two of each
    matcher.post(receives[i]);
    messages[i].tag = i << 1 | 1;
    messages[i].source = i % 7;
    matcher.add_unexpected(messages[i]);
  }
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t tag = (i / 2) << 20;
    ASSERT_EQ(matcher.match_arrival(tag, 1), &receives[i]);
    ASSERT_EQ(matcher.match_posted(i << 1 | 1, 0, i % 7), &messages[i]);
  }
  EXPECT_TRUE(matcher.empty());
}

TEST(MsgMatcher, MultiReceiveBufferStaysUntilRemoved) {
  MsgMatcher matcher;
  Receive multi, next;
  matcher.post(multi);
  matcher.post(next);
  EXPECT_EQ(matcher.peek_arrival(1), &multi);
  EXPECT_EQ(matcher.peek_arrival(2), &multi);
  EXPECT_TRUE(matcher.remove(multi));
  EXPECT_FALSE(matcher.remove(multi));
  EXPECT_EQ(matcher.match_arrival(1), &next);
  EXPECT_EQ(matcher.match_arrival(1), nullptr);
}

TEST(MsgMatcher, IgnoresTags) {
  MsgMatcher matcher;
  Receive receive(77, 0, 3);
  matcher.post(receive);
  EXPECT_EQ(matcher.match_arrival(4), nullptr);
  EXPECT_EQ(matcher.match_arrival(3), &receive);
  Message message(99, 3);
  matcher.add_unexpected(message);
  EXPECT_EQ(matcher.peek(4), nullptr);
  EXPECT_EQ(matcher.match_posted(3), &message);
}

// The rules over two plain vectors, oldest first.
struct Model {
  std::vector<Receive*> posted;
  std::vector<Message*> arrived;

  static bool fits(uint64_t tag, uint64_t ignore, uint64_t source, uint64_t message_tag,
                   uint64_t message_source) {
    if ((message_tag & ~ignore) != (tag & ~ignore)) return false;
    return source == any_source || (message_source != any_source && message_source == source);
  }
  Receive* for_message(uint64_t tag, uint64_t source) const {
    for (Receive* r : posted) {
      if (fits(r->tag, r->ignore, r->source, tag, source)) return r;
    }
    return nullptr;
  }
  Message* for_receive(uint64_t tag, uint64_t ignore, uint64_t source) const {
    for (Message* m : arrived) {
      if (fits(tag, ignore, source, m->tag, m->source)) return m;
    }
    return nullptr;
  }
};

// One interface over both matchers.
struct Tagged {
  TagMatcher matcher;
  explicit Tagged(uint64_t seed) : matcher(seed) {}
  static constexpr bool tags = true;
  PostedBase* match_arrival(uint64_t tag, uint64_t source) { return matcher.match_arrival(tag, source); }
  PostedBase* peek_arrival(uint64_t tag, uint64_t source) { return matcher.peek_arrival(tag, source); }
  PostedBase* first_plain(uint64_t tag, uint64_t source) { return matcher.first_plain(tag, source); }
  UnexpectedBase* match_posted(uint64_t tag, uint64_t ignore, uint64_t source) {
    return matcher.match_posted(tag, ignore, source);
  }
  UnexpectedBase* peek(uint64_t tag, uint64_t ignore, uint64_t source) {
    return matcher.peek(tag, ignore, source);
  }
};
struct Untagged {
  MsgMatcher matcher;
  explicit Untagged(uint64_t seed) : matcher(seed) {}
  static constexpr bool tags = false;
  PostedBase* match_arrival(uint64_t, uint64_t source) { return matcher.match_arrival(source); }
  PostedBase* peek_arrival(uint64_t, uint64_t source) { return matcher.peek_arrival(source); }
  UnexpectedBase* match_posted(uint64_t, uint64_t, uint64_t source) { return matcher.match_posted(source); }
  UnexpectedBase* peek(uint64_t, uint64_t, uint64_t source) { return matcher.peek(source); }
};

// A random history. The mix of tags, masks and sources is itself random, so that some histories stay on the
// fast paths, some pile up receives and some pile up messages.
template <class Subject>
class History {
 public:
  explicit History(uint64_t seed) : random_(seed), subject_(seed * hash_factor_b) {
    tags_ = 1 + pick(8);
    sources_ = 1 + pick(4);
    masks_ = pick(3) == 0;
    all_masked_ = masks_ && pick(3) == 0;
    directed_ = pick(2) == 0;
    receive_share_ = 25 + pick(50);
  }

  void run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFatalFailure(); ++i) step();
    drain();
  }

 private:
  uint64_t pick(uint64_t below) { return random_() % below; }
  uint64_t any_tag() { return Subject::tags ? pick(tags_) << (8 * (tags_ % 5)) : 0; }
  uint64_t any_mask() {
    if (!Subject::tags || !masks_ || (!all_masked_ && pick(3) != 0)) return 0;
    return pick(4) == 0 ? UINT64_MAX : uint64_t{1 + pick(7)} << (8 * (tags_ % 5));
  }
  uint64_t wanted_source() { return directed_ && pick(2) == 0 ? pick(sources_) : any_source; }
  uint64_t sender() { return pick(10) == 0 ? any_source : pick(sources_); }

  void step() {
    const uint64_t dice = pick(100);
    if (dice < 8) return cancel();
    if (dice < 16) return peek_or_claim();
    if (dice < 20) return learn_source();
    if (pick(100) < receive_share_) return receive();
    return arrive();
  }

  void receive() {
    const uint64_t tag = any_tag(), ignore = any_mask(), source = wanted_source();
    Message* expected = model_.for_receive(tag, ignore, source);
    ASSERT_EQ(subject_.match_posted(tag, ignore, source), expected);
    if (expected != nullptr) {
      ASSERT_FALSE(expected->unexpected());
      std::erase(model_.arrived, expected);
    } else {
      Receive* receive = new_object(receives_);
      receive->tag = tag;
      receive->ignore = ignore;
      receive->source = source;
      subject_.matcher.post(*receive);
      model_.posted.push_back(receive);
    }
    check_counts();
  }

  void arrive() {
    const uint64_t tag = any_tag(), source = sender();
    Receive* expected = model_.for_message(tag, source);
    ASSERT_EQ(subject_.peek_arrival(tag, source), expected);
    if constexpr (Subject::tags) {
      ASSERT_EQ(subject_.first_plain(tag, source), expected);
    }
    ASSERT_EQ(subject_.match_arrival(tag, source), expected);
    if (expected != nullptr) {
      ASSERT_FALSE(expected->posted());
      std::erase(model_.posted, expected);
    } else {
      Message* message = new_object(messages_);
      message->tag = tag;
      message->source = source;
      subject_.matcher.add_unexpected(*message);
      model_.arrived.push_back(message);
    }
    check_counts();
  }

  void cancel() {
    if (receives_.empty()) return;
    Receive* receive = receives_[pick(receives_.size())].get();
    const bool posted = std::count(model_.posted.begin(), model_.posted.end(), receive) != 0;
    if (posted && pick(2) == 0) {
      const auto is_it = [=](const PostedBase& other) { return &other == receive; };
      ASSERT_EQ(subject_.matcher.find_posted(is_it), receive);
    }
    ASSERT_EQ(subject_.matcher.remove(*receive), posted);
    std::erase(model_.posted, receive);
    check_counts();
  }

  void peek_or_claim() {
    const uint64_t tag = any_tag(), ignore = any_mask(), source = wanted_source();
    Message* expected = model_.for_receive(tag, ignore, source);
    ASSERT_EQ(subject_.peek(tag, ignore, source), expected);
    if (expected != nullptr && pick(2) == 0) {
      subject_.matcher.remove(*expected);
      std::erase(model_.arrived, expected);
    }
    check_counts();
  }

  void learn_source() {
    if (model_.arrived.empty()) return;
    subject_.matcher.set_source(*model_.arrived[pick(model_.arrived.size())], sender());
  }

  void check_counts() {
    ASSERT_EQ(subject_.matcher.posted_count(), model_.posted.size());
    ASSERT_EQ(subject_.matcher.unexpected_count(), model_.arrived.size());
    ASSERT_EQ(subject_.matcher.empty(), model_.posted.empty() && model_.arrived.empty());
  }

  void drain() {
    std::vector<UnexpectedBase*> arrived;
    subject_.matcher.for_each_unexpected([&](UnexpectedBase& message) {
      arrived.push_back(&message);
      subject_.matcher.remove(message);
    });
    EXPECT_EQ(arrived, std::vector<UnexpectedBase*>(model_.arrived.begin(), model_.arrived.end()));
    size_t posted = 0;
    subject_.matcher.for_each_posted(
        [&](PostedBase& receive) { posted += subject_.matcher.remove(receive); });
    EXPECT_EQ(posted, model_.posted.size());
    EXPECT_TRUE(subject_.matcher.empty());
  }

  template <class T>
  static T* new_object(std::vector<std::unique_ptr<T>>& objects) {
    objects.push_back(std::make_unique<T>());
    return objects.back().get();
  }

  std::mt19937_64 random_;
  Subject subject_;
  Model model_;
  std::vector<std::unique_ptr<Receive>> receives_;
  std::vector<std::unique_ptr<Message>> messages_;
  uint64_t tags_, sources_, receive_share_;
  bool masks_, all_masked_, directed_;
};

template <class Subject>
void run_histories(uint64_t seeds, int steps) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    History<Subject>(seed).run(steps);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(TagMatcher, AgreesWithTheModelOverRandomHistories) { run_histories<Tagged>(4000, 100); }
TEST(TagMatcher, AgreesWithTheModelOverLongHistories) { run_histories<Tagged>(20, 4000); }
TEST(MsgMatcher, AgreesWithTheModelOverRandomHistories) { run_histories<Untagged>(4000, 100); }
TEST(MsgMatcher, AgreesWithTheModelOverLongHistories) { run_histories<Untagged>(20, 4000); }

}  // namespace
}  // namespace weft::core
