// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What libweft-trace.so writes and `weft trace` reads: one file for each thread, PID-IMAGE-TID-N.ring, a header and a
// ring of records; and one for each process, PID-IMAGE-TID-N.text, with lines about its objects. IMAGE tells the
// programs apart that a process executes one after the other. Writer and reader are of one build. Knows neither
// libfabric nor verbs.
//
//   object ID KIND NAME             device ID: KIND is "device"
//   bind ID QUEUE TRANSMIT RECEIVE SELECTIVE    an endpoint and a queue; the last three are 0 or 1
//   operations ID TRANSMIT RECEIVE  whether operations ask for completions by themselves (fi_info, op_flags)
//   pair DEVICE NUMBER ALL          a queue pair, and whether all of its requests complete (sq_sig_all)
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace weft::trace {

// The folder of the files, and records for each thread (a power of two): `weft trace` sets both.
constexpr const char* folder_variable = "WEFT_TRACE_FOLDER";
constexpr const char* records_variable = "WEFT_TRACE_RECORDS";
constexpr uint64_t records_default = uint64_t{1} << 16;
constexpr uint64_t records_most = uint64_t{1} << 24;

constexpr uint64_t magic = 0x3143'5254'5446'4557;  // "WEFTTRC1"
constexpr size_t header_size = 4096;
constexpr size_t name_size = 64;

enum class Clock : uint32_t { ticks, nanoseconds };  // the time stamp counter, or CLOCK_MONOTONIC

struct Header {
  uint64_t magic;
  uint32_t record_size;
  Clock clock;
  uint64_t capacity;  // in records
  uint32_t pid;
  uint32_t tid;
  char program[name_size];
  char thread[name_size];
  // Records ever written: record n lies at n modulo the capacity.
  uint64_t written;
};
static_assert(sizeof(Header) <= header_size);

enum class Type : uint16_t {
  none,        // taken back
  call,        // from begin to end, result
  started,     // the same, and it has posted an operation, which a completion ends
  operation,   // an operation that is one of several of the call after it, or before it
  completion,  // read from a queue at `begin`; result: its status
  idle,        // consecutive empty polls from begin to end; result: how many; object: that of the first
};

enum class Side : uint8_t { none, transmit, receive };

// Of `flags` in an operation and in a completion; what the interface says is translated by the writer.
constexpr uint64_t flag_transmit = 1;    // completion: of a transmit operation
constexpr uint64_t flag_receive = 2;     // completion: of a receive
constexpr uint64_t flag_completion = 4;  // operation: asks for its completion
constexpr uint64_t flag_silent = 8;      // operation: has none, whatever the endpoint says
constexpr uint64_t flag_multi =
    16;  // operation: takes several messages; completion: the last one of its buffer
constexpr uint64_t flag_remote = 32;  // completion: of what a peer did, perhaps without an operation here

struct Record {
  uint64_t begin;
  uint64_t end;
  uint64_t context;  // op_context, wr_id
  uint64_t bytes;
  uint64_t flags;
  int64_t result;
  uint32_t object;  // the number that the file of text gives it: endpoint, queue; verbs: device
  uint32_t queue_pair;
  Type type;
  uint16_t call;  // place in `calls`
  uint32_t
      fault;  // of a completion with an error: its vendor_err, which Weft says the cause by (weft/verbs_faults.h)
};
static_assert(sizeof(Record) == 64);

struct Call {
  std::string_view name;
  Side side = Side::none;  // of the operation that it posts
};

constexpr Call calls[] = {
    {"fi_getinfo"},
    {"fi_fabric"},
    {"fi_close"},
    {"fi_bind"},
    {"fi_control"},
    {"fi_enable"},
    {"fi_domain"},
    {"fi_passive_ep"},
    {"fi_eq_open"},
    {"fi_wait_open"},
    {"fi_trywait"},
    {"fi_av_open"},
    {"fi_cq_open"},
    {"fi_endpoint"},
    {"fi_scalable_ep"},
    {"fi_cntr_open"},
    {"fi_poll_open"},
    {"fi_stx_context"},
    {"fi_srx_context"},
    {"fi_tx_context"},
    {"fi_rx_context"},
    {"fi_mr_reg"},
    {"fi_mr_regv"},
    {"fi_mr_regattr"},
    {"fi_av_insert"},
    {"fi_av_insertsvc"},
    {"fi_av_insertsym"},
    {"fi_av_remove"},
    {"fi_av_lookup"},
    {"fi_cancel"},
    {"fi_getopt"},
    {"fi_setopt"},
    {"fi_setname"},
    {"fi_getname"},
    {"fi_getpeer"},
    {"fi_connect"},
    {"fi_listen"},
    {"fi_accept"},
    {"fi_reject"},
    {"fi_shutdown"},
    {"fi_join"},
    {"fi_eq_read"},
    {"fi_eq_readerr"},
    {"fi_eq_write"},
    {"fi_eq_sread"},
    {"fi_cq_read"},
    {"fi_cq_readfrom"},
    {"fi_cq_readerr"},
    {"fi_cq_sread"},
    {"fi_cq_sreadfrom"},
    {"fi_cq_signal"},
    {"fi_cntr_read"},
    {"fi_cntr_readerr"},
    {"fi_cntr_add"},
    {"fi_cntr_set"},
    {"fi_cntr_wait"},
    {"fi_wait"},
    {"fi_poll"},
    {"fi_recv", Side::receive},
    {"fi_recvv", Side::receive},
    {"fi_recvmsg", Side::receive},
    {"fi_send", Side::transmit},
    {"fi_sendv", Side::transmit},
    {"fi_sendmsg", Side::transmit},
    {"fi_inject"},
    {"fi_senddata", Side::transmit},
    {"fi_injectdata"},
    {"fi_trecv", Side::receive},
    {"fi_trecvv", Side::receive},
    {"fi_trecvmsg", Side::receive},
    {"fi_tsend", Side::transmit},
    {"fi_tsendv", Side::transmit},
    {"fi_tsendmsg", Side::transmit},
    {"fi_tinject"},
    {"fi_tsenddata", Side::transmit},
    {"fi_tinjectdata"},
    {"fi_read", Side::transmit},
    {"fi_readv", Side::transmit},
    {"fi_readmsg", Side::transmit},
    {"fi_write", Side::transmit},
    {"fi_writev", Side::transmit},
    {"fi_writemsg", Side::transmit},
    {"fi_inject_write"},
    {"fi_writedata", Side::transmit},
    {"fi_inject_writedata"},
    {"fi_atomic", Side::transmit},
    {"fi_atomicv", Side::transmit},
    {"fi_atomicmsg", Side::transmit},
    {"fi_inject_atomic"},
    {"fi_fetch_atomic", Side::transmit},
    {"fi_fetch_atomicv", Side::transmit},
    {"fi_fetch_atomicmsg", Side::transmit},
    {"fi_compare_atomic", Side::transmit},
    {"fi_compare_atomicv", Side::transmit},
    {"fi_compare_atomicmsg", Side::transmit},
    {"ibv_open_device"},
    {"ibv_close_device"},
    {"ibv_alloc_pd"},
    {"ibv_dealloc_pd"},
    {"ibv_reg_mr"},
    {"ibv_reg_mr_iova"},
    {"ibv_reg_mr_iova2"},
    {"ibv_dereg_mr"},
    {"ibv_create_cq"},
    {"ibv_create_cq_ex"},
    {"ibv_destroy_cq"},
    {"ibv_create_qp"},
    {"ibv_create_qp_ex"},
    {"ibv_modify_qp"},
    {"ibv_destroy_qp"},
    {"ibv_create_srq"},
    {"ibv_destroy_srq"},
    {"ibv_create_ah"},
    {"ibv_destroy_ah"},
    {"ibv_get_cq_event"},
    {"ibv_get_async_event"},
    {"ibv_post_send"},
    {"ibv_post_recv"},
    {"ibv_post_srq_recv"},
    {"ibv_wr_complete"},
    {"ibv_poll_cq"},
    {"ibv_start_poll"},
    {"ibv_next_poll"},
    {"ibv_req_notify_cq"},
    {"RECV", Side::receive},
    {"RDMA WRITE", Side::transmit},
    {"RDMA WRITE with immediate", Side::transmit},
    {"SEND", Side::transmit},
    {"SEND with immediate", Side::transmit},
    {"SEND with invalidate", Side::transmit},
    {"RDMA READ", Side::transmit},
    {"COMPARE AND SWAP", Side::transmit},
    {"FETCH AND ADD", Side::transmit},
    {"LOCAL INVALIDATE", Side::transmit},
    {"BIND MW", Side::transmit},
    {"another work request", Side::transmit},
    {"ATOMIC WRITE", Side::transmit},
    {"FLUSH", Side::transmit},
};

// The place of a call in `calls`; a name that is not there does not compile.
consteval uint16_t number(std::string_view name) {
  for (size_t i = 0; i < std::size(calls); ++i) {
    if (calls[i].name == name) return static_cast<uint16_t>(i);
  }
  throw "no such call";
}

}  // namespace weft::trace
