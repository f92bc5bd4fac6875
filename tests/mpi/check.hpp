// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the parts of the MPI test program share: checks that count, patterns that say whose bytes they are, and the rank's neighbours.
// Knows MPI's own interface alone, so the program runs on any MPI and any transport.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weft::mpi {

using Bytes = std::vector<uint8_t>;

// A place in a source. Not std::source_location, which clang has from version 16 on.
struct Where {
  const char* file;
  unsigned line;
  static constexpr Where current(const char* file = __builtin_FILE(),
                                 unsigned line = __builtin_LINE()) noexcept {
    return {file, line};
  }
};

// One rank's counts; main adds them up.
struct Tally {
  long checks = 0;
  long failures = 0;
};
Tally& tally() noexcept;

int rank() noexcept;
int size() noexcept;
inline int right() noexcept { return (rank() + 1) % size(); }
inline int left() noexcept { return (rank() + size() - 1) % size(); }

// Counts, and says on stderr what failed, where and on which rank; the first 20 of a rank.
bool expect(bool ok, const char* what, Where where = Where::current());
// An MPI call that must succeed.
bool good(int code, Where where = Where::current());
// An MPI call that must fail with this class.
bool refused(int code, int wanted_class, Where where = Where::current());

// Bytes that depend on a seed and on their place.
void fill(std::span<uint8_t> bytes, uint64_t seed) noexcept;
Bytes pattern(size_t count, uint64_t seed);
bool matches(std::span<const uint8_t> bytes, uint64_t seed) noexcept;
bool received(std::span<const uint8_t> bytes, uint64_t seed, Where where = Where::current());
// Source, tag and length of what came.
bool came(MPI_Status& status, int source, int tag, int bytes, Where where = Where::current());

// Deterministic numbers for the tests that mix; the same on all ranks for the same seed.
class Dice {
 public:
  explicit Dice(uint64_t seed) noexcept : state_(seed * 2 + 1) {}
  uint64_t next() noexcept;
  int below(int bound) noexcept { return static_cast<int>(next() % static_cast<uint64_t>(bound)); }

 private:
  uint64_t state_;
};

inline int tag_of(int number) noexcept { return 100 + number; }

// The parts. Each is collective over MPI_COMM_WORLD and leaves nothing under way.
void point_to_point();
void truncation();
void probes();
void patterns_of_traffic();
void collectives();
void collectives_nonblocking();
void derived_types();
void windows();
void windows_dynamic();
void operations();         // all of them
void operations_of_btl();  // those that Open MPI's btl ofi takes with its own defaults
void threads();
void communicators();

}  // namespace weft::mpi
