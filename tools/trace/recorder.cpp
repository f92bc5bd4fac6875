// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Files of a traced process: made with the first record of a thread, filled through a shared mapping, so that what a
// process did is there even when it is killed. Every failure ends the recording of this thread, never the program.
#include "trace/recorder.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace weft::trace {

thread_local Ring ring __attribute__((tls_model("initial-exec")));

namespace {

// Threads of one process that get a ring; the others are not traced, which is said once.
constexpr uint32_t threads_most = 1024;

Clock pick_clock() noexcept {
#if defined(__x86_64__)
  // Invariant TSC (Intel SDM vol. 3, "Time-Stamp Counter"; CPUID.80000007H:EDX[8]).
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid(0x80000007U, &a, &b, &c, &d) != 0 && (d & (1U << 8U)) != 0) return Clock::ticks;
#endif
  return Clock::nanoseconds;
}

std::atomic<uint32_t> objects{0};
std::atomic<uint32_t> rings{0};
std::atomic<int> text{-1};
std::atomic<bool> complained{false};
thread_local bool refused __attribute__((tls_model("initial-exec"))) = false;  // no second try in this thread

void complain(const char* what) noexcept {
  if (complained.exchange(true)) return;
  char line[256];
  const int length = std::snprintf(line, sizeof line, "weft trace: process %d: %s: not all is recorded\n",
                                   static_cast<int>(getpid()), what);
  if (length > 0) {
    const ssize_t ignored = write(STDERR_FILENO, line, static_cast<size_t>(length));
    static_cast<void>(ignored);
  }
}

const uint64_t image = now();

// A new file of this process in the folder; the number makes a second one of the same thread, and after exec.
int new_file(const char* kind, int flags) noexcept {
  const char* folder = std::getenv(folder_variable);
  if (!folder || folder[0] != '/') return -1;
  for (unsigned number = 0; number < threads_most; ++number) {
    char path[4096];
    const int length = std::snprintf(path, sizeof path, "%s/%d-%llx-%ld-%u.%s", folder,
                                     static_cast<int>(getpid()), static_cast<unsigned long long>(image),
                                     static_cast<long>(syscall(SYS_gettid)), number, kind);
    if (length < 0 || static_cast<size_t>(length) >= sizeof path) return -1;
    const int fd = open(path, flags | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

uint64_t wanted_records() noexcept {
  const char* value = std::getenv(records_variable);
  const uint64_t wanted = value ? std::strtoull(value, nullptr, 10) : records_default;
  uint64_t records = 64;
  while (records < wanted && records < records_most) records *= 2;
  return records;
}

void unmap(Ring& old) noexcept {
  if (old.header) munmap(old.header, header_size + (old.mask + 1) * sizeof(Record));
  old = Ring{};
}

// The mapping goes with the thread; a call after that makes another file.
pthread_key_t at_thread_end;
void end_thread(void*) { unmap(ring); }

// A forked child has files of its own. What it inherits is the parent's mapping, of which it gets rid.
void in_child() {
  unmap(ring);
  refused = false;
  rings.store(0);
  const int inherited = text.exchange(-1);
  if (inherited >= 0) close(inherited);
}

const struct Setup {
  Setup() {
    pthread_key_create(&at_thread_end, end_thread);
    pthread_atfork(nullptr, nullptr, in_child);
  }
} setup;

Ring make_ring() noexcept {
  if (rings.fetch_add(1) >= threads_most) {
    complain("too many threads");
    return {};
  }
  const int fd = new_file("ring", O_RDWR);
  if (fd < 0) {
    complain("no file for a thread");
    return {};
  }
  const uint64_t records = wanted_records();
  const size_t size = header_size + records * sizeof(Record);
  void* memory = MAP_FAILED;
  // The room is taken now: a full file system would end the program by SIGBUS later.
  if (posix_fallocate(fd, 0, static_cast<off_t>(size)) == 0) {
    memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  close(fd);
  if (memory == MAP_FAILED) {
    complain("no room for the records of a thread");
    return {};
  }
  auto* header = static_cast<Header*>(memory);
  header->record_size = sizeof(Record);
  header->clock = clock_kind;
  header->capacity = records;
  header->pid = static_cast<uint32_t>(getpid());
  header->tid = static_cast<uint32_t>(syscall(SYS_gettid));
  std::strncpy(header->program, program_invocation_short_name, name_size - 1);
  prctl(PR_GET_NAME, header->thread);
  header->magic = magic;
  return {.records = reinterpret_cast<Record*>(static_cast<std::byte*>(memory) + header_size),
          .mask = records - 1,
          .next = 0,
          .header = header};
}

}  // namespace

const Clock clock_kind = pick_clock();

bool open_ring() noexcept {
  if (refused) return false;
  const int error = errno;
  ring = make_ring();
  refused = !ring.records;
  if (ring.records) pthread_setspecific(at_thread_end, &ring);
  errno = error;
  return !refused;
}

uint32_t new_object() noexcept { return ++objects; }

void say(const char* format, ...) noexcept {
  const int error = errno;
  if (text.load() < 0) {
    int mine = new_file("text", O_WRONLY | O_APPEND);
    int expected = -1;
    if (mine >= 0 && !text.compare_exchange_strong(expected, mine)) close(mine);
  }
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  // One write for a line: lines of several threads do not mix (O_APPEND).
  if (text.load() >= 0 && length > 0 && static_cast<size_t>(length) < sizeof line) {
    if (write(text.load(), line, static_cast<size_t>(length)) != length) complain("no room for names");
  }
  errno = error;
}

void* next_symbol(const char* name, const char* version, const char* library) noexcept {
  if (void* found = dlvsym(RTLD_NEXT, name, version)) return found;
  // A library that was loaded with RTLD_LOCAL, below a plugin of the program, is in no scope of ours.
  void* loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (!loaded) return nullptr;
  void* found = dlvsym(loaded, name, version);
  dlclose(loaded);  // who asked holds it
  return found;
}

}  // namespace weft::trace
