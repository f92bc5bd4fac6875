// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The memory of a peer's process, by cross-memory attach, and the proof that it is the peer's: a random word that it showed when we met. A process that
// has the peer's number by now, or a program that it has become, does not have the word there. Must not know messages, regions or rings.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace weft::link::shm {

class PeerMemory {
 public:
  // Tries it once: can_read() tells the result.
  void probe(int32_t pid, uint64_t address, uint64_t value) noexcept;
  bool can_read() const noexcept { return can_read_; }
  bool can_write() const noexcept { return can_read_ && !may_not_write_; }
  void forbid() noexcept { can_read_ = false; }
  void forbid_writing() noexcept { may_not_write_ = true; }
  // Without a trial.
  void allow() noexcept { can_read_ = true; }

  // The process of that number is still the peer and runs the same program.
  bool is_there() const noexcept;
  // The same of the last moments, `lately` ticks at most: what a piece takes to be written is longer.
  bool was_there(uint64_t lately) noexcept;
  // It has become another program, or its memory is another process's. False: it has not, or it cannot be told.
  bool is_replaced() const noexcept;

  // The bytes moved, or a negative errno. read() has the word with it: all of one call is of one address space, so either the bytes are the peer's or
  // this says -ESRCH. A write() has to come after is_there() or was_there().
  ssize_t read(const iovec* local, size_t local_count, const iovec* remote, size_t remote_count,
               size_t bytes) const noexcept;
  ssize_t write(const iovec* local, size_t local_count, const iovec* remote, size_t remote_count,
                size_t bytes) const noexcept;

 private:
  ssize_t read_word(uint64_t& value) const noexcept;

  int32_t pid_ = 0;
  bool can_read_ = false;
  bool may_not_write_ = false;  // writing was refused
  uint64_t address_ = 0;        // of the word, in the peer's memory; 0: never tried
  uint64_t value_ = 0;          // of the word
  uint64_t proven_at_ = 0;      // ticks: when was_there() last found the word
};

}  // namespace weft::link::shm
