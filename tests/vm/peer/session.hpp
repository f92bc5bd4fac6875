// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the scenarios stand on: an opened device, and a pair of connected queue pairs with memory. Written against
// <infiniband/verbs.h> alone, so the program runs on any library and any provider.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "control.hpp"

namespace weft::vm {

struct Destroy {
  void operator()(ibv_context* it) const { ibv_close_device(it); }
  void operator()(ibv_pd* it) const { ibv_dealloc_pd(it); }
  void operator()(ibv_cq* it) const { ibv_destroy_cq(it); }
  void operator()(ibv_comp_channel* it) const { ibv_destroy_comp_channel(it); }
  void operator()(ibv_qp* it) const { ibv_destroy_qp(it); }
  void operator()(ibv_srq* it) const { ibv_destroy_srq(it); }
  void operator()(ibv_mr* it) const { ibv_dereg_mr(it); }
  void operator()(ibv_mw* it) const { ibv_dealloc_mw(it); }
  void operator()(ibv_ah* it) const { ibv_destroy_ah(it); }
};
template <class T>
using Owned = std::unique_ptr<T, Destroy>;
// Takes what a call of verbs returned; throws Failure with errno when that is null.
template <class T>
Owned<T> owned(T* it, const char* call) {
  require(it != nullptr, "%s: errno %d", call, errno);
  return Owned<T>(it);
}

using Bytes = std::vector<uint8_t>;
// Bytes that say where they come from.
void fill(std::span<uint8_t> bytes, uint64_t seed);
// Throws Failure that names the first byte that is not as fill() wrote it.
void check(std::span<const uint8_t> bytes, uint64_t seed, const char* what);
void check_all(std::span<const uint8_t> bytes, uint8_t value, const char* what);
uint32_t random_psn();

// ATOMIC WRITE and FLUSH (ibv_wr_post(3), rdma-core 44 and 45): what the headers here may lack.
inline constexpr int access_flush = 256;                        // IBV_ACCESS_FLUSH_GLOBAL
inline constexpr uint64_t ops_flush = 1 << 11;                  // IBV_QP_EX_WITH_FLUSH
inline constexpr int wc_flush = 8;                              // IBV_WC_FLUSH
enum class Ability : uint8_t { Flush = 38, AtomicWrite = 40 };  // bits of device_cap_flags_ex
enum class Level : uint8_t { Range = 0, Region = 1 };

// One side of the pair of programs, during one scenario.
struct Session {
  Control& control;
  ibv_context* context;
  uint8_t gid_index;
  ibv_gid gid;
  ibv_mtu mtu;        // the smaller one of both sides
  bool is_requester;  // who acts in this run of the scenario
  bool is_lossy;      // the network drops, delays, reorders
  // For the few things in which rxe differs from the specification; docs/vm.md lists them.
  bool responder_is_kernel;
  bool is_kernel;  // this side

  uint32_t mtu_bytes() const { return 128u << mtu; }
  // Throws Skipped, at both sides, unless both devices have it and the requester's library the calls.
  void needs(Ability ability) const;
};

// Access to memory that the scenarios give to the peer.
inline constexpr int access_all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

// Registered memory of the program, zeroed.
class Memory {
 public:
  Memory(ibv_pd* pd, size_t bytes, int access = access_all);
  ibv_sge element(size_t offset, size_t length) const {
    return {address() + offset, static_cast<uint32_t>(length), mr->lkey};
  }
  uint64_t address() const { return reinterpret_cast<uint64_t>(bytes.data()); }
  std::span<uint8_t> part(size_t offset, size_t length) { return std::span(bytes).subspan(offset, length); }

  Bytes bytes;
  Owned<ibv_mr> mr;
};

// How the peer is reached.
struct Name {
  ibv_gid gid{};
  uint32_t qpn = 0;
  uint32_t psn = 0;
  uint64_t address = 0;
  uint32_t rkey = 0;
};

struct PairOptions {
  ibv_qp_type type = IBV_QPT_RC;
  size_t bytes = 1 << 16;
  int memory_access = access_all;
  int qp_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  uint32_t requests = 64;
  uint8_t timeout = 16;  // 268 ms: a busy host may stop the guest for longer than 67 ms, seven times in a row
  uint8_t retry_count = 6;  // rxe never gives up with 7, and a responder says its NAK once
  uint8_t rnr_retry = 7;
  uint8_t min_rnr_timer = 12;  // 0.64 ms
  uint32_t qpn_error = 0;      // the peer's number is taken for another one
  bool is_signalling_all = false;
  bool has_events = false;  // a completion channel for what is received
  uint64_t calls = 0;       // send_ops_flags, for ibv_wr_*
  ibv_srq* srq = nullptr;
  ibv_pd* pd = nullptr;  // of the SRQ
  ibv_cq* receive_cq = nullptr;
};

// One side of a connected pair. Constructed by both programs at once; every scenario has its own.
class Pair {
 public:
  explicit Pair(Session& session, const PairOptions& options = {});

