// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* A token goes round the ranks, then two ranks measure a ping-pong. Plain MPI: it knows nothing of what carries it.
 *
 *   mpicc -O2 ring.c -o ring && weft run -- mpirun -np 2 --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include weft ./ring
 */
#include <mpi.h>
#include <stdio.h>

enum { laps = 1000, round_trips = 20000 };

int main(int argc, char** argv) {
  int rank = 0, size = 0;
  long token = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;

  for (int lap = 0; lap < laps; ++lap) {
    if (rank == 0) {
      MPI_Send(&token, 1, MPI_LONG, next, 0, MPI_COMM_WORLD);
      MPI_Recv(&token, 1, MPI_LONG, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Recv(&token, 1, MPI_LONG, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      token += rank;
      MPI_Send(&token, 1, MPI_LONG, next, 0, MPI_COMM_WORLD);
    }
  }
  long expected = 0;
  for (int r = 1; r < size; ++r) expected += (long)r * laps;
  int right = rank != 0 || token == expected;

  if (rank < 2 && size > 1) {
    double value = 0;
    const double begin = MPI_Wtime();
    for (int i = 0; i < round_trips; ++i) {
      if (rank == 0) MPI_Send(&value, 1, MPI_DOUBLE, 1, 1, MPI_COMM_WORLD);
      MPI_Recv(&value, 1, MPI_DOUBLE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (rank == 1) MPI_Send(&value, 1, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD);
    }
    if (rank == 0)
      printf("%d ranks: the token is %s; 8 bytes take %.2f us one way\n", size, right ? "right" : "WRONG",
             (MPI_Wtime() - begin) / round_trips / 2 * 1e6);
  }
  MPI_Finalize();
  return right ? 0 : 1;
}
