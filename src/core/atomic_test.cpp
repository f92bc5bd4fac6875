// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of the atomic operations: literal cases of the manual's pseudo-code, then every datatype and
// operation against a model that is written as the pseudo-code reads, aligned and not, and finally several
// threads at once.
#include "core/atomic.hpp"

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/hash.hpp"

namespace weft::core {
namespace {

__extension__ typedef __int128 Int128;
using Uint128 = Wide128;

template <class T>
constexpr bool is_complex = false;
template <class T>
constexpr bool is_complex<std::complex<T>> = true;
template <class T>
constexpr bool is_real =
    std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, long double>;
template <class T>
constexpr bool is_integer = !is_complex<T> && !is_real<T>;

// Calls fn.template operator()<T>(datatype) for all datatypes.
template <class Fn>
void for_each_datatype(Fn&& fn) {
  fn.template operator()<int8_t>(FI_INT8);
  fn.template operator()<uint8_t>(FI_UINT8);
  fn.template operator()<int16_t>(FI_INT16);
  fn.template operator()<uint16_t>(FI_UINT16);
  fn.template operator()<int32_t>(FI_INT32);
  fn.template operator()<uint32_t>(FI_UINT32);
  fn.template operator()<int64_t>(FI_INT64);
  fn.template operator()<uint64_t>(FI_UINT64);
  fn.template operator()<float>(FI_FLOAT);
  fn.template operator()<double>(FI_DOUBLE);
  fn.template operator()<std::complex<float>>(FI_FLOAT_COMPLEX);
  fn.template operator()<std::complex<double>>(FI_DOUBLE_COMPLEX);
  fn.template operator()<long double>(FI_LONG_DOUBLE);
  fn.template operator()<std::complex<long double>>(FI_LONG_DOUBLE_COMPLEX);
  fn.template operator()<Int128>(FI_INT128);
  fn.template operator()<Uint128>(FI_UINT128);
}

constexpr AtomicKind kinds[] = {AtomicKind::Write, AtomicKind::Fetch, AtomicKind::Compare};

template <class T>
bool model_supports(uint32_t op, AtomicKind kind) {
  const bool compare_op = op == FI_CSWAP || op == FI_CSWAP_NE || op == FI_CSWAP_LE || op == FI_CSWAP_LT ||
                          op == FI_CSWAP_GE || op == FI_CSWAP_GT || op == FI_MSWAP;
  if (compare_op != (kind == AtomicKind::Compare)) return false;
  switch (op) {
    case FI_ATOMIC_READ:
      return kind == AtomicKind::Fetch;
    case FI_MIN:
    case FI_MAX:
    case FI_CSWAP_LE:
    case FI_CSWAP_LT:
    case FI_CSWAP_GE:
    case FI_CSWAP_GT:
      return !is_complex<T>;
    case FI_BOR:
    case FI_BAND:
    case FI_BXOR:
    case FI_MSWAP:
      return is_integer<T>;
    default:
      return op <= FI_MSWAP;
  }
}

// Integer arithmetic by way of 128 unsigned bits, which wraps for every narrower type when it is cut off.
template <class T>
T add(T a, T b) {
  if constexpr (is_integer<T>) return static_cast<T>(static_cast<Uint128>(a) + static_cast<Uint128>(b));
  else return a + b;
}
template <class T>
T multiply(T a, T b) {
  if constexpr (is_integer<T>) return static_cast<T>(static_cast<Uint128>(a) * static_cast<Uint128>(b));
  else return a * b;
}

// fi_atomic(3), "Atomic Operations", as it reads there.
template <class T>
void model_apply(uint32_t op, T& addr, T buf, T compare) {
  const bool a = addr != T{}, b = buf != T{};
  if (op == FI_SUM) addr = add(addr, buf);
  if (op == FI_PROD) addr = multiply(addr, buf);
  if (op == FI_LOR) addr = a || b ? T{1} : T{0};
  if (op == FI_LAND) addr = a && b ? T{1} : T{0};
  if (op == FI_LXOR) addr = (a && !b) || (!a && b) ? T{1} : T{0};
  if (op == FI_ATOMIC_WRITE) addr = buf;
  if (op == FI_CSWAP && compare == addr) addr = buf;
  else if (op == FI_CSWAP_NE && compare != addr) addr = buf;
  if constexpr (!is_complex<T>) {
    if (op == FI_MIN && buf < addr) addr = buf;
    else if (op == FI_MAX && buf > addr) addr = buf;
    else if (op == FI_CSWAP_LE && compare <= addr) addr = buf;
    else if (op == FI_CSWAP_LT && compare < addr) addr = buf;
    else if (op == FI_CSWAP_GE && compare >= addr) addr = buf;
    else if (op == FI_CSWAP_GT && compare > addr) addr = buf;
  }
  if constexpr (is_integer<T>) {
    if (op == FI_BOR) addr = static_cast<T>(addr | buf);
    if (op == FI_BAND) addr = static_cast<T>(addr & buf);
    if (op == FI_BXOR) addr = static_cast<T>(addr ^ buf);
    if (op == FI_MSWAP) addr = static_cast<T>((buf & compare) | (addr & ~compare));
  }
}

// Values that meet often, so that comparisons come out all ways, beside the extremes of the type.
template <class T>
T any_value(std::mt19937_64& random) {
  if constexpr (is_complex<T>) {
    using Part = typename T::value_type;
    return T(any_value<Part>(random), any_value<Part>(random));
  } else if constexpr (is_real<T>) {
    constexpr T choices[] = {0,
                             T(-0.0),
                             1,
                             -1,
                             T(0.5),
                             3,
                             T(1e10),
                             std::numeric_limits<T>::infinity(),
                             std::numeric_limits<T>::quiet_NaN(),
                             std::numeric_limits<T>::max()};
    return choices[random() % std::size(choices)];
  } else {
    const uint64_t dice = random();
    if (dice % 3 == 0) return static_cast<T>(dice >> 8 & 3);
    const Uint128 wide = static_cast<Uint128>(random()) << 64 | random();
    if (dice % 3 == 1) return static_cast<T>(wide);
    return static_cast<T>((Uint128{1} << (8 * sizeof(T) - 1)) - (dice >> 8 & 1));  // the signed extremes
  }
}

template <class T>
bool same(const T& a, const T& b) {
  if constexpr (is_complex<T>) return same(a.real(), b.real()) && same(a.imag(), b.imag());
  else if constexpr (is_real<T>)
    return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
  else return a == b;
}

// Room for values at any offset from an aligned address, with a guard on both sides.
template <class T>
class Buffer {
 public:
  Buffer(size_t count, size_t offset) : bytes_((count + 2) * sizeof(T) + 64 + offset, guard) {
    const size_t misaligned = reinterpret_cast<uintptr_t>(bytes_.data()) % 64;
    start_ = bytes_.data() + (64 - misaligned) % 64 + sizeof(T) + offset;
    end_ = start_ + count * sizeof(T);
  }
  std::byte* data() { return start_; }
  T at(size_t i) const {
    T value;
    std::memcpy(&value, start_ + i * sizeof(T), sizeof value);
    return value;
  }
  void set(size_t i, T value) { std::memcpy(start_ + i * sizeof(T), &value, sizeof value); }
  bool guards_intact() const {
    const auto is_guard = [](std::byte b) { return b == guard; };
    return std::all_of(bytes_.data(), static_cast<const std::byte*>(start_), is_guard) &&
           std::all_of(static_cast<const std::byte*>(end_), bytes_.data() + bytes_.size(), is_guard);
  }
  bool untouched() const {
    return std::all_of(bytes_.begin(), bytes_.end(), [](std::byte b) { return b == guard; });
  }

