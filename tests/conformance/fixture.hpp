// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What every conformance test stands on: objects that close themselves, a World of endpoints in one process, and waits that end.
// Written over the public libfabric interface alone; knows nothing of the library that answers it.
//
// Environment: WEFT_TEST_PROVIDER names the provider (default "shm"), WEFT_TEST_NODE a local address for providers that want one,
// WEFT_TEST_ENDPOINT=msg makes a World of two endpoints that are connected to each other (FI_EP_MSG) where a test asks for no other type
// (with rdm, msg or dgram the tests of fi_getinfo look at that type alone), WEFT_TEST_WAIT_MS is how long a wait lasts at most,
// WEFT_TEST_NO_SKIP turns a skipped test into a failed one (for providers that must offer everything), WEFT_TEST_BIG runs the test
// of more than 4 GiB, WEFT_TEST_MANUAL_ONLY asks for nothing that the manual leaves open, WEFT_SANITIZE makes every wait longer.
#pragma once

#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_trigger.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft::conformance {

using std::chrono::milliseconds;

// No wait lasts longer than this, whatever the provider does.
extern const milliseconds timeout_default;
// How long a test watches to see that something does not happen.
inline constexpr milliseconds quiet_time{20};

std::string provider_name();
bool skip_is_failure();
// Whether only what a manual page says is asked (WEFT_TEST_MANUAL_ONLY). Without it our providers are held to more: a wrong call is refused with
// an errno where the manual leaves open what happens.
bool manual_only();
// The bits of a tag that the provider leaves to the program; fi_endpoint(3), mem_tag_format: the upper bits that are zero are reserved.
uint64_t tag_bits(const fi_info* info);
// How many times longer everything may take: more than 1 under a sanitizer (WEFT_SANITIZE is set then).
unsigned patience();

// "FI_EAGAIN (Resource temporarily unavailable)" and the like, of a return value (negative or positive).
std::string error_name(long code);

testing::AssertionResult is_ok(const char* text, long rc);

#define WEFT_ASSERT_OK(call) ASSERT_PRED_FORMAT1(weft::conformance::is_ok, (call))
#define WEFT_EXPECT_OK(call) EXPECT_PRED_FORMAT1(weft::conformance::is_ok, (call))
// Ends a test whose capability is not claimed; `why` is a std::string, empty when all is there.
#define WEFT_SKIP_IF(why)                                         \
  if (const std::string weft_why = (why); !weft_why.empty()) {    \
    if (weft::conformance::skip_is_failure()) FAIL() << weft_why; \
    GTEST_SKIP() << weft_why;                                     \
  }
// The flags of a completion that must be there; fi_cq(3): those that say which interface it was (FI_MSG, FI_RMA ...) may be.
inline uint64_t sure_flags(uint64_t flags) {
  return manual_only() ? flags & ~(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC) : flags;
}

// Ends a test of what the manual leaves open, where only the manual is asked.
#define WEFT_BEYOND_THE_MANUAL(why) \
  if (weft::conformance::manual_only()) GTEST_SKIP() << "beyond the manual: " << (why)
