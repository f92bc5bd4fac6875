// Entry of the conformance program: says what is tested, and ends a test that hangs in spite of bounded waits.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>

#include "fixture.hpp"

namespace {

constexpr unsigned test_seconds_max = 55;
char current_test[256];

void on_alarm(int) {
  // Only async-signal-safe calls here: the program may hang anywhere.
  static const char text[] = "\nconformance: a test hung: ";
  (void)!write(STDERR_FILENO, text, sizeof text - 1);
  (void)!write(STDERR_FILENO, current_test, std::strlen(current_test));
  (void)!write(STDERR_FILENO, "\n", 1);
  std::signal(SIGABRT, SIG_DFL);
  abort();
}

class Watchdog : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& info) override {
    std::snprintf(current_test, sizeof current_test, "%s.%s", info.test_suite_name(), info.name());
    alarm(test_seconds_max * weft::conformance::patience());
  }
  void OnTestEnd(const testing::TestInfo&) override { alarm(0); }
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::signal(SIGALRM, on_alarm);
  testing::UnitTest::GetInstance()->listeners().Append(new Watchdog);
  // A list of tests is read by programs.
  if (!GTEST_FLAG_GET(list_tests)) {
    const uint32_t version = fi_version();
    std::printf("provider %s, libfabric %u.%u\n", weft::conformance::provider_name().c_str(),
                FI_MAJOR(version), FI_MINOR(version));
  }
  return RUN_ALL_TESTS();
}
