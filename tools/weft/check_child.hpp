// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Programs that may crash or hang, run to their end: one that answers, and one that reports case by case. Knows processes; must not know
// what they say about a provider, but for the words of the conformance program's report.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "check_table.hpp"

namespace weft::tool::checking {

// "NAME=value" for each variable of the child's environment.
using Environment = std::vector<std::string>;
// That of this process, with some variables set and others (an empty value) taken out.
Environment environment_with(const std::vector<std::pair<std::string, std::string>>& changes);

// SIGINT, SIGTERM and SIGHUP end what waits for a child by a Failure, so that children and folders go. Once.
void clean_up_at_signals();

struct Answered {
  int status = 0;      // exit status; -1 when it did not end by itself
  std::string ending;  // "was ended by SIGSEGV", "did not answer within 20 s"; empty when it exited
  std::string out, err;
};
// Runs a program to its end or to the end of the time.
Answered run_to_end(const std::string& program, const std::vector<std::string>& arguments,
                    const Environment& environment, unsigned seconds);

struct RunOptions {
  std::string program;  // the conformance program
  Environment environment;
  unsigned case_seconds = 30;
  // Takes the exit status of an interruption; run_cases() then returns what there is until then. Null: it throws.
  int* interrupted = nullptr;
  // Called with the name of each case that begins, and how many are done.
  std::function<void(const std::string& name, size_t done)> progress;
  // Called when an object of a case could not be closed at its end.
  std::function<void(const std::string& name, const std::string& error)> unclosed;
};
// Runs the cases one after the other, as many as possible in one process; a case that crashes or hangs costs itself, and the next begins in
// another process. The results are in the order of `cases`.
std::vector<CaseResult> run_cases(const RunOptions& options, const std::vector<std::string>& cases);

// The names in the output of --gtest_list_tests.
std::vector<std::string> read_case_list(const std::string& text);

// One line of the report; false when it makes no sense.
struct ReportLine {
  std::string word, name;
  std::vector<std::string> reasons;
};
bool read_report_line(const std::string& line, ReportLine& out);

}  // namespace weft::tool::checking
