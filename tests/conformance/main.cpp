// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Entry of the conformance program: says what is tested, ends a test that hangs in spite of bounded waits, and tells a parent how each case
// went.
//
// Environment: WEFT_TEST_REPORT is the number of a descriptor that gets a line for each step: "start CASE", "pass CASE", "skip CASE<tab>WHY",
// "fail CASE<tab>WHY[<tab>WHY]...", "hang CASE", "unclosed CASE<tab>ERROR" (an object of it could not be closed), "done". WEFT_TEST_CASE_SECONDS is how long a case may take.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "fixture.hpp"

namespace {

int report_fd = -1;
char current_test[256];

unsigned number_of(const char* variable, unsigned otherwise) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? static_cast<unsigned>(std::strtoul(value, nullptr, 10))
                                            : otherwise;
}

void put(int fd, const char* text, size_t len) {
  while (len > 0) {
    const ssize_t n = write(fd, text, len);
    if (n <= 0) return;
    text += n;
    len -= static_cast<size_t>(n);
  }
}

void put_line(int fd, const char* word, const char* name) {
  put(fd, word, std::strlen(word));
  put(fd, name, std::strlen(name));
  put(fd, "\n", 1);
}

void on_alarm(int) {
  // Only async-signal-safe calls here: the program may hang anywhere.
  put_line(STDERR_FILENO, "\nconformance: a test hung: ", current_test);
  if (report_fd >= 0) put_line(report_fd, "hang ", current_test);
  std::signal(SIGABRT, SIG_DFL);
  abort();
}

// One line: what GoogleTest says in several.
std::string flat(const char* text) {
  std::string out;
  for (; *text != '\0'; ++text) {
    const char c = *text == '\n' || *text == '\t' || *text == '\r' ? ' ' : *text;
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out += c;
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

class Watchdog : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& info) override {
    static const unsigned seconds = number_of("WEFT_TEST_CASE_SECONDS", 55);
    std::snprintf(current_test, sizeof current_test, "%s.%s", info.test_suite_name(), info.name());
    alarm(std::max(1u, seconds) * weft::conformance::patience());
  }
  void OnTestEnd(const testing::TestInfo&) override { alarm(0); }
};

class Reporter : public testing::EmptyTestEventListener {
  static void tell(const std::string& line) { put_line(report_fd, line.c_str(), ""); }

  void OnTestStart(const testing::TestInfo&) override {
    // A library may have put handlers there that turn a crash into an exit.
    if (weft::conformance::patience() == 1)
      for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) std::signal(number, SIG_DFL);
    put_line(STDERR_FILENO, "\nconformance: case ", current_test);  // so that what follows belongs to it
    tell(std::string("start ") + current_test);
  }
  void OnTestEnd(const testing::TestInfo& info) override { print_result(info); }

 public:
  static void print_result(const testing::TestInfo& info) {
    const testing::TestResult& result = *info.result();
    std::string line = result.Skipped() ? "skip " : result.Passed() ? "pass " : "fail ";
    line += current_test;
    for (int i = 0; i < result.total_part_count(); ++i) {
      const testing::TestPartResult& part = result.GetTestPartResult(i);
      if (part.failed() || part.skipped()) line += "\t" + flat(part.message());
      if (line.size() > 8192) break;
    }
    for (int i = 0; i < result.test_property_count(); ++i) {
      const testing::TestProperty& property = result.GetTestProperty(i);
      if (std::strcmp(property.key(), "unclosed") == 0)
        tell("unclosed " + std::string(current_test) + "\t" + flat(property.value()));
    }
    tell(line);
  }
  void OnTestProgramEnd(const testing::UnitTest&) override { tell("done"); }
};

// The parent begins the next case in another process: nothing that comes late can be written into memory that is used again.
[[noreturn]] void end_with_case() {
  const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
  if (info != nullptr) Reporter::print_result(*info);
  _exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::signal(SIGALRM, on_alarm);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  listeners.Append(new Watchdog);
  report_fd = static_cast<int>(number_of("WEFT_TEST_REPORT", 0));
  if (report_fd > 0 && !GTEST_FLAG_GET(list_tests)) {
    listeners.Append(new Reporter);
    weft::conformance::case_is_lost = end_with_case;
  } else {
    report_fd = -1;
  }
  // A list of tests is read by programs.
  if (!GTEST_FLAG_GET(list_tests)) {
    const uint32_t version = fi_version();
    std::printf("provider %s, libfabric %u.%u\n", weft::conformance::provider_name().c_str(),
                FI_MAJOR(version), FI_MINOR(version));
  }
  return RUN_ALL_TESTS();
}
