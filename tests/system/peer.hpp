// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the system tests share: one endpoint of a process over the public libfabric interface, data that can be verified, a control
// block that forked processes share, and a check that nothing is left behind. Knows nothing of the library that it runs on.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <dirent.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/libfabric_retired.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace weft::system_test {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

inline long ms_since(Clock::time_point start) {
  return static_cast<long>(std::chrono::duration_cast<milliseconds>(Clock::now() - start).count());
}

// --name value pairs of the command line.
class Arguments {
 public:
  Arguments(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      if (std::strncmp(argv[i], "--", 2) != 0) continue;
      const bool has_value = i + 1 < argc && std::strncmp(argv[i + 1], "--", 2) != 0;
      values_[argv[i] + 2] = has_value ? argv[i + 1] : "1";
    }
  }
  std::string text(const std::string& name, const std::string& otherwise) const {
    const auto at = values_.find(name);
    return at == values_.end() ? otherwise : at->second;
  }
  uint64_t number(const std::string& name, uint64_t otherwise) const {
    const auto at = values_.find(name);
    return at == values_.end() ? otherwise : std::strtoull(at->second.c_str(), nullptr, 0);
  }
  std::string provider() const {
    const char* by_environment = std::getenv("WEFT_TEST_PROVIDER");
    std::string name =
        text("provider", by_environment != nullptr && *by_environment != '\0' ? by_environment : "shm");
    std::replace(name.begin(), name.end(), '+', ';');  // lists of CMake cannot hold a semicolon
    return name;
  }

 private:
  std::map<std::string, std::string> values_;
};

// ------------------------------------------------------------------------------------------------------------------ data

inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

inline void fill(void* buf, size_t len, uint64_t seed) {
  auto* out = static_cast<uint8_t*>(buf);
  for (size_t at = 0; at < len; at += 8) {
    const uint64_t word = mix(seed ^ (at << 20));
    std::memcpy(out + at, &word, std::min<size_t>(8, len - at));
  }
}

// Where the bytes first differ from fill(); len when nowhere.
inline size_t first_difference(const void* buf, size_t len, uint64_t seed) {
  const auto* in = static_cast<const uint8_t*>(buf);
  for (size_t at = 0; at < len; at += 8) {
    const uint64_t word = mix(seed ^ (at << 20));
    if (std::memcmp(in + at, &word, std::min<size_t>(8, len - at)) != 0) return at;
  }
  return len;
}

// ------------------------------------------------------------------------------------------------------------- processes

// Memory that processes forked later share; it has no name anywhere.
template <class T>
T* shared_block() {
  void* at = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    std::perror("mmap");
    std::exit(1);
  }
  return new (at) T();
}

// A child that runs `body` and exits with its value. It dies with its parent.
inline pid_t spawn(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int rc = body();
  std::fflush(nullptr);
  _exit(rc);
}

