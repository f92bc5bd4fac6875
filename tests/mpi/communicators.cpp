// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Communicators keep their messages apart: duplicates, parts, between groups; topologies and their neighbour collectives.
#include <algorithm>
#include <array>

#include "check.hpp"

namespace weft::mpi {
namespace {

void duplicates() {
  constexpr int count = 12;  // several at once, so their identifiers differ in more than a bit
  std::array<MPI_Comm, count> comms;
  for (MPI_Comm& comm : comms) good(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  std::array<int, count> out, in;
  std::array<MPI_Request, count> requests;
  for (int i = 0; i < count; ++i) {
    out[i] = rank() * 100 + i;
    good(MPI_Isend(&out[i], 1, MPI_INT, right(), 1, comms[i], &requests[i]));
  }
  for (int i = count - 1; i >= 0; --i) {
    good(MPI_Recv(&in[i], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comms[i], MPI_STATUS_IGNORE));
    expect(in[i] == left() * 100 + i, "a message crossed from one communicator to another");
  }
  good(MPI_Waitall(count, requests.data(), MPI_STATUSES_IGNORE));
  for (MPI_Comm& comm : comms) good(MPI_Comm_free(&comm));
}

void halves() {
  MPI_Comm half, between;
  good(MPI_Comm_split(MPI_COMM_WORLD, rank() % 2, -rank(), &half));
  int me = -1, count = 0;
  MPI_Comm_rank(half, &me);
  MPI_Comm_size(half, &count);
  int sum = 0;
  const int mine = rank();
  good(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, half));
  int wanted = 0;
  for (int r = rank() % 2; r < size(); r += 2) wanted += r;
  expect(sum == wanted, "a sum over half of the ranks is wrong");
  // The leaders are those with rank 0 of each half: the highest of the world, since the key was negative.
  const auto leader_of = [](int colour) { return (size() - 1) % 2 == colour ? size() - 1 : size() - 2; };
  good(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, leader_of(1 - rank() % 2), 99, &between));
  int there = 0;
  MPI_Comm_remote_size(between, &there);
  expect(there == size() - count, "the other group has another size");
  int other_sum = 0;
  good(MPI_Allreduce(&mine, &other_sum, 1, MPI_INT, MPI_SUM, between));
  expect(other_sum == size() * (size() - 1) / 2 - wanted, "a sum between groups is wrong");
  good(MPI_Comm_free(&between));
  good(MPI_Comm_free(&half));
}

void neighbours() {
  MPI_Comm ring;
  const int dims = size();
  const int periods = 1;
  good(MPI_Cart_create(MPI_COMM_WORLD, 1, &dims, &periods, 0, &ring));
  for (const int length : {1, 10'000}) {
    std::vector<int> out(static_cast<size_t>(length), rank()), in(static_cast<size_t>(2 * length), -1);
    good(MPI_Neighbor_allgather(out.data(), length, MPI_INT, in.data(), length, MPI_INT, ring));
    expect(std::all_of(in.begin(), in.begin() + length, [](int v) { return v == left(); }),
           "the left neighbour");
    expect(std::all_of(in.begin() + length, in.end(), [](int v) { return v == right(); }),
           "the right neighbour");
  }
  good(MPI_Comm_free(&ring));
}

}  // namespace

void communicators() {
  duplicates();
  if (size() >= 2) halves();
  if (size() >= 3) neighbours();
}

}  // namespace weft::mpi
