// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of the bounded pool.
#include "base/pool.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <vector>

namespace weft {
namespace {

struct Object {
  int value = 42;
};

struct alignas(64) Aligned {
  static inline int alive = 0;
  Aligned() noexcept { ++alive; }
  ~Aligned() { --alive; }
};

TEST(Pool, StopsAtTheBound) {
  for (size_t bound : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{200}, size_t{9000}}) {
    Pool<Object> pool(bound);
    std::set<Object*> taken;
    while (Object* object = pool.acquire()) {
      EXPECT_EQ(object->value, 42);
      EXPECT_TRUE(taken.insert(object).second);
    }
    EXPECT_EQ(taken.size(), bound);
    EXPECT_EQ(pool.in_use(), bound);
    EXPECT_TRUE(pool.exhausted());
    EXPECT_EQ(pool.acquire(), nullptr);
    for (Object* object : taken) pool.release(object);
    EXPECT_EQ(pool.in_use(), 0u);
    EXPECT_NE(pool.acquire(), nullptr);
  }
}

TEST(Pool, AcquireFailsWithABoundOfZero) {
  Pool<Object> pool(0);
  EXPECT_EQ(pool.acquire(), nullptr);
  EXPECT_TRUE(pool.exhausted());
}

TEST(Pool, ReusesTheLastReleasedObjectWithoutConstructingIt) {
  Pool<Object> pool(10);
  Object* a = pool.acquire();
  Object* b = pool.acquire();
  a->value = 1;
  b->value = 2;
  pool.release(a);
  pool.release(b);
  EXPECT_EQ(pool.acquire(), b);
  EXPECT_EQ(b->value, 2);
  EXPECT_EQ(pool.acquire(), a);
  EXPECT_EQ(a->value, 1);
}

TEST(Pool, ReserveIsAllThatIsAllocated) {
  Pool<Object> pool(1000);
  EXPECT_FALSE(pool.reserve(1001));
  EXPECT_TRUE(pool.reserve(1000));
  EXPECT_EQ(pool.in_use(), 0u);
  for (int i = 0; i < 1000; ++i) EXPECT_NE(pool.acquire(), nullptr);
  EXPECT_EQ(pool.acquire(), nullptr);
}

TEST(Pool, ObjectsAreAlignedAndDestroyedOnce) {
  {
    Pool<Aligned> pool(300);
    for (int i = 0; i < 300; ++i)
      EXPECT_EQ(reinterpret_cast<uintptr_t>(pool.acquire()) % alignof(Aligned), 0u);
    EXPECT_EQ(Aligned::alive, 300);
  }
  EXPECT_EQ(Aligned::alive, 0);
}

TEST(Pool, NeverHandsOutWhatIsInUse) {
  std::mt19937 random(11);
  Pool<Object> pool(500);
  std::vector<Object*> held;
  for (int step = 0; step < 20000; ++step) {
    if (random() % 5 < 3) {
      Object* object = pool.acquire();
      ASSERT_EQ(object == nullptr, held.size() == 500);
      if (object == nullptr) continue;
      object->value = -1;
      held.push_back(object);
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      ASSERT_EQ(held.back()->value, -1);
      held.back()->value = 42;
      pool.release(held.back());
      held.pop_back();
    }
    ASSERT_EQ(pool.in_use(), held.size());
  }
}

}  // namespace
}  // namespace weft