  // Each posts one request; `flags` are those of ibv_send_flags. Throws Failure when the call refuses.
  void send(const ibv_sge& from, uint64_t id = 0, unsigned flags = IBV_SEND_SIGNALED);
  void send_immediate(const ibv_sge& from, uint32_t immediate, uint64_t id = 0,
                      unsigned flags = IBV_SEND_SIGNALED);
  void send_invalidate(const ibv_sge& from, uint32_t rkey);
  void write(const ibv_sge& from, size_t offset, uint64_t id = 0, unsigned flags = IBV_SEND_SIGNALED);
  void write_immediate(const ibv_sge& from, size_t offset, uint32_t immediate, uint64_t id = 0);
  void read(const ibv_sge& to, size_t offset, uint64_t id = 0, unsigned flags = IBV_SEND_SIGNALED);
  void compare_swap(const ibv_sge& to, size_t offset, uint64_t compare, uint64_t swap, uint64_t id = 0);
  void fetch_add(const ibv_sge& to, size_t offset, uint64_t add, uint64_t id = 0);
  void post(ibv_send_wr request);
  void post_remote(ibv_wr_opcode opcode, const ibv_sge& local, uint64_t address, uint32_t rkey, uint64_t id,
                   unsigned flags);
  // By ibv_wr_*; the pair was made with `calls`.
  void write_by_calls(const ibv_sge& from, size_t offset, uint64_t id = 0);
  void atomic_write(uint64_t value, size_t offset, uint64_t id = 0);
  void flush(size_t offset, size_t length, Level level, uint64_t id = 0);
  void receive(const ibv_sge& to, uint64_t id = 0);

  // The next completion of any status; throws Failure after 30 s without one.
  ibv_wc completion_of_send() { return completion(send_cq_.get(), "send"); }
  ibv_wc completion_of_receive() { return completion(receive_cq(), "receive"); }
  // That must be a success.
  ibv_wc sent(uint64_t id = 0) { return good(completion_of_send(), id, "send"); }
  ibv_wc received(uint64_t id = 0) { return good(completion_of_receive(), id, "receive"); }
  // The next one of the send queue must have that status; all that follow are flushed in order, and the state is ERR.
  void fails(ibv_wc_status status, uint64_t id, std::span<const uint64_t> flushed = {});
  // The responder says a refusal once: when its NAK is lost, the requester's retries end.
  bool has_lost_its_answer(const ibv_wc& wc) const { return is_lossy_ && wc.status == IBV_WC_RETRY_EXC_ERR; }
  void nothing_received();
  ibv_qp_state state() const;
  void to_error();

  ibv_cq* send_cq() const { return send_cq_.get(); }
  ibv_cq* receive_cq() const { return foreign_cq_ != nullptr ? foreign_cq_ : receive_cq_.get(); }
  static ibv_wc completion(ibv_cq* cq, const char* what);
  static ibv_wc good(const ibv_wc& wc, uint64_t id, const char* what);

 private:
  void create(Session& session, const PairOptions& options);
  void connect(Session& session, const PairOptions& options);

  bool is_lossy_;
  Owned<ibv_pd> own_pd_;
  ibv_cq* foreign_cq_ = nullptr;

 public:
  Owned<ibv_comp_channel> channel;
  ibv_pd* pd = nullptr;

 private:
  Owned<ibv_cq> send_cq_, receive_cq_;

 public:
  std::unique_ptr<Memory> memory;
  Owned<ibv_qp> qp;
  Name own, peer;
};

void modify_to_init(ibv_qp* qp, const PairOptions& options);

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
inline constexpr double patience_s = 30;
inline constexpr uint8_t max_reads = 4;  // max_rd_atomic and max_dest_rd_atomic of a pair

}  // namespace weft::vm
