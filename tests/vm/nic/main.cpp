// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The program in the guest of `./dev vm nic`: nic_cases [--user UID] [--kills N] [--netdev NAME] WHAT ADDRESS INTERFACE. Prints a line for each case; status 1 if
// one failed. WHAT: device, transfers, driver, short, refusals, hold (until it is killed); or "refused TEXT": opening must be refused with a sentence that has TEXT.
// nic_cases [--user UID] run COMMAND...: the command, as that user.
#include <grp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cases.hpp"
#include "checks.hpp"
#include "os/vfio/device.hpp"

namespace {

using namespace weft::vm;

// What systems give a user (systemd: DefaultLimitMEMLOCK).
constexpr rlim_t locked_bytes_max = 8U << 20;

void become(uid_t user) {
  const rlimit limit{locked_bytes_max, locked_bytes_max};
  require(::setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && ::setgroups(0, nullptr) == 0 && ::setgid(user) == 0 &&
              ::setuid(user) == 0,
          "cannot become %u", user);
}

[[noreturn]] void execute(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  require(false, "%s: %s", arguments[0], std::strerror(errno));
  std::abort();
}

void expect_refusal(const Plan& plan, const std::string& part) {
  check("refused: " + part, [&]() -> std::string {
    const auto device = weft::os::vfio::Device::open(plan.address);
    require(!device, "opened");
    require(device.error().why.find(part) != std::string::npos, "%s", device.error().why.c_str());
    return device.error().why;
  });
}

int run(std::vector<std::string> words) {
  Plan plan;
  uid_t user = 0;
  while (words.size() >= 2 && words[0].starts_with("--")) {
    const unsigned number = static_cast<unsigned>(std::strtoul(words[1].c_str(), nullptr, 10));
    if (words[0] == "--user") user = number;
    if (words[0] == "--netdev") plan.netdev = words[1];
    if (words[0] == "--kills") plan.kills = number;
    words.erase(words.begin(), words.begin() + 2);
  }
  if (words.size() >= 2 && words[0] == "run") {
    if (user != 0) become(user);
    execute({words.begin() + 1, words.end()});
  }
  require(words.size() >= 3, "WHAT ADDRESS INTERFACE");
  const std::string what = words[0];
  plan.address = words[1];
  plan.is_user = user != 0;
  if (what == "refused") {
    if (plan.is_user) become(user);
    expect_refusal(plan, words[2]);
    return failures() == 0 ? 0 : 1;
  }
  Surroundings around{Wire(words[2]), KernelLog(), Monitor()};
  if (plan.is_user) become(user);
  const auto function = weft::pci::function_at(plan.address);
  require(function.has_value(), "there is no %s", plan.address.c_str());
  const bool is_e1000e = function->vendor == 0x8086;
  if (what == "device") device_cases(plan, around, is_e1000e);
  if (what == "transfers") transfer_cases(plan, around);
  if (what == "refusals") refusal_cases(plan);
  if (what == "driver") driver_cases(plan, around);
  if (what == "hold") {
    const auto device = taken(weft::os::vfio::Device::open(plan.address));
    ::pause();
  }
  if (what == "short") short_driver_cases(plan, around);
  return failures() == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& failure) {
    std::printf("FAILED %s\n", failure.what());
    return 1;
  }
}
