// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of the intrusive lists.
#include "base/list.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

namespace weft {
namespace {

using FirstHook = NamedHook<struct FirstName>;
using SecondHook = NamedHook<struct SecondName>;

struct Item : FirstHook, SecondHook, FifoHook {
  explicit Item(int v = 0) : value(v) {}
  int value;
};
using First = List<Item, FirstHook>;
using Second = List<Item, SecondHook>;

template <class L>
std::vector<int> values(const L& list) {
  std::vector<int> out;
  for (const Item& item : list) out.push_back(item.value);
  return out;
}

TEST(List, KeepsOrderAtBothEnds) {
  First list;
  Item a(1), b(2), c(3), d(4);
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.front(), nullptr);
  EXPECT_EQ(list.back(), nullptr);
  EXPECT_EQ(list.pop_front(), nullptr);
  list.push_back(b);
  list.push_back(d);
  list.push_front(a);
  list.insert_before(d, c);
  EXPECT_EQ(values(list), (std::vector{1, 2, 3, 4}));
  EXPECT_EQ(list.front(), &a);
  EXPECT_EQ(list.back(), &d);
  First::remove(b);
  EXPECT_FALSE(First::linked(b));
  EXPECT_TRUE(First::linked(a));
  EXPECT_EQ(values(list), (std::vector{1, 3, 4}));
  while (list.pop_front() != nullptr) {
  }
  EXPECT_TRUE(list.empty());
  EXPECT_FALSE(First::linked(d));
}

TEST(List, AnObjectMayBeInSeveral) {
  First first;
  Second second;
  Item a(1), b(2);
  first.push_back(a);
  first.push_back(b);
  second.push_back(b);
  second.push_back(a);
  first.remove(a);
  EXPECT_EQ(values(first), (std::vector{2}));
  EXPECT_EQ(values(second), (std::vector{2, 1}));
}

TEST(List, ForEachMayRemoveWhatItIsGiven) {
  First list;
  std::deque<Item> items;
  for (int i = 0; i < 6; ++i) list.push_back(items.emplace_back(i));
  list.for_each([&](Item& item) {
    if (item.value % 2 == 0) list.remove(item);
  });
  EXPECT_EQ(values(list), (std::vector{1, 3, 5}));
  EXPECT_EQ(list.find([](const Item& item) { return item.value > 1; }), &items[3]);
  EXPECT_EQ(list.find([](const Item& item) { return item.value > 5; }), nullptr);
}

TEST(List, InsertSortedPutsEqualsBehind) {
  First list;
  Item a(1), b(5), c(3), d(5), e(0);
  const auto before = [](const Item& x, const Item& y) { return x.value < y.value; };
  for (Item* item : {&a, &b, &c, &d, &e}) list.insert_sorted(*item, before);
  EXPECT_EQ(values(list), (std::vector{0, 1, 3, 5, 5}));
  EXPECT_EQ(list.back(), &d);
}

TEST(List, SpliceEmptiesTheOther) {
  First list, other, none;
  Item a(1), b(2), c(3);
  list.push_back(a);
  other.push_back(b);
  other.push_back(c);
  list.splice_back(other);
  list.splice_back(none);
  EXPECT_TRUE(other.empty());
  EXPECT_EQ(values(list), (std::vector{1, 2, 3}));
  other.splice_back(list);
  EXPECT_EQ(values(other), (std::vector{1, 2, 3}));
  EXPECT_EQ(other.back(), &c);
}

TEST(List, BehavesAsADequeUnderRandomUse) {
  std::mt19937 random(7);
  std::vector<Item> items(32);
  for (size_t i = 0; i < items.size(); ++i) items[i].value = static_cast<int>(i);
  First list;
  std::deque<int> model;
  for (int step = 0; step < 20000; ++step) {
    Item& item = items[random() % items.size()];
    if (First::linked(item)) {
      list.remove(item);
      std::erase(model, item.value);
    } else if (random() % 2 == 0) {
      list.push_back(item);
      model.push_back(item.value);
    } else {
      list.push_front(item);
      model.push_front(item.value);
    }
    ASSERT_EQ(values(list), std::vector<int>(model.begin(), model.end())) << "step " << step;
  }
}

TEST(Fifo, KeepsOrder) {
  Fifo<Item> fifo;
  Item a(1), b(2), c(3);
  EXPECT_TRUE(fifo.empty());
  EXPECT_EQ(fifo.pop_front(), nullptr);
  fifo.push_back(b);
  fifo.push_back(c);
  fifo.push_front(a);
  EXPECT_EQ(fifo.front(), &a);
  EXPECT_EQ(fifo.next(a), &b);
  EXPECT_EQ(fifo.next(c), nullptr);
  EXPECT_EQ(fifo.pop_front(), &a);
  EXPECT_EQ(fifo.pop_front(), &b);
  fifo.push_back(a);
  EXPECT_EQ(fifo.pop_front(), &c);
  EXPECT_EQ(fifo.pop_front(), &a);
  EXPECT_EQ(fifo.pop_front(), nullptr);
  fifo.push_front(c);
  fifo.push_back(b);
  EXPECT_EQ(fifo.pop_front(), &c);
  EXPECT_EQ(fifo.front(), &b);
}

TEST(Fifo, SpliceKeepsTheTail) {
  Fifo<Item> fifo, other;
  Item a(1), b(2), c(3);
  fifo.splice_back(other);
  EXPECT_TRUE(fifo.empty());
  other.push_back(a);
  fifo.splice_back(other);
  EXPECT_TRUE(other.empty());
  other.push_back(b);
  fifo.splice_back(other);
  fifo.push_back(c);
  for (Item* item : {&a, &b, &c}) EXPECT_EQ(fifo.pop_front(), item);
  EXPECT_TRUE(fifo.empty());
}

}  // namespace
}  // namespace weft
