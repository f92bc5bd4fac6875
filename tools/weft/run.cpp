// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `weft run`: sets the search path and executes. Must not know what the library does.
#include "run.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "install_tree.hpp"

namespace fs = std::filesystem;

namespace weft::tool {

namespace {

constexpr int status_not_executable = 126;
constexpr int status_not_found = 127;

struct Found {
  std::string path;
  int error = 0;  // why it cannot be executed; 0 when it can
};

int executable_error(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return errno;
  if (S_ISDIR(status.st_mode)) return EISDIR;
  return access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

// As execvp(3) looks: a name with a slash is a path, everything else is searched for in PATH. A file that is
// there but may not be
// executed does not end the search, it is only remembered.
Found find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return {name, executable_error(name)};
  const char* value = std::getenv("PATH");
  std::string_view list = value ? value : "/usr/local/bin:/usr/bin:/bin";
  Found result{name, ENOENT};
  while (true) {
    const size_t colon = list.find(':');
    const std::string_view dir = list.substr(0, colon);
    const std::string path = (dir.empty() ? std::string(".") : std::string(dir)) + "/" + name;
    const int error = executable_error(path);
    if (error == 0) return {path, 0};
    if (error == EACCES) result = {path, EACCES};
    if (colon == std::string_view::npos) return result;
    list.remove_prefix(colon + 1);
  }
}

enum class Linking { dynamic, fixed, narrow, unknown };

// A program without PT_INTERP never meets the dynamic loader (elf(5)).
Linking linking_of(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Linking::unknown;
  Elf64_Ehdr header{};
  Linking result = Linking::unknown;
  if (pread(fd, &header, sizeof header, 0) == static_cast<ssize_t>(sizeof header) &&
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0) {
    result = header.e_ident[EI_CLASS] == ELFCLASS64 ? Linking::fixed : Linking::narrow;
    for (unsigned i = 0; result == Linking::fixed && i < header.e_phnum; ++i) {
      Elf64_Phdr program{};
      const off_t at = static_cast<off_t>(header.e_phoff + uint64_t{i} * header.e_phentsize);
      if (pread(fd, &program, sizeof program, at) != static_cast<ssize_t>(sizeof program)) break;
      if (program.p_type == PT_INTERP) result = Linking::dynamic;
    }
  }
  close(fd);
  return result;
}

// Why the loader would run the program in secure mode, where it ignores LD_LIBRARY_PATH (ld.so(8), secure-
// execution mode).
std::optional<std::string> secure_mode(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  if ((status.st_mode & S_ISUID) && status.st_uid != geteuid()) return "it is setuid";
  if ((status.st_mode & S_ISGID) && (status.st_mode & S_IXGRP) && status.st_gid != getegid())
    return "it is setgid";
  if (getxattr(path.c_str(), "security.capability", nullptr, 0) > 0 && geteuid() != 0) {
    return "it has file capabilities";
  }
  return std::nullopt;
}

void warn_of_the_ignored(std::string_view command, const std::string& path, bool plugin) {
  const char* variable = plugin ? "FI_PROVIDER_PATH" : "LD_LIBRARY_PATH";
  if (const auto reason = secure_mode(path)) {
    fmt::print(stderr, "{}: warning: {}: {}, so {} will be ignored and Weft not used\n", command, path,
               *reason, variable);
  }
  switch (linking_of(path)) {
    case Linking::fixed:
      fmt::print(stderr, "{}: warning: {} is statically linked; no library of ours can get into it\n",
                 command, path);
      break;
    case Linking::narrow:
      fmt::print(stderr, "{}: warning: {} is a 32-bit program; Weft's library is 64-bit\n", command, path);
      break;
    case Linking::dynamic:
    case Linking::unknown:
      break;
  }
}

// Changes the environment. Returns the folder that is missing, if one is.
std::optional<std::string> set_environment(bool plugin) {
  const fs::path dir = plugin ? plugin_dir() : compat_dir();
  std::error_code error;
  if (!fs::is_directory(dir, error)) return dir.string();
  const char* variable = plugin ? "FI_PROVIDER_PATH" : "LD_LIBRARY_PATH";
  const char* old = std::getenv(variable);
  setenv(variable, put_first(old ? old : "", dir.string()).c_str(), 1);
  return std::nullopt;
}

}  // namespace

int start_program(std::string_view command, std::span<char*> args, LoadMode mode) {
  if (args.empty()) {
    fmt::print(stderr, "{0}: no program given ({0} --help)\n", command);
    return status_refused;
  }
  const std::string name = args[0];
  const Found found = find_program(name);
  if (found.error != 0) {
    fmt::print(stderr, "{}: {}: {}\n", command, found.path, std::strerror(found.error));
    return found.error == ENOENT || found.error == ENOTDIR ? status_not_found : status_not_executable;
  }
  if (mode != LoadMode::as_it_is) {
    if (const auto missing = set_environment(mode == LoadMode::plugin)) {
      fmt::print(stderr, "{}: Weft's library is not installed: {} is missing\n", command, *missing);
      return status_refused;
    }
  }
  warn_of_the_ignored(command, found.path, mode == LoadMode::plugin);
  std::fflush(nullptr);
  std::vector<char*> argv(args.begin(), args.end());
  argv.push_back(nullptr);
  execvp(name.c_str(), argv.data());  // by name: a shell script without #! runs as execvp(3) says
  const int error = errno;
  fmt::print(stderr, "{}: {}: {}\n", command, found.path, std::strerror(error));
  return error == ENOENT ? status_not_found : status_not_executable;
}

std::string run_help() {
  return R"(NAME
  weft run - run an unmodified libfabric or verbs program on Weft

SYNOPSIS
  weft run [--plugin] [--] PROGRAM [ARGUMENT]...

DESCRIPTION
  Puts Weft's libfabric.so.1, libibverbs.so.1 and librdmacm.so.1 first in LD_LIBRARY_PATH and executes PROGRAM in this process.
  Everything that PROGRAM starts inherits it.

OPTIONS
  --plugin    Leave the program on the libfabric it was built for, and offer it Weft's provider through
              FI_PROVIDER_PATH instead.
  -h, --help  This text.
  --          Ends the options; what follows is PROGRAM, whatever it looks like.

EXIT STATUS
  That of PROGRAM; 125 if Weft refuses, 126 if PROGRAM cannot be executed, 127 if it is not found.
  A setuid or statically linked PROGRAM is executed with a warning: the loader would not let Weft in.

EXAMPLES
  weft run -- fi_info -p shm
  weft run -- fi_pingpong -p shm -e rdm
  weft run --plugin -- fi_info -l
)";
}

int run(std::span<char*> args) {
  bool plugin = false;
  size_t i = 0;
  for (; i < args.size() && args[i][0] == '-'; ++i) {
    const std::string_view option = args[i];
    if (option == "--") {
      ++i;
      break;
    }
    if (option == "-h" || option == "--help") {
      fmt::print("{}", run_help());
      return 0;
    }
    if (option != "--plugin") {
      fmt::print(stderr,
                 "weft run: unknown option {}; options of the program follow its name (weft run --help)\n",
                 option);
      return status_refused;
    }
    plugin = true;
  }
  return start_program("weft run", args.subspan(i), plugin ? LoadMode::plugin : LoadMode::drop_in);
}

}  // namespace weft::tool
