// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The protocols of docs/memory-order.md as litmus programs on a small model of Arm's memory (multi-copy atomic: one memory, in which each thread performs its
// loads and stores in any order that acquire, release, dependencies, barriers and coherence leave). All executions are tried. Each protocol has no bad
// outcome with the orders that the code uses, and has one with a weaker order: so the model can see what it is asked for.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

namespace weft {
namespace {

// As C++ is compiled to A64: relaxed ldr, str; acquire ldapr; seq_cst ldar; release and seq_cst stlr; read-modify-writes ldxr or ldaxr, stxr or stlxr.
enum class Order : uint8_t { Relaxed, Acquire, Release, AcqRel, SeqCst };
constexpr bool acquires(Order order) {
  return order == Order::Acquire || order == Order::AcqRel || order == Order::SeqCst;
}
constexpr bool releases(Order order) {
  return order == Order::Release || order == Order::AcqRel || order == Order::SeqCst;
}

struct Op {
  enum class Kind : uint8_t {
    Load,
    Store,
    HalfLoad,   // of a read-modify-write, whose store follows
    HalfStore,  // dies if another thread stored in between, as stxr fails: the repetition is another execution
    Full,       // dmb ish; the C++ fences release and seq_cst
    Loads,      // dmb ishld; the C++ fence acquire
    Stores,     // dmb ishst
    Membarrier  // a full barrier here, and one at whatever place each other thread has come to
  };
  Kind kind;
  Order order = Order::Relaxed;
  uint8_t at = 0;     // variable
  uint8_t value = 0;  // of a store; or-ed where `adds`
  uint8_t to = 0;     // register of a load
  bool adds = false;
  int8_t depends = -1;  // register of an earlier load that a store waits for
  uint8_t wanted = 0;   // the store is made if that register has this value
};

constexpr bool is_load(const Op& op) { return op.kind == Op::Kind::Load || op.kind == Op::Kind::HalfLoad; }
constexpr bool is_store(const Op& op) { return op.kind == Op::Kind::Store || op.kind == Op::Kind::HalfStore; }
constexpr bool is_access(const Op& op) { return is_load(op) || is_store(op); }

using Thread = std::vector<Op>;

Thread operator+(Thread a, const Thread& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
Thread load(uint8_t at, uint8_t to, Order order) { return {{Op::Kind::Load, order, at, 0, to}}; }
Thread store(uint8_t at, uint8_t value, Order order) { return {{Op::Kind::Store, order, at, value}}; }
Thread store_if(uint8_t reg, uint8_t wanted, uint8_t at, uint8_t value, Order order) {
  return {{Op::Kind::Store, order, at, value, 0, false, static_cast<int8_t>(reg), wanted}};
}
Thread exchange(uint8_t at, uint8_t value, uint8_t to, Order order) {
  return {{Op::Kind::HalfLoad, order, at, 0, to}, {Op::Kind::HalfStore, order, at, value, to}};
}
Thread fetch_or(uint8_t at, uint8_t value, uint8_t to, Order order) {
  return {{Op::Kind::HalfLoad, order, at, 0, to}, {Op::Kind::HalfStore, order, at, value, to, true}};
}
const Thread full = {{Op::Kind::Full}};
const Thread loads_fence = {{Op::Kind::Loads}};
const Thread stores_fence = {{Op::Kind::Stores}};
const Thread membarrier = {{Op::Kind::Membarrier}};
const Thread nothing;

struct State {
  std::array<uint8_t, 6> memory{};
  std::array<uint8_t, 6> versions{};    // how often each variable was stored
  std::array<uint8_t, 10> registers{};  // of all threads
  std::array<uint8_t, 10> seen{};       // version that a HalfLoad saw, by register
  std::array<uint16_t, 4> done{};       // a bit for each instruction that was performed
  auto operator<=>(const State&) const = default;
};

class Model {
 public:
  Model(std::vector<Thread> threads, State begin) : threads_(std::move(threads)) { run(begin); }
  bool has(const std::function<bool(const State&)>& bad) const {
    EXPECT_FALSE(ends_.empty()) << "no execution came to its end";
    for (const State& end : ends_)
      if (bad(end)) return true;
    return false;
  }

 private:
  // Whether b has to wait until a, which is before it in the program, was performed.
  static bool orders(const Thread& thread, size_t a, size_t b) {
    const Op& first = thread[a];
    const Op& second = thread[b];
    if (!is_access(first) || !is_access(second)) return orders_barrier(first, second);
    if (is_load(first) && acquires(first.order)) return true;
    if (is_store(second) && releases(second.order)) return true;
    // stlr before ldar and ldaxr, not before ldapr, which is an acquire load.
    if (is_store(first) && releases(first.order) && is_load(second) &&
        (second.order == Order::SeqCst || (second.kind == Op::Kind::HalfLoad && acquires(second.order))))
      return true;
    if (first.at == second.at && !(is_store(first) && is_load(second))) return true;  // coherence
    if (first.at == second.at && second.kind == Op::Kind::HalfLoad) return true;
    return is_load(first) && second.depends >= 0 && first.to == static_cast<uint8_t>(second.depends);
  }
  static bool orders_barrier(const Op& first, const Op& second) {
    const auto covers = [](const Op& barrier, const Op& op, bool before) {
      if (!is_access(op)) return true;  // barriers stay in order
      if (barrier.kind == Op::Kind::Loads) return before ? is_load(op) : true;
      if (barrier.kind == Op::Kind::Stores) return is_store(op);
      return true;
    };
    return is_access(second) ? covers(first, second, false) : covers(second, first, true);
  }

  bool may_perform(const State& state, size_t t, size_t i) const {
    if ((state.done[t] >> i & 1) != 0) return false;
    for (size_t before = 0; before < i; ++before)
      if ((state.done[t] >> before & 1) == 0 && orders(threads_[t], before, i)) return false;
    if (threads_[t][i].kind != Op::Kind::Membarrier) return true;
    for (size_t other = 0; other < threads_.size(); ++other)
      if (other != t && (state.done[other] & (state.done[other] + 1)) != 0)
        return false;  // it is between two instructions when the barrier comes
    return true;
  }

  // False: the execution ends here.
  bool perform(State& state, size_t t, size_t i) const {
    const Op& op = threads_[t][i];
    state.done[t] = static_cast<uint16_t>(state.done[t] | 1U << i);
    if (is_load(op)) {
      uint8_t value = state.memory[op.at];
      // A load takes the value of the thread's own store that memory does not have yet.
      for (size_t before = 0; before < i; ++before)
        if (const Op& own = threads_[t][before];
            (state.done[t] >> before & 1) == 0 && is_store(own) && own.at == op.at) {
          if (own.depends >= 0 || own.kind == Op::Kind::HalfStore) {
            ADD_FAILURE() << "a program that the model does not have";
            return false;
          }
          value = own.value;
        }
      state.registers[op.to] = value;
      state.seen[op.to] = state.versions[op.at];
    } else if (is_store(op)) {
      if (op.depends >= 0 && state.registers[static_cast<size_t>(op.depends)] != op.wanted) return true;
      if (op.kind == Op::Kind::HalfStore && state.seen[op.to] != state.versions[op.at]) return false;
      state.memory[op.at] = static_cast<uint8_t>(op.adds ? state.registers[op.to] | op.value : op.value);
      ++state.versions[op.at];
    }
    return true;
  }

  void run(const State& state) {
    if (!seen_.insert(state).second) return;
    bool is_end = true;
    for (size_t t = 0; t < threads_.size(); ++t)
      for (size_t i = 0; i < threads_[t].size(); ++i) {
        if ((state.done[t] >> i & 1) == 0) is_end = false;
        if (!may_perform(state, t, i)) continue;
        State next = state;
        if (perform(next, t, i)) run(next);
      }
    if (is_end) ends_.push_back(state);
  }

  const std::vector<Thread> threads_;
  std::set<State> seen_;
  std::vector<State> ends_;
};

using Bad = std::function<bool(const State&)>;
bool goes_wrong(std::vector<Thread> threads, const Bad& bad, std::array<uint8_t, 6> memory = {}) {
  State begin;
  begin.memory = memory;
  return Model(std::move(threads), begin).has(bad);
}

using enum Order;
constexpr uint8_t x = 0, y = 1, z = 2;

// --- the model itself: outcomes that Arm's manual allows and forbids ---

TEST(MemoryOrderModel, MessagePassing) {
  const auto test = [](Order put, Order take) {
    return goes_wrong({store(x, 1, Relaxed) + store(y, 1, put), load(y, 0, take) + load(x, 1, Relaxed)},
                      [](const State& s) { return s.registers[0] == 1 && s.registers[1] == 0; });
  };
  EXPECT_FALSE(test(Release, Acquire));
  EXPECT_TRUE(test(Relaxed, Acquire));
  EXPECT_TRUE(test(Release, Relaxed));
}

TEST(MemoryOrderModel, StoreBuffering) {
  const auto test = [](Order put, Order take, const Thread& fence) {
    return goes_wrong(
        {store(x, 1, put) + fence + load(y, 0, take), store(y, 1, put) + fence + load(x, 1, take)},
        [](const State& s) { return s.registers[0] == 0 && s.registers[1] == 0; });
  };
  EXPECT_TRUE(test(Release, Acquire, nothing));
  EXPECT_TRUE(test(Relaxed, Relaxed, stores_fence));
  EXPECT_TRUE(test(Relaxed, Relaxed, loads_fence));
  EXPECT_FALSE(test(SeqCst, SeqCst, nothing));
  EXPECT_FALSE(test(Relaxed, Relaxed, full));
}

TEST(MemoryOrderModel, LoadBuffering) {
  const auto test = [](const Thread& one, const Thread& other) {
    return goes_wrong({load(x, 0, Relaxed) + one, load(y, 1, Relaxed) + other},
                      [](const State& s) { return s.registers[0] == 1 && s.registers[1] == 1; });
  };
  EXPECT_TRUE(test(store(y, 1, Relaxed), store(x, 1, Relaxed)));
  EXPECT_FALSE(test(store(y, 1, Release), store(x, 1, Release)));
  EXPECT_FALSE(test(store_if(0, 1, y, 1, Relaxed), store_if(1, 1, x, 1, Relaxed)));  // control dependencies
}

TEST(MemoryOrderModel, AllThreadsSeeStoresInOneOrder) {
  const auto test = [](Order take) {
    return goes_wrong({store(x, 1, Relaxed), store(y, 1, Relaxed), load(x, 0, take) + load(y, 1, take),
                       load(y, 2, take) + load(x, 3, take)},
                      [](const State& s) {
                        return s.registers[0] == 1 && s.registers[1] == 0 && s.registers[2] == 1 &&
                               s.registers[3] == 0;
                      });
  };
  EXPECT_FALSE(test(Acquire));
  EXPECT_TRUE(test(Relaxed));
}

TEST(MemoryOrderModel, LoadsOfOneVariableDoNotGoBack) {
  EXPECT_FALSE(goes_wrong({store(x, 1, Relaxed), load(x, 0, Relaxed) + load(x, 1, Relaxed)},
                          [](const State& s) { return s.registers[0] == 1 && s.registers[1] == 0; }));
}

// A read-modify-write of ldaxr and stlxr is no barrier for a plain load behind it.
TEST(MemoryOrderModel, ReadModifyWriteIsNoFence) {
  const auto test = [](Order take) {
    return goes_wrong(
        {fetch_or(x, 1, 2, SeqCst) + load(y, 0, take), store(y, 1, SeqCst) + load(x, 1, SeqCst)},
        [](const State& s) { return s.registers[0] == 0 && s.registers[1] == 0; });
  };
  EXPECT_TRUE(test(Relaxed));
  EXPECT_TRUE(test(Acquire));
  EXPECT_FALSE(test(SeqCst));
}

// --- rings: SendRing and ReceiveRing, ShmSender and ShmReceiver ---

// x: the payload, y: the header or turn, z: the credit. The sender writes the slot a second time when it has the credit.
bool slot_goes_wrong(Order publish, Order look, Order give_back) {
  return goes_wrong(
      {store(x, 1, Relaxed) + store(y, 1, publish) + load(z, 2, Acquire) + store_if(2, 1, x, 2, Relaxed),
       load(y, 0, look) + load(x, 1, Relaxed) + store_if(0, 1, z, 1, give_back)},
      [](const State& s) { return s.registers[0] == 1 && s.registers[1] != 1; });
}
TEST(MemoryOrder, SlotAndCredit) {
  EXPECT_FALSE(slot_goes_wrong(Release, Acquire, Release));
  EXPECT_TRUE(slot_goes_wrong(Relaxed, Acquire, Release));
  EXPECT_TRUE(slot_goes_wrong(Release, Relaxed, Release));
  EXPECT_TRUE(slot_goes_wrong(Release, Acquire, Relaxed));
}

// Peer::has_closed(), then the last look. x: the header of a frame, y: closed.
TEST(MemoryOrder, LastFramesOfAPeerThatCloses) {
  const auto test = [](Order closed) {
    return goes_wrong({store(x, 1, Release) + store(y, 1, Release), load(y, 0, closed) + load(x, 1, Acquire)},
                      [](const State& s) { return s.registers[0] == 1 && s.registers[1] == 0; });
  };
  EXPECT_FALSE(test(Acquire));
  EXPECT_TRUE(test(Relaxed));
}

// SharedCopies::was_source(). x: memory of the sender's program, y: closed.
TEST(MemoryOrder, MemoryThatWasReadWasTheSenders) {
  const auto test = [](const Thread& closer, const Thread& reader) {
    return goes_wrong({store(y, 1, Release) + closer + store(x, 2, Relaxed),
                       load(x, 0, Relaxed) + reader + load(y, 1, Acquire)},
                      [](const State& s) { return s.registers[0] == 2 && s.registers[1] == 0; });
  };
  EXPECT_FALSE(test(full, loads_fence));
  EXPECT_TRUE(test(nothing, loads_fence));
  EXPECT_TRUE(test(full, nothing));
}

// Link::close() and the peer that gives the channel to another one. x: a word of the channel that the closing receiver clears and the next one sets, y: closed.
TEST(MemoryOrder, ChannelOfAReceiverThatCloses) {
  const auto test = [](const Thread& closer) {
    return goes_wrong({closer, load(y, 0, Acquire) + store_if(0, 1, x, 2, Relaxed)},
                      [](const State& s) { return s.registers[0] == 1 && s.memory[x] == 0; }, {1, 0});
  };
  EXPECT_FALSE(test(store(x, 0, SeqCst) + store(y, 1, Release)));
  EXPECT_TRUE(test(store(y, 1, Release) + store(x, 0, SeqCst)));
  EXPECT_TRUE(test(store(x, 0, Relaxed) + store(y, 1, Relaxed)));
}

// --- sleeping ---

// ring() and Link::arm(). x: pending, y: sleeping.
TEST(MemoryOrder, DoorbellAndSleep) {
  const auto test = [](Order look, const Thread& fence) {
    return goes_wrong(
        {fetch_or(x, 1, 2, SeqCst) + load(y, 0, look), store(y, 1, Relaxed) + fence + load(x, 1, Relaxed)},
        [](const State& s) { return s.registers[0] == 0 && s.registers[1] == 0; });
  };
  EXPECT_FALSE(test(SeqCst, full));
  EXPECT_TRUE(test(Acquire, full));
  EXPECT_TRUE(test(SeqCst, nothing));
}

// Link::poll_pending() and Doorbells::collect() against ring(). x: a word of doorbells, y: pending, in which another peer's bit is.
TEST(MemoryOrder, DoorbellIsNotLostInACollection) {
  const auto test = [](Order take) {
    return goes_wrong({fetch_or(x, 1, 0, SeqCst) + fetch_or(y, 1, 1, SeqCst),
                       exchange(y, 0, 2, take) + exchange(x, 0, 3, take)},
                      [](const State& s) { return s.memory[x] == 1 && s.memory[y] == 0; }, {0, 1});
  };
  EXPECT_FALSE(test(AcqRel));
  EXPECT_TRUE(test(Relaxed));
}

// SendRing::publish() and Link::arm(). x: a slot's header, y: polled, 1 at first.
TEST(MemoryOrder, AsymmetricFence) {
  const auto test = [](const Thread& fence) {
    return goes_wrong(
        {store(x, 1, Release) + load(y, 0, Relaxed), store(y, 0, SeqCst) + fence + load(x, 1, Acquire)},
        [](const State& s) { return s.registers[0] == 1 && s.registers[1] == 0; }, {0, 1});
  };
  EXPECT_FALSE(test(membarrier));
  EXPECT_TRUE(test(full));
  EXPECT_TRUE(test(nothing));
}

// Lock::unlock() and Lock::wait(). x: held, 1 at first, y: waiters.
TEST(MemoryOrder, UnlockSeesTheWaiter) {
  const auto test = [](const Thread& fence) {
    return goes_wrong(
        {store(x, 0, Release) + load(y, 0, Relaxed), fetch_or(y, 1, 2, SeqCst) + fence + load(x, 1, Relaxed)},
        [](const State& s) { return s.registers[0] == 0 && s.registers[1] == 1; }, {1, 0});
  };
  EXPECT_FALSE(test(membarrier));
  EXPECT_TRUE(test(full));
}

// ShmSender::must_wake() and ShmPort::arm(). x: turn, y: asleep, z: fences_for_both, 1 at first.
TEST(MemoryOrder, SenderThatFencesOnDemand) {
  const auto test = [](const Thread& fence_of_sender, const Thread& fence_of_port, const Thread& barrier) {
    bool is_wrong = false;
    for (const uint8_t relies : {uint8_t{0}, uint8_t{1}}) {  // what the sender sees
      const Thread fence = relies == 0 ? fence_of_sender : nothing;
      is_wrong |= goes_wrong(
          {store(x, 1, Release) + load(z, 2, Relaxed) + fence + load(y, 0, Relaxed),
           store(y, 1, Relaxed) + fence_of_port + store(z, 0, Relaxed) + barrier + load(x, 1, Acquire)},
          [&](const State& s) {
            return s.registers[2] == relies && s.registers[0] == 0 && s.registers[1] == 0;
          },
          {0, 0, 1});
    }
    return is_wrong;
  };
  EXPECT_FALSE(test(full, full, membarrier));
  EXPECT_TRUE(test(full, full, nothing));
  EXPECT_TRUE(test(nothing, full, full));
}

// Counter::arm() and add_error(). x: armed_, y: errors_.
TEST(MemoryOrder, CounterIsArmed) {
  const auto test = [](Order look) {
    return goes_wrong(
        {store(x, 1, SeqCst) + load(y, 0, look), fetch_or(y, 1, 2, SeqCst) + exchange(x, 0, 1, SeqCst)},
        [](const State& s) { return s.registers[0] == 0 && s.registers[1] == 0; });
  };
  EXPECT_FALSE(test(SeqCst));
  EXPECT_TRUE(test(Acquire));
}

// ProgressPolicy::batch() and skips_checks(); ProgressThread: enter() and before_fork(); Counter::when() and add().
TEST(MemoryOrder, FlagAgainstFlag) {
  EXPECT_FALSE(goes_wrong(
      {store(x, 1, Relaxed) + full + load(y, 0, Relaxed), store(y, 1, Relaxed) + full + load(x, 1, Relaxed)},
      [](const State& s) { return s.registers[0] == 0 && s.registers[1] == 0; }));
  EXPECT_FALSE(goes_wrong(
      {fetch_or(x, 1, 2, SeqCst) + load(y, 0, SeqCst), fetch_or(y, 1, 3, SeqCst) + load(x, 1, SeqCst)},
      [](const State& s) { return s.registers[0] == 0 && s.registers[1] == 0; }));
}

// --- pages that are read while they change ---

// Change and statistics::copy_of(). x, y: words, z: the generation.
TEST(MemoryOrder, StatisticsEntry) {
  const auto test = [](const Thread& fence, Order first, const Thread& last) {
    return goes_wrong(
        {store(z, 1, Relaxed) + fence + store(x, 1, Relaxed) + store(y, 1, Relaxed) + fence +
             store(z, 2, Relaxed),
         load(z, 0, first) + load(x, 1, first) + load(y, 2, first) + last + load(z, 3, Acquire)},
        [](const State& s) {
          return s.registers[0] == s.registers[3] && s.registers[0] % 2 == 0 &&
                 (s.registers[1] != s.registers[2] || s.registers[1] != s.registers[0] / 2);
        });
  };
  EXPECT_FALSE(test(full, Acquire, loads_fence));
  EXPECT_TRUE(test(full, Relaxed, loads_fence));
  EXPECT_TRUE(test(full, Relaxed, nothing));
  EXPECT_TRUE(test(nothing, Acquire, loads_fence));
}

// ExposedRegions::expose() and RegionWindow::find(). x: the key, 1 at first, y: the state, 1 (alive) at first.
TEST(MemoryOrder, EntryOfAnExposedRegion) {
  const auto test = [](const Thread& fence) {
    return goes_wrong(
        {exchange(y, 2, 4, SeqCst) + fence + store(x, 2, Relaxed) + exchange(y, 3, 5, Release),
         load(y, 0, Acquire) + load(x, 1, Relaxed) + loads_fence + load(y, 2, Relaxed)},
        [](const State& s) { return s.registers[0] == 1 && s.registers[2] == 1 && s.registers[1] == 2; },
        {1, 1});
  };
  EXPECT_FALSE(test(full));
  EXPECT_TRUE(test(nothing));
}

// RegionWindow::enter() and ExposedRegions::conceal(). x: region, y: state.
TEST(MemoryOrder, RegionIsClosedOrUsed) {
  const auto test = [](Order look) {
    return goes_wrong({store(x, 1, SeqCst) + load(y, 0, look), fetch_or(y, 1, 2, SeqCst) + load(x, 1, look)},
                      [](const State& s) { return s.registers[0] == 0 && s.registers[1] == 0; });
  };
  EXPECT_FALSE(test(SeqCst));
  EXPECT_TRUE(test(Acquire));
}

// --- devices ---

// A driver reads a buffer and gives it back. x: the buffer, y: the tail; the device writes where the tail allows it.
TEST(MemoryOrder, BufferThatGoesBackToADevice) {
  const auto test = [](const Thread& barrier) {
    return goes_wrong({load(x, 0, Relaxed) + barrier + store(y, 1, Relaxed),
                       load(y, 1, Relaxed) + store_if(1, 1, x, 2, Relaxed)},
                      [](const State& s) { return s.registers[0] == 2; });
  };
  EXPECT_FALSE(test(full));
  EXPECT_TRUE(test(stores_fence));
}

}  // namespace
}  // namespace weft
