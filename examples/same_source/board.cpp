// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Processes that write, read and count in one process's memory: RMA, atomics and counters, in C++ against the standard headers only. The
// same source is built against a libfabric, against the multiplexer and directly against a provider; see README.md here.
//
// usage: board [PROVIDER]      (default shm)
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

namespace {

constexpr int writers = 3;
constexpr int rounds = 200;

// What the owner shows: a line for each writer and one number that all count up.
struct Board {
  std::array<uint64_t, writers> lines;
  uint64_t count;
};

struct Invitation {
  std::array<char, 64> address;
  uint64_t base;
  uint64_t key;
};

void check(const char* what, long status) {
  if (status < 0) throw std::runtime_error(std::string(what) + ": " + fi_strerror(static_cast<int>(-status)));
}

class Fabric {
 public:
  explicit Fabric(const char* provider) {
    fi_info* hints = fi_allocinfo();
    if (hints == nullptr) throw std::bad_alloc();
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_MSG | FI_RMA | FI_ATOMIC;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL;
    hints->fabric_attr->prov_name = strdup(provider);
    const int found = fi_getinfo(FI_VERSION(1, 9), nullptr, nullptr, 0, hints, &info_);
    fi_freeinfo(hints);
    check("fi_getinfo", found);
    check("fi_fabric", fi_fabric(info_->fabric_attr, &fabric_, nullptr));
    check("fi_domain", fi_domain(fabric_, info_, &domain_, nullptr));
    fi_av_attr av{};
    av.type = FI_AV_MAP;
    check("fi_av_open", fi_av_open(domain_, &av, &av_, nullptr));
    fi_cq_attr cq{};
    cq.format = FI_CQ_FORMAT_CONTEXT;
    check("fi_cq_open", fi_cq_open(domain_, &cq, &cq_, nullptr));
    fi_cntr_attr cntr{};
    check("fi_cntr_open", fi_cntr_open(domain_, &cntr, &done_, nullptr));
    check("fi_endpoint", fi_endpoint(domain_, info_, &ep_, nullptr));
    check("fi_ep_bind", fi_ep_bind(ep_, &av_->fid, 0));
    check("fi_ep_bind", fi_ep_bind(ep_, &cq_->fid, FI_TRANSMIT | FI_RECV));
    check("fi_ep_bind", fi_ep_bind(ep_, &done_->fid, FI_READ | FI_WRITE));
    check("fi_enable", fi_enable(ep_));
  }
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  ~Fabric() {
    fi_close(&ep_->fid);
    fi_close(&done_->fid);
    fi_close(&cq_->fid);
    fi_close(&av_->fid);
    fi_close(&domain_->fid);
    fi_close(&fabric_->fid);
    fi_freeinfo(info_);
  }

  Invitation invite(Board& board, fid_mr*& region) {
    check("fi_mr_reg", fi_mr_reg(domain_, &board, sizeof board, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0,
                                 &region, nullptr));
    Invitation made{};
    size_t length = made.address.size();
    check("fi_getname", fi_getname(&ep_->fid, made.address.data(), &length));
    const bool by_address = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    made.base = by_address ? reinterpret_cast<uintptr_t>(&board) : 0;
    made.key = fi_mr_key(region);
    return made;
  }
  void progress() { (void)fi_cq_read(cq_, nullptr, 0); }

  // A writer's work: its line takes every number up to `rounds`, and each time all count one more.
  void work(const Invitation& board, int line) {
    fi_addr_t owner = FI_ADDR_UNSPEC;
    if (fi_av_insert(av_, board.address.data(), 1, &owner, 0, nullptr) != 1)
      check("fi_av_insert", -FI_EINVAL);
    std::array<uint64_t, 2> mine{};
    fid_mr* local = nullptr;
    check("fi_mr_reg", fi_mr_reg(domain_, mine.data(), sizeof mine, FI_READ | FI_WRITE, 0,
                                 1 + static_cast<uint64_t>(line), 0, &local, nullptr));
    void* desc = fi_mr_desc(local);
    const uint64_t place = board.base + static_cast<uint64_t>(line) * sizeof(uint64_t);
    for (uint64_t round = 1; round <= rounds; ++round) {
      mine = {round, 0};
      finish("fi_write",
             [&] { return fi_write(ep_, mine.data(), 8, desc, owner, place, board.key, nullptr); });
      finish("fi_read", [&] { return fi_read(ep_, &mine[1], 8, desc, owner, place, board.key, nullptr); });
      if (mine[1] != round) throw std::runtime_error("what was written is not what is read");
      mine[0] = 1;
      finish("fi_atomic", [&] {
        return fi_atomic(ep_, mine.data(), 1, desc, owner, board.base + offsetof(Board, count), board.key,
                         FI_UINT64, FI_SUM, nullptr);
      });
    }
    fi_close(&local->fid);
  }

 private:
  template <class Post>
  void finish(const char* what, Post post) {
    ssize_t status = 0;
    while ((status = post()) == -FI_EAGAIN) progress();
    check(what, static_cast<long>(status));
    ++posted_;
    while (fi_cntr_read(done_) < posted_ && fi_cntr_readerr(done_) == 0) {
      fi_cq_entry entry{};
      const ssize_t got = fi_cq_read(cq_, &entry, 1);
      if (got != -FI_EAGAIN) check(what, static_cast<long>(got));
    }
    if (fi_cntr_readerr(done_) != 0) check(what, -FI_EIO);
  }

  fi_info* info_ = nullptr;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_av* av_ = nullptr;
  fid_cq* cq_ = nullptr;
  fid_cntr* done_ = nullptr;
  fid_ep* ep_ = nullptr;
  uint64_t posted_ = 0;
};

int write_on_board(const char* provider, int pipe, int line) {
  Invitation board{};
  if (read(pipe, &board, sizeof board) != sizeof board) return 1;
  Fabric(provider).work(board, line);
  return 0;
}

int own_board(const char* provider, int pipe) {
  Board board{};
  Fabric fabric(provider);
  fid_mr* region = nullptr;
  const Invitation invitation = fabric.invite(board, region);
  for (int i = 0; i < writers; ++i)
    if (write(pipe, &invitation, sizeof invitation) != sizeof invitation) return 1;
  int failed = 0;
  for (int left = writers; left > 0;) {
    fabric.progress();
    int status = 0;
    if (waitpid(-1, &status, WNOHANG) <= 0) continue;
    --left;
    failed += status != 0 ? 1 : 0;
  }
  fi_close(&region->fid);
  std::printf("%d writers over %s:", writers, provider);
  for (const uint64_t line : board.lines) std::printf(" %llu", static_cast<unsigned long long>(line));
  std::printf(", counted %llu\n", static_cast<unsigned long long>(board.count));
  return failed;
}

}  // namespace

int main(int argc, char** argv) try {
  const char* provider = argc > 1 ? argv[1] : "shm";
  std::array<int, 2> pipes{};
  if (pipe(pipes.data()) != 0) check("pipe", -FI_EMFILE);
  for (int line = 0; line < writers; ++line)
    if (fork() == 0) {
      close(pipes[1]);  // else nobody hears that the owner has gone
      return write_on_board(provider, pipes[0], line);
    }
  return own_board(provider, pipes[1]);
} catch (const std::exception& error) {
  std::fprintf(stderr, "board: %s\n", error.what());
  return 1;
}
