// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Walks MPI: point-to-point, probes, traffic, collectives, derived types, windows, threads, communicators. All data is checked.
// Exit status 0 when no check failed on any rank, else 1; 2 for a wrong argument.
//
// usage: walk [PART...]   parts: p2p trunc probe traffic coll icoll types comms rma dynamic amo ops threads
//                        default: all but ops and threads
//
// MPI_THREAD_MULTIPLE is asked for only when the part with threads is, for not every way of Open MPI has it. Nor has every way all
// operations on windows: those of amo go everywhere, ops are all (docs/mpi.md).
#include <cstdio>
#include <cstring>

#include "check.hpp"

namespace {

struct Part {
  const char* name;
  void (*run)();
  bool is_default = true;
};

constexpr Part parts[] = {
    {"p2p", weft::mpi::point_to_point},
    {"trunc", weft::mpi::truncation},
    {"probe", weft::mpi::probes},
    {"traffic", weft::mpi::patterns_of_traffic},
    {"coll", weft::mpi::collectives},
    {"icoll", weft::mpi::collectives_nonblocking},
    {"types", weft::mpi::derived_types},
    {"comms", weft::mpi::communicators},
    {"rma", weft::mpi::windows},
    {"dynamic", weft::mpi::windows_dynamic},
    {"amo", weft::mpi::operations_of_btl},
    {"ops", weft::mpi::operations, false},
    {"threads", weft::mpi::threads, false},
};

bool known(const char* name) {
  for (const Part& part : parts)
    if (std::strcmp(part.name, name) == 0) return true;
  return false;
}

bool named(const char* name, int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::strcmp(argv[i], name) == 0) return true;
  return false;
}

weft::mpi::Tally over_all_ranks(weft::mpi::Tally mine) {
  long here[2] = {mine.checks, mine.failures};
  long sum[2] = {0, 0};
  MPI_Allreduce(here, sum, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  return {sum[0], sum[1]};
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  const int asked = named("threads", argc, argv) ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
  if (MPI_Init_thread(&argc, &argv, asked, &level) != MPI_SUCCESS) return 1;
  for (int i = 1; i < argc; ++i) {
    if (known(argv[i])) continue;
    if (weft::mpi::rank() == 0) std::fprintf(stderr, "walk: no part '%s'\n", argv[i]);
    MPI_Finalize();
    return 2;
  }
  // Errors come back to the caller, which checks them.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (const Part& part : parts) {
    const bool wanted = argc > 1 ? named(part.name, argc, argv) : part.is_default;
    if (!wanted) continue;
    const weft::mpi::Tally before = weft::mpi::tally();
    const double begin = MPI_Wtime();
    part.run();
    MPI_Barrier(MPI_COMM_WORLD);
    const weft::mpi::Tally now = weft::mpi::tally();
    const auto all = over_all_ranks({now.checks - before.checks, now.failures - before.failures});
    if (weft::mpi::rank() == 0)
      std::printf("%-8s %7ld checks, %ld failed, %.1f s\n", part.name, all.checks, all.failures,
                  MPI_Wtime() - begin);
    std::fflush(stdout);
  }
  const auto all = over_all_ranks(weft::mpi::tally());
  if (weft::mpi::rank() == 0)
    std::printf("%d ranks: %ld checks, %ld failed\n", weft::mpi::size(), all.checks, all.failures);
  MPI_Finalize();
  return all.failures == 0 ? 0 : 1;
}