 private:
  static constexpr std::byte guard{0xa5};
  std::vector<std::byte> bytes_;
  std::byte* start_;
  std::byte* end_;
};

template <class T>
void compare_with_model(uint32_t datatype, uint32_t op, AtomicKind kind, size_t offset,
                        std::mt19937_64& random) {
  constexpr size_t count = 24;
  Buffer<T> target(count, offset), operand(count, offset / 2), compare(count, offset),
      result(count, offset / 3);
  std::vector<T> before(count), after(count);
  for (size_t i = 0; i < count; ++i) {
    before[i] = after[i] = any_value<T>(random);
    target.set(i, before[i]);
    operand.set(i, any_value<T>(random));
    compare.set(i, any_value<T>(random));
    model_apply<T>(op, after[i], operand.at(i), compare.at(i));
  }
  ASSERT_EQ(atomic_apply(datatype, op, kind, target.data(), op == FI_ATOMIC_READ ? nullptr : operand.data(),
                         kind == AtomicKind::Compare ? compare.data() : nullptr, result.data(), count),
            0);
  for (size_t i = 0; i < count; ++i) {
    ASSERT_TRUE(same(target.at(i), after[i])) << "element " << i;
    ASSERT_TRUE(kind == AtomicKind::Write || same(result.at(i), before[i])) << "element " << i;
  }
  EXPECT_TRUE(kind != AtomicKind::Write || result.untouched());
  EXPECT_TRUE(target.guards_intact() && result.guards_intact());
}

TEST(Atomic, AgreesWithTheManualForEveryDatatypeAndOperation) {
  std::mt19937_64 random(3);
  for_each_datatype([&]<class T>(uint32_t datatype) {
    EXPECT_EQ(datatype_size(datatype), sizeof(T));
    for (AtomicKind kind : kinds) {
      for (uint32_t op = 0; op < FI_ATOMIC_OP_LAST; ++op) {
        SCOPED_TRACE("datatype " + std::to_string(datatype) + " op " + std::to_string(op) + " kind " +
                     std::to_string(static_cast<int>(kind)));
        ASSERT_EQ(atomic_supported(datatype, op, kind), model_supports<T>(op, kind));
        if (!atomic_supported(datatype, op, kind)) continue;
        for (size_t offset : {0, 0, 0, 1, 3, 4, 8}) compare_with_model<T>(datatype, op, kind, offset, random);
        if (testing::Test::HasFailure()) return;
      }
    }
  });
}

template <class T>
T once(uint32_t datatype, uint32_t op, T target, T operand) {
  EXPECT_EQ(atomic_apply(datatype, op, AtomicKind::Write, &target, &operand, nullptr, nullptr, 1), 0);
  return target;
}
template <class T>
T once(uint32_t datatype, uint32_t op, T target, T operand, T compare) {
  T old{};
  const T before = target;
  EXPECT_EQ(atomic_apply(datatype, op, AtomicKind::Compare, &target, &operand, &compare, &old, 1), 0);
  EXPECT_EQ(old, before);
  return target;
}

TEST(Atomic, LiteralCases) {
  EXPECT_EQ((once<int8_t>(FI_INT8, FI_SUM, 127, 1)), -128);
  EXPECT_EQ((once<uint16_t>(FI_UINT16, FI_PROD, 65535, 65535)), 1);
  EXPECT_EQ((once<int32_t>(FI_INT32, FI_MIN, 3, -5)), -5);
  EXPECT_EQ((once<uint32_t>(FI_UINT32, FI_MIN, 3, 0xfffffffb)), 3u);
  EXPECT_EQ((once<uint64_t>(FI_UINT64, FI_MAX, 1, uint64_t{1} << 63)), uint64_t{1} << 63);
  EXPECT_EQ((once<int64_t>(FI_INT64, FI_LXOR, 5, 7)), 0);
  EXPECT_EQ((once<int64_t>(FI_INT64, FI_LAND, 5, 8)), 1);
  EXPECT_EQ((once<double>(FI_DOUBLE, FI_SUM, 1.5, 2.25)), 3.75);
  EXPECT_EQ((once<std::complex<float>>(FI_FLOAT_COMPLEX, FI_PROD, {0, 1}, {0, 1})),
            (std::complex<float>(-1, 0)));
  EXPECT_EQ((once<uint32_t>(FI_UINT32, FI_MSWAP, 0x11112222, 0xaaaabbbb, 0x00ffff00)), 0x11aabb22u);
  EXPECT_EQ((once<int32_t>(FI_INT32, FI_CSWAP, 4, 9, 4)), 9);
  EXPECT_EQ((once<int32_t>(FI_INT32, FI_CSWAP, 4, 9, 5)), 4);
  EXPECT_EQ((once<int32_t>(FI_INT32, FI_CSWAP_LT, 4, 9, 3)), 9);  // compare < target
  EXPECT_EQ((once<int32_t>(FI_INT32, FI_CSWAP_GT, 4, 9, 3)), 4);
  EXPECT_EQ((once<double>(FI_DOUBLE, FI_CSWAP, -0.0, 9, 0.0)), 9);  // by value
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ((once<double>(FI_DOUBLE, FI_MAX, 1, nan)), 1);
}

TEST(Atomic, RefusesWhatDoesNotExistAndTouchesNothing) {
  const uint32_t hostile[] = {19, 20, 255, 256, 257, 0x7fffffff, 0x80000000, 0xffffffff};
  Buffer<uint64_t> target(4, 0), result(4, 0);
  uint64_t operand[4] = {1, 2, 3, 4};
  for (AtomicKind kind : kinds) {
    for (uint32_t bad : hostile) {
      EXPECT_FALSE(atomic_supported(bad, FI_SUM, kind));
      EXPECT_FALSE(atomic_supported(FI_UINT64, bad, kind));
      EXPECT_EQ(datatype_size(bad), 0u);
      EXPECT_EQ(atomic_apply(bad, FI_SUM, kind, target.data(), operand, operand, result.data(), 1),
                -FI_EOPNOTSUPP);
      EXPECT_EQ(atomic_apply(FI_UINT64, bad, kind, target.data(), operand, operand, result.data(), 1),
                -FI_EOPNOTSUPP);
    }
  }
  EXPECT_FALSE(atomic_supported(FI_UINT64, FI_SUM, static_cast<AtomicKind>(3)));
  EXPECT_EQ(
      atomic_apply(FI_UINT64, FI_SUM, AtomicKind::Compare, target.data(), operand, operand, result.data(), 1),
      -FI_EOPNOTSUPP);
  EXPECT_EQ(
      atomic_apply(FI_DOUBLE, FI_BOR, AtomicKind::Fetch, target.data(), operand, nullptr, result.data(), 1),
      -FI_EOPNOTSUPP);
  EXPECT_EQ(
      atomic_apply(FI_UINT64, FI_SUM, AtomicKind::Fetch, target.data(), nullptr, nullptr, result.data(), 1),
      -FI_EINVAL);
  EXPECT_EQ(atomic_apply(FI_UINT64, FI_CSWAP, AtomicKind::Compare, target.data(), operand, nullptr,
                         result.data(), 1),
            -FI_EINVAL);
  EXPECT_EQ(atomic_apply(FI_UINT64, FI_SUM, AtomicKind::Fetch, nullptr, operand, nullptr, result.data(), 1),
            -FI_EINVAL);
  EXPECT_EQ(
      atomic_apply(FI_UINT64, FI_SUM, AtomicKind::Fetch, target.data(), operand, nullptr, result.data(), 0),
      0);
  EXPECT_TRUE(target.untouched() && result.untouched());
}

TEST(Atomic, TheOldValueMayBeUnwanted) {
  uint32_t target = 5, operand = 6, compare = 5;
  EXPECT_EQ(atomic_apply(FI_UINT32, FI_SUM, AtomicKind::Fetch, &target, &operand, nullptr, nullptr, 1), 0);
  EXPECT_EQ(target, 11u);
  compare = 11;
  EXPECT_EQ(atomic_apply(FI_UINT32, FI_CSWAP, AtomicKind::Compare, &target, &operand, &compare, nullptr, 1),
            0);
  EXPECT_EQ(target, 6u);
}

TEST(Atomic, LongDoublePaddingIsNeitherReadNorWritten) {
  if (std::numeric_limits<long double>::digits != 64) GTEST_SKIP() << "no padding in this format";
  unsigned char target[sizeof(long double)], result[sizeof(long double)], before[sizeof(long double)];
  std::memset(target, 0x5a, sizeof target);
  const long double one = 1, two = 2;
  std::memcpy(target, &one, 10);
  std::memcpy(before, target, sizeof target);
  EXPECT_EQ(atomic_apply(FI_LONG_DOUBLE, FI_SUM, AtomicKind::Fetch, target, &one, nullptr, result, 1), 0);
  EXPECT_EQ(std::memcmp(result, before, sizeof result), 0);
  EXPECT_EQ(std::memcmp(target, &two, 10), 0);
  EXPECT_EQ(std::memcmp(target + 10, before + 10, sizeof target - 10), 0);
}

// Two threads at one aligned target: no update is lost, and every old value is seen once.
template <class T>
void count_together(uint32_t datatype, uint32_t op) {
  constexpr int threads = 2, rounds = sizeof(T) == 1 ? 100 : 20'000;  // must fit T
  std::atomic<int> ready{0};
  alignas(sizeof(T)) T target[2] = {};
  std::vector<T> seen[threads];
  const auto work = [&](int me) {
    const T one[2] = {T(1), T(1)};
    for (++ready; ready != threads;) std::this_thread::yield();
    for (int i = 0; i < rounds / threads; ++i) {
      T old[2];
      if (op == FI_SUM) {
        atomic_apply(datatype, FI_SUM, AtomicKind::Fetch, target, one, nullptr, old, 2);
      } else {  // a counter made of compare and swap
        for (;;) {
          T read[2];
          atomic_apply(datatype, FI_ATOMIC_READ, AtomicKind::Fetch, target, nullptr, nullptr, read, 2);
          const T next[2] = {T(read[0] + T(1)), read[1]};
          atomic_apply(datatype, FI_CSWAP, AtomicKind::Compare, target, next, read, old, 2);
          if (old[0] == read[0]) break;
        }
      }
      seen[me].push_back(old[0]);
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  EXPECT_EQ(target[0], T(rounds));
  std::vector<bool> found(rounds, false);
  for (const auto& mine : seen) {
    for (const T& old : mine) {
      const auto i = static_cast<size_t>(std::real(old));
      ASSERT_LT(i, found.size());
      EXPECT_FALSE(found[i]) << i;
      found[i] = true;
    }
  }
}

TEST(Atomic, ThreadsLoseNoUpdate) {
  for_each_datatype([&]<class T>(uint32_t datatype) {
    if constexpr (sizeof(T) <= 8) {
      SCOPED_TRACE("datatype " + std::to_string(datatype));
      for (int round = 0; round < 3; ++round) {
        count_together<T>(datatype, FI_SUM);
        count_together<T>(datatype, FI_CSWAP);
      }
    }
  });
}

}  // namespace
}  // namespace weft::core
