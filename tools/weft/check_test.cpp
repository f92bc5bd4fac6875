// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The parts of `weft check` that need no provider: the tables, the report of the conformance program, the judgement, and how it is shown.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <set>

#include "check_child.hpp"
#include "check_report.hpp"
#include "check_table.hpp"
#include "failure.hpp"
#include "temporary.hpp"

namespace weft::tool::checking {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(CheckTable, TheLongestPatternWins) {
  ASSERT_NE(capability_of("Rma.every_size__fi_rma_3"), nullptr);
  EXPECT_EQ(capability_of("Rma.every_size__fi_rma_3")->name, "FI_RMA");
  EXPECT_EQ(capability_of("Rma.order_waw__fi_endpoint_3")->name, "FI_ORDER_WAW");
  EXPECT_EQ(capability_of("Wait/Blocking.signal__fi_cq_3/fd")->name, "waiting");
  EXPECT_EQ(capability_of("Nobody.knows_this"), nullptr);
}

TEST(CheckTable, Patterns) {
  EXPECT_TRUE(matches("A.*:B.c", "B.c"));
  EXPECT_TRUE(matches("*.remote*data", "X.remote_cq_data"));
  EXPECT_FALSE(matches("A.*:B.c", "B.cd"));
  EXPECT_FALSE(matches("", "B.cd"));
}

TEST(CheckTable, NamesDiffer) {
  std::set<std::string_view> names;
  for (const Capability& capability : capabilities())
    EXPECT_TRUE(names.insert(capability.name).second) << capability.name;
}

TEST(CheckTable, ConnectionsBelongToConnectedEndpoints) {
  EXPECT_TRUE(belongs_to("Connections.streams_both_ways__fi_msg_3", FI_EP_MSG));
  EXPECT_FALSE(belongs_to("Connections.streams_both_ways__fi_msg_3", FI_EP_RDM));
  EXPECT_TRUE(belongs_to("GetInfo.dup_and_free__fi_getinfo_3", FI_EP_DGRAM));
}

// Claims everything or nothing.
struct Fixed : Claims {
  explicit Fixed(bool answer) : yes(answer), info(fi_allocinfo()), list{info} {
    if (yes) {
      info->caps = ~uint64_t{0} & ~(FI_COLLECTIVE);
      info->tx_attr->msg_order = info->rx_attr->msg_order = ~uint64_t{0};
    }
  }
  ~Fixed() override { fi_freeinfo(info); }
  std::span<const fi_info* const> infos() const override { return list; }
  bool offered(const Edit& edit) const override {
    fi_info* hints = fi_allocinfo();
    edit(*hints);
    fi_freeinfo(hints);
    return yes;
  }
  bool yes;
  fi_info* info;
  std::vector<const fi_info*> list;
};

std::vector<CaseResult> all_of(Verdict verdict, Outcome outcome) {
  std::vector<CaseResult> results;
  for (const Need& need : needs()) {
    if (need.verdict != verdict) continue;
    for (std::string_view rest = need.cases; !rest.empty();) {
      const std::string_view one = rest.substr(0, rest.find(':'));
      std::string name(one);
      name.erase(std::remove(name.begin(), name.end(), '*'), name.end());
      results.push_back({name, outcome, {"why"}});
      rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    }
  }
  return results;
}

TEST(CheckVerdict, YesWhenAllIsClaimedAndShown) {
  for (const Verdict verdict : verdicts) {
    const Fixed claims(true);
    const Answers answers = answers_of(claims, type_of(verdict));
    const auto results = all_of(verdict, Outcome::passed);
    const Judgement judgement = judge(verdict, "x", &answers, results);
    EXPECT_TRUE(judgement.yes) << name_of(verdict) << ": " << testing::PrintToString(judgement.reasons);
  }
}

TEST(CheckVerdict, NoNamesWhatIsMissingBrokenOrNotShown) {
  const Fixed nothing(false), all(true);
  const Answers none = answers_of(nothing, FI_EP_RDM), every = answers_of(all, FI_EP_RDM);
  EXPECT_THAT(judge(Verdict::ompi_mtl, "x", &none, {}).reasons, Contains("not offered: FI_TAGGED"));
  EXPECT_THAT(judge(Verdict::ompi_mtl, "x", &every, {}).reasons, Contains("not shown: FI_TAGGED"));
  auto results = all_of(Verdict::ompi_mtl, Outcome::passed);
  results.front() = {"Tagged.every_size_expected", Outcome::crashed, {}};
  EXPECT_THAT(judge(Verdict::ompi_mtl, "x", &every, results).reasons,
              ElementsAre("FI_TAGGED is broken: Tagged.every_size_expected"));
  EXPECT_THAT(judge(Verdict::rxm, "x", nullptr, {}).reasons, ElementsAre("FI_EP_MSG is not offered"));
  EXPECT_THAT(
      judge(Verdict::ompi_btl, "tcp;ofi_rxm", &every, all_of(Verdict::ompi_btl, Outcome::passed)).reasons,
      testing::SizeIs(1));
}

TEST(CheckReport, WhatIsClaimedAndBrokenCountsAndWhatIsNotClaimedDoesNot) {
  const Fixed all(true), nothing(false);
  Report report{"x", "", {}, {}, {}};
  report.types.push_back(
      {FI_EP_RDM,
       answers_of(all, FI_EP_RDM),
       {{"Tagged.inject__x", Outcome::passed, {}}, {"Tagged.vectors__x", Outcome::skipped, {"no"}}}});
  EXPECT_TRUE(all_claims_shown(report));
  report.types[0].results.push_back({"Tagged.every_size__x", Outcome::hung, {"first line", "second"}});
  EXPECT_FALSE(all_claims_shown(report));
  const std::string text = as_text(report, false);
  EXPECT_THAT(text, HasSubstr("Tagged.every_size__x: hung: first line\n"));
  EXPECT_THAT(text, Not(HasSubstr("second")));
  EXPECT_THAT(as_text(report, true), HasSubstr("second"));
  const auto json = nlohmann::json::parse(as_json(report));
  EXPECT_FALSE(json["all_claims_shown"].get<bool>());
  report.types[0].answers = answers_of(nothing, FI_EP_RDM);
  EXPECT_TRUE(all_claims_shown(report));
}

TEST(CheckChild, LinesOfTheReport) {
  ReportLine line;
  ASSERT_TRUE(read_report_line("fail A.b/0\tone\ttwo", line));
  EXPECT_EQ(line.word, "fail");
  EXPECT_EQ(line.name, "A.b/0");
  EXPECT_THAT(line.reasons, ElementsAre("one", "two"));
  EXPECT_TRUE(read_report_line("done", line));
  for (const char* bad : {"", "fail", "start ", "what A.b"}) EXPECT_FALSE(read_report_line(bad, line)) << bad;
}

TEST(CheckChild, TheListOfCases) {
  EXPECT_THAT(read_case_list("noise\nA.\n  one\n  two\nW/B.\n  x/0  # GetParam() = 1\n"),
              ElementsAre("A.one", "A.two", "W/B.x/0"));
  EXPECT_THAT(read_case_list(""), IsEmpty());
}

TEST(CheckChild, AProgramThatEndsAndOneThatDoesNot) {
  const Answered said =
      run_to_end("/bin/sh", {"-c", "echo out; echo err >&2; exit 3"}, environment_with({}), 20);
  EXPECT_EQ(said.status, 3);
  EXPECT_EQ(said.out, "out\n");
  EXPECT_EQ(said.err, "err\n");
  EXPECT_THAT(run_to_end("/bin/sh", {"-c", "kill -SEGV $$"}, environment_with({}), 20).ending,
              HasSubstr("SIGSEGV"));
  EXPECT_THAT(run_to_end("/bin/sh", {"-c", "sleep 60"}, environment_with({}), 1).ending,
              HasSubstr("did not end within 1 s"));
}

// A stand-in for the conformance program: a shell script that reports.
TEST(CheckChild, ACrashAndAHangCostOneCaseEach) {
  RunOptions options;
  const std::string script =
      "case \"$1\" in *A.good*) printf 'start A.good\\npass A.good\\nstart A.crash\\n' >&3; echo 'last "
      "words' >&2; kill -ABRT $$;;"
      " *A.hang*) printf 'start A.hang\\n' >&3; sleep 60;;"
      " *) printf 'start A.last\\nfail A.last\\twhy\\ndone\\n' >&3;; esac";
  const TemporaryFolder folder("weft-check-test");
  const std::string file = (folder / "program").string();
  std::ofstream(file) << "#!/bin/sh\n" << script << "\n";
  chmod(file.c_str(), 0700);
  options.program = file;
  options.environment = environment_with({});
  options.case_seconds = 0;  // the parent's own reserve comes on top
  const auto results = run_cases(options, {"A.good", "A.crash", "A.hang", "A.last"});
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(results[0].outcome, Outcome::passed);
  EXPECT_EQ(results[1].outcome, Outcome::crashed);
  EXPECT_THAT(results[1].reasons.front(), HasSubstr("SIGABRT: last words"));
  EXPECT_EQ(results[2].outcome, Outcome::hung);
  EXPECT_EQ(results[3].outcome, Outcome::failed);
  EXPECT_THAT(results[3].reasons, ElementsAre("why"));
}

// Of a provider nothing is known then.
TEST(CheckChild, AProgramThatCannotBeginIsNoAnswer) {
  RunOptions options;
  options.program = "/bin/false";
  options.environment = environment_with({});
  EXPECT_THROW(run_cases(options, {"A.one"}), Failure);
  options.program = "/nowhere/at/all";
  EXPECT_THROW(run_cases(options, {"A.one"}), Failure);
}

TEST(CheckVerdict, WordsAndCases) {
  EXPECT_EQ(verdict_of("ompi-mtl"), Verdict::ompi_mtl);
  EXPECT_EQ(verdict_of("rxd"), Verdict::rxd);
  EXPECT_EQ(verdict_of(""), std::nullopt);
  EXPECT_TRUE(needs_case(Verdict::rxd, "Datagrams.every_size__fi_msg_3"));
  EXPECT_FALSE(needs_case(Verdict::rxd, "Tagged.every_size__fi_tagged_3"));
}

}  // namespace
}  // namespace weft::tool::checking
