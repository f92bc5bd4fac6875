// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Checks, patterns and numbers of the MPI test program.
#include "check.hpp"

#include <cstdio>
#include <cstring>
#include <mutex>

namespace weft::mpi {
namespace {

std::mutex counting;  // the part with threads checks from two of them

const char* short_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

uint64_t mix(uint64_t x) noexcept {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  return x;
}

int world_value(int (*call)(MPI_Comm, int*)) noexcept {
  int value = 0;
  call(MPI_COMM_WORLD, &value);
  return value;
}

}  // namespace

Tally& tally() noexcept {
  static Tally it;
  return it;
}

int rank() noexcept {
  static const int it = world_value(MPI_Comm_rank);
  return it;
}

int size() noexcept {
  static const int it = world_value(MPI_Comm_size);
  return it;
}

bool expect(bool ok, const char* what, Where where) {
  const std::lock_guard lock(counting);
  ++tally().checks;
  if (!ok && ++tally().failures <= 20)
    std::fprintf(stderr, "rank %d: %s:%u: %s\n", rank(), short_name(where.file), where.line, what);
  return ok;
}

bool good(int code, Where where) {
  if (code == MPI_SUCCESS) return true;
  char text[MPI_MAX_ERROR_STRING] = "?";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return expect(false, text, where);
}

bool refused(int code, int wanted_class, Where where) {
  int error_class = MPI_SUCCESS;
  MPI_Error_class(code, &error_class);
  return expect(error_class == wanted_class, "the error has another class, or there is none", where);
}

void fill(std::span<uint8_t> bytes, uint64_t seed) noexcept {
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t word = mix(seed * 0x9e3779b97f4a7c15ULL + i);
    std::memcpy(&bytes[i], &word, bytes.size() - i < 8 ? bytes.size() - i : 8);
  }
}

Bytes pattern(size_t count, uint64_t seed) {
  Bytes bytes(count);
  fill(bytes, seed);
  return bytes;
}

bool matches(std::span<const uint8_t> bytes, uint64_t seed) noexcept {
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t word = mix(seed * 0x9e3779b97f4a7c15ULL + i);
    if (std::memcmp(&bytes[i], &word, bytes.size() - i < 8 ? bytes.size() - i : 8) != 0) return false;
  }
  return true;
}

bool received(std::span<const uint8_t> bytes, uint64_t seed, Where where) {
  return expect(matches(bytes, seed), "the bytes are not those that were sent", where);
}

bool came(MPI_Status& status, int source, int tag, int bytes, Where where) {
  int count = -1;
  MPI_Get_count(&status, MPI_BYTE, &count);
  return expect(status.MPI_SOURCE == source, "the status names another source", where) &&
         expect(status.MPI_TAG == tag, "the status names another tag", where) &&
         expect(count == bytes, "the status counts other bytes", where);
}

uint64_t Dice::next() noexcept {
  state_ += 0x9e3779b97f4a7c15ULL;
  return mix(state_) >> 8;
}

}  // namespace weft::mpi
