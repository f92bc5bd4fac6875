// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fabric(7), "LOGGING INTERFACE"; fi_provider(3), fi_log and fi_import_log.
#include "api/libfabric/text/log.hpp"

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "api/libfabric/entry/fabric.hpp"

namespace weft::fi {
namespace {

class Log : public ::testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override {
    log_import(nullptr);
    log_name_prefix("");
    clear();
  }

  static void clear() {
    for (const char* name : {"FI_LOG_LEVEL", "FI_LOG_SUBSYS", "FI_LOG_PROV", "FI_LOG_INTERVAL"})
      unsetenv(name);
    log_reset();
  }
  static void set(const char* name, const char* value) {
    setenv(name, value, 1);
    log_reset();
  }
  // fi_import_log, over the objects of this program.
  static int import(fid_logging& object) {
    object.fid.fclass = FI_CLASS_LOG;
    object.ops->size = sizeof(fi_ops_log);
    fid* opened = nullptr;
    if (const int rc = open_object(FI_VERSION(1, 17), "logging", nullptr, 0, 0, &opened, nullptr); rc != 0)
      return rc;
    const int rc = fi_import_fid(opened, &object.fid, 0);
    fi_close(opened);
    return rc;
  }
  // What `act` writes to standard error.
  template <class Act>
  static std::string written(Act act) {
    testing::internal::CaptureStderr();
    act();
    return testing::internal::GetCapturedStderr();
  }
};

void log_through_c(const fi_provider* provider, const char* format, ...) {
  va_list args;
  va_start(args, format);
  log_c(provider, FI_LOG_WARN, FI_LOG_EP_DATA, "caller", 12, format, args);
  va_end(args);
}

TEST_F(Log, LevelsIncludeThoseBelow) {
  EXPECT_TRUE(log_enabled(FI_LOG_WARN, FI_LOG_CQ));  // the default
  EXPECT_FALSE(log_enabled(FI_LOG_TRACE, FI_LOG_CQ));
  set("FI_LOG_LEVEL", "info");
  EXPECT_TRUE(log_enabled(FI_LOG_WARN, FI_LOG_CQ));
  EXPECT_TRUE(log_enabled(FI_LOG_TRACE, FI_LOG_CQ));
  EXPECT_TRUE(log_enabled(FI_LOG_INFO, FI_LOG_CQ));
  EXPECT_FALSE(log_enabled(FI_LOG_DEBUG, FI_LOG_CQ));
  set("FI_LOG_LEVEL", "DEBUG");
  EXPECT_TRUE(log_enabled(FI_LOG_DEBUG, FI_LOG_CQ));
  set("FI_LOG_LEVEL", "1");
  EXPECT_TRUE(log_enabled(FI_LOG_TRACE, FI_LOG_CQ));
  EXPECT_FALSE(log_enabled(FI_LOG_INFO, FI_LOG_CQ));
  set("FI_LOG_LEVEL", "none");
  EXPECT_FALSE(log_enabled(FI_LOG_WARN, FI_LOG_CQ));
  set("FI_LOG_LEVEL", "nonsense");
  EXPECT_TRUE(log_enabled(FI_LOG_WARN, FI_LOG_CQ));
}

TEST_F(Log, SubsystemsAndProvidersAreLists) {
  set("FI_LOG_SUBSYS", "mr,ep_ctrl");
  EXPECT_TRUE(log_enabled(FI_LOG_WARN, FI_LOG_MR));
  EXPECT_TRUE(log_enabled(FI_LOG_WARN, FI_LOG_EP_CTRL));
  EXPECT_FALSE(log_enabled(FI_LOG_WARN, FI_LOG_CORE));
  set("FI_LOG_SUBSYS", "^mr");
  EXPECT_FALSE(log_enabled(FI_LOG_WARN, FI_LOG_MR));
  EXPECT_TRUE(log_enabled(FI_LOG_WARN, FI_LOG_CNTR));
  clear();
  set("FI_LOG_PROV", "shm,tcp");
  EXPECT_TRUE(log_enabled(FI_LOG_WARN, FI_LOG_CQ, "shm"));
  EXPECT_FALSE(log_enabled(FI_LOG_WARN, FI_LOG_CQ, "udp"));
  EXPECT_TRUE(log_enabled(FI_LOG_WARN, FI_LOG_CQ, kCore));
  EXPECT_TRUE(log_enabled(FI_LOG_WARN, FI_LOG_CQ, nullptr));
  set("FI_LOG_PROV", "^shm");
  EXPECT_FALSE(log_enabled(FI_LOG_WARN, FI_LOG_CQ, "shm"));
  EXPECT_TRUE(log_enabled(FI_LOG_WARN, FI_LOG_CQ, "udp"));
}

TEST_F(Log, WritesOneLineAndKeepsErrno) {
  errno = ENOTTY;
  const std::string line = written([] { log_warn("shm", FI_LOG_DOMAIN, "%d of %s", 3, "four"); });
  EXPECT_EQ(errno, ENOTTY);
  EXPECT_EQ(line, "weft:" + std::to_string(getpid()) + ":shm:domain:<warn> 3 of four\n");
  EXPECT_EQ(written([] { log_info("shm", FI_LOG_DOMAIN, "no"); }), "");
  fi_provider provider{};
  provider.name = "foreign";
  EXPECT_EQ(written([&] { log_through_c(&provider, "text\n"); }),
            "weft:" + std::to_string(getpid()) + ":foreign:ep_data:caller():12<warn> text\n");
}

TEST_F(Log, LongLinesAreCut) {
  const std::string text(10000, 'x');
  const std::string line = written([&] { log_warn("shm", FI_LOG_CORE, "%s", text.c_str()); });
  EXPECT_LE(line.size(), 4096u);
  EXPECT_GT(line.size(), 4000u);
  EXPECT_EQ(line.back(), '\n');
}

TEST_F(Log, PluginNamesItsProvidersOtherwise) {
  log_name_prefix("weft_");
  set("FI_LOG_PROV", "weft_shm");
  EXPECT_NE(written([] { log_warn("shm", FI_LOG_CORE, "here"); }).find(":weft_shm:"), std::string::npos);
  set("FI_LOG_PROV", "shm");
  EXPECT_EQ(written([] { log_warn("shm", FI_LOG_CORE, "here"); }), "");
  EXPECT_NE(written([] { log_warn(kCore, FI_LOG_CORE, "here"); }).find(":core:"), std::string::npos);
}

TEST_F(Log, ReadyIsRateLimited) {
  fi_provider provider{};
  provider.name = "shm";
  uint64_t showtime = 0;
  set("FI_LOG_INTERVAL", "60000");
  EXPECT_EQ(log_ready_c(&provider, FI_LOG_WARN, FI_LOG_CQ, &showtime), 1);
  EXPECT_EQ(log_ready_c(&provider, FI_LOG_WARN, FI_LOG_CQ, &showtime), 0);
  uint64_t other = 0;
  EXPECT_EQ(log_ready_c(&provider, FI_LOG_WARN, FI_LOG_CQ, &other), 1);
  EXPECT_EQ(log_ready_c(&provider, FI_LOG_DEBUG, FI_LOG_CQ, &other), 0);
  set("FI_LOG_INTERVAL", "0");
  uint64_t always = 0;
  EXPECT_EQ(log_ready_c(&provider, FI_LOG_WARN, FI_LOG_CQ, &always), 1);
  EXPECT_EQ(log_ready_c(&provider, FI_LOG_WARN, FI_LOG_CQ, &always), 1);
}

TEST_F(Log, ImportedLoggerDecidesAndWrites) {
  static std::string seen;
  static uint64_t flags_seen;
  seen.clear();
  static fi_ops_log ops = {
      .size = sizeof(fi_ops_log),
      .enabled =
          [](const fi_provider*, fi_log_level level, fi_log_subsys, uint64_t flags) {
            flags_seen = flags;
            return level == FI_LOG_INFO ? 1 : 0;
          },
      .ready = [](const fi_provider*, fi_log_level, fi_log_subsys, uint64_t, uint64_t*) { return 7; },
      .log = [](const fi_provider* provider, fi_log_level, fi_log_subsys, const char*, int,
                const char* text) { seen += std::string(provider->name) + "=" + text + ";"; },
  };
  fid_logging object{};
  object.fid.fclass = FI_CLASS_LOG;
  object.ops = &ops;
  fid* opened = nullptr;
  ASSERT_EQ(open_object(FI_VERSION(1, 17), "logging", nullptr, 0, 0, &opened, nullptr), 0);
  fid* again = nullptr;
  EXPECT_EQ(open_object(FI_VERSION(1, 17), "logging", nullptr, 0, 0, &again, nullptr), -FI_EALREADY);
  ASSERT_EQ(fi_import_fid(opened, &object.fid, 0), 0);
  EXPECT_EQ(fi_close(opened), 0);

  set("FI_LOG_PROV", "^shm");
  EXPECT_EQ(written([] {
              log_warn("shm", FI_LOG_CORE, "warned");
              log_info("shm", FI_LOG_CORE, "%s", "informed");
            }),
            "");
  EXPECT_EQ(seen, "shm=informed;");
  EXPECT_EQ(flags_seen, FI_LOG_PROV_FILTERED);
  uint64_t showtime = 0;
  EXPECT_EQ(log_ready_c(nullptr, FI_LOG_WARN, FI_LOG_CORE, &showtime), 7);
}

// A program that imports a logger closes the object with fi_close, and its table may live on a stack that is gone.
TEST_F(Log, ClosingTheImportedObjectRestoresOurs) {
  static std::string seen;
  seen.clear();
  fid_logging object{};
  object.fid.context = &seen;
  {
    fi_ops_log ops{};
    ops.log = [](const fi_provider*, fi_log_level, fi_log_subsys, const char*, int, const char* text) {
      seen += text;
    };
    object.ops = &ops;
    ASSERT_EQ(import(object), 0);
    ops.log = nullptr;
  }
  ASSERT_NE(object.fid.ops, nullptr);
  EXPECT_EQ(object.fid.context, &seen);
  EXPECT_LT(fi_import_fid(&object.fid, &object.fid, 0), 0);
  EXPECT_LT(fi_control(&object.fid, FI_GETWAIT, nullptr), 0);
  EXPECT_EQ(written([] { log_warn("shm", FI_LOG_CORE, "first;"); }), "");
  EXPECT_EQ(written([] { log_info("shm", FI_LOG_CORE, "our filter still decides;"); }), "");
  EXPECT_EQ(seen, "first;");
  EXPECT_EQ(fi_close(&object.fid), 0);
  EXPECT_NE(written([] { log_warn("shm", FI_LOG_CORE, "second"); }), "");
  EXPECT_EQ(seen, "first;");
}

TEST_F(Log, FunctionsThatAreMissingStayOurs) {
  static fi_ops_log filter{};
  filter.enabled = [](const fi_provider*, fi_log_level level, fi_log_subsys, uint64_t) {
    return level == FI_LOG_INFO ? 1 : 0;
  };
  fid_logging object{};
  object.ops = &filter;
  ASSERT_EQ(import(object), 0);
  EXPECT_NE(written([] { log_info("shm", FI_LOG_CORE, "informed"); }), "");
  EXPECT_EQ(written([] { log_warn("shm", FI_LOG_CORE, "warned"); }), "");
  // fi_provider(3), "logging": only the last import is used.
  static fi_ops_log empty{};
  fid_logging last{};
  last.ops = &empty;
  ASSERT_EQ(import(last), 0);
  EXPECT_EQ(written([] { log_info("shm", FI_LOG_CORE, "informed"); }), "");
  EXPECT_NE(written([] { log_warn("shm", FI_LOG_CORE, "warned"); }), "");
  ASSERT_EQ(import(object), 0);
  EXPECT_EQ(fi_close(&last.fid), 0) << "has been replaced";
  EXPECT_EQ(written([] { log_warn("shm", FI_LOG_CORE, "warned"); }), "");
  EXPECT_EQ(fi_close(&object.fid), 0);
  EXPECT_NE(written([] { log_warn("shm", FI_LOG_CORE, "warned"); }), "");
}

TEST_F(Log, OpenRefusesOtherObjects) {
  fid* opened = nullptr;
  EXPECT_EQ(open_object(FI_VERSION(1, 17), "mr_cache", nullptr, 0, 0, &opened, nullptr), -FI_ENOSYS);
  EXPECT_EQ(open_object(FI_VERSION(1, 17), nullptr, nullptr, 0, 0, &opened, nullptr), -FI_EINVAL);
  EXPECT_EQ(open_object(FI_VERSION(9, 0), "logging", nullptr, 0, 0, &opened, nullptr), -FI_ENOSYS);
  ASSERT_EQ(open_object(FI_VERSION(1, 13), "logging", nullptr, 0, 0, &opened, nullptr), 0);
  fid other{};
  other.fclass = FI_CLASS_AV;
  EXPECT_EQ(fi_import_fid(opened, &other, 0), -FI_EINVAL);
  EXPECT_EQ(fi_close(opened), 0);
}

TEST_F(Log, LinesOfThreadsDoNotMix) {
  const std::string all = written([] {
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < 50; ++i) log_warn("shm", FI_LOG_CORE, "0123456789");
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  const std::string line = "weft:" + std::to_string(getpid()) + ":shm:core:<warn> 0123456789\n";
  std::string expected;
  for (int i = 0; i < 200; ++i) expected += line;
  EXPECT_EQ(all, expected);
}

}  // namespace
}  // namespace weft::fi
