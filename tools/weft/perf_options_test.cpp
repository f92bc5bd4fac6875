// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the command line of `weft perf` takes, and what it refuses before anything is measured.
#include "perf_options.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "failure.hpp"

namespace weft::tool {
namespace {

Options read(std::vector<std::string> words) {
  CLI::App app("weft perf", "perf");
  Options options;
  declare(app, options);
  std::reverse(words.begin(), words.end());
  app.parse(words);
  interpret(app, options);
  return options;
}

// The sentence of the refusal; empty: it was taken.
std::string refusal_of(const std::vector<std::string>& words) {
  try {
    (void)read(words);
  } catch (const Failure& failure) {
    return failure.what();
  } catch (const CLI::Error& error) {
    return error.what();
  }
  return "";
}

TEST(PerfOptions, ItsOwnChoice) {
  const Options options = read({});
  EXPECT_EQ(options.providers, std::vector<std::string>{"shm"});
  for (const auto& test : all_tests())
    EXPECT_EQ(std::count(options.tests.begin(), options.tests.end(), test.name), test.is_verbs() ? 0 : 1)
        << test.name;
  EXPECT_TRUE(options.sizes.empty());
}

TEST(PerfOptions, TestsMayBeNamedTogetherOrOneByOne) {
  const std::vector<std::string> both = {"tagged-rate", "msg-rate"};
  EXPECT_EQ(read({"-t", "tagged-rate,msg-rate"}).tests, both);
  EXPECT_EQ(read({"-t", "tagged-rate", "-t", "msg-rate"}).tests, both);
}

TEST(PerfOptions, NamesThatAreNoneAreRefused) {
  EXPECT_NE(refusal_of({"-t", "tagged-pong"}).find("tagged-pingpong"), std::string::npos);
  for (const std::vector<std::string>& words : {std::vector<std::string>{"-t", "tagged-rate,,msg-rate"},
                                                {"-t", ""},
                                                {"-p", ""},
                                                {"-s", ""},
                                                {"-s", "0"},
                                                {"-s", "64kb"},
                                                {"--threading", "much"},
                                                {"--client", ""},
                                                {"--client", "host", "--port", "0"},
                                                {"--server", "--client", "host"},
                                                {"--server", "-s", "8"},
                                                {"--compare", "stock", "--stock"},
                                                {"--keep"},
                                                {"--compare", ""},
                                                {"--plot", "/nowhere/at/all.svg"},
                                                {"--port", "65536"},
                                                {"-n", "0"},
                                                {"-r", "0"}})
    EXPECT_NE(refusal_of(words), "") << words[0] << " " << words.back();
}

TEST(PerfOptions, AtomicsAreOfOneSize) {
  EXPECT_NE(refusal_of({"-t", "atomic-lat", "-s", "64"}).find("8 bytes"), std::string::npos);
  EXPECT_EQ(refusal_of({"-t", "atomic-lat", "-s", "8"}), "");
  const std::vector<std::string> tests = read({"-s", "64"}).tests;  // they were not asked for by name
  EXPECT_EQ(std::find(tests.begin(), tests.end(), "atomic-lat"), tests.end());
}

TEST(PerfOptions, ThreadsAndPeers) {
  EXPECT_EQ(read({"--threads", "3"}).lanes(), 3U);
  EXPECT_EQ(read({"--peers", "2"}).lanes(), 2U);
  for (const std::string& test : read({"--peers", "2"}).tests)
    EXPECT_TRUE(test_named(test).takes_peers()) << test;
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--threads", "0"},
                                                {"--threads", "2", "--peers", "2"},
                                                {"--peers", "5000"},
                                                {"--peers", "2", "-t", "msg-rate"},
                                                {"--peers", "2", "--verify"}})
    EXPECT_NE(refusal_of(words), "") << words.back();
}

TEST(PerfOptions, TestsOfVerbsTakeADevice) {
  const Options options = read({"-t", "verbs", "-d", "weft_lo", "--gid-index", "1"});
  EXPECT_EQ(options.tests.size(), 6U);
  EXPECT_EQ(options.providers, std::vector<std::string>{"weft_lo"});
  EXPECT_EQ(options.local.gid_index, 1);
  EXPECT_TRUE(options.is_verbs());
  for (const std::vector<std::string>& words : {std::vector<std::string>{"-d", "weft_lo"},
                                                {"-t", "verbs,tagged-rate"},
                                                {"-t", "verbs", "-p", "shm"},
                                                {"-t", "verbs", "--peers", "2"},
                                                {"-t", "verbs", "--verify"},
                                                {"-t", "verbs", "--gid-index", "-1"}})
    EXPECT_NE(refusal_of(words), "") << words.back();
}

TEST(PerfOptions, ProcessorsAreNumbersOfOnesThatMayBeUsed) {
  EXPECT_EQ(parse_cpus("none"), (std::pair{-1, -1}));
  for (const char* text : {"0,1,2", "x", "1x", "-1", "", ",", "99999"})
    EXPECT_THROW(parse_cpus(text), Failure) << text;
}

TEST(PerfOptions, WindowsThatTakeMinutesAreRefusedUnlessTheyAreMeant) {
  const std::string refusal = refusal_of({"-p", "udp;ofi_rxd", "-s", "4g", "-t", "tagged-bw"});
  EXPECT_NE(refusal.find("a window of 64 messages"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("256 GiB"), std::string::npos) << refusal;
  Options options;
  const auto check = [&options](const char* test, size_t size) {
    check_windows(options, {{"shm", &test_named(test), size}});
  };
  EXPECT_NO_THROW(check("tagged-bw", size_t{256} << 20));
  EXPECT_THROW(check("tagged-bw", size_t{257} << 20), Failure);
  EXPECT_THROW(check("verbs-send-bw", size_t{1} << 30), Failure);
  EXPECT_NO_THROW(check("tagged-pingpong", size_t{4} << 30)) << "one after the other";
  EXPECT_NO_THROW(check("rma-write-bw", size_t{4} << 30)) << "no whole windows";
  EXPECT_EQ(refusal_of({"-s", "512m", "-t", "tagged-bw", "--window", "64"}).find("a window"),
            std::string::npos);
}

TEST(PerfOptions, BuffersThatNoMemoryHoldsAreRefused) {
  Options options;
  options.buffers = 1024;
  const std::vector<Step> steps = {{"shm", &test_named("tagged-bw"), 1 << 20}};
  EXPECT_NO_THROW(check_memory(options, steps, uint64_t{8} << 30));
  EXPECT_NO_THROW(check_memory(options, steps, 0)) << "unknown";
  EXPECT_THROW(check_memory(options, steps, uint64_t{2} << 30), Failure);
}

}  // namespace
}  // namespace weft::tool
