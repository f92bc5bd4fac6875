// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "link/roce/fault_log.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "wire/roce/opcode.hpp"

namespace weft::link::roce {
namespace {

using proto::roce::Fault;

struct Heard {
  std::vector<std::string> lines;
  packet::Audience audience() {
    const auto hear = [](const void* self, const char* text) {
      static_cast<Heard*>(const_cast<void*>(self))->lines.emplace_back(text);
    };
    return {nullptr, nullptr, hear, this};
  }
};

Fault beyond() {
  Fault fault;
  fault.at = Fault::At::Responder;
  fault.cause = WEFT_FAULT_RKEY_BOUNDS;
  fault.opcode =
      wire::roce::opcode(wire::roce::Transport::ReliableConnection, wire::roce::Operation::WriteOnly);
  fault.has_memory = fault.has_region = true;
  fault.psn = 7;
  fault.key = 0xab;
  fault.address = 0x1f00;
  fault.length = 0x200;
  fault.base = 0x1000;
  fault.bytes = 0x1000;
  return fault;
}

TEST(RoceFaultLog, SaysWhatWasWantedAndWhatIsThere) {
  EXPECT_EQ(
      text_of(nullptr, beyond()),
      "RDMA WRITE of the peer, PSN 7, of 512 bytes at 0x1f00 with rkey 0x000000ab refused: the access "
      "reaches beyond "
      "the region or window: wanted [0x1f00, 0x2100), the region has [0x1000, 0x2000) [vendor_err 0x23]");
}

TEST(RoceFaultLog, EveryCauseHasASentence) {
  for (unsigned cause = 0; cause < 256; ++cause) {
    Fault fault;
    fault.cause = static_cast<uint8_t>(cause);
    for (const auto at : {Fault::At::Requester, Fault::At::Receiver, Fault::At::Responder, Fault::At::Dropped,
                          Fault::At::Post}) {
      fault.at = at;
      const std::string text = text_of(nullptr, fault);
      EXPECT_EQ(text.find("unknown cause") != std::string::npos, weft_verbs_fault_text(cause) == nullptr)
          << text;
    }
  }
}

TEST(RoceFaultLog, TellsAFewOfEachCauseAndThenHowManyWereLeftOut) {
  Heard heard;
  FaultLog log("weft_test", heard.audience());
  uint64_t now = 5;
  for (int i = 0; i < 1000; ++i) log.report(nullptr, beyond(), now);
  EXPECT_EQ(heard.lines.size(), FaultLog::lines_max);
  Fault other;
  other.at = Fault::At::Dropped;
  other.cause = WEFT_FAULT_QPN_UNKNOWN;
  log.report(nullptr, other, now);
  EXPECT_EQ(heard.lines.size(), FaultLog::lines_max + 1);
  now += FaultLog::period_ns;
  log.report(nullptr, beyond(), now);
  ASSERT_EQ(heard.lines.size(), FaultLog::lines_max + 2);
  EXPECT_EQ(heard.lines.back().rfind("weft_test: ", 0), 0U);
  EXPECT_NE(heard.lines.back().find("; 996 more of this kind were not told"), std::string::npos);
}

}  // namespace
}  // namespace weft::link::roce
