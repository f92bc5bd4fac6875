// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Atomics: every datatype with every operation that the provider calls valid, against a model; every call of fi_atomic(3).
#include <algorithm>
#include <complex>
#include <cstring>
#include <type_traits>

#include "fixture.hpp"

namespace weft::conformance {
namespace {

constexpr uint64_t remote_access = FI_REMOTE_READ | FI_REMOTE_WRITE;

template <class T>
inline constexpr bool is_complex = false;
template <class T>
inline constexpr bool is_complex<std::complex<T>> = true;
template <class T>
inline constexpr bool is_whole = !is_complex<T> && !std::is_floating_point_v<T>;

// What fi_atomic(3), Atomic Operations, writes down: the value that the target holds afterwards.
template <class T>
T model(fi_op op, T target, T source, T compare) {
  if constexpr (!is_complex<T>) {
    switch (op) {
      case FI_MIN:
        return source < target ? source : target;
      case FI_MAX:
        return source > target ? source : target;
      case FI_CSWAP_LE:
        return compare <= target ? source : target;
      case FI_CSWAP_LT:
        return compare < target ? source : target;
      case FI_CSWAP_GE:
        return compare >= target ? source : target;
      case FI_CSWAP_GT:
        return compare > target ? source : target;
      default:
        break;
    }
  }
  if constexpr (is_whole<T>) {
    switch (op) {
      case FI_BOR:
        return static_cast<T>(target | source);
      case FI_BAND:
        return static_cast<T>(target & source);
      case FI_BXOR:
        return static_cast<T>(target ^ source);
      case FI_MSWAP:
        return static_cast<T>((source & compare) | (target & ~compare));
      default:
        break;
    }
  }
  const T zero{};
  switch (op) {
    case FI_SUM:
      return static_cast<T>(target + source);
    case FI_PROD:
      return static_cast<T>(target * source);
    case FI_LOR:
      return static_cast<T>((target != zero || source != zero) ? T(1) : T(0));
    case FI_LAND:
      return static_cast<T>((target != zero && source != zero) ? T(1) : T(0));
    case FI_LXOR:
      return static_cast<T>(((target != zero) != (source != zero)) ? T(1) : T(0));
    case FI_ATOMIC_WRITE:
      return source;
    case FI_CSWAP:
      return compare == target ? source : target;
    case FI_CSWAP_NE:
      return compare != target ? source : target;
    default:
      return target;  // FI_ATOMIC_READ
  }
}

// Small values, so that integer products of signed types stay in range, zeros for the logical operations, equal ones for the swaps.
template <class T>
T sample(unsigned i) {
  static const int values[] = {3, 0, 7, 1, 5, 0, 2, 11};
  if constexpr (is_complex<T>) {
    return T(static_cast<typename T::value_type>(values[i % 8]),
             static_cast<typename T::value_type>(values[(i / 2) % 8]));
  } else if constexpr (std::is_unsigned_v<T>) {
    return static_cast<T>(values[i % 8] + (i % 5 == 4 ? 0x90 : 0));
  } else {
    return static_cast<T>(values[i % 8] * (i % 3 == 2 ? -1 : 1));
  }
}

// Padding of long double is no part of its value.
template <class T>
bool same(const T& a, const T& b) {
  return a == b;
}

class Atomic : public testing::Test {
 protected:
  static Options options() { return {.caps = FI_ATOMIC, .tx_op_flags = FI_DELIVERY_COMPLETE}; }

  // All operations of one type: base, fetch and compare. Returns how many were valid.
  template <class T>
  int every_operation(World& w, fi_datatype type) {
    int valid = 0;
    for (int op = FI_MIN; op <= FI_MSWAP; ++op) {
      SCOPED_TRACE(std::string(fi_tostr(&type, FI_TYPE_ATOMIC_TYPE)));
      const auto what = static_cast<fi_op>(op);
      SCOPED_TRACE(std::string(fi_tostr(&what, FI_TYPE_ATOMIC_OP)));
      const bool swaps = op >= FI_CSWAP;
      if (swaps) {
        valid += compare<T>(w, type, what);
      } else {
        if (what != FI_ATOMIC_READ) valid += base<T>(w, type, what);
        valid += fetch<T>(w, type, what);
      }
      if (HasFailure()) break;
    }
    return valid;
  }

