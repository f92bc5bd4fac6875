// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// RC WRITE, WRITE with immediate, READ, compare and swap, fetch and add. The target sleeps at the control
// connection meanwhile: it makes no call of verbs.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "scenarios.hpp"

namespace weft::vm {
namespace {

constexpr size_t half = 1 << 15;

void write(Session& s) {
  const uint32_t mtu = s.mtu_bytes();
  const size_t lengths[] = {1, 3, 8, mtu - 1, mtu, mtu + 1, 4 * mtu, 20'011};
  Pair pair(s);
  for (uint64_t i = 0; i < std::size(lengths); ++i) {
    const size_t offset = i * 13;
    if (s.is_requester) {
      fill(pair.memory->part(0, lengths[i]), i);
      pair.write(pair.memory->element(0, lengths[i]), offset, i);
      require(pair.sent(i).opcode == IBV_WC_RDMA_WRITE, "opcode");
    }
    s.control.barrier();
    if (!s.is_requester) {
      check(pair.memory->part(offset, lengths[i]), i, "written");
      check_all(pair.memory->part(offset + lengths[i], half - lengths[i]), 0, "behind what was written");
      std::ranges::fill(pair.memory->bytes, uint8_t{0});
    }
    s.control.barrier();
  }
}

void write_of_nothing(Session& s) {
  Pair pair(s);
  if (s.is_requester) {
    pair.post_remote(IBV_WR_RDMA_WRITE, pair.memory->element(0, 0), 0, 0, 1, IBV_SEND_SIGNALED);
    pair.sent(1);
    // rxe looks the key up when a READ comes twice, also one of no bytes.
    if (!s.is_lossy || !s.responder_is_kernel) {
      pair.post_remote(IBV_WR_RDMA_READ, pair.memory->element(0, 0), 0, 0, 2, IBV_SEND_SIGNALED);
      pair.sent(2);
    }
  }
  s.control.barrier();
}

void write_immediate(Session& s) {
  Pair pair(s);
  constexpr size_t lengths[] = {0, 8, 9001};
  if (!s.is_requester)
    for (uint64_t i = 0; i < 3; ++i) pair.receive(pair.memory->element(0, 0), i);
  s.control.barrier();
  for (uint32_t i = 0; i < 3; ++i) {
    if (s.is_requester) {
      fill(pair.memory->part(0, lengths[i]), i);
      pair.write_immediate(pair.memory->element(0, lengths[i]), half, 0xfffe0000 + i, i);
      pair.sent(i);
    } else {
      const ibv_wc wc = pair.received(i);
      require(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && (wc.wc_flags & IBV_WC_WITH_IMM) != 0,
              "opcode %d, flags %u", wc.opcode, wc.wc_flags);
      require(wc.imm_data == 0xfffe0000 + i, "immediate %08x", wc.imm_data);
      require(wc.byte_len == lengths[i], "%u bytes, not %zu", wc.byte_len, lengths[i]);
      check(pair.memory->part(half, lengths[i]), i, "written");
    }
    s.control.barrier();
  }
}

void write_immediate_not_ready(Session& s) {
  Pair pair(s);
  if (s.is_requester) {
    fill(pair.memory->part(0, 5000), 1);
    pair.write_immediate(pair.memory->element(0, 5000), half, 7, 1);
    s.control.barrier();
    pair.sent(1);
  } else {
    s.control.barrier();
    pair.receive(pair.memory->element(0, 0), 3);
    require(pair.received(3).imm_data == 7, "immediate");
    check(pair.memory->part(half, 5000), 1, "written");
  }
  s.control.barrier();
}

void large_write(Session& s) {
  PairOptions options;
  options.bytes = s.is_lossy ? 300'001 : 1'500'001;
  Pair pair(s, options);
  if (s.is_requester) {
    fill(pair.memory->bytes, 77);
    pair.write(pair.memory->element(0, options.bytes), 0, 1);
    pair.sent(1);
  }
  s.control.barrier();
  if (!s.is_requester) check(pair.memory->bytes, 77, "large write");
  s.control.barrier();
}

void read(Session& s) {
  const uint32_t mtu = s.mtu_bytes();
  const size_t lengths[] = {1, 3, 8, mtu - 1, mtu, mtu + 1, 4 * mtu, 20'011};
  Pair pair(s);
  if (!s.is_requester) fill(pair.memory->bytes, 0);
  s.control.barrier();
  if (s.is_requester) {
    Bytes all(pair.memory->bytes.size());
    fill(all, 0);
    for (uint64_t i = 0; i < std::size(lengths); ++i) {
      const size_t offset = i * 29 + 1;
      std::ranges::fill(pair.memory->bytes, uint8_t{0});
      pair.read(pair.memory->element(64, lengths[i]), offset, i);
      const ibv_wc wc = pair.sent(i);
      require(wc.opcode == IBV_WC_RDMA_READ, "opcode %d", wc.opcode);
      require(std::memcmp(pair.memory->bytes.data() + 64, all.data() + offset, lengths[i]) == 0,
              "read of %zu bytes", lengths[i]);
      check_all(pair.memory->part(64 + lengths[i], half - lengths[i]), 0, "behind what was read");
    }
  }
  s.control.barrier();
}

// More than max_rd_atomic at once, of several packets each.
void many_reads(Session& s) {
  Pair pair(s);
  constexpr size_t length = 3001, count = 20;
  if (!s.is_requester)
    for (size_t i = 0; i < count; ++i) fill(pair.memory->part(i * length, length), i);
  s.control.barrier();
  if (s.is_requester) {
    for (uint64_t i = 0; i < count; ++i) pair.read(pair.memory->element(i * length, length), i * length, i);
    for (uint64_t i = 0; i < count; ++i) pair.sent(i);
    for (size_t i = 0; i < count; ++i) check(pair.memory->part(i * length, length), i, "read");
  }
  s.control.barrier();
}

void large_read(Session& s) {
  PairOptions options;
  options.bytes = s.is_lossy ? 300'001 : 1'500'001;
  Pair pair(s, options);
  if (!s.is_requester) fill(pair.memory->bytes, 99);
  s.control.barrier();
  if (s.is_requester) {
    pair.read(pair.memory->element(0, options.bytes), 0, 1);
    pair.sent(1);
    check(pair.memory->bytes, 99, "large read");
  }
  s.control.barrier();
}

uint64_t word(const Pair& pair, size_t offset) {
  uint64_t value;
  std::memcpy(&value, &pair.memory->bytes[offset], sizeof value);
  return value;
}

void await_word(const Pair& pair, size_t offset, uint64_t value) {
  const auto start = Clock::now();
  while (std::atomic_ref<const uint64_t>(*reinterpret_cast<const uint64_t*>(&pair.memory->bytes[offset]))
             .load(std::memory_order_acquire) != value) {
    require(seconds_since(start) < patience_s, "memory has %016llx",
            static_cast<unsigned long long>(word(pair, offset)));
    sched_yield();
  }
}

void compare_swap(Session& s) {
  Pair pair(s);
  const uint64_t first = 0x1122334455667788, second = 0xfedcba9876543210;
  if (!s.is_requester) std::memcpy(&pair.memory->bytes[64], &first, sizeof first);
  s.control.barrier();
  if (s.is_requester) {
    pair.compare_swap(pair.memory->element(0, 8), 64, first, second, 1);
    require(pair.sent(1).opcode == IBV_WC_COMP_SWAP, "opcode");
    require(word(pair, 0) == first, "the first returned %016llx",
            static_cast<unsigned long long>(word(pair, 0)));
    pair.compare_swap(pair.memory->element(0, 8), 64, first, 5, 2);
    pair.sent(2);
    require(word(pair, 0) == second, "the second returned %016llx",
            static_cast<unsigned long long>(word(pair, 0)));
  }
  s.control.barrier();
  if (!s.is_requester)
    require(word(pair, 64) == second, "memory has %016llx", static_cast<unsigned long long>(word(pair, 64)));
  s.control.barrier();
}

// Each of many is executed once, whatever is lost.
void fetch_add(Session& s) {
  Pair pair(s);
  constexpr uint64_t count = 60, add = 0x100000001;
  const uint64_t start = 0xffffffff00000000;
  if (!s.is_requester) std::memcpy(&pair.memory->bytes[128], &start, sizeof start);
  s.control.barrier();
  if (s.is_requester) {
    for (uint64_t i = 0; i < count; ++i) pair.fetch_add(pair.memory->element(1024 + i * 8, 8), 128, add, i);
    for (uint64_t i = 0; i < count; ++i) {
      require(pair.sent(i).opcode == IBV_WC_FETCH_ADD, "opcode");
      require(word(pair, 1024 + i * 8) == start + i * add, "request %llu returned %016llx",
              static_cast<unsigned long long>(i), static_cast<unsigned long long>(word(pair, 1024 + i * 8)));
    }
  }
  s.control.barrier();
  if (!s.is_requester)
    require(word(pair, 128) == start + count * add, "memory has %016llx",
            static_cast<unsigned long long>(word(pair, 128)));
  s.control.barrier();
}

// A write behind a fence sends what the read before it brought.
void fence(Session& s) {
  Pair pair(s);
  if (!s.is_requester) fill(pair.memory->part(0, 6000), 3);
  s.control.barrier();
  if (s.is_requester) {
    pair.read(pair.memory->element(0, 6000), 0, 1);
    pair.write(pair.memory->element(0, 6000), half, 2, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
    pair.sent(1);
    pair.sent(2);
  }
  s.control.barrier();
  if (!s.is_requester) check(pair.memory->part(half, 6000), 3, "written back");
  s.control.barrier();
}

PairOptions with_calls(const Session& s, uint64_t calls) {
  PairOptions options;
  if (s.is_requester) options.calls = calls;
  if ((calls & ops_flush) != 0) {
    options.memory_access |= access_flush;
    options.qp_access |= access_flush;
  }
  return options;
}

// A WRITE, and then an ATOMIC WRITE that says so: who sees the second one in memory sees the first.
void atomic_write(Session& s) {
  s.needs(Ability::AtomicWrite);
  Pair pair(s, with_calls(s, IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_RDMA_WRITE));
  constexpr uint64_t count = 40;
  constexpr size_t flag_at = 8192;
  for (uint64_t i = 1; i <= count; ++i) {
    if (s.is_requester) {
      fill(pair.memory->part(0, 3000), i);
      pair.write_by_calls(pair.memory->element(0, 3000), 64, 2 * i);
      pair.atomic_write(i << 32 | i, flag_at, 2 * i + 1);
      require(pair.sent(2 * i).opcode == IBV_WC_RDMA_WRITE, "opcode of the WRITE");
      require(pair.sent(2 * i + 1).opcode == IBV_WC_ATOMIC_WRITE, "opcode of the ATOMIC WRITE");
    } else {
      await_word(pair, flag_at, i << 32 | i);
      check(pair.memory->part(64, 3000), i, "what was written before");
    }
    s.control.barrier();
  }
  // More at once than max_rd_atomic.
  if (s.is_requester) {
    for (uint64_t i = 0; i < count; ++i) pair.atomic_write(i, flag_at + i % 4 * 8, i);
    for (uint64_t i = 0; i < count; ++i) pair.sent(i);
  }
  s.control.barrier();
  if (!s.is_requester) {
    for (size_t i = 0; i < 4; ++i) require(word(pair, flag_at + i * 8) == count - 4 + i, "word %zu", i);
    check_all(pair.memory->part(flag_at + 32, 4096), 0, "behind what was written");
  }
  s.control.barrier();
}

void memory_flush(Session& s) {
  s.needs(Ability::Flush);
  Pair pair(s, with_calls(s, ops_flush | IBV_QP_EX_WITH_RDMA_WRITE));
  constexpr uint64_t count = 20;
  if (s.is_requester) {
    fill(pair.memory->part(0, 9001), 5);
    pair.write_by_calls(pair.memory->element(0, 9001), half, 1);
    pair.flush(half, 9001, Level::Range, 2);
    pair.flush(0, 0, Level::Region, 3);
    require(pair.sent(1).opcode == IBV_WC_RDMA_WRITE, "opcode of the WRITE");
    for (const uint64_t id : {2, 3}) {
      const int opcode = pair.sent(id).opcode;
      require(opcode == wc_flush, "opcode %d of FLUSH %llu", opcode, static_cast<unsigned long long>(id));
    }
    // More at once than max_rd_atomic, which rxe does not heed for FLUSH.
    const uint64_t at_once = s.is_kernel ? max_reads : count;
    for (uint64_t begin = 0; begin < count; begin += at_once) {
      for (uint64_t i = begin; i < begin + at_once; ++i) pair.flush(i * 8, 8, Level::Range, i);
      for (uint64_t i = begin; i < begin + at_once; ++i) pair.sent(i);
    }
  }
  s.control.barrier();
  if (!s.is_requester) check(pair.memory->part(half, 9001), 5, "written and flushed");
  s.control.barrier();
}

constexpr Scenario scenarios[] = {
    {"rc_write", write},
    {"rc_zero_length", write_of_nothing},
    {"rc_write_immediate", write_immediate},
    {"rc_write_immediate_not_ready", write_immediate_not_ready},
    {"rc_write_large", large_write},
    {"rc_read", read},
    {"rc_read_many", many_reads},
    {"rc_read_large", large_read},
    {"rc_compare_swap", compare_swap},
    {"rc_fetch_add", fetch_add},
    {"rc_fence", fence},
    {"rc_atomic_write", atomic_write},
    {"rc_memory_flush", memory_flush, Network::Good},  // what rxe sends again has address 0
};

}  // namespace

std::span<const Scenario> one_sided_scenarios() { return scenarios; }

}  // namespace weft::vm
