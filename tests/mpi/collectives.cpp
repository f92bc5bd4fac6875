// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The collectives, blocking: several types and lengths, every root, in place, and the forms with counts.
#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "check.hpp"

namespace weft::mpi {
namespace {

constexpr std::array<int, 4> lengths = {1, 17, 1'000, 60'000};

template <class T>
MPI_Datatype type_of() {
  if constexpr (std::is_same_v<T, int>) return MPI_INT;
  else if constexpr (std::is_same_v<T, double>) return MPI_DOUBLE;
  else if constexpr (std::is_same_v<T, float>) return MPI_FLOAT;
  else if constexpr (std::is_same_v<T, int64_t>) return MPI_INT64_T;
  else return MPI_UINT8_T;
}

// Small whole numbers, so that sums are exact in every type.
template <class T>
T value(int from, int i) {
  return static_cast<T>((from * 3 + i) % 11 + 1);
}

template <class T>
std::vector<T> values(int from, int count, int offset = 0) {
  std::vector<T> v(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) v[static_cast<size_t>(i)] = value<T>(from, i + offset);
  return v;
}

template <class T, class F>
std::vector<T> folded(int ranks, int count, F f) {
  std::vector<T> v = values<T>(0, count);
  for (int r = 1; r < ranks; ++r)
    for (int i = 0; i < count; ++i)
      v[static_cast<size_t>(i)] = static_cast<T>(f(v[static_cast<size_t>(i)], value<T>(r, i)));
  return v;
}

void broadcast() {
  for (int root = 0; root < size(); ++root) {
    for (const int length : {0, 1, 100, 5'000, 70'000, 1 << 20}) {
      const uint64_t seed = static_cast<uint64_t>(root * 131 + length);
      Bytes bytes =
          rank() == root ? pattern(static_cast<size_t>(length), seed) : Bytes(static_cast<size_t>(length));
      good(MPI_Bcast(bytes.data(), length, MPI_BYTE, root, MPI_COMM_WORLD));
      received(bytes, seed);
    }
  }
}

template <class T, class F>
void reductions(MPI_Op op, F f) {
  const MPI_Datatype type = type_of<T>();
  for (const int n : lengths) {
    const auto mine = values<T>(rank(), n);
    const auto wanted = folded<T>(size(), n, f);
    std::vector<T> got(static_cast<size_t>(n));
    good(MPI_Allreduce(mine.data(), got.data(), n, type, op, MPI_COMM_WORLD));
    expect(got == wanted, "allreduce");
    got = mine;
    good(MPI_Allreduce(MPI_IN_PLACE, got.data(), n, type, op, MPI_COMM_WORLD));
    expect(got == wanted, "allreduce in place");
    const int root = n % size();
    got = mine;
    good(MPI_Reduce(rank() == root ? MPI_IN_PLACE : mine.data(), rank() == root ? got.data() : nullptr, n,
                    type, op, root, MPI_COMM_WORLD));
    expect(rank() != root || got == wanted, "reduce in place");
    good(MPI_Scan(mine.data(), got.data(), n, type, op, MPI_COMM_WORLD));
    expect(got == folded<T>(rank() + 1, n, f), "scan");
    good(MPI_Exscan(mine.data(), got.data(), n, type, op, MPI_COMM_WORLD));
    expect(rank() == 0 || got == folded<T>(rank(), n, f), "exscan");
  }
}

void with_places() {
  struct Pair {
    double value;
    int place;
  };
  Pair mine{static_cast<double>((rank() * 5) % size()), rank()}, least{}, most{};
  good(MPI_Allreduce(&mine, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD));
  good(MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD));
  double low = size(), high = -1;
  int low_at = 0, high_at = 0;
  for (int r = 0; r < size(); ++r) {
    const double v = (r * 5) % size();
    if (v < low) low = v, low_at = r;
    if (v > high) high = v, high_at = r;
  }
  expect(least.value == low && least.place == low_at, "minloc");
  expect(most.value == high && most.place == high_at, "maxloc");
}

// Composition of the maps x -> a x + b: it does not commute, so the order of the ranks shows.
void compose(void* in, void* inout, int* count, MPI_Datatype*) {
  auto* first = static_cast<int64_t*>(in);
  auto* second = static_cast<int64_t*>(inout);
  for (int i = 0; i < *count; ++i) {
    const int64_t a = first[2 * i] * second[2 * i] % 10'007;
    const int64_t b = (first[2 * i] * second[2 * i + 1] + first[2 * i + 1]) % 10'007;
    second[2 * i] = a;
    second[2 * i + 1] = b;
  }
}

void own_operation() {
  MPI_Op op;
  MPI_Datatype map;
  good(MPI_Op_create(compose, 0, &op));
  good(MPI_Type_contiguous(2, MPI_INT64_T, &map));
  good(MPI_Type_commit(&map));
  for (const int n : {1, 500, 30'000}) {
    std::vector<int64_t> mine(static_cast<size_t>(2 * n)), got(mine.size()), wanted;
    const auto make = [n](int r, std::vector<int64_t>& v) {
      for (int i = 0; i < n; ++i)
        v[static_cast<size_t>(2 * i)] = r + 2 + i % 5, v[static_cast<size_t>(2 * i + 1)] = r * 7 + i % 3;
    };
    make(rank(), mine);
    good(MPI_Allreduce(mine.data(), got.data(), n, map, op, MPI_COMM_WORLD));
    wanted.resize(mine.size());
    make(size() - 1, wanted);
    for (int r = size() - 2; r >= 0; --r) {
      std::vector<int64_t> before(mine.size());
      make(r, before);
      int count = n;
      compose(before.data(), wanted.data(), &count, nullptr);
    }
    expect(got == wanted, "an operation of our own, in the order of the ranks");
  }
  good(MPI_Type_free(&map));
  good(MPI_Op_free(&op));
}

template <class T>
void gathering() {
  const MPI_Datatype type = type_of<T>();
  for (const int n : {1, 300, 20'000}) {
    const size_t all_count = static_cast<size_t>(n) * static_cast<size_t>(size());
    std::vector<T> wanted;
    for (int r = 0; r < size(); ++r) {
      const auto part = values<T>(r, n);
      wanted.insert(wanted.end(), part.begin(), part.end());
    }
    const auto mine = values<T>(rank(), n);
    std::vector<T> all(all_count), back(static_cast<size_t>(n));
    good(MPI_Allgather(mine.data(), n, type, all.data(), n, type, MPI_COMM_WORLD));
    expect(all == wanted, "allgather");
    std::fill(all.begin(), all.end(), T{});
    std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(rank()) * n);
    good(MPI_Allgather(MPI_IN_PLACE, 0, type, all.data(), n, type, MPI_COMM_WORLD));
    expect(all == wanted, "allgather in place");
    for (int root = 0; root < size(); ++root) {
      std::fill(all.begin(), all.end(), T{});
      good(MPI_Gather(mine.data(), n, type, all.data(), n, type, root, MPI_COMM_WORLD));
      expect(rank() != root || all == wanted, "gather");
      good(MPI_Scatter(wanted.data(), n, type, back.data(), n, type, root, MPI_COMM_WORLD));
      expect(back == mine, "scatter");
    }
  }
}

// Rank r brings r * 100 + 3 elements.
void gathering_with_counts() {
  std::vector<int> counts, places, wanted;
  for (int r = 0; r < size(); ++r) {
    counts.push_back(r * 100 + 3);
    places.push_back(static_cast<int>(wanted.size()));
    const auto part = values<int>(r, counts.back());
    wanted.insert(wanted.end(), part.begin(), part.end());
  }
  const auto mine = values<int>(rank(), counts[static_cast<size_t>(rank())]);
  const int n = static_cast<int>(mine.size());
  std::vector<int> all(wanted.size()), back(mine.size());
  good(MPI_Allgatherv(mine.data(), n, MPI_INT, all.data(), counts.data(), places.data(), MPI_INT,
                      MPI_COMM_WORLD));
  expect(all == wanted, "allgatherv");
  for (int root = 0; root < size(); ++root) {
    std::fill(all.begin(), all.end(), 0);
    good(MPI_Gatherv(mine.data(), n, MPI_INT, all.data(), counts.data(), places.data(), MPI_INT, root,
                     MPI_COMM_WORLD));
    expect(rank() != root || all == wanted, "gatherv");
    good(MPI_Scatterv(wanted.data(), counts.data(), places.data(), MPI_INT, back.data(), n, MPI_INT, root,
                      MPI_COMM_WORLD));
    expect(back == mine, "scatterv");
  }
}

// What rank `from` has for rank `to`.
std::vector<int> for_rank(int from, int to, int n) { return values<int>(from * 13 + to * 5, n); }

void all_to_all() {
  for (const int n : {1, 100, 30'000}) {
    std::vector<int> out, wanted;
    for (int r = 0; r < size(); ++r) {
      const auto to = for_rank(rank(), r, n), from = for_rank(r, rank(), n);
      out.insert(out.end(), to.begin(), to.end());
      wanted.insert(wanted.end(), from.begin(), from.end());
    }
    std::vector<int> in(out.size());
    good(MPI_Alltoall(out.data(), n, MPI_INT, in.data(), n, MPI_INT, MPI_COMM_WORLD));
    expect(in == wanted, "alltoall");
    in = out;
    good(MPI_Alltoall(MPI_IN_PLACE, 0, MPI_INT, in.data(), n, MPI_INT, MPI_COMM_WORLD));
    expect(in == wanted, "alltoall in place");
  }
  // Between ranks a and b go a + b elements; also with a type for each peer.
  std::vector<int> counts, places, byte_places, out, wanted;
  for (int r = 0; r < size(); ++r) {
    counts.push_back((rank() + r) * 37);
    places.push_back(static_cast<int>(out.size()));
    byte_places.push_back(static_cast<int>(out.size() * sizeof(int)));
    const auto to = for_rank(rank(), r, counts.back()), from = for_rank(r, rank(), counts.back());
    out.insert(out.end(), to.begin(), to.end());
    wanted.insert(wanted.end(), from.begin(), from.end());
  }
  std::vector<int> in(out.size());
  good(MPI_Alltoallv(out.data(), counts.data(), places.data(), MPI_INT, in.data(), counts.data(),
                     places.data(), MPI_INT, MPI_COMM_WORLD));
  expect(in == wanted, "alltoallv");
  std::fill(in.begin(), in.end(), 0);
  const std::vector<MPI_Datatype> types(static_cast<size_t>(size()), MPI_INT);
  good(MPI_Alltoallw(out.data(), counts.data(), byte_places.data(), types.data(), in.data(), counts.data(),
                     byte_places.data(), types.data(), MPI_COMM_WORLD));
  expect(in == wanted, "alltoallw");
}

void reduce_and_scatter() {
  for (const int n : {1, 250, 20'000}) {
    const int all = n * size();
    const auto mine = values<int64_t>(rank(), all);
    const auto sum = folded<int64_t>(size(), all, [](int64_t a, int64_t b) { return a + b; });
    const std::vector<int64_t> wanted(sum.begin() + static_cast<std::ptrdiff_t>(rank()) * n,
                                      sum.begin() + static_cast<std::ptrdiff_t>(rank() + 1) * n);
    std::vector<int64_t> got(static_cast<size_t>(n));
    good(MPI_Reduce_scatter_block(mine.data(), got.data(), n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
    expect(got == wanted, "reduce_scatter_block");
    const std::vector<int> counts(static_cast<size_t>(size()), n);
    auto both = mine;
    good(MPI_Reduce_scatter(MPI_IN_PLACE, both.data(), counts.data(), MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
    both.resize(static_cast<size_t>(n));
    expect(both == wanted, "reduce_scatter in place");
  }
}

// Nobody leaves a barrier before the last has come. MPI_Wtime() begins anew in each process; this clock is the machine's.
double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void barrier() {
  for (int late = 0; late < size(); ++late) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const double entered = now();
    good(MPI_Barrier(MPI_COMM_WORLD));
    const double left_at = now();
    double last_entered = 0;
    good(MPI_Allreduce(&entered, &last_entered, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    expect(left_at >= last_entered, "somebody left a barrier early");
  }
}

}  // namespace

void collectives() {
  barrier();
  broadcast();
  const auto add = [](auto a, auto b) { return a + b; };
  const auto most = [](auto a, auto b) { return std::max(a, b); };
  reductions<int>(MPI_SUM, add);
  reductions<double>(MPI_SUM, add);
  reductions<float>(MPI_MAX, most);
  reductions<int64_t>(MPI_MIN, [](auto a, auto b) { return std::min(a, b); });
  reductions<uint8_t>(MPI_SUM, add);
  reductions<int>(MPI_BXOR, [](auto a, auto b) { return a ^ b; });
  reductions<double>(MPI_MAX, most);
  with_places();
  own_operation();
  gathering<int>();
  gathering<double>();
  gathering<uint8_t>();
  gathering_with_counts();
  all_to_all();
  reduce_and_scatter();
}

}  // namespace weft::mpi