// Waits for a child, bounded. 0..255 its exit status, 256 + signal when killed, -1 when it did not end (it is killed then).
inline int join(pid_t pid, milliseconds limit) {
  const auto start = Clock::now();
  int status = 0;
  while (true) {
    const pid_t got = waitpid(pid, &status, WNOHANG);
    if (got == pid) break;
    if (ms_since(start) > limit.count()) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      return -1;
    }
    usleep(1000);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

template <class F>
bool eventually(F&& done, milliseconds limit = milliseconds(20'000)) {
  const auto start = Clock::now();
  for (unsigned i = 0; !done(); ++i) {
    if (i % 64 == 63) {
      if (ms_since(start) > limit.count()) return false;
      sched_yield();
    }
  }
  return true;
}

// An endpoint's name as it travels through a control block.
struct Name {
  std::atomic<uint32_t> len{0};  // stored last
  uint8_t bytes[256] = {};
};

// -------------------------------------------------------------------------------------------------------------- endpoint

struct Done {
  void* context;
  int err;  // positive FI_E*, 0 for success
  size_t len;
  uint64_t tag;
  std::string text;
};

class Peer {
 public:
  // Opens everything; on failure says why and leaves ok() false. Node and service are the own address, if it matters.
  Peer(const std::string& provider, uint64_t caps, fi_threading threading = FI_THREAD_DOMAIN,
       const char* node = nullptr, const char* service = nullptr, uint64_t op_flags = FI_DELIVERY_COMPLETE,
       fi_progress progress = FI_PROGRESS_UNSPEC, fi_wait_obj wait = FI_WAIT_NONE, bool counts = false) {
    fi_info* hints = fi_allocinfo();
    hints->caps = caps;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = threading;
    hints->domain_attr->data_progress = progress;
    hints->tx_attr->op_flags = op_flags;
    hints->tx_attr->msg_order = FI_ORDER_SAS;
    hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->fabric_attr->prov_name = strdup(provider.c_str());
    const bool placed = node != nullptr || service != nullptr;
    int rc = fi_getinfo(FI_VERSION(1, 17), node, service, placed ? FI_SOURCE : 0, hints, &info_);
    fi_freeinfo(hints);
    if (!good("fi_getinfo", rc)) return;
    if (!good("fi_fabric", fi_fabric(info_->fabric_attr, &fabric_, nullptr))) return;
    if (!good("fi_domain", fi_domain(fabric_, info_, &domain_, nullptr))) return;
    fi_av_attr av_attr{};
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_TAGGED;
    cq_attr.wait_obj = wait;
    if (!good("fi_av_open", fi_av_open(domain_, &av_attr, &av_, nullptr))) return;
    if (!good("fi_cq_open", fi_cq_open(domain_, &cq_attr, &cq_, nullptr))) return;
    if (!good("fi_endpoint", fi_endpoint(domain_, info_, &ep_, nullptr))) return;
    if (!good("fi_ep_bind", fi_ep_bind(ep_, &av_->fid, 0))) return;
    if (!good("fi_ep_bind", fi_ep_bind(ep_, &cq_->fid, FI_TRANSMIT | FI_RECV))) return;
    if (counts) {
      fi_cntr_attr cntr_attr{};
      cntr_attr.events = FI_CNTR_EVENTS_COMP;
      if (!good("fi_cntr_open", fi_cntr_open(domain_, &cntr_attr, &sends_, nullptr))) return;
      if (!good("fi_ep_bind", fi_ep_bind(ep_, &sends_->fid, FI_SEND))) return;
    }
    if (!good("fi_enable", fi_enable(ep_))) return;
    name_.resize(256);
    size_t len = name_.size();
    if (!good("fi_getname", fi_getname(&ep_->fid, name_.data(), &len))) return;
    name_.resize(len);
    ok_ = true;
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer() { close(); }

  // Until then a progress thread may write to the buffers of pending operations and to exposed memory: they must live longer. A
  // Peer stands after its buffers, or a ClosesFirst does.
  void close() {
    for (auto& region : regions_) fi_close(&region->fid);
    regions_.clear();
    close(ep_);
    close(sends_);
    close(cq_);
    close(av_);
    close(domain_);
    close(fabric_);
    if (info_ != nullptr) fi_freeinfo(std::exchange(info_, nullptr));
    ok_ = false;
  }

  // The endpoint was closed by the caller.
  void forget_ep() { ep_ = nullptr; }

  bool ok() const { return ok_; }
  fid_ep* ep() const { return ep_; }
  fid_cq* cq() const { return cq_; }
  fid_cntr* sends() const { return sends_; }  // with `counts`
  fid_av* av() const { return av_; }
  fid_domain* domain() const { return domain_; }
  fid_fabric* fabric() const { return fabric_; }
  fi_info* info() const { return info_; }

  void publish(Name& name) const {
    std::memcpy(name.bytes, name_.data(), name_.size());
    name.len.store(static_cast<uint32_t>(name_.size()), std::memory_order_release);
  }

  // The address of a published name; waits for it, bounded.
  fi_addr_t reach(const Name& name) {
    if (!eventually([&] {
          if (name.len.load(std::memory_order_acquire) != 0) return true;
          poll([](const Done&) {});
          return false;
        })) {
      return FI_ADDR_NOTAVAIL;
    }
    return insert(name);
  }
  fi_addr_t insert(const Name& name) {
    fi_addr_t addr = FI_ADDR_NOTAVAIL;
    return fi_av_insert(av_, name.bytes, 1, &addr, 0, nullptr) == 1 ? addr : FI_ADDR_NOTAVAIL;
  }
  void remove(fi_addr_t addr) { fi_av_remove(av_, &addr, 1, 0); }
  const std::vector<uint8_t>& name() const { return name_; }

  struct Region {
    uint64_t addr;
    uint64_t key;
  };
  // Registers for reading and writing by others; key 0 and address 0 when it failed.
  Region expose(void* memory, size_t len) {
    fid_mr* mr = nullptr;
    static uint64_t key = 1;
    if (!good("fi_mr_reg",
              fi_mr_reg(domain_, memory, len, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, key++, 0, &mr, nullptr)))
      return {0, 0};
    regions_.push_back(mr);
    const bool virtual_addresses = (info_->domain_attr->mr_mode & (FI_MR_VIRT_ADDR | retired::mr_basic)) != 0;
    return {virtual_addresses ? reinterpret_cast<uint64_t>(memory) : 0, fi_mr_key(mr)};
  }

  // Reads what is there and hands each completion to `take`. Returns how many.
  template <class F>
  int poll(F&& take) {
    fi_cq_tagged_entry entries[16];
    const ssize_t n = fi_cq_read(cq_, entries, 16);
    if (n == -FI_EAVAIL) {
      fi_cq_err_entry error{};
      if (fi_cq_readerr(cq_, &error, 0) != 1) return 0;
      char text[128] = {};
      const char* said = fi_cq_strerror(cq_, error.prov_errno, error.err_data, text, sizeof text);
      // Providers differ in the sign of err; the number is what counts.
      take(Done{error.op_context, std::abs(error.err), error.len, error.tag, said != nullptr ? said : ""});
      return 1;
    }
    for (ssize_t i = 0; i < n; ++i) take(Done{entries[i].op_context, 0, entries[i].len, entries[i].tag, {}});
    return n > 0 ? static_cast<int>(n) : 0;
  }

  // Posts with retry while it is refused with -FI_EAGAIN, bounded; completions that come meanwhile go to `take`.
  template <class Call, class Take>
  ssize_t post(Call&& call, Take&& take, milliseconds limit = milliseconds(20'000)) {
    ssize_t rc = -FI_EAGAIN;
    eventually(
        [&] {
          rc = call();
          if (rc == -FI_EAGAIN) poll(take);
          return rc != -FI_EAGAIN;
        },
        limit);
    return rc;
  }

 private:
  bool good(const char* what, int rc) {
    if (rc != 0) std::fprintf(stderr, "%s: %d (%s)\n", what, rc, fi_strerror(-rc));
    return rc == 0;
  }

  template <class Object>
  static void close(Object*& object) {
    if (object != nullptr) fi_close(&std::exchange(object, nullptr)->fid);
  }

  fi_info* info_ = nullptr;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_av* av_ = nullptr;
  fid_cq* cq_ = nullptr;
  fid_cntr* sends_ = nullptr;
  fid_ep* ep_ = nullptr;
  std::vector<fid_mr*> regions_;
  std::vector<uint8_t> name_;
  bool ok_ = false;
};

// Declared after the buffers of a Peer that was opened before them.
class ClosesFirst {
 public:
  explicit ClosesFirst(Peer& peer) : peer_(peer) {}
  ClosesFirst(const ClosesFirst&) = delete;
  ClosesFirst& operator=(const ClosesFirst&) = delete;
  ~ClosesFirst() { peer_.close(); }

 private:
  Peer& peer_;
};

// One operation and what became of it; the context of the call is its own address, so it must not move.
struct Op {
  fi_context2 context{};
  int state = 0;  // 0 pending, 1 done, -1 failed
  int err = 0;
  size_t len = 0;
  uint64_t tag = 0;
  static void take(const Done& done) {
    auto* op = static_cast<Op*>(done.context);
    if (op == nullptr) return;
    op->state = done.err == 0 ? 1 : -1;
    op->err = done.err;
    op->len = done.len;
    op->tag = done.tag;
  }
};

// A verified tagged exchange: sends `len` bytes to `to` and receives as many from it, under one tag, bounded. Says what went wrong.
inline bool exchange(Peer& me, fi_addr_t to, uint64_t tag, size_t len, uint64_t my_seed, uint64_t their_seed,
                     milliseconds limit = milliseconds(20'000)) {
  std::vector<uint8_t> out(len + 1), in(len + 1);
  fill(out.data(), len, my_seed);
  auto send = std::make_unique<Op>(), receive = std::make_unique<Op>();
  ssize_t rc = me.post(
      [&] { return fi_trecv(me.ep(), in.data(), len, nullptr, FI_ADDR_UNSPEC, tag, 0, &receive->context); },
      Op::take, limit);
  if (rc == 0)
    rc = me.post([&] { return fi_tsend(me.ep(), out.data(), len, nullptr, to, tag, &send->context); },
                 Op::take, limit);
  const bool finished = rc == 0 && eventually(
                                       [&] {
                                         me.poll(Op::take);
                                         return send->state != 0 && receive->state != 0;
                                       },
                                       limit);
  if (rc != 0 || !finished || send->state != 1 || receive->state != 1) {
    std::fprintf(stderr, "exchange of %zu bytes, tag %llx: post %zd, send %d (%d), receive %d (%d)\n", len,
                 static_cast<unsigned long long>(tag), rc, send->state, send->err, receive->state,
                 receive->err);
    // The operations may still be pending: their memory must stay.
    (void)send.release();
    (void)receive.release();
    new std::vector<uint8_t>(std::move(in));
    new std::vector<uint8_t>(std::move(out));
    return false;
  }
  if (receive->len != len || first_difference(in.data(), len, their_seed) != len) {
    std::fprintf(stderr, "exchange of %zu bytes, tag %llx: wrong data\n", len,
                 static_cast<unsigned long long>(tag));
    return false;
  }
  return true;
}

// ------------------------------------------------------------------------------------------------------------- leftovers

// Compares /dev/shm, /tmp and System V segments before and after. With enough rights it runs in fresh, empty places of its own, so
// that other programs of the machine cannot disturb it.
class Leftovers {
 public:
  // To be called before anything is opened.
  Leftovers() {
    if (unshare(CLONE_NEWNS | CLONE_NEWIPC) == 0 &&
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0) {
      own_shm_ = mount("tmpfs", "/dev/shm", "tmpfs", 0, nullptr) == 0;
      // Libraries or programs under /tmp must stay in sight.
      const char* path = std::getenv("LD_LIBRARY_PATH");
      char exe[512] = {};
      (void)!readlink("/proc/self/exe", exe, sizeof exe - 1);
      const bool needed =
          (path != nullptr && std::strstr(path, "/tmp") != nullptr) || std::strstr(exe, "/tmp") == exe;
      own_tmp_ = !needed && mount("tmpfs", "/tmp", "tmpfs", 0, nullptr) == 0;
    }
    shm_ = list("/dev/shm");
    tmp_ = list("/tmp");
    segments_ = segments();
  }

  // Prints what is new; whether nothing is.
  bool none() const {
    int found = 0;
    found += compare("/dev/shm", shm_, true);
    found += compare("/tmp", tmp_, own_tmp_);
    if (segments() > segments_) {
      std::fprintf(stderr, "leftover: System V shared memory segments\n");
      ++found;
    }
    return found == 0;
  }

 private:
  static std::set<std::string> list(const char* folder) {
    std::set<std::string> out;
    if (DIR* dir = opendir(folder)) {
      while (const dirent* entry = readdir(dir)) {
        const std::string name = entry->d_name;
        if (name != "." && name != "..") out.insert(name);
      }
      closedir(dir);
    }
    return out;
  }

  static size_t segments() {
    size_t lines = 0;
    if (FILE* file = std::fopen("/proc/sysvipc/shm", "r")) {
      for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) lines += c == '\n';
      std::fclose(file);
    }
    return lines;
  }

  // In a /tmp that others use as well, only names that a fabric would choose count.
  static bool suspicious(const std::string& name) {
    return name.find("weft") != std::string::npos || name.find("fi_") == 0 ||
           name.find("ofi") != std::string::npos;
  }

  int compare(const char* folder, const std::set<std::string>& before, bool all) const {
    int found = 0;
    for (const auto& name : list(folder)) {
      if (before.count(name) != 0 || (!all && !suspicious(name))) continue;
      std::fprintf(stderr, "leftover: %s/%s\n", folder, name.c_str());
      ++found;
    }
    return found;
  }

  bool own_shm_ = false;
  bool own_tmp_ = false;
  std::set<std::string> shm_, tmp_;
  size_t segments_ = 0;
};

}  // namespace weft::system_test
