// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Entries as another process reads them, forks, and pages of strangers.
#include "os/statistics.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>

#include <weft/statistics_text.hpp>

namespace weft::os {
namespace {

using statistics::Object;
using statistics::Process;
using Kind = StatisticsEntry::Kind;
using Value = StatisticsEntry::Value;

// The page of a process, found as a stranger finds it.
std::optional<Process> seen(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  for (const auto& one : std::filesystem::directory_iterator(folder)) {
    std::error_code error;
    if (std::filesystem::read_symlink(one.path(), error) != statistics::link_text) continue;
    const int fd = ::open(one.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    void* at = ::mmap(nullptr, statistics::page_bytes, PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    if (at == MAP_FAILED) continue;
    auto process =
        statistics::parse(statistics::copy_of(static_cast<const std::byte*>(at), statistics::page_bytes));
    ::munmap(at, statistics::page_bytes);
    return process;
  }
  return {};
}

TEST(Statistics, EntriesAreThereWhileTheyAreOpen) {
  EXPECT_FALSE(seen(::getpid()));
  auto device = StatisticsEntry::open(Kind::Device, "weft_lo", "127.0.0.1:4000");
  auto qp = StatisticsEntry::open(Kind::QueuePair, "RC", "", device.id());
  ASSERT_TRUE(device && qp);
  qp.describe("to 127.0.0.1:4001");
  qp.show({{Value::PacketsSent, 7}, {Value::SendQueue, 2}});
  auto process = seen(::getpid());
  ASSERT_TRUE(process);
  EXPECT_EQ(process->pid, ::getpid());
  EXPECT_NE(process->opened_ns, 0u);
  ASSERT_EQ(process->objects.size(), 2u);
  EXPECT_EQ(process->objects[0].kind, Kind::Device);
  EXPECT_EQ(process->objects[0].present, 0u);
  const Object& shown = process->objects[1];
  EXPECT_EQ(shown.parent, device.id());
  EXPECT_EQ(shown.name, "RC");
  EXPECT_EQ(shown.detail, "to 127.0.0.1:4001");
  EXPECT_EQ(shown[Value::PacketsSent], 7u);
  EXPECT_TRUE(shown.has(Value::SendQueue));
  EXPECT_FALSE(shown.has(Value::BytesSent));
  device.close();
  process = seen(::getpid());
  ASSERT_TRUE(process);
  EXPECT_EQ(process->objects.size(), 1u);
  qp.close();
  EXPECT_FALSE(seen(::getpid())) << "the page goes with the last entry";
}

TEST(Statistics, NobodyElseWritesToThePage) {
  auto entry = StatisticsEntry::open(Kind::Endpoint, "shm", "");
  for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (std::filesystem::read_symlink(one.path(), error) != statistics::link_text) continue;
    const int fd = ::open(one.path().c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    EXPECT_LT(::pwrite(fd, "x", 1, 0), 0);
    EXPECT_LT(::ftruncate(fd, 0), 0);
    ::close(fd);
  }
}

TEST(Statistics, LongTextsAreCutAndStrangeOnesMadePrintable) {
  auto entry = StatisticsEntry::open(Kind::Endpoint, std::string(300, 'n'), "a\x1b[31m\"b\\");
  const auto process = seen(::getpid());
  ASSERT_TRUE(process);
  EXPECT_EQ(process->objects[0].name, std::string(31, 'n'));
  EXPECT_EQ(process->objects[0].detail, "a?[31m\"b\\");
  const std::string json = statistics::to_json(std::span(&*process, 1), 1);
  EXPECT_NE(json.find(R"("detail": "a?[31m\"b\\")"), std::string::npos);
}

TEST(Statistics, AFullPageCountsWhatItDoesNotShow) {
  std::vector<StatisticsEntry> all;
  for (size_t i = 0; i < statistics::entries; ++i)
    all.push_back(StatisticsEntry::open(Kind::QueuePair, "RC", ""));
  EXPECT_TRUE(all.back());
  auto more = StatisticsEntry::open(Kind::QueuePair, "RC", "");
  EXPECT_FALSE(more);
  more.show({{Value::PacketsSent, 1}});
  EXPECT_EQ(seen(::getpid())->unlisted, 1u);
  all.pop_back();
  EXPECT_TRUE(StatisticsEntry::open(Kind::QueuePair, "RC", ""));
}

TEST(Statistics, AChildNeitherShowsNorChangesWhatIsItsParents) {
  auto entry = StatisticsEntry::open(Kind::Endpoint, "shm", "parent");
  entry.show({{Value::PacketsSent, 1}});
  const pid_t child = ::fork();
  if (child == 0) {
    bool good = !seen(::getpid());
    entry.show({{Value::PacketsSent, 2}});
    entry.describe("child");
    auto own = StatisticsEntry::open(Kind::Endpoint, "tcp", "own");
    const auto mine = seen(::getpid());
    good = good && mine && mine->pid == ::getpid() && mine->objects.size() == 1 &&
           mine->objects[0].name == "tcp";
    entry.close();
    good = good && seen(::getpid()).has_value();
    own.close();
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  const auto process = seen(::getpid());
  ASSERT_TRUE(process);
  EXPECT_EQ(process->objects[0].detail, "parent");
  EXPECT_EQ(process->objects[0][Value::PacketsSent], 1u);
}

TEST(Statistics, ANewEntryHasNothingOfTheOneBeforeIt) {
  auto keep = StatisticsEntry::open(Kind::Endpoint, "shm", "");
  auto entry = StatisticsEntry::open(Kind::Endpoint, "shm", "long text");
  entry.show({{Value::PacketsSent, 1}});
  const uint32_t id = entry.id();
  entry = StatisticsEntry::open(Kind::Endpoint, "tcp", "x");
  EXPECT_NE(entry.id(), id);
  const auto process = seen(::getpid());
  ASSERT_EQ(process->objects.size(), 2u);
  EXPECT_EQ(process->objects.back().detail, "x");
  EXPECT_EQ(process->objects.back().present, 0u);
}

TEST(Statistics, WhatWasShownIsWrittenAtExit) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("weft-stats-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  for (const char* name : {"x.json", "x.json", "y.prom"}) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("WEFT_STATS", (folder / name).c_str(), 1);
      auto closed = StatisticsEntry::open(Kind::Endpoint, "shm", "closed");
      closed.show({{Value::PacketsSent, 41}});
      closed.close();
      static auto open = StatisticsEntry::open(Kind::Endpoint, "tcp", "open");
      open.show({{Value::PacketsReceived, 42}});
      std::exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  const auto text = [&](const std::filesystem::path& name) {
    std::stringstream all;
    all << std::ifstream(folder / name).rdbuf();
    return all.str();
  };
  EXPECT_NE(text("x.json").find("\"detail\": \"closed\", \"packets_sent\": 41}"), std::string::npos)
      << text("x.json");
  EXPECT_NE(text("x.json").find("\"detail\": \"open\", \"packets_received\": 42}"), std::string::npos);
  EXPECT_NE(text("y.prom").find("# TYPE weft_packets_sent_total counter\nweft_packets_sent_total{pid="),
            std::string::npos);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 3)
      << "the second one has a name of its own";
  std::filesystem::remove_all(folder);
}

// --- pages of strangers ---

std::vector<std::byte> sound_page() {
  std::vector<std::byte> page(statistics::header_bytes + 2 * sizeof(statistics::Entry));
  const auto put = [&](size_t at, auto value) { std::memcpy(page.data() + at, &value, sizeof value); };
  put(offsetof(statistics::Header, magic), statistics::magic);
  put(offsetof(statistics::Header, version), statistics::version);
  put(offsetof(statistics::Header, header_bytes), uint32_t{statistics::header_bytes});
  put(offsetof(statistics::Header, entry_bytes), uint32_t{sizeof(statistics::Entry)});
  put(offsetof(statistics::Header, entries), uint32_t{2});
  put(statistics::header_bytes + offsetof(statistics::Entry, kind), uint32_t{1});
  put(statistics::header_bytes + offsetof(statistics::Entry, present), ~uint64_t{0});
  return page;
}

TEST(StatisticsReader, SizesAndCountsAreChecked) {
  ASSERT_TRUE(statistics::parse(sound_page()));
  EXPECT_EQ(statistics::parse(sound_page())->objects.size(), 1u);
  const auto with = [](size_t at, uint32_t value) {
    auto page = sound_page();
    std::memcpy(page.data() + at, &value, sizeof value);
    return statistics::parse(page).has_value();
  };
  for (const uint32_t wrong : {0u, 2u, UINT32_MAX}) {
    EXPECT_FALSE(with(offsetof(statistics::Header, magic), wrong));
    EXPECT_FALSE(with(offsetof(statistics::Header, version), wrong));
  }
  for (const uint32_t wrong : {0u, 63u, 1u << 20, UINT32_MAX})
    EXPECT_FALSE(with(offsetof(statistics::Header, header_bytes), wrong));
  for (const uint32_t wrong : {0u, 63u, uint32_t{sizeof(statistics::Entry)} - 1})
    EXPECT_FALSE(with(offsetof(statistics::Header, entry_bytes), wrong));
  for (const uint32_t many : {3u, 1u << 31, UINT32_MAX})
    EXPECT_TRUE(with(offsetof(statistics::Header, entries), many)) << "as many as there are bytes for";
  const auto page = sound_page();
  for (size_t bytes = 0; bytes < sizeof(statistics::Header); ++bytes)
    EXPECT_FALSE(statistics::parse(std::span(page).first(bytes)));
}

TEST(StatisticsReader, ALaterVersionMayHaveLargerEntriesAndMoreValues) {
  auto page = sound_page();
  const uint32_t each = sizeof(statistics::Entry) + 64;
  page.resize(statistics::header_bytes + 2 * size_t{each});
  std::memcpy(page.data() + offsetof(statistics::Header, entry_bytes), &each, sizeof each);
  const uint32_t unknown_kind = 77;
  std::memcpy(page.data() + statistics::header_bytes + each + offsetof(statistics::Entry, kind),
              &unknown_kind, sizeof unknown_kind);
  const auto process = statistics::parse(page);
  ASSERT_TRUE(process);
  EXPECT_EQ(process->objects.size(), 1u);
}

TEST(StatisticsReader, RandomBytesGiveTextsThatArePrintable) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    auto page = sound_page();
    for (int i = 0; i < 200; ++i) page[random() % page.size()] = static_cast<std::byte>(random());
    const auto process = statistics::parse(page);
    if (!process) continue;
    const std::string json = statistics::to_json(std::span(&*process, 1), 0);
    for (const char c : json) ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~'));
    (void)statistics::to_metrics(std::span(&*process, 1));
  }
}

}  // namespace
}  // namespace weft::os