  // Asks both ways and compares; 0 when not valid.
  template <class T>
  size_t valid_count(World& w, fi_datatype type, fi_op op, uint64_t flags) {
    size_t count = 0;
    const int rc = flags == FI_FETCH_ATOMIC     ? fi_fetch_atomicvalid(w[0], type, op, &count)
                   : flags == FI_COMPARE_ATOMIC ? fi_compare_atomicvalid(w[0], type, op, &count)
                                                : fi_atomicvalid(w[0], type, op, &count);
    fi_atomic_attr attr{};
    const int query = fi_query_atomic(w[0].domain, type, op, &attr, flags);
    if (rc != 0) {
      EXPECT_NE(query, 0) << "fi_query_atomic says yes, the endpoint no";
      return 0;
    }
    if (query != -FI_ENOSYS) {
      EXPECT_EQ(query, 0);
      EXPECT_EQ(attr.count, count);
      EXPECT_EQ(attr.size, sizeof(T));
    }
    EXPECT_GT(count, 0u);
    return count;
  }

  template <class T>
  struct Values {
    std::vector<T> target, source, compare, before, want;
    Values(size_t n, fi_op op) {
      for (unsigned i = 0; i < n; ++i) {
        target.push_back(sample<T>(i));
        source.push_back(sample<T>(i + 3));
        compare.push_back(i % 2 == 0 ? target[i] : sample<T>(i + 5));
        want.push_back(model<T>(op, target[i], source[i], compare[i]));
      }
      before = target;
    }
  };

  template <class T>
  void check_result(const std::vector<T>& got, const std::vector<T>& want, const char* what) {
    for (size_t i = 0; i < want.size(); ++i) {
      if (!same(got[i], want[i])) {
        ADD_FAILURE() << what << ": wrong value at element " << i << " of " << want.size();
        return;
      }
    }
  }

  // fi_cq(3), COMPLETION FLAGS: FI_ATOMIC may be combined with the direction, or stand alone.
  static void expect_kind(const Completion& c, uint64_t direction) {
    const uint64_t both = FI_ATOMIC | direction;
    if (manual_only()) {
      EXPECT_NE(c.flags & both, 0u);
    } else {
      EXPECT_EQ(c.flags & both, both);
    }
  }

  template <class T>
  int base(World& w, fi_datatype type, fi_op op) {
    const size_t limit = valid_count<T>(w, type, op, 0);
    if (limit == 0) return 0;
    for (const size_t n : {size_t{1}, std::min<size_t>(limit, 16), std::min<size_t>(limit, 100)}) {
      Values<T> v(n, op);
      Region region = w.reg(1, v.target.data(), n * sizeof(T), remote_access);
      Ctx ctx;
      EXPECT_EQ(w.post([&] {
        return fi_atomic(w[0], v.source.data(), n, nullptr, w[0].peer[1], region.at(), region.key(), type, op,
                         &ctx);
      }),
                0);
      const Completion c = w.done(w[0].tx, ctx);
      expect_kind(c, FI_WRITE);
      check_result(v.target, v.want, "target");
    }
    return 1;
  }

  template <class T>
  int fetch(World& w, fi_datatype type, fi_op op) {
    const size_t limit = valid_count<T>(w, type, op, FI_FETCH_ATOMIC);
    if (limit == 0) return 0;
    for (const size_t n : {size_t{1}, std::min<size_t>(limit, 16)}) {
      Values<T> v(n, op);
      std::vector<T> result(n, T{});
      Region region = w.reg(1, v.target.data(), n * sizeof(T), remote_access);
      Ctx ctx;
      const T* source = op == FI_ATOMIC_READ ? nullptr : v.source.data();
      EXPECT_EQ(w.post([&] {
        return fi_fetch_atomic(w[0], source, n, nullptr, result.data(), nullptr, w[0].peer[1], region.at(),
                               region.key(), type, op, &ctx);
      }),
                0);
      const Completion c = w.done(w[0].tx, ctx);
      expect_kind(c, FI_READ);
      check_result(result, v.before, "fetched");
      check_result(v.target, v.want, "target");
    }
    return 1;
  }

