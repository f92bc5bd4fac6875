// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Much at once: floods of unexpected messages, all to all in random order, a busy rank that does not look, threads.
#include <algorithm>
#include <thread>

#include "check.hpp"

namespace weft::mpi {
namespace {

uint64_t seed_of(int from, int to, int number) {
  return (static_cast<uint64_t>(from) * 64 + static_cast<uint64_t>(to)) * 1'000'003 +
         static_cast<uint64_t>(number);
}

void rest(double seconds) {
  const double end = MPI_Wtime() + seconds;
  while (MPI_Wtime() < end) std::this_thread::yield();
}

// Everybody floods rank 0, which looks elsewhere and then wants the last message first.
void flood() {
  constexpr int each = 1'500;
  constexpr int length = 1'000;
  if (rank() != 0) {
    std::vector<Bytes> out(each);
    std::vector<MPI_Request> requests(each);
    for (int i = 0; i < each; ++i) {
      out[i] = pattern(length, seed_of(rank(), 0, i));
      good(MPI_Isend(out[i].data(), length, MPI_BYTE, 0, i, MPI_COMM_WORLD, &requests[i]));
    }
    good(MPI_Waitall(each, requests.data(), MPI_STATUSES_IGNORE));
    return;
  }
  rest(0.1);
  Bytes in(length);
  for (int i = each - 1; i >= 0; --i) {
    for (int from = size() - 1; from > 0; --from) {
      MPI_Status status;
      good(MPI_Recv(in.data(), length, MPI_BYTE, from, i, MPI_COMM_WORLD, &status));
      came(status, from, i, length);
      received(in, seed_of(from, 0, i));
    }
  }
}

// Every pair exchanges many messages of random lengths, posted in random order on both sides.
void everybody_with_everybody(int lap) {
  const int each = std::max(10, 120 / size());
  const auto length_of = [lap](int from, int to, int i) {
    Dice dice(seed_of(from, to, i * 31 + lap));
    const int kind = dice.below(10);
    return kind < 6 ? dice.below(300) : kind < 9 ? dice.below(20'000) : dice.below(600'000);
  };
  std::vector<std::pair<int, int>> work;
  for (int peer = 0; peer < size(); ++peer)
    for (int i = 0; i < each; ++i) work.emplace_back(peer, i);
  const size_t count = work.size();
  Dice dice(static_cast<uint64_t>(rank() * 131 + lap));
  const auto shuffle = [&] {
    for (size_t i = count; i > 1; --i) std::swap(work[i - 1], work[dice.next() % i]);
  };
  std::vector<Bytes> in(count), out(count);
  std::vector<MPI_Request> requests(2 * count);
  std::vector<std::pair<int, int>> of_receive;
  shuffle();
  of_receive = work;
  for (size_t k = 0; k < count; ++k) {
    const auto [from, i] = work[k];
    in[k].resize(static_cast<size_t>(length_of(from, rank(), i)));
    good(MPI_Irecv(in[k].data(), static_cast<int>(in[k].size()), MPI_BYTE, from, i, MPI_COMM_WORLD,
                   &requests[k]));
  }
  shuffle();
  for (size_t k = 0; k < count; ++k) {
    const auto [to, i] = work[k];
    out[k] = pattern(static_cast<size_t>(length_of(rank(), to, i)), seed_of(rank(), to, i));
    good(MPI_Isend(out[k].data(), static_cast<int>(out[k].size()), MPI_BYTE, to, i, MPI_COMM_WORLD,
                   &requests[count + k]));
  }
  good(MPI_Waitall(static_cast<int>(2 * count), requests.data(), MPI_STATUSES_IGNORE));
  for (size_t k = 0; k < count; ++k)
    received(in[k], seed_of(of_receive[k].first, rank(), of_receive[k].second));
}

// Large messages both ways at once, several of them.
void large_both_ways() {
  constexpr size_t length = (4 << 20) + 12'345;
  constexpr int count = 4;
  std::vector<Bytes> in(2 * count, Bytes(length)), out(2 * count);
  std::vector<MPI_Request> requests;
  for (int i = 0; i < 2 * count; ++i) {
    const int from = i < count ? left() : right();
    good(MPI_Irecv(in[i].data(), length, MPI_BYTE, from, i, MPI_COMM_WORLD, &requests.emplace_back()));
  }
  for (int i = 0; i < 2 * count; ++i) {
    const int to = i < count ? right() : left();
    out[i] = pattern(length, seed_of(rank(), to, i));
    good(MPI_Isend(out[i].data(), length, MPI_BYTE, to, i, MPI_COMM_WORLD, &requests.emplace_back()));
  }
  good(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
  for (int i = 0; i < 2 * count; ++i) received(in[i], seed_of(i < count ? left() : right(), rank(), i));
}

void ring_in_thread(MPI_Comm comm, int seed) {
  for (int i = 0; i < 200; ++i) {
    const int length = i % 10 == 0 ? 50'000 : i;
    const Bytes out = pattern(static_cast<size_t>(length), seed_of(rank(), seed, i));
    Bytes in(static_cast<size_t>(length));
    good(MPI_Sendrecv(out.data(), length, MPI_BYTE, right(), 1, in.data(), length, MPI_BYTE, left(), 1, comm,
                      MPI_STATUS_IGNORE));
    received(in, seed_of(left(), seed, i));
  }
}

}  // namespace

void patterns_of_traffic() {
  flood();
  MPI_Barrier(MPI_COMM_WORLD);
  for (int lap = 0; lap < 3; ++lap) everybody_with_everybody(lap);
  large_both_ways();
}

void threads() {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (level < MPI_THREAD_MULTIPLE) return;
  MPI_Comm first, second;
  good(MPI_Comm_dup(MPI_COMM_WORLD, &first));
  good(MPI_Comm_dup(MPI_COMM_WORLD, &second));
  std::thread other(ring_in_thread, first, 1);
  ring_in_thread(second, 2);
  other.join();
  good(MPI_Comm_free(&first));
  good(MPI_Comm_free(&second));
}

}  // namespace weft::mpi
