// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The objects of <infiniband/verbs.h> as this provider makes them: the standard struct first, then what is ours. Lists and
// counts are covered by the device's lock.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "api/verbs/library/generations.hpp"
#include "api/verbs/roce/instance.hpp"
#include "base/list.hpp"
#include "os/lock.hpp"
#include "os/wall_clock.hpp"
#include "proto/roce/adapter.hpp"

namespace weft::verbs::soft {

using Guard = std::scoped_lock<os::Lock>;

// What query_device() tells beyond the limits of the adapter; of a device in this process, whatever its contexts.
inline constexpr uint32_t domains_max = 65536;     // protection domains, parent domains among them
inline constexpr uint32_t handles_max = 1u << 20;  // address handles

// A parent domain is another name of its base.
struct Pd : ibv_pd, ListHook {
  uint32_t number = 0;
  uint32_t users = 0;
  Pd* base = nullptr;
};

struct Td : ibv_td {};

struct Mr : ibv_mr, ListHook {
  roce::Region* region = nullptr;
  uint32_t access = 0;
  void* mapping = nullptr;  // link::roce::Device::map
};

struct Mw : ibv_mw, ListHook {
  roce::Region* window = nullptr;
};

struct Xrcd : ibv_xrcd, ListHook {
  uint32_t number = 0;
  uint32_t users = 0;
  bool has_file = false;
};

struct Ah : ibv_ah, ListHook {
  roce::AddressVector to;
};

struct Cq : ibv_cq_ex, ListHook {
  roce::CompletionQueue* queue = nullptr;
  Instance* instance = nullptr;
  // Between start_poll and end_poll.
  os::Lock polling;
  bool is_single_threaded = false;
  bool has_wall_clock = false;  // IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK
  roce::Completion current;
  uint64_t current_time_of_day = 0;  // when it was completed
  os::WallClock wall_clock;
};

struct Srq : ibv_srq, ListHook {
  roce::SharedReceiveQueue* queue = nullptr;
  Instance* instance = nullptr;
  uint32_t elements = 0;
  Xrcd* xrcd = nullptr;
};

// Requests between wr_start and wr_complete (ibv_wr_post(3)).
struct Batch {
  std::mutex mutex;
  std::vector<roce::SendRequest> requests;
  std::vector<roce::Element> elements;  // `elements_each` for each request
  std::vector<std::byte> inline_bytes;  // likewise
  std::vector<Mw*> bound;               // whose rkey changes when the batch is posted; null: none
  uint32_t elements_each = 0;
  uint32_t inline_each = 0;
  size_t count = 0;
  int status = 0;
};

struct Qp : layout::ExtendedQp, ListHook {
  roce::QueuePair* pair = nullptr;
  Instance* instance = nullptr;
  std::unique_ptr<Batch> batch;  // of those with send_ops_flags
  ibv_qp_cap cap{};
  bool signal_all = false;
  Xrcd* xrcd = nullptr;
  // Of the pair: ibv_open_qp(3) makes another one of an XRC receive queue pair.
  std::shared_ptr<std::vector<Qp*>> handles;
};

// What a context has; the provider's state of it.
struct Opened {
  Instance::Reference instance;
  ibv_context* context = nullptr;
  List<Pd> pds;
  List<Mr> mrs;
  List<Mw> mws;
  List<Xrcd> xrcds;
  List<Ah> ahs;
  List<Cq> cqs;
  List<Srq> srqs;
  List<Qp> qps;

  link::roce::Device& device() noexcept { return instance->device(); }
  roce::Adapter& adapter() noexcept { return instance->device().adapter(); }
  os::Lock& lock() noexcept { return instance->lock(); }
};

inline Opened& opened(ibv_context* context) noexcept {
  return *static_cast<Opened*>(services().state(context));
}
inline Pd& of(ibv_pd* pd) noexcept { return *static_cast<Pd*>(pd); }
inline Pd& base_of(ibv_pd* pd) noexcept { return of(pd).base != nullptr ? *of(pd).base : of(pd); }
inline Mr& of(ibv_mr* mr) noexcept { return *static_cast<Mr*>(mr); }
inline Mw& of(ibv_mw* mw) noexcept { return *static_cast<Mw*>(mw); }
inline Xrcd& of(ibv_xrcd* xrcd) noexcept { return *static_cast<Xrcd*>(xrcd); }
inline Ah& of(ibv_ah* ah) noexcept { return *static_cast<Ah*>(ah); }
inline Cq& of(ibv_cq_ex* cq) noexcept { return *static_cast<Cq*>(cq); }
// struct ibv_cq is the beginning of struct ibv_cq_ex, struct ibv_qp that of struct ibv_qp_ex.
inline Cq& of(ibv_cq* cq) noexcept { return of(reinterpret_cast<ibv_cq_ex*>(cq)); }
inline Srq& of(ibv_srq* srq) noexcept { return *static_cast<Srq*>(srq); }
inline Qp& of(ibv_qp_ex* qp) noexcept { return *static_cast<Qp*>(qp); }
inline Qp& of(ibv_qp* qp) noexcept { return of(reinterpret_cast<ibv_qp_ex*>(qp)); }
inline ibv_cq* handle_of(Cq& cq) noexcept { return reinterpret_cast<ibv_cq*>(static_cast<ibv_cq_ex*>(&cq)); }

// Ends the call of a function that may throw: null with errno, or an errno.
template <class T, class Make>
T* made(Make&& make) noexcept {
  try {
    Result<T*> result = make();
    if (result) return *result;
    errno = refuse(result.error());
  } catch (const std::exception&) {
    errno = ENOMEM;
  }
  return nullptr;
}
template <class Do>
int done(Do&& work, int (*refused)(const Error&) noexcept = refuse) noexcept {
  try {
    const Result<void> result = work();
    return result ? 0 : refused(result.error());
  } catch (const std::exception&) {
    return ENOMEM;
  }
}

// The calls, by file.
void fill_context_ops(weft_verbs_ops& ops) noexcept;     // provider.cpp
void fill_memory_ops(weft_verbs_ops& ops) noexcept;      // memory.cpp
void fill_queue_ops(weft_verbs_ops& ops) noexcept;       // queues.cpp
void fill_queue_pair_ops(weft_verbs_ops& ops) noexcept;  // queue_pairs.cpp
void fill_data_ops(weft_verbs_ops& ops) noexcept;        // data.cpp
void fill_extended_cq(Cq& cq) noexcept;                  // extended_cq.cpp
void fill_extended_qp(Qp& qp) noexcept;                  // extended_qp.cpp

// ibv_ah_attr(3): EINVAL where this device has no way to there.
Result<roce::AddressVector> address_vector_of(Opened& own, const ibv_ah_attr& attr);
// Lets go of the pair, which goes with its last handle. With the device's lock.
void release_pair(Qp& qp) noexcept;
// Frees what a program left; with the device's lock.
void free_left(Opened& left) noexcept;

}  // namespace weft::verbs::soft
