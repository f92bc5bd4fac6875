// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What `weft info --system` and `weft top` say where something is missing: /proc and /sys are covered in a mount namespace of a child, and a system
// call is refused by a filter.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string>

#include "failure.hpp"
#include "info_calls.hpp"
#include "info_system.hpp"
#include "install_tree.hpp"
#include "statistics_pages.hpp"

namespace weft::tool {
namespace {

constexpr int cannot_be_tested = 77;

// What the body returns in a child; the test is skipped where it says so.
template <class Body>
int in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool cover_trees() {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  return mount("none", "/proc", "tmpfs", 0, nullptr) == 0 && mount("none", "/sys", "tmpfs", 0, nullptr) == 0;
}

bool forbid(long call) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(code)), code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

int look_without_trees() {
  if (!cover_trees()) return cannot_be_tested;
  int wrong = 0;
  for (const SystemFact& fact : system_facts()) {
    const bool good = !fact.value.empty() && fact.value.find("-1 ") == std::string::npos &&
                      fact.value.find(" of 0") == std::string::npos &&
                      fact.cost.find("no IOMMU") == std::string::npos;
    if (good) continue;
    std::fprintf(stderr, "%s: %s; %s\n", fact.name.c_str(), fact.value.c_str(), fact.cost.c_str());
    wrong = 1;
  }
  return wrong;
}

TEST(InfoLacks, FactsWithoutProcAndSys) {
  const int status = in_child(look_without_trees);
  if (status == cannot_be_tested) GTEST_SKIP() << "no mount namespace";
  EXPECT_EQ(status, 0);
}

TEST(InfoLacks, TopSaysThatProcIsMissing) {
  const int status = in_child([] {
    if (!cover_trees()) return cannot_be_tested;
    try {
      (void)read_statistics_pages({});
    } catch (const Failure& failure) {
      return std::string(failure.what()).find("/proc is not mounted") != std::string::npos ? 0 : 2;
    }
    return 1;
  });
  if (status == cannot_be_tested) GTEST_SKIP() << "no mount namespace";
  EXPECT_EQ(status, 0);
}

TEST(InfoLacks, TheCommandFindsItselfWithoutProc) {
  const std::string before = std::filesystem::read_symlink("/proc/self/exe").string();
  const int status = in_child([&] {
    if (!cover_trees()) return cannot_be_tested;
    return executable() == before ? 0 : 1;
  });
  if (status == cannot_be_tested) GTEST_SKIP() << "no mount namespace";
  EXPECT_EQ(status, 0);
}

TEST(InfoLacks, ARefusedCallIsNamed) {
  const int status = in_child([] {
    if (!forbid(SYS_epoll_create1)) return cannot_be_tested;
    const auto facts = tried_calls();
    const auto refused = [](const SystemFact& fact) { return fact.value.starts_with("no: "); };
    if (std::ranges::count_if(facts, refused) != 1) return 1;
    const auto found = std::ranges::find_if(facts, refused);
    return found->name.find("epoll") != std::string::npos && !found->cost.empty() ? 0 : 2;
  });
  if (status == cannot_be_tested) GTEST_SKIP() << "no filter can be set";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace weft::tool