  template <class T>
  int compare(World& w, fi_datatype type, fi_op op) {
    const size_t limit = valid_count<T>(w, type, op, FI_COMPARE_ATOMIC);
    if (limit == 0) return 0;
    for (const size_t n : {size_t{1}, std::min<size_t>(limit, 16)}) {
      Values<T> v(n, op);
      std::vector<T> result(n, T{});
      Region region = w.reg(1, v.target.data(), n * sizeof(T), remote_access);
      Ctx ctx;
      EXPECT_EQ(w.post([&] {
        return fi_compare_atomic(w[0], v.source.data(), n, nullptr, v.compare.data(), nullptr, result.data(),
                                 nullptr, w[0].peer[1], region.at(), region.key(), type, op, &ctx);
      }),
                0);
      w.done(w[0].tx, ctx);
      check_result(result, v.before, "fetched");
      check_result(v.target, v.want, "target");
    }
    return 1;
  }
};

// fi_atomic(3), Atomic Data Types x Atomic Operations.
#define WEFT_ATOMIC_TYPE(name, ctype, type)                                     \
  TEST_F(Atomic, name##__fi_atomic_3) {                                         \
    WEFT_WORLD(w, options());                                                   \
    const int valid = every_operation<ctype>(w, type);                          \
    RecordProperty("valid", valid);                                             \
    WEFT_SKIP_IF(valid == 0 ? "the provider has no operation for " #type : ""); \
  }

WEFT_ATOMIC_TYPE(int8, int8_t, FI_INT8)
WEFT_ATOMIC_TYPE(uint8, uint8_t, FI_UINT8)
WEFT_ATOMIC_TYPE(int16, int16_t, FI_INT16)
WEFT_ATOMIC_TYPE(uint16, uint16_t, FI_UINT16)
WEFT_ATOMIC_TYPE(int32, int32_t, FI_INT32)
WEFT_ATOMIC_TYPE(uint32, uint32_t, FI_UINT32)
WEFT_ATOMIC_TYPE(int64, int64_t, FI_INT64)
WEFT_ATOMIC_TYPE(uint64, uint64_t, FI_UINT64)
WEFT_ATOMIC_TYPE(float_, float, FI_FLOAT)
WEFT_ATOMIC_TYPE(double_, double, FI_DOUBLE)
WEFT_ATOMIC_TYPE(float_complex, std::complex<float>, FI_FLOAT_COMPLEX)
WEFT_ATOMIC_TYPE(double_complex, std::complex<double>, FI_DOUBLE_COMPLEX)
WEFT_ATOMIC_TYPE(long_double, long double, FI_LONG_DOUBLE)
WEFT_ATOMIC_TYPE(long_double_complex, std::complex<long double>, FI_LONG_DOUBLE_COMPLEX)
__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 Uint128;
WEFT_ATOMIC_TYPE(int128, Int128, FI_INT128)
WEFT_ATOMIC_TYPE(uint128, Uint128, FI_UINT128)

// fi_atomic(3), fi_query_atomic: both flags together are wrong, an operation of the other class is no base operation.
TEST_F(Atomic, query_refuses_nonsense__fi_atomic_3) {
  WEFT_WORLD(w, options());
  fi_atomic_attr attr{};
  EXPECT_NE(fi_query_atomic(w[0].domain, FI_UINT64, FI_SUM, &attr, FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC), 0);
  EXPECT_NE(fi_query_atomic(w[0].domain, FI_UINT64, FI_CSWAP, &attr, 0), 0);
  EXPECT_NE(fi_query_atomic(w[0].domain, FI_UINT64, FI_SUM, &attr, FI_COMPARE_ATOMIC), 0);
  EXPECT_NE(fi_query_atomic(w[0].domain, static_cast<fi_datatype>(99), FI_SUM, &attr, 0), 0);
  EXPECT_NE(fi_query_atomic(w[0].domain, FI_FLOAT, FI_BOR, &attr, 0), 0) << "bits of a float";
  EXPECT_NE(fi_query_atomic(w[0].domain, FI_FLOAT_COMPLEX, FI_MIN, &attr, 0), 0)
      << "complex numbers have no order";
}

// fi_atomic(3), ERRORS: -FI_EOPNOTSUPP and -FI_EMSGSIZE.
TEST_F(Atomic, refusals__fi_atomic_3) {
  WEFT_BEYOND_THE_MANUAL("calls that are not valid");
  WEFT_WORLD(w, options());
  size_t limit = 0;
  WEFT_ASSERT_OK(fi_atomicvalid(w[0], FI_UINT64, FI_SUM, &limit));
  std::vector<uint64_t> target(limit + 1, 1), source(limit + 1, 1);
  Region region = w.reg(1, target.data(), target.size() * 8, remote_access);
  // Meet first, so that nothing is refused for that reason.
  Ctx first, ctx;
  WEFT_ASSERT_OK(w.post([&] {
    return fi_atomic(w[0], source.data(), 1, nullptr, w[0].peer[1], region.at(), region.key(), FI_UINT64,
                     FI_SUM, &first);
  }));
  w.done(w[0].tx, first);
  ssize_t rc = fi_atomic(w[0], source.data(), limit + 1, nullptr, w[0].peer[1], region.at(), region.key(),
                         FI_UINT64, FI_SUM, &ctx);
  EXPECT_EQ(rc, -FI_EMSGSIZE);
  // So many that their bytes are 8 again when the count of bytes wraps.
  rc = fi_atomic(w[0], source.data(), (SIZE_MAX / 8) + 2, nullptr, w[0].peer[1], region.at(), region.key(),
                 FI_UINT64, FI_SUM, &ctx);
  EXPECT_LT(rc, 0);
  rc = fi_atomic(w[0], source.data(), 1, nullptr, w[0].peer[1], region.at(), region.key(), FI_FLOAT, FI_BXOR,
                 &ctx);
  EXPECT_EQ(rc, -FI_EOPNOTSUPP);
  rc = fi_atomic(w[0], source.data(), 1, nullptr, w[0].peer[1], region.at(), region.key(), FI_UINT64,
                 FI_CSWAP, &ctx);
  EXPECT_LT(rc, 0);
  EXPECT_TRUE(w.quiet(w[0].tx));
}

// fi_atomic(3), fi_inject_atomic: silent, the buffer is free at once.
TEST_F(Atomic, inject__fi_atomic_3) {
  WEFT_WORLD(w, options());
  std::vector<uint64_t> target(4, 10);
  Region region = w.reg(1, target.data(), 32, remote_access);
  for (int i = 0; i < 10; ++i) {
    uint64_t source[4] = {1, 2, 3, 4};
    WEFT_ASSERT_OK(w.post([&] {
      return fi_inject_atomic(w[0], source, 4, w[0].peer[1], region.at(), region.key(), FI_UINT64, FI_SUM);
    }));
    std::fill(source, source + 4, 1000);
  }
  EXPECT_TRUE(w.progress_until(
      [&] { return target[0] == 20 && target[1] == 30 && target[2] == 40 && target[3] == 50; }));
  EXPECT_TRUE(w.quiet(w[0].tx));
}

// fi_atomicv, fi_fetch_atomicv, fi_compare_atomicv: scattered operands and results.
TEST_F(Atomic, vectors__fi_atomic_3) {
  WEFT_WORLD(w, options());
  if (w.info()->tx_attr->iov_limit < 2) GTEST_SKIP() << "one buffer an operation";
  std::vector<uint64_t> target = {10, 20, 30, 40, 50};
  Region region = w.reg(1, target.data(), 40, remote_access);
  uint64_t a[2] = {1, 2}, b[3] = {3, 4, 5}, r1[3] = {}, r2[2] = {}, c1[1] = {11}, c2[4] = {0, 33, 0, 55};
  const fi_ioc from[2] = {{a, 2}, {b, 3}};
  fi_ioc result[2] = {{r1, 3}, {r2, 2}};
  const fi_ioc compare[2] = {{c1, 1}, {c2, 4}};
  Ctx one, two, three;
  WEFT_ASSERT_OK(w.post([&] {
    return fi_atomicv(w[0], from, nullptr, 2, w[0].peer[1], region.at(), region.key(), FI_UINT64, FI_SUM,
                      &one);
  }));
  w.done(w[0].tx, one);
  EXPECT_EQ(target, (std::vector<uint64_t>{11, 22, 33, 44, 55}));
  WEFT_ASSERT_OK(w.post([&] {
    return fi_fetch_atomicv(w[0], from, nullptr, 2, result, nullptr, 2, w[0].peer[1], region.at(),
                            region.key(), FI_UINT64, FI_ATOMIC_READ, &two);
  }));
  w.done(w[0].tx, two);
  EXPECT_EQ((std::vector<uint64_t>{r1[0], r1[1], r1[2], r2[0], r2[1]}), target);
  WEFT_ASSERT_OK(w.post([&] {
    return fi_compare_atomicv(w[0], from, nullptr, 2, compare, nullptr, 2, result, nullptr, 2, w[0].peer[1],
                              region.at(), region.key(), FI_UINT64, FI_CSWAP, &three);
  }));
  w.done(w[0].tx, three);
  EXPECT_EQ(target, (std::vector<uint64_t>{1, 22, 3, 44, 5}));
  EXPECT_EQ((std::vector<uint64_t>{r1[0], r1[1], r1[2], r2[0], r2[1]}),
            (std::vector<uint64_t>{11, 22, 33, 44, 55}));
}

// fi_atomicmsg, fi_fetch_atomicmsg, fi_compare_atomicmsg: several remote ranges.
TEST_F(Atomic, msg_calls__fi_atomic_3) {
  WEFT_WORLD(w, options());
  const size_t ranges = std::min<size_t>(w.info()->tx_attr->rma_iov_limit, 2);
  std::vector<int32_t> one = {100, 200}, two = {300, 400};
  Region ra = w.reg(1, one.data(), 8, remote_access), rb = w.reg(1, two.data(), 8, remote_access);
  const std::vector<fi_rma_ioc> to =
      ranges == 2 ? std::vector<fi_rma_ioc>{{ra.at(4), 1, ra.key()}, {rb.at(), 2, rb.key()}}
                  : std::vector<fi_rma_ioc>{{rb.at(), 2, rb.key()}};
  const size_t n = ranges == 2 ? 3 : 2;
  int32_t source[3] = {1, 2, 3}, got[3] = {}, compare[3] = {0, 302, 0};
  const fi_ioc from{source, n};
  fi_ioc result{got, n};
  const fi_ioc with{compare, n};
  Ctx ctx;
  fi_msg_atomic msg{&from, nullptr, 1, w[0].peer[1], to.data(), ranges, FI_INT32, FI_SUM, &ctx, 0};
  WEFT_ASSERT_OK(w.post([&] { return fi_atomicmsg(w[0], &msg, FI_DELIVERY_COMPLETE); }));
  w.done(w[0].tx, ctx);
  if (ranges == 2) {
    EXPECT_EQ(one[1], 201);
    EXPECT_EQ(two[0], 302);
    EXPECT_EQ(two[1], 403);
  }
  WEFT_ASSERT_OK(w.post([&] { return fi_fetch_atomicmsg(w[0], &msg, &result, nullptr, 1, 0); }));
  w.done(w[0].tx, ctx);
  if (ranges == 2) {
    EXPECT_EQ(got[0], 201);
    EXPECT_EQ(got[1], 302);
    EXPECT_EQ(two[0], 304);
    EXPECT_EQ(two[1], 406);
  }
  msg.op = FI_CSWAP_GE;
  compare[1] = 304;
  WEFT_ASSERT_OK(
      w.post([&] { return fi_compare_atomicmsg(w[0], &msg, &with, nullptr, 1, &result, nullptr, 1, 0); }));
  w.done(w[0].tx, ctx);
  if (ranges == 2) {
    EXPECT_EQ(two[0], 2) << "304 >= 304, so swapped";
    EXPECT_EQ(two[1], 406) << "0 >= 406 is false";
  }
}

// Many at once from two initiators and the owner itself: no update is lost. They are atomic among each other.
TEST_F(Atomic, no_update_is_lost__fi_atomic_3) {
  Options three = options();
  three.endpoints = 3;
  WEFT_WORLD(w, three);
  uint64_t target = 0;
  Region region = w.reg(1, &target, 8, remote_access);
  constexpr uint64_t rounds = 1000;
  const uint64_t by[3] = {1, 1000'000, 1000'000'000'000};
  std::vector<Ctx> ctx(3 * rounds);
  for (uint64_t i = 0; i < rounds; ++i) {
    for (size_t from = 0; from < 3; ++from) {
      WEFT_ASSERT_OK(w.post([&] {
        return fi_atomic(w[from], &by[from], 1, nullptr, w[from].peer[1], region.at(), region.key(),
                         FI_UINT64, FI_SUM, &ctx[i * 3 + from]);
      }));
    }
  }
  for (size_t from = 0; from < 3; ++from) {
    EXPECT_TRUE(w.progress_until([&] { return w[from].tx->inbox.size() == rounds; }));
  }
  EXPECT_EQ(target, rounds * (by[0] + by[1] + by[2]));
}

// Fetch-and-add as a ticket: the fetched values are all different.
// The same with a few operations outstanding, as programs do that wait for a batch.
struct Batches : Atomic {
  static constexpr size_t batch = 20;
  static constexpr uint64_t rounds = 30;
  const uint64_t one = 1;
  uint64_t target = 0;

  static Options three() {
    Options result = options();
    result.endpoints = 3;
    return result;
  }

  // Of three initiators, one of them the target itself.
  void add(World& w, Region& region) {
    for (uint64_t round = 0; round < rounds; ++round) {
      std::vector<Ctx> ctx(3 * batch);
      for (size_t i = 0; i < ctx.size(); ++i) {
        WEFT_ASSERT_OK(w.post([&] {
          return fi_atomic(w[i % 3], &one, 1, nullptr, w[i % 3].peer[1], region.at(), region.key(), FI_UINT64,
                           FI_SUM, &ctx[i]);
        }));
      }
      for (size_t i = 0; i < ctx.size(); ++i) w.done(w[i % 3].tx, ctx[i]);
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(target, 3 * batch * rounds);
  }

  void take_tickets(World& w, Region& region) {
    target = 0;
    std::vector<uint64_t> got(batch * rounds, ~uint64_t{0});
    for (size_t round = 0; round < rounds; ++round) {
      std::vector<Ctx> ctx(batch);
      for (size_t i = 0; i < batch; ++i) {
        WEFT_ASSERT_OK(w.post([&] {
          return fi_fetch_atomic(w[0], &one, 1, nullptr, &got[round * batch + i], nullptr, w[0].peer[1],
                                 region.at(), region.key(), FI_UINT64, FI_SUM, &ctx[i]);
        }));
      }
      for (Ctx& c : ctx) w.done(w[0].tx, c);
      if (testing::Test::HasFailure()) return;
    }
    std::sort(got.begin(), got.end());
    for (uint64_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], i);
  }
};

TEST_F(Batches, of_adds__fi_atomic_3) {
  WEFT_WORLD(w, three());
  Region region = w.reg(1, &target, 8, remote_access);
  add(w, region);
}

TEST_F(Batches, of_tickets__fi_atomic_3) {
  WEFT_WORLD(w, three());
  Region region = w.reg(1, &target, 8, remote_access);
  take_tickets(w, region);
}

TEST_F(Batches, of_adds_and_then_of_tickets__fi_atomic_3) {
  WEFT_WORLD(w, three());
  Region region = w.reg(1, &target, 8, remote_access);
  add(w, region);
  if (!HasFailure()) take_tickets(w, region);
}

TEST_F(Atomic, tickets_differ__fi_atomic_3) {
  WEFT_WORLD(w, options());
  uint64_t target = 0;
  const uint64_t one = 1;
  Region region = w.reg(1, &target, 8, remote_access);
  std::vector<uint64_t> got(500, ~0ULL);
  std::vector<Ctx> ctx(500);
  for (size_t i = 0; i < 500; ++i) {
    WEFT_ASSERT_OK(w.post([&] {
      return fi_fetch_atomic(w[0], &one, 1, nullptr, &got[i], nullptr, w[0].peer[1], region.at(),
                             region.key(), FI_UINT64, FI_SUM, &ctx[i]);
    }));
  }
  for (auto& c : ctx) w.done(w[0].tx, c);
  std::sort(got.begin(), got.end());
  for (uint64_t i = 0; i < 500; ++i) ASSERT_EQ(got[i], i);
}

// A wrong key is an error at the initiator; fi_mr(3).
TEST_F(Atomic, wrong_key__fi_mr_3) {
  WEFT_WORLD(w, options());
  uint64_t target = 5, got = 77;
  const uint64_t one = 1;
  Region region = w.reg(1, &target, 8, remote_access);
  Region only_write = w.reg(1, &target, 8, FI_REMOTE_WRITE);
  Ctx base_ctx, fetch_ctx, access_ctx;
  ssize_t rc = w.post([&] {
    return fi_atomic(w[0], &one, 1, nullptr, w[0].peer[1], region.at(), region.key() + 99, FI_UINT64, FI_SUM,
                     &base_ctx);
  });
  if (rc == 0) {
    EXPECT_GT(w.wait(w[0].tx, base_ctx).err, 0);
  }
  rc = w.post([&] {
    return fi_fetch_atomic(w[0], &one, 1, nullptr, &got, nullptr, w[0].peer[1], region.at(8), region.key(),
                           FI_UINT64, FI_SUM, &fetch_ctx);
  });
  if (rc == 0) {
    EXPECT_GT(w.wait(w[0].tx, fetch_ctx).err, 0) << "behind the region";
  }
  rc = w.post([&] {
    return fi_fetch_atomic(w[0], &one, 1, nullptr, &got, nullptr, w[0].peer[1], only_write.at(),
                           only_write.key(), FI_UINT64, FI_SUM, &access_ctx);
  });
  if (rc == 0) {
    EXPECT_GT(w.wait(w[0].tx, access_ctx).err, 0) << "fi_atomic(3), Fetch-Atomic: needs remote read access";
  }
  EXPECT_EQ(target, 5u);
  EXPECT_EQ(got, 77u);
  Ctx good;
  WEFT_ASSERT_OK(w.post([&] {
    return fi_atomic(w[0], &one, 1, nullptr, w[0].peer[1], region.at(), region.key(), FI_UINT64, FI_SUM,
                     &good);
  }));
  w.done(w[0].tx, good);
  EXPECT_EQ(target, 6u);
}

TEST_F(Atomic, to_self__fi_atomic_3) {
  Options self = options();
  self.endpoints = 1;
  WEFT_WORLD(w, self);
  uint64_t target = 5, got = 0;
  const uint64_t one = 1;
  Region region = w.reg(0, &target, 8, remote_access);
  Ctx ctx;
  WEFT_ASSERT_OK(w.post([&] {
    return fi_fetch_atomic(w[0], &one, 1, nullptr, &got, nullptr, w[0].peer[0], region.at(), region.key(),
                           FI_UINT64, FI_SUM, &ctx);
  }));
  w.done(w[0].tx, ctx);
  EXPECT_EQ(got, 5u);
  EXPECT_EQ(target, 6u);
}

}  // namespace
}  // namespace weft::conformance
