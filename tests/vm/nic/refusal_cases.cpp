// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Refusals of os::vfio::Device::open, as the program's arguments say what to expect.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "cases.hpp"
#include "checks.hpp"
#include "os/vfio/device.hpp"

namespace weft::vm {
namespace {

using os::vfio::Device;

// While another process has it.
std::string held(const Plan& plan) {
  int ends[2];
  require(::pipe(ends) == 0, "pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    auto device = Device::open(plan.address);
    const char verdict = device ? 'y' : 'n';
    (void)!::write(ends[1], &verdict, 1);
    ::pause();
    ::_exit(0);
  }
  char verdict = 0;
  require(::read(ends[0], &verdict, 1) == 1 && verdict == 'y', "the other process has not got it");
  const auto device = Device::open(plan.address);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  require(!device && device.error().code == EBUSY, "opened twice");
  require(device.error().why.find(std::to_string(child)) != std::string::npos, "%s",
          device.error().why.c_str());
  taken(Device::open(plan.address));
  return device.error().why;
}

}  // namespace

void refusal_cases(const Plan& plan) {
  check("held by another process", [&] { return held(plan); });
}

}  // namespace weft::vm
