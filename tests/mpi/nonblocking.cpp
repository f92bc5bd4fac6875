// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Collectives that do not block: several of them under way at once, with point-to-point traffic between.
#include <algorithm>
#include <array>

#include "check.hpp"

namespace weft::mpi {
namespace {

// Everything starts before anything is waited for.
void many_at_once(int n) {
  const size_t count = static_cast<size_t>(n), all_count = count * static_cast<size_t>(size());
  std::vector<MPI_Request> requests;
  const auto next = [&requests] { return &requests.emplace_back(); };
  requests.reserve(16);

  good(MPI_Ibarrier(MPI_COMM_WORLD, next()));
  Bytes news = rank() == 0 ? pattern(count, 5) : Bytes(count);
  good(MPI_Ibcast(news.data(), n, MPI_BYTE, 0, MPI_COMM_WORLD, next()));
  std::vector<int> mine(count, rank() + 1), sum(count), least(count), scan(count), part(count);
  good(MPI_Iallreduce(mine.data(), sum.data(), n, MPI_INT, MPI_SUM, MPI_COMM_WORLD, next()));
  good(MPI_Ireduce(mine.data(), least.data(), n, MPI_INT, MPI_MIN, size() - 1, MPI_COMM_WORLD, next()));
  good(MPI_Iscan(mine.data(), scan.data(), n, MPI_INT, MPI_SUM, MPI_COMM_WORLD, next()));
  std::vector<int> gathered(all_count), exchanged(all_count), wide(all_count, rank()), collected(all_count);
  good(MPI_Iallgather(mine.data(), n, MPI_INT, gathered.data(), n, MPI_INT, MPI_COMM_WORLD, next()));
  good(MPI_Ialltoall(wide.data(), n, MPI_INT, exchanged.data(), n, MPI_INT, MPI_COMM_WORLD, next()));
  good(MPI_Igather(mine.data(), n, MPI_INT, collected.data(), n, MPI_INT, 0, MPI_COMM_WORLD, next()));
  good(MPI_Ireduce_scatter_block(wide.data(), part.data(), n, MPI_INT, MPI_SUM, MPI_COMM_WORLD, next()));

  const Bytes out = pattern(count, static_cast<uint64_t>(rank()));
  Bytes in(count);
  good(MPI_Sendrecv(out.data(), n, MPI_BYTE, right(), 3, in.data(), n, MPI_BYTE, left(), 3, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE));
  received(in, static_cast<uint64_t>(left()));
  good(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));

  const auto are = [](const std::vector<int>& v, int wanted) {
    return std::all_of(v.begin(), v.end(), [wanted](int x) { return x == wanted; });
  };
  received(news, 5);
  expect(are(sum, size() * (size() + 1) / 2), "iallreduce");
  expect(rank() != size() - 1 || are(least, 1), "ireduce");
  expect(are(scan, (rank() + 1) * (rank() + 2) / 2), "iscan");
  expect(are(part, size() * (size() - 1) / 2), "ireduce_scatter_block");
  for (int r = 0; r < size(); ++r) {
    const auto at = static_cast<std::ptrdiff_t>(r) * n;
    const auto block = [&](const std::vector<int>& v, int wanted) {
      return std::all_of(v.begin() + at, v.begin() + at + n, [wanted](int x) { return x == wanted; });
    };
    expect(block(gathered, r + 1), "iallgather");
    expect(block(exchanged, r), "ialltoall");
    expect(rank() != 0 || block(collected, r + 1), "igather");
  }
}

}  // namespace

void collectives_nonblocking() {
  for (const int n : {1, 500, 40'000}) many_at_once(n);
}

}  // namespace weft::mpi
