// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The timeline of records that are written here: what is paired with what, what stays alone, and files that nobody
// wrote.
#include "timeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "temporary.hpp"

namespace weft::tool {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using trace::number;
using trace::Record;
using trace::Type;

Record record(Type type, uint16_t call, uint64_t begin, uint64_t end, uint32_t object, uint64_t context = 0,
              uint64_t flags = 0) {
  return {.begin = begin,
          .end = end,
          .context = context,
          .bytes = 8,
          .flags = flags,
          .result = 0,
          .object = object,
          .queue_pair = 0,
          .type = type,
          .call = call,
          .fault = 0};
}

TracedProcess process(std::string text, std::vector<Record> records) {
  TracedThread thread;
  thread.header.pid = 7;
  thread.header.tid = 8;
  thread.header.clock = trace::Clock::nanoseconds;
  std::strcpy(thread.header.program, "a \"program\"");
  thread.records = std::move(records);
  TracedProcess made;
  made.text = std::move(text);
  made.threads.push_back(std::move(thread));
  return made;
}

json timeline(const TracedProcess& traced, TraceSummary& summary) {
  const TemporaryFolder folder("weft-timeline");
  const std::string path = (folder / "t").string();
  std::FILE* file = std::fopen(path.c_str(), "w");
  write_timeline(file, {traced}, TraceTime({0, 0}, {1000, 1000}), summary);
  std::fclose(file);
  std::ifstream in(path);
  return json::parse(in);
}

std::vector<std::string> of_phase(const json& document, const std::string& phase) {
  std::vector<std::string> result;
  for (const json& event : document["traceEvents"]) {
    if (event["ph"] == phase)
      result.push_back(event["name"].get<std::string>() + "@" +
                       std::to_string(static_cast<int>(event["ts"].get<double>() * 1000)));
  }
  return result;
}

const std::string objects =
    "object 1 completion queue\nobject 2 completion queue\nobject 3 endpoint shm\nbind 3 1 1 0 0\nbind 3 2 0 "
    "1 0\n"
    "operations 3 0 0\n";

TEST(Timeline, PairsByQueueContextAndDirectionTheOldestFirst) {
  TraceSummary summary;
  const json document = timeline(
      process(objects, {record(Type::started, number("fi_recv"), 10, 11, 3, 5),
                        record(Type::started, number("fi_send"), 20, 21, 3, 5),
                        record(Type::started, number("fi_send"), 30, 31, 3, 5),
                        record(Type::call, number("fi_cq_read"), 40, 50, 1),
                        record(Type::completion, number("fi_cq_read"), 50, 50, 1, 5, trace::flag_transmit),
                        record(Type::completion, number("fi_cq_read"), 60, 60, 2, 5, trace::flag_receive),
                        record(Type::completion, number("fi_cq_read"), 70, 70, 1, 5),
                        record(Type::completion, number("fi_cq_read"), 80, 80, 1, 5)}),
      summary);
  EXPECT_THAT(of_phase(document, "b"), ElementsAre("fi_recv@10", "fi_send@20", "fi_send@30"));
  EXPECT_THAT(of_phase(document, "e"), ElementsAre("fi_recv@60", "fi_send@50", "fi_send@70"));
  EXPECT_THAT(of_phase(document, "X"),
              ElementsAre("fi_recv@10", "fi_send@20", "fi_send@30", "fi_cq_read@40"));
  EXPECT_THAT(of_phase(document, "i"), ElementsAre("completion without operation@80"));
  EXPECT_EQ(summary.operations, 3U);
  EXPECT_EQ(summary.completed, 3U);
  EXPECT_EQ(summary.lone, 1U);
  EXPECT_EQ(document["otherData"]["calls"], 4);
  EXPECT_EQ(document["traceEvents"][0]["args"]["name"], "a ?program?");
}

TEST(Timeline, WhatAsksForNoCompletionHasNone) {
  TraceSummary summary;
  const json document =
      timeline(process("object 1 completion queue\nobject 3 endpoint shm\nbind 3 1 1 1 1\n",
                       {record(Type::started, number("fi_tsend"), 10, 11, 3, 5),
                        record(Type::started, number("fi_tsendmsg"), 20, 21, 3, 5, trace::flag_completion),
                        record(Type::completion, number("fi_cq_read"), 50, 50, 1, 5, trace::flag_transmit)}),
               summary);
  EXPECT_THAT(of_phase(document, "b"), ElementsAre("fi_tsendmsg@20"));
  EXPECT_EQ(summary.operations, 1U);
  EXPECT_EQ(summary.lone, 0U);
}

TEST(Timeline, ABufferForSeveralMessagesEndsWithItsLast) {
  TraceSummary summary;
  const json document = timeline(
      process(objects, {record(Type::started, number("fi_recvmsg"), 10, 11, 3, 5, trace::flag_multi),
                        record(Type::completion, number("fi_cq_read"), 50, 50, 2, 5, trace::flag_receive),
                        record(Type::completion, number("fi_cq_read"), 60, 60, 2, 5,
                               trace::flag_receive | trace::flag_multi)}),
      summary);
  EXPECT_THAT(of_phase(document, "e"), ElementsAre("fi_recvmsg@60"));
}

TEST(Timeline, VerbsPairByQueuePairAndWorkRequest) {
  const auto of_pair = [](Record made, uint32_t pair) {
    made.queue_pair = pair;
    return made;
  };
  TraceSummary summary;
  const json document = timeline(
      process(
          "object 1 device weft_lo\npair 1 17 0\npair 1 18 1\n",
          {of_pair(record(Type::operation, number("SEND"), 10, 10, 1, 5), 17),  // not signalled
           of_pair(record(Type::operation, number("SEND"), 20, 20, 1, 5), 18),
           record(Type::operation, number("RECV"), 30, 30, 1, 5,
                  trace::flag_completion),  // of a shared queue
           of_pair(record(Type::completion, number("ibv_poll_cq"), 50, 50, 1, 5, trace::flag_transmit), 18),
           of_pair(record(Type::completion, number("ibv_poll_cq"), 60, 60, 1, 5, trace::flag_receive), 17)}),
      summary);
  EXPECT_THAT(of_phase(document, "b"), ElementsAre("SEND@20", "RECV@30"));
  EXPECT_THAT(of_phase(document, "e"), ElementsAre("SEND@50", "RECV@60"));
}

TEST(Timeline, ACallThatFailedPostedNothing) {
  Record failed = record(Type::started, number("fi_send"), 10, 11, 3, 5);
  failed.result = -11;
  TraceSummary summary;
  timeline(process(objects, {failed}), summary);
  EXPECT_EQ(summary.operations, 0U);
  EXPECT_EQ(summary.calls, 1U);
}

TEST(Timeline, SlicesOfAThreadLieWithinEachOther) {
  TraceSummary summary;
  const json document = timeline(process("", {record(Type::idle, number("fi_cq_read"), 10, 45, 1),
                                              record(Type::call, number("fi_send"), 30, 50, 3)}),
                                 summary);
  const json& idle = document["traceEvents"][2];
  EXPECT_EQ(idle["name"], "empty polls");
  EXPECT_DOUBLE_EQ(idle["ts"].get<double>() + idle["dur"].get<double>(), 0.030);
}

void write_ring(const std::filesystem::path& path, const trace::Header& header,
                const std::vector<Record>& records) {
  std::ofstream file(path, std::ios::binary);
  std::string bytes(trace::header_size, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  file << bytes;
  file.write(reinterpret_cast<const char*>(records.data()),
             static_cast<std::streamsize>(records.size() * sizeof(Record)));
}

TEST(Timeline, ReadsARingFromItsOldestRecord) {
  const TemporaryFolder folder("weft-timeline");
  trace::Header header{};
  header.magic = trace::magic;
  header.record_size = sizeof(Record);
  header.capacity = 4;
  header.written = 6;
  std::vector<Record> records;
  for (uint64_t i = 0; i < 4; ++i) records.push_back(record(Type::call, 0, i < 2 ? i + 4 : i, 100, 0));
  write_ring(folder / "7-a-8-0.ring", header, records);
  TraceSummary summary;
  const auto processes = read_trace(folder.path(), summary);
  ASSERT_EQ(processes.size(), 1U);
  const TracedThread& thread = processes[0].threads.at(0);
  EXPECT_EQ(thread.dropped, 2U);
  ASSERT_EQ(thread.records.size(), 4U);
  EXPECT_EQ(thread.records[0].begin, 2U);
  EXPECT_EQ(thread.records[3].begin, 5U);
  EXPECT_EQ(summary.refused, 0U);
}

TEST(Timeline, RefusesWhatTheRecorderDoesNotWrite) {
  const TemporaryFolder folder("weft-timeline");
  trace::Header header{};
  header.magic = trace::magic;
  header.record_size = sizeof(Record);
  header.capacity = 4;
  header.written = 1;
  const std::vector<Record> records(4, record(Type::call, 0, 1, 2, 0));
  trace::Header other = header;
  other.magic = 1;
  write_ring(folder / "1-a-1-0.ring", other, records);
  other = header;
  other.capacity = uint64_t{1} << 60U;
  write_ring(folder / "2-a-1-0.ring", other, records);
  write_ring(folder / "3-a-1-0.ring", header, {});  // cut off
  std::ofstream(folder / "nonsense") << "nonsense";
  TraceSummary summary;
  EXPECT_TRUE(read_trace(folder.path(), summary).empty());
  EXPECT_EQ(summary.refused, 4U);
  // A record that cannot be is left out; a count that cannot be shows no more than the ring has.
  header.written = ~uint64_t{0};
  std::vector<Record> broken = records;
  broken[0].call = 60000;
  broken[1].type = static_cast<Type>(99);
  write_ring(folder / "4-a-1-0.ring", header, broken);
  const auto processes = read_trace(folder.path(), summary);
  ASSERT_EQ(processes.size(), 1U);
  EXPECT_EQ(processes[0].threads[0].records.size(), 2U);
}

TEST(Timeline, LinesOfObjectsThatMakeNoSenseAreLeftOut) {
  TraceSummary summary;
  timeline(
      process("object\nobject x\nbind 1\nbind 3 99 1 1 1\npair 1\noperations 4294967296 1 1\n\n\xff\xfe\n",
              {}),
      summary);
  EXPECT_EQ(summary.processes, 1U);
}

}  // namespace
}  // namespace weft::tool
