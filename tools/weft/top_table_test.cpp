// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Lines of `weft top`, and pages of this process as the command finds them.
#include "top_table.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "statistics_pages.hpp"

namespace weft::tool {
namespace {

using statistics::Kind;
using statistics::Object;
using statistics::Process;
using statistics::Value;

Object object(Kind kind, std::initializer_list<std::pair<Value, uint64_t>> values) {
  Object made;
  made.kind = kind;
  made.id = 1;
  made.name = "RC";
  made.detail = "to 127.0.0.1:4000 by shm";
  for (const auto& [value, number] : values) {
    made.present |= uint64_t{1} << static_cast<uint32_t>(value);
    made.values[static_cast<size_t>(value)] = number;
  }
  return made;
}

TEST(TopTable, NumbersHaveAtMostFiveCharacters) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(999), "999");
  EXPECT_EQ(short_number(1000), "1.00k");
  EXPECT_EQ(short_number(12'345), "12.3k");
  EXPECT_EQ(short_number(999'499), "999k");
  EXPECT_EQ(short_number(999'999), "1.00M");
  for (int i = 0; i < 130; ++i) {
    const double value = std::pow(1.37, i);  // up to 6e17
    EXPECT_LE(short_number(value).size(), 5u) << value;
  }
  EXPECT_EQ(short_number(-1), "?");
}

TEST(TopTable, RatesAreSinceTheLookBefore) {
  TopTable table;
  Process process;
  process.pid = 7;
  process.program = "ib_write_bw";
  process.objects = {object(Kind::QueuePair, {{Value::PacketsSent, 1000},
                                              {Value::Number, 0x1a2b3c},
                                              {Value::State, 3},
                                              {Value::Retransmissions, 5},
                                              {Value::SendQueue, 2},
                                              {Value::ReceiveQueue, 512}})};
  const auto first = table.lines(std::span(&process, 1), 1'000'000'000, false);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_NE(first[1].find(" 1.00k "), std::string::npos) << first[1];
  process.objects[0].values[0] = 4000;
  const auto second = table.lines(std::span(&process, 1), 3'000'000'000, false);
  EXPECT_NE(second[0].find("OUT/s"), std::string::npos);
  EXPECT_NE(second[1].find("RC 1a2b3c RTS"), std::string::npos) << second[1];
  EXPECT_NE(second[1].find(" 1.50k "), std::string::npos) << second[1];
  EXPECT_NE(second[1].find("2/512/-"), std::string::npos) << second[1];
  process.objects[0].values[0] = 100;  // it went back: the page is a stranger's
  EXPECT_NE(table.lines(std::span(&process, 1), 4'000'000'000, false)[1].find(" 0 "), std::string::npos);
}

TEST(TopTable, PathsComeBehindTheirEndpoint) {
  TopTable table;
  Process process;
  const auto add = [&](Kind kind, uint32_t id, uint32_t parent, const char* name) {
    Object made = object(kind, {});
    made.id = id;
    made.parent = parent;
    made.name = name;
    process.objects.push_back(made);
  };
  add(Kind::Path, 3, 2, "of-two");
  add(Kind::Endpoint, 1, 0, "one");
  add(Kind::Endpoint, 2, 0, "two");
  add(Kind::Path, 4, 1, "of-one");
  add(Kind::Path, 5, 9, "of-none");
  add(Kind::Path, 6, 6, "of-itself");
  const auto lines = table.lines(std::span(&process, 1), 1, true);
  ASSERT_EQ(lines.size(), 7u);
  const char* const names[] = {"one", "  of-one", "two", "  of-two", "  of-none", "  of-itself"};
  for (size_t i = 0; i < 6; ++i) EXPECT_NE(lines[i + 1].find(names[i]), std::string::npos) << lines[i + 1];
}

TEST(TopTable, EndpointsShowMessages) {
  TopTable table;
  Process process;
  process.objects = {object(Kind::Endpoint, {{Value::MessagesSent, 1000},
                                             {Value::MessagesReceived, 2000},
                                             {Value::SendQueue, 1},
                                             {Value::ReceiveQueue, 4},
                                             {Value::CompletionQueue, 2},
                                             {Value::Unexpected, 7},
                                             {Value::UnreportedErrors, 3}})};
  const auto lines = table.lines(std::span(&process, 1), 1, true);
  ASSERT_EQ(lines.size(), 2u);
  for (const char* text : {" 1.00k ", " 2.00k ", "1/4/2", "(7 unexpected)", "(3 unreported errors)"})
    EXPECT_NE(lines[1].find(text), std::string::npos) << lines[1];
}

TEST(TopTable, AnyStateOfAStrangerIsShown) {
  TopTable table;
  Process process;
  process.objects = {object(Kind::QueuePair, {{Value::State, UINT64_MAX}, {Value::Number, UINT64_MAX}})};
  process.unlisted = 3;
  const auto lines = table.lines(std::span(&process, 1), 1, true);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_NE(lines[1].find("RC ffffff ?"), std::string::npos);
  EXPECT_NE(lines[2].find("3 more"), std::string::npos);
}

// --- pages that somebody with our user id puts there ---

struct Planted {
  explicit Planted(const char* name, size_t bytes, int seals)
      : fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    std::vector<std::byte> page(bytes);
    const auto put = [&](size_t at, auto value) {
      if (at + sizeof value <= page.size()) std::memcpy(page.data() + at, &value, sizeof value);
    };
    put(offsetof(statistics::Header, magic), statistics::magic);
    put(offsetof(statistics::Header, version), statistics::version);
    put(offsetof(statistics::Header, header_bytes), uint32_t{statistics::header_bytes});
    put(offsetof(statistics::Header, entry_bytes), uint32_t{sizeof(statistics::Entry)});
    put(offsetof(statistics::Header, entries), UINT32_MAX);
    put(offsetof(statistics::Header, pid), int32_t{getpid()});
    for (size_t at = statistics::header_bytes; at < bytes; at += sizeof(statistics::Entry))
      put(at + offsetof(statistics::Entry, kind), uint32_t{1});
    EXPECT_EQ(write(fd, page.data(), bytes), static_cast<ssize_t>(bytes));
    EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
  }
  Planted(const Planted&) = delete;
  Planted& operator=(const Planted&) = delete;
  ~Planted() { close(fd); }
  int fd;
};

std::vector<Process> ours() { return read_statistics_pages({getpid()}); }

TEST(StatisticsPages, ASoundPageIsRead) {
  EXPECT_TRUE(ours().empty());
  const Planted page(statistics::file_name, 3 * 4096, F_SEAL_SHRINK);
  const auto all = ours();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].pid, getpid());
  EXPECT_EQ(all[0].objects.size(), 2 * 4096 / sizeof(statistics::Entry));
}

TEST(StatisticsPages, OthersArePassedOver) {
  const Planted can_shrink(statistics::file_name, 3 * 4096, 0);
  const Planted other_name("weft-statistic", 3 * 4096, F_SEAL_SHRINK);
  const Planted too_large(statistics::file_name, statistics::page_bytes_max + 4096, F_SEAL_SHRINK);
  const Planted too_small(statistics::file_name, 16, F_SEAL_SHRINK);
  const Planted inherited(statistics::file_name, 3 * 4096, F_SEAL_SHRINK);
  const int32_t parent = getpid() + 1;
  ASSERT_EQ(pwrite(inherited.fd, &parent, sizeof parent, offsetof(statistics::Header, pid)), 4);
  EXPECT_TRUE(ours().empty());
}

TEST(StatisticsPages, OfOneProcessEightAreLookedAt) {
  std::vector<std::unique_ptr<Planted>> pages;
  pages.reserve(40);
  for (int i = 0; i < 40; ++i)
    pages.push_back(std::make_unique<Planted>(statistics::file_name, 3 * 4096, F_SEAL_SHRINK));
  EXPECT_EQ(ours().size(), 8u);
}

TEST(StatisticsPages, ObjectsBeyondTheLimitAreCounted) {
  std::vector<std::unique_ptr<Planted>> pages;
  pages.reserve(4);
  for (int i = 0; i < 4; ++i)
    pages.push_back(
        std::make_unique<Planted>(statistics::file_name, statistics::page_bytes_max, F_SEAL_SHRINK));
  size_t shown = 0;
  size_t others = 0;
  for (const Process& process : ours()) {
    shown += process.objects.size();
    others += process.unlisted;
  }
  constexpr size_t there =
      4 * ((statistics::page_bytes_max - statistics::header_bytes) / sizeof(statistics::Entry));
  EXPECT_EQ(shown, 4096u);
  EXPECT_EQ(shown + others, there);
}

TEST(StatisticsPages, AFileThatIsAllHoleIsNotFilled) {
  const int fd = memfd_create(statistics::file_name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(fd, statistics::page_bytes), 0);
  ASSERT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_TRUE(ours().empty());
  EXPECT_EQ(lseek(fd, 0, SEEK_DATA), -1) << "no page of it was made";
  close(fd);
}

}  // namespace
}  // namespace weft::tool