// Declares a World with these options, or skips the test when the provider does not claim them.
#define WEFT_WORLD(name, ...)                                    \
  const weft::conformance::Options name##_options = __VA_ARGS__; \
  WEFT_SKIP_IF(weft::conformance::missing(name##_options));      \
  weft::conformance::World name(name##_options);                 \
  if (!name.usable()) return

// A context that suits every mode bit (FI_CONTEXT, FI_CONTEXT2); fi_getinfo(3), MODE.
struct Ctx {
  fi_context2 space{};
};

// What became of a test's objects at its end is no matter of the test where only the manual is asked: it is noted and told apart ("unclosed").
void closed_badly(int rc);

// Owns one fabric object. Closing must succeed: the destructor says so with a failed expectation.
template <class T>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T* fid) : fid_(fid) {}
  Handle(Handle&& other) noexcept : fid_(std::exchange(other.fid_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      close_checked();
      fid_ = std::exchange(other.fid_, nullptr);
    }
    return *this;
  }
  ~Handle() { close_checked(); }

  T* get() const { return fid_; }
  T* operator->() const { return fid_; }
  explicit operator bool() const { return fid_ != nullptr; }
  T** out() { return &fid_; }
  struct fid* fid() const {
    return &fid_->fid;
  }
  // Closes now and returns what fi_close said; the object stays owned when that was an error.
  int close() {
    const int rc = fi_close(&fid_->fid);
    if (rc == 0) fid_ = nullptr;
    return rc;
  }
  T* release() { return std::exchange(fid_, nullptr); }

 private:
  void close_checked() {
    if (fid_ != nullptr) {
      if (const int rc = fi_close(&fid_->fid); rc != 0) closed_badly(rc);
    }
    fid_ = nullptr;
  }

  T* fid_ = nullptr;
};

struct InfoFree {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoFree>;

// What a test wants. The defaults are two endpoints in one domain, tagged format, no blocking.
struct Options {
  uint32_t api = FI_VERSION(1, 17);
  uint64_t caps = FI_MSG | FI_TAGGED;
  uint64_t mode = FI_CONTEXT | FI_CONTEXT2;
  fi_ep_type ep_type = FI_EP_RDM;
  fi_threading threading = FI_THREAD_UNSPEC;
  fi_av_type av_type = FI_AV_UNSPEC;
  fi_resource_mgmt resource_mgmt = FI_RM_UNSPEC;
  int mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  uint64_t tx_op_flags = 0;
  uint64_t rx_op_flags = 0;
  uint64_t msg_order = 0;  // of both directions
  size_t tx_size = 0;
  size_t rx_size = 0;
  fi_cq_format cq_format = FI_CQ_FORMAT_TAGGED;
  fi_wait_obj wait_obj = FI_WAIT_NONE;
  size_t cq_size = 0;
  uint64_t tx_bind = FI_TRANSMIT;  // flags of the binding of the transmit CQ
  uint64_t rx_bind = FI_RECV;
  std::vector<uint64_t> counters = {};  // one counter is bound for each of these flag sets
  fi_wait_obj counter_wait = FI_WAIT_NONE;
  int endpoints = 2;
  bool own_domains = false;  // each endpoint in its own domain
  bool one_cq = false;       // one CQ for both directions of an endpoint
  bool enable = true;
  bool insert = true;  // every address into every AV
  std::function<void(fi_info*)> edit_hints = {};
};

Info make_hints(const Options& options);
// Where the server of an answer of fi_getinfo is found: its own IPv4 address, when it has one.
std::string node_of(const fi_info* server);
// The first fi_info the provider gives for these options; null when it gives none.
Info find_info(const Options& options);
// Of a list, the answers that are this provider's own and of the type of endpoint under test; null when none is. A name asks for what is layered
// over that provider, too (fi_provider(3)); that is tested under its own name.
Info own_of(const fi_info* list);
// Empty, or why a test with these options cannot run on this provider.
std::string missing(const Options& options);

// One completion of any format, good or bad. Fields that the format lacks are zero.
struct Completion {
  void* context = nullptr;
  uint64_t flags = 0;
  size_t len = 0;
  void* buf = nullptr;
  uint64_t data = 0;
  uint64_t tag = 0;
  fi_addr_t src = FI_ADDR_NOTAVAIL;
  int err = 0;  // positive FI_E*, 0 for success, -1 when none came in time
  int prov_errno = 0;
  size_t olen = 0;
  std::vector<uint8_t> err_data;
  std::string text;

  bool ok() const { return err == 0; }
};

// That a message was longer than its buffer by so many bytes. fi_cq(3) says how it is told as an error; fi_domain(3), Rx Buffer Overrun: a
// provider may report success instead.
void expect_truncated(const Completion& c, size_t left_over);

// A completion queue and what was read from it but not asked for yet.
class Cq {
 public:
  Cq(fid_domain* domain, const fi_cq_attr& attr, bool with_source);

  fid_cq* get() const { return fid_.get(); }
  struct fid* fid() const {
    return fid_.fid();
  }
  int close() { return fid_.close(); }
  int open_error() const { return open_error_; }
  fi_cq_format format() const { return format_; }
  // Reads what there is, successes and errors, into the inbox. Returns how many came.
  size_t poll();
  // Reads at most one batch by the blocking call; negative errno as fi_cq_sread gives it.
  ssize_t sread(size_t count, int timeout_ms);

  std::deque<Completion> inbox;

 private:
  void take(const void* raw, size_t count, const fi_addr_t* sources);
  bool take_error();

  Handle<fid_cq> fid_;
  fi_cq_format format_ = FI_CQ_FORMAT_UNSPEC;
  bool with_source_ = false;
  int open_error_ = 0;
};

// A registered region as a peer sees it: its key and its addresses (virtual, or counted from 0; fi_mr(3), FI_MR_VIRT_ADDR).
class Region {
 public:
  Region() = default;
  Region(fid_mr* mr, const void* base, bool virtual_addresses)
      : mr_(mr), base_(virtual_addresses ? reinterpret_cast<uint64_t>(base) : 0) {}

  uint64_t key() const { return fi_mr_key(mr_.get()); }
  void* desc() const { return fi_mr_desc(mr_.get()); }
  uint64_t at(uint64_t offset = 0) const { return base_ + offset; }
  Handle<fid_mr>& handle() { return mr_; }
  explicit operator bool() const { return static_cast<bool>(mr_); }

 private:
  Handle<fid_mr> mr_;
  uint64_t base_ = 0;
};

// An endpoint with all that it needs.
struct Node {
  fid_domain* domain = nullptr;
  Handle<fid_av> av;  // none for connected endpoints
  Handle<fid_eq> eq;  // connected endpoints only
  Cq* tx = nullptr;
  Cq* rx = nullptr;
  std::map<uint64_t, Handle<fid_cntr>> counters;  // closed after the endpoint
  Handle<fid_ep> ep;
  std::vector<uint8_t> name;    // fi_getname
  std::vector<fi_addr_t> peer;  // peer[i] is endpoint i, itself included

  fid_cntr* counter(uint64_t flags) const { return counters.at(flags).get(); }
  operator fid_ep*() const { return ep.get(); }
};

// Called when a completion has not come, which failed the case already: its operations still have the buffers that the rest of the case would free.
// Null: the case goes on.
extern void (*case_is_lost)();

class World {
 public:
  explicit World(const Options& options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  bool usable() const { return usable_; }
  Node& operator[](size_t index) { return *nodes_[index]; }
  fi_info* info() const { return info_.get(); }
  fid_fabric* fabric() const { return fabric_.get(); }
  fid_domain* domain(size_t index = 0) const { return domains_[index].get(); }
  const Options& options() const { return options_; }
  bool virtual_addresses() const;

  // Opens another endpoint with its CQs and AV, in domain `domain_index`, at the address `name` if there is one. Null when
  // something failed (already reported).
  Node* add_node(size_t domain_index = 0, const std::vector<uint8_t>* name = nullptr);
  // Inserts every address into every AV.
  void connect_all();
  // A queue that progress() polls; owned by the World.
  Cq* add_cq(fid_domain* domain, fi_cq_attr attr);
  // Closes endpoint `index` now; its queues stay.
  int close_endpoint(size_t index) { return nodes_[index]->ep.close(); }

  Region reg(size_t node, const void* buf, size_t len, uint64_t access, uint64_t flags = 0);

  // Polls every queue once. Returns how many completions came.
  size_t progress();
  // Progress until `done` is true or the time is over; whether it became true.
  bool progress_until(const std::function<bool()>& done, milliseconds limit = timeout_default);
  void progress_for(milliseconds time);

  // The next completion of `cq`, whatever it is. A failed expectation (and err -1) when none comes in time.
  Completion next(Cq* cq, milliseconds limit = timeout_default);
  // The completion of one operation, whatever came before it.
  Completion wait(Cq* cq, const Ctx& context, milliseconds limit = timeout_default);
  // The same, and it must be a success.
  Completion done(Cq* cq, const Ctx& context);
  // Nothing arrives on `cq` during quiet_time.
  bool quiet(Cq* cq);

  // Calls `post` until it returns something else than -FI_EAGAIN, with progress between the calls; fi_msg(3), ERRORS.
  template <class F>
  ssize_t post(F&& call) {
    ssize_t rc = call();
    if (rc != -FI_EAGAIN) return rc;
    const auto end = std::chrono::steady_clock::now() + limit(timeout_default);
    while ((rc = call()) == -FI_EAGAIN && std::chrono::steady_clock::now() < end) progress();
    return rc;
  }

 private:
  bool open();
  bool open_domain();
  bool open_connected();
  milliseconds limit(milliseconds asked) const;

  Options options_;
  Info info_;
  Info request_;  // connected endpoints: of the passive side
  Handle<fid_fabric> fabric_;
  std::vector<Handle<fid_domain>> domains_;
  std::vector<std::unique_ptr<Cq>> cqs_;
  std::vector<std::unique_ptr<Node>> nodes_;
  uint64_t next_key_ = 0x5eed;
  bool usable_ = false;
  bool timed_out_ = false;  // after one failed wait the others are short
};

// Bytes that depend on a seed and on the place, so that a shifted or stale block shows.
void fill(void* buf, size_t len, uint32_t seed);
// Where the bytes first differ from fill(); len when nowhere.
size_t first_difference(const void* buf, size_t len, uint32_t seed);
std::vector<uint8_t> pattern(size_t len, uint32_t seed);

testing::AssertionResult is_pattern(const char* buf_text, const char* len_text, const char* seed_text,
                                    const void* buf, size_t len, uint32_t seed);
#define WEFT_EXPECT_PATTERN(buf, len, seed)                                                \
  EXPECT_PRED_FORMAT3(weft::conformance::is_pattern, static_cast<const void*>(buf), (len), \
                      static_cast<uint32_t>(seed))

// The sizes that every transfer is tried with: around the limits of slots, inject and rendezvous.
const std::vector<size_t>& sizes();

}  // namespace weft::conformance
