// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The command `weft`: finds the subcommand. Every subcommand knows the public API of libfabric and nothing of
// Weft's insides.
#include <rdma/fabric.h>
#include <weft/extensions.h>
#include <weft/provider.hpp>

#include <cstdio>
#include <exception>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "check.hpp"
#include "failure.hpp"
#include "info.hpp"
#include "kofi.hpp"
#include "mux.hpp"
#include "nic.hpp"
#include "perf.hpp"
#include "run.hpp"
#include "top.hpp"
#include "trace.hpp"

#if __has_include("weft_revision.hpp")  // made by the build
#include "weft_revision.hpp"
#endif
#ifndef WEFT_VERSION
#define WEFT_VERSION "0.1.0"
#endif
#ifndef WEFT_REVISION
#define WEFT_REVISION "unknown"
#endif
#ifndef WEFT_BUILT
#define WEFT_BUILT "unknown compiler"
#endif

namespace {

constexpr const char* help_text = R"(NAME
  weft - run, inspect and measure programs on the Weft fabric stack

SYNOPSIS
  weft run [--plugin] [--] PROGRAM [ARGUMENT]...
  weft info [-v|-j|-l] [--why] [HINT]...
  weft top [--once [--json]] [--metrics] [-p PID]...
  weft trace [-o FILE] [--records N] [--stock] [--] PROGRAM [ARGUMENT]...
  weft perf [-p PROVIDER]... [-t TESTS] [-s SIZES] [OPTION]...
  weft mux [OPTION]... HEADER [OBJECT|ARCHIVE|SOURCE]...
  weft check [OPTION]... PROVIDER|PLUGIN
  weft nic list|info|bind|unbind [OPTION]... [CARD]...
  weft kofi load|list|connect|disconnect [OPTION]... [WORD]...
  weft --version
  weft help [COMMAND]

DESCRIPTION
  run     Runs an unmodified libfabric or verbs program on Weft.
  info    Lists providers and their attributes, and verbs devices; --why tells why hints match nothing.
  top     Shows endpoints, verbs devices and queue pairs of running programs: packets, bytes, what was sent again.
  trace   Writes a timeline of a program's libfabric and verbs calls, for Perfetto.
  perf    Measures latency, message rate and bandwidth of a provider, of Weft or of a stock libfabric.
  mux     Makes a plugin out of a provider's header and objects; says what it lacks.
  check   Says whether a provider, of Weft or of anybody, shows what it claims, and what it is good enough for.
  nic     Shows network cards that Weft can drive by itself, and hands them over (VFIO).
  kofi    Loads the fabric interface in the kernel, lists its providers, connects its block devices.

  Each command has --help.
)";

int usage_error(std::string_view word) {
  fmt::print(stderr,
             "weft: there is no command '{}'; there are: run info top trace perf mux check nic kofi help "
             "(weft --help)\n",
             word);
  return weft::tool::exit_usage;
}

int version() {
  fmt::print("weft {} (revision {}; {})\n", WEFT_VERSION, WEFT_REVISION, WEFT_BUILT);
  fmt::print("libfabric API 1.0 to 2.6, symbols FABRIC_1.0 to FABRIC_1.9; compiled with headers of {}.{}\n",
             FI_MAJOR_VERSION, FI_MINOR_VERSION);
  fmt::print("libibverbs symbols IBVERBS_1.0 to IBVERBS_1.18\n");
  fmt::print("weft/extensions.h {}, weft/provider.hpp {}.{}\n", WEFT_EXTENSIONS_VERSION,
             WEFT_PROVIDER_VERSION_MAJOR, WEFT_PROVIDER_VERSION_MINOR);
  return 0;
}

int help(std::span<char*> args, char** all) {
  if (args.empty()) {
    fmt::print("{}", help_text);
    return 0;
  }
  const std::string_view topic = args[0];
  char option[] = "--help";
  char* help_args[] = {args[0], option, nullptr};
  if (topic == "run") {
    fmt::print("{}", weft::tool::run_help());
    return 0;
  }
  if (topic == "trace") {
    fmt::print("{}", weft::tool::trace_help());
    return 0;
  }
  if (topic == "info") return weft::tool::info(2, help_args, all);
  if (topic == "top") return weft::tool::top(2, help_args);
  if (topic == "perf") return weft::tool::perf(2, help_args, all);
  if (topic == "mux") return weft::tool::mux(2, help_args);
  if (topic == "check") return weft::tool::check(2, help_args);
  if (topic == "nic") return weft::tool::nic(2, help_args);
  if (topic == "kofi") return weft::tool::kofi(2, help_args);
  return usage_error(topic);
}

int dispatch(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "{}", help_text);
    return weft::tool::exit_usage;
  }
  const std::string_view command = argv[1];
  const std::span<char*> rest(argv + 2, static_cast<size_t>(argc - 2));
  if (command == "run") return weft::tool::run(rest);
  if (command == "info") return weft::tool::info(argc - 1, argv + 1, argv);
  if (command == "top") return weft::tool::top(argc - 1, argv + 1);
  if (command == "trace") return weft::tool::trace_program(rest);
  if (command == "perf") return weft::tool::perf(argc - 1, argv + 1, argv);
  if (command == "mux") return weft::tool::mux(argc - 1, argv + 1);
  if (command == "check") return weft::tool::check(argc - 1, argv + 1);
  if (command == "nic") return weft::tool::nic(argc - 1, argv + 1);
  if (command == "kofi") return weft::tool::kofi(argc - 1, argv + 1);
  if (command == "--version" || command == "-V" || command == "version") return version();
  if (command == "help" || command == "--help" || command == "-h") return help(rest, argv);
  return usage_error(command);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return dispatch(argc, argv);
  } catch (const weft::tool::Failure& failure) {
    fmt::print(stderr, "weft{}{}: {}\n", argc > 1 ? " " : "", argc > 1 ? argv[1] : "", failure.what());
    return failure.status();
  } catch (const std::exception& error) {
    fmt::print(stderr, "weft: {}\n", error.what());
    return weft::tool::exit_failed;
  }
}
