// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// pthreads(7): close(2) and recvmsg(2) on a short-lived thread. An asynchronous cancellation ends a sleep of theirs, as any signal does.
#include "os/disposal.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>

#include <atomic>
#include <new>

#include "base/assert.hpp"
#include "os/clock.hpp"

namespace weft::os {
namespace {

constexpr uint64_t interrupt_after_ns = 20'000'000;  // then the thread is interrupted
constexpr uint64_t stuck_after_ns = 1'000'000'000;   // then it is left behind
constexpr uint64_t finish_timeout_ns = 200'000'000;
constexpr uint32_t stuck_max = 4;
constexpr size_t stack_bytes = size_t{256} << 10;

}  // namespace

namespace {

// A thread that is left behind returns into this library some day: from now on dlclose(3) does not unload it.
void stay_loaded() noexcept {
  static const char here = 0;
  Dl_info library{};
  if (::dladdr(&here, &library) != 0 && library.dli_fname != nullptr)
    (void)::dlopen(library.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

}  // namespace

struct Disposal::Job {
  pthread_t thread{};
  std::atomic<bool> begun{false};
  int socket = -1;
  size_t count = 0;
  std::array<int, fds_max> fds{};
  Job* older = nullptr;  // in the list of those that were left behind

  static void* run(void* argument) {
    auto& job = *static_cast<Job*>(argument);
    job.begun.store(true, std::memory_order_release);
    // From here on a cancellation ends the thread in the middle of a system call. The descriptor is free by then, and the datagram is off
    // the queue; what sleeps is the end of what they meant.
    int old = 0;
    (void)::pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    if (job.socket >= 0) {
      msghdr nothing{};
      (void)::recvmsg(job.socket, &nothing, MSG_DONTWAIT);
    }
    while (job.count > 0) {
      const int fd = job.fds[job.count - 1];
      --job.count;
      ::close(fd);
    }
    return nullptr;
  }
};

// What a thread that is left behind still uses is never freed. A process has few such threads.
void Disposal::leave_behind() noexcept {
  WEFT_ASSERT(job_ != nullptr);
  static std::atomic<Job*> newest{nullptr};
  stay_loaded();
  (void)::pthread_detach(job_->thread);
  job_->older = newest.load(std::memory_order_relaxed);
  while (!newest.compare_exchange_weak(job_->older, job_, std::memory_order_acq_rel)) {
  }
  job_ = nullptr;
}

void Disposal::close(Fd fd) noexcept {
  if (!fd) return;
  if (waiting_count_ == waiting_.size()) return;  // cannot be: one datagram carries fewer, and fd closes here
  waiting_[waiting_count_++] = fd.release();
}

void Disposal::drop_datagram(const Fd& socket) noexcept {
  WEFT_ASSERT(job_ == nullptr);
  socket_ = socket.get();
  start();
}

bool Disposal::busy() noexcept {
  if (job_ != nullptr) {
    if (::pthread_tryjoin_np(job_->thread, nullptr) == 0) {
      // Interrupted at one descriptor, it has not come to those after it.
      WEFT_ASSERT(waiting_count_ + job_->count <= waiting_.size());
      for (size_t i = 0; i < job_->count; ++i) waiting_[waiting_count_++] = job_->fds[i];
      delete job_;
      job_ = nullptr;
    } else {
      const uint64_t took_ns = monotonic_ns() - started_ns_;
      if (took_ns > interrupt_after_ns && !interrupted_ && job_->begun.load(std::memory_order_acquire)) {
        interrupted_ = true;
        (void)::pthread_cancel(job_->thread);
      }
      if (took_ns > stuck_after_ns && interrupted_ && stuck_ < stuck_max) {
        leave_behind();
        ++stuck_;
      }
    }
  }
  if (job_ == nullptr && waiting_count_ != 0) start();
  return job_ != nullptr || waiting_count_ != 0;
}

uint64_t Disposal::age_ns() const noexcept { return job_ != nullptr ? monotonic_ns() - started_ns_ : 0; }

void Disposal::start() noexcept {
  WEFT_ASSERT(job_ == nullptr);
  auto* job = new (std::nothrow) Job;
  if (job == nullptr) return;
  job->fds = waiting_;
  job->count = waiting_count_;
  if (const int socket = std::exchange(socket_, -1); socket >= 0) {
    // A descriptor of its own: the thread may run when the owner has closed his and the number is another file's.
    job->socket = ::fcntl(socket, F_DUPFD_CLOEXEC, 0);
    WEFT_ASSERT(job->count < job->fds.size());
    if (job->socket >= 0) job->fds[job->count++] = job->socket;
  }
  pthread_attr_t attributes;
  bool started = false;
  if (::pthread_attr_init(&attributes) == 0) {
    (void)::pthread_attr_setstacksize(&attributes, stack_bytes);
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);  // the program's signals are not this thread's
    (void)::pthread_sigmask(SIG_SETMASK, &all, &before);
    started = ::pthread_create(&job->thread, &attributes, &Job::run, job) == 0;
    (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    (void)::pthread_attr_destroy(&attributes);
  }
  if (!started) {
    delete job;
    return;
  }
  waiting_count_ = 0;
  job_ = job;
  interrupted_ = false;
  started_ns_ = monotonic_ns();
}

void Disposal::finish() noexcept {
  const uint64_t until = monotonic_ns() + finish_timeout_ns;
  while (busy() && monotonic_ns() < until) {
    const timespec pause{0, 100'000};
    (void)::nanosleep(&pause, nullptr);
  }
  if (job_ != nullptr) leave_behind();
  forget();
}

void Disposal::forget() noexcept {
  job_ = nullptr;
  waiting_count_ = 0;
}

}  // namespace weft::os
