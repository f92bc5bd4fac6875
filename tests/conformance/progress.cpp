// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// FI_PROGRESS_AUTO (fi_domain(3), progress models): what a peer does completes though the program that owns the target makes no call.
#include <algorithm>
#include <array>
#include <thread>

#include "fixture.hpp"
#include "local_modes.hpp"

namespace weft::conformance {
namespace {

constexpr uint64_t remote_access = FI_REMOTE_READ | FI_REMOTE_WRITE;

Options automatic(uint64_t caps, fi_threading threading) {
  return {.caps = caps,
          .tx_op_flags = FI_DELIVERY_COMPLETE,
          .own_domains = true,
          .edit_hints = [threading](fi_info* hints) {
            hints->domain_attr->data_progress = FI_PROGRESS_AUTO;
            hints->domain_attr->threading = threading;
          }};
}

// The completion of an operation of endpoint 0, whose queue alone is read.
bool completes(World& w, const Ctx& context) {
  const auto end = std::chrono::steady_clock::now() + timeout_default * patience();
  while (std::chrono::steady_clock::now() < end) {
    w[0].tx->poll();
    auto& inbox = w[0].tx->inbox;
    const auto found =
        std::find_if(inbox.begin(), inbox.end(), [&](const Completion& c) { return c.context == &context; });
    if (found == inbox.end()) continue;
    EXPECT_TRUE(found->ok()) << found->text;
    const bool good = found->ok();
    inbox.erase(found);
    return good;
  }
  return false;
}
template <class F>
ssize_t post_alone(World& w, F&& call) {
  const auto end = std::chrono::steady_clock::now() + timeout_default * patience();
  ssize_t rc = -FI_EAGAIN;
  while ((rc = call()) == -FI_EAGAIN && std::chrono::steady_clock::now() < end) w[0].tx->poll();
  return rc;
}

class AutoProgress : public testing::TestWithParam<fi_threading> {};

TEST_P(AutoProgress, one_sided_operations_need_no_call_of_the_target__fi_domain_3) {
  WEFT_WORLD(w, automatic(FI_RMA, GetParam()));
  EXPECT_EQ(w.info()->domain_attr->data_progress, FI_PROGRESS_AUTO);
  std::vector<uint8_t> target(3'000'000);
  Region region = w.reg(1, target.data(), target.size(), remote_access);
  ASSERT_TRUE(region);
  for (const size_t len : {size_t{8}, size_t{5000}, size_t{100'000}, size_t{3'000'000}}) {
    SCOPED_TRACE(len);
    const auto out = pattern(len, 31);
    Ctx wrote, did_read;
    WEFT_ASSERT_OK(post_alone(w, [&] {
      return fi_write(w[0], out.data(), len, nullptr, w[0].peer[1], region.at(), region.key(), &wrote);
    }));
    ASSERT_TRUE(completes(w, wrote));
    std::vector<uint8_t> back(len);
    WEFT_ASSERT_OK(post_alone(w, [&] {
      return fi_read(w[0], back.data(), len, nullptr, w[0].peer[1], region.at(), region.key(), &did_read);
    }));
    ASSERT_TRUE(completes(w, did_read));
    WEFT_EXPECT_PATTERN(back.data(), len, 31);
  }
}

TEST_P(AutoProgress, atomics_need_no_call_of_the_target__fi_domain_3) {
  WEFT_WORLD(w, automatic(FI_ATOMIC, GetParam()));
  uint64_t target = 5;
  Region region = w.reg(1, &target, sizeof(target), remote_access);
  ASSERT_TRUE(region);
  for (uint64_t round = 0; round < 10; ++round) {
    const uint64_t one = 1;
    uint64_t before = 0;
    Ctx added;
    WEFT_ASSERT_OK(post_alone(w, [&] {
      return fi_fetch_atomic(w[0], &one, 1, nullptr, &before, nullptr, w[0].peer[1], region.at(),
                             region.key(), FI_UINT64, FI_SUM, &added);
    }));
    ASSERT_TRUE(completes(w, added));
    EXPECT_EQ(before, 5 + round);
  }
}

TEST_P(AutoProgress, messages_reach_posted_buffers__fi_domain_3) {
  WEFT_WORLD(w, automatic(FI_TAGGED, GetParam()));
  for (const size_t len : {size_t{8}, size_t{5000}, size_t{1'000'000}}) {
    SCOPED_TRACE(len);
    const auto out = pattern(len, 32);
    std::vector<uint8_t> in(len);
    Ctx sent, received;
    WEFT_ASSERT_OK(fi_trecv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, 7, 0, &received));
    WEFT_ASSERT_OK(
        post_alone(w, [&] { return fi_tsend(w[0], out.data(), len, nullptr, w[0].peer[1], 7, &sent); }));
    ASSERT_TRUE(completes(w, sent));
    const Completion c = w.done(w[1].rx, received);
    EXPECT_EQ(c.len, len);
    WEFT_EXPECT_PATTERN(in.data(), len, 32);
  }
}

// A program waits on a counter of one endpoint while its peer's requests come to another endpoint of the domain, which nobody polls; so does the
// peer, at the same time (OpenSHMEM over libfabric). Each wait ends soon, the first too, when the endpoints meet.
TEST_P(AutoProgress, a_wait_on_one_endpoint_does_not_hold_up_the_others__fi_domain_3) {
  Options options = automatic(FI_ATOMIC, GetParam());
  options.counters = {FI_READ};
  options.counter_wait = FI_WAIT_UNSPEC;
  for (int meeting = 0; meeting < 10; ++meeting) {
    WEFT_WORLD(w, options);
    WEFT_SKIP_IF(w.info()->ep_attr->type == FI_EP_MSG || (demanded_mr_modes() & FI_MR_ENDPOINT) != 0
                     ? "endpoints stand in pairs, or regions are an endpoint's"
                     : "");
    ASSERT_NE(w.add_node(0), nullptr);
    ASSERT_NE(w.add_node(1), nullptr);
    w.connect_all();
    std::array<uint64_t, 2> words{};
    std::array<Region, 2> regions;
    for (size_t i : {0, 1}) {
      regions[i] = w.reg(i + 2, &words[i], sizeof(uint64_t), remote_access);
      ASSERT_TRUE(regions[i]);
    }
    constexpr uint64_t rounds = 50;
    std::array<std::vector<long>, 2> statuses;
    std::array<std::vector<Ctx>, 2> contexts = {std::vector<Ctx>(rounds), std::vector<Ctx>(rounds)};
    const auto run = [&](size_t i) {
      fid_cntr* counter = w[i].counter(FI_READ);
      for (uint64_t round = 0; round < rounds; ++round) {
        const uint64_t one = 1;
        uint64_t before = 0;
        const auto end = std::chrono::steady_clock::now() + timeout_default * patience();
        long status = 0;
        do {
          status =
              fi_fetch_atomic(w[i], &one, 1, nullptr, &before, nullptr, w[i].peer[3 - i], regions[1 - i].at(),
                              regions[1 - i].key(), FI_UINT64, FI_SUM, &contexts[i][round]);
          if (status == -FI_EAGAIN) (void)fi_cntr_read(counter);
        } while (status == -FI_EAGAIN && std::chrono::steady_clock::now() < end);
        if (status == 0)
          status = fi_cntr_wait(counter, round + 1, int(timeout_default.count()) / 4 * int(patience()));
        statuses[i].push_back(status);
        if (status != 0 || before != round) return;
      }
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    w.progress();
    for (size_t i : {0, 1}) {
      WEFT_ASSERT_OK(statuses[i].back());
      ASSERT_EQ(statuses[i].size(), rounds);
      EXPECT_EQ(words[i], rounds);
    }
  }
}

// A program that polls beside the thread: nothing is lost, nothing comes twice.
TEST_P(AutoProgress, polling_beside_it__fi_domain_3) {
  WEFT_WORLD(w, automatic(FI_TAGGED, GetParam()));
  for (uint64_t i = 0; i < 3000; ++i) {
    uint64_t in = 0;
    Ctx sent, received;
    WEFT_ASSERT_OK(fi_trecv(w[1], &in, sizeof(in), nullptr, FI_ADDR_UNSPEC, i, 0, &received));
    WEFT_ASSERT_OK(w.post([&] { return fi_tsend(w[0], &i, sizeof(i), nullptr, w[0].peer[1], i, &sent); }));
    w.done(w[1].rx, received);
    w.done(w[0].tx, sent);
    ASSERT_EQ(in, i);
  }
  EXPECT_TRUE(w.quiet(w[1].rx));
}

INSTANTIATE_TEST_SUITE_P(Levels, AutoProgress, testing::Values(FI_THREAD_SAFE, FI_THREAD_DOMAIN),
                         [](const testing::TestParamInfo<fi_threading>& level) {
                           return level.param == FI_THREAD_SAFE ? "Safe" : "Domain";
                         });

}  // namespace
}  // namespace weft::conformance
