// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// /proc/PID/fd, and a mapping of what lies behind.
#include "statistics_pages.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "failure.hpp"

namespace weft::tool {

namespace {

class File {
 public:
  explicit File(int fd) noexcept : fd_(fd) {}
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&&) = delete;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_;
};

using Folder = std::unique_ptr<DIR, decltype([](DIR* folder) { closedir(folder); })>;

std::optional<int> number_of(std::string_view text) noexcept {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value <= 0) return {};
  return value;
}

// The device that all memory files of this machine are on.
dev_t memory_device() noexcept {
  const File ours(memfd_create("weft-look", MFD_CLOEXEC));
  struct stat status {};
  return ours && fstat(ours.get(), &status) == 0 ? status.st_dev : 0;
}

// The number that the process has in its own pid namespace. 0: it cannot be told.
int own_number(const File& process) {
  const int fd = openat(process.get(), "status", O_RDONLY | O_CLOEXEC);
  const std::unique_ptr<FILE, decltype([](FILE* file) { fclose(file); })> status(fd < 0 ? nullptr
                                                                                        : fdopen(fd, "r"));
  if (!status) return 0;
  std::array<char, 512> line{};
  while (fgets(line.data(), line.size(), status.get()) != nullptr) {
    std::string_view text(line.data(), strcspn(line.data(), "\n"));
    if (!text.starts_with("NSpid:")) continue;
    return number_of(text.substr(text.find_last_of("\t ") + 1)).value_or(0);
  }
  return 0;
}

// A page that is mapped only as far as it has pages: to read a hole of a memory file would fill it.
std::vector<std::byte> copy_of_file(const File& file) {
  const off_t size = lseek(file.get(), 0, SEEK_END);
  const off_t hole = lseek(file.get(), 0, SEEK_HOLE);
  if (size < static_cast<off_t>(sizeof(statistics::Header)) ||
      size > static_cast<off_t>(statistics::page_bytes_max) || hole <= 0)
    return {};
  const auto bytes = static_cast<size_t>(std::min(size, hole));
  void* at = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) return {};
  auto copy = statistics::copy_of(static_cast<const std::byte*>(at), bytes);
  munmap(at, bytes);
  return copy;
}

// Opens a descriptor of another process anew, if it is a memory file of this user that cannot become shorter: a load
// from its mapping does not fault. O_PATH opens nothing; only then is it known that the open does not wait.
File open_page(const File& fds, const char* name, dev_t memory) noexcept {
  std::array<char, 64> link{};
  const ssize_t length = readlinkat(fds.get(), name, link.data(), link.size());
  if (length < 0 || std::string_view(link.data(), static_cast<size_t>(length)) != statistics::link_text)
    return File(-1);
  const File place(openat(fds.get(), name, O_PATH | O_CLOEXEC));
  struct stat status {};
  if (!place || fstat(place.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid() ||
      status.st_dev != memory)
    return File(-1);
  File file(
      open(("/proc/self/fd/" + std::to_string(place.get())).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const int seals = file ? fcntl(file.get(), F_GET_SEALS) : -1;
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 ? std::move(file) : File(-1);
}

// What one look takes at most, whatever processes put there: some 25 MB of JSON.
constexpr size_t pages_of_process_max = 8;
constexpr size_t objects_of_process_max = 4'096;
constexpr size_t pages_max = 4'096;
constexpr size_t objects_max = 16'384;

// Leaves the first `most` objects of a page, and counts the others as not shown.
void shorten(statistics::Process& page, size_t most) {
  if (page.objects.size() <= most) return;
  page.unlisted += page.objects.size() - most;
  page.objects.resize(most);
}

// `objects_left`: of all processes together.
void read_process(int pid, dev_t memory, size_t& objects_left, std::vector<statistics::Process>& out) {
  const File process(open(("/proc/" + std::to_string(pid)).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (!process || fstat(process.get(), &status) != 0 || status.st_uid != geteuid()) return;
  const int fd = openat(process.get(), "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const Folder folder(fd < 0 ? nullptr : fdopendir(fd));
  if (!folder) return;
  const File fds(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  // A process has one page for each library of ours in it, and may have inherited others; of files that only have the
  // name it may have as many as descriptors.
  size_t looks_left = pages_of_process_max;
  size_t objects_here = objects_of_process_max;
  while (const dirent* entry = readdir(folder.get())) {
    const File page = open_page(fds, entry->d_name, memory);
    if (!page) continue;
    if (looks_left-- == 0 || out.size() >= pages_max) return;
    auto read = statistics::parse(copy_of_file(page));
    // A page that somebody inherited is another's.
    if (!read || read->pid != own_number(process)) continue;
    read->pid = pid;
    shorten(*read, std::min(objects_here, objects_left));
    objects_here -= read->objects.size();
    objects_left -= read->objects.size();
    out.push_back(std::move(*read));
  }
}

}  // namespace

std::vector<statistics::Process> read_statistics_pages(const std::set<int>& pids) {
  if (access("/proc/self/fd", X_OK) != 0)
    fail("/proc is not mounted here ({}): the pages of processes are found in /proc/PID/fd",
         std::strerror(errno));
  std::vector<statistics::Process> all;
  const dev_t memory = memory_device();
  if (memory == 0)
    fail("no memory file can be made (memfd_create: {}), so pages cannot be told from other files",
         std::strerror(errno));
  size_t objects_left = objects_max;
  if (!pids.empty()) {
    for (const int pid : pids) read_process(pid, memory, objects_left, all);
    return all;
  }
  const Folder processes(opendir("/proc"));
  if (!processes) fail("/proc cannot be read: {}", std::strerror(errno));
  while (const dirent* entry = readdir(processes.get()))
    if (const auto pid = number_of(entry->d_name)) read_process(*pid, memory, objects_left, all);
  std::ranges::stable_sort(all, {}, &statistics::Process::pid);
  return all;
}

}  // namespace weft::tool
