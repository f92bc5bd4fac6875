// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Paths of the install tree and the search lists of the loader. Must not know what the library does.
#include "install_tree.hpp"

#include <dlfcn.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "failure.hpp"

namespace fs = std::filesystem;

namespace weft::tool {

namespace {

// Tells the second life of the process that the search path has been set.
constexpr const char* guard_name = "WEFT_LIBRARY_SETTLED";

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Where /proc is missing, the name that this program was executed by (getauxval(3)). Relative names are of the folder in which it began, so this
// is first asked before that changes.
fs::path find_executable() {
  std::error_code error;
  fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (!error) return self;
  const std::string why = error.message();
  const auto* name =
      reinterpret_cast<const char*>(getauxval(AT_EXECFN));  // NOLINT(performance-no-int-to-ptr)
  if (name != nullptr) self = fs::canonical(name, error);
  if (name == nullptr || error)
    fail("cannot tell where this command is installed: /proc/self/exe: {}, and {} is no file", why,
         name != nullptr ? name : "(nothing)");
  return self;
}

}  // namespace

const fs::path& executable() {
  static const fs::path self = find_executable();
  return self;
}

namespace {

[[noreturn]] void execute_again(const std::string& library_path_list, char** argv) {
  if (library_path_list.empty()) {
    unsetenv("LD_LIBRARY_PATH");
  } else {
    setenv("LD_LIBRARY_PATH", library_path_list.c_str(), 1);
  }
  setenv(guard_name, "1", 1);
  execv(executable().c_str(), argv);
  fail("cannot execute {} again: {}", executable().string(), std::strerror(errno));
}

void check_result(Library wanted) {
  std::error_code ignored;
  const fs::path loaded = fs::weakly_canonical(library_path(), ignored);
  const fs::path ours = fs::weakly_canonical(compat_dir(), ignored);
  const bool is_ours = loaded.parent_path() == ours;
  if (wanted == Library::ours && !is_ours) {
    fail("the loader took {} and not the one in {} (is this command setuid, or was it linked with an rpath?)",
         loaded.string(), ours.string());
  }
  if (wanted == Library::stock && is_ours) {
    fail("there is no libfabric.so.1 besides Weft's own: {}", loaded.string());
  }
}

}  // namespace

fs::path prefix() { return executable().parent_path().parent_path(); }
fs::path lib_dir() {
  // The build tree and a staged one have lib/; packages have their distribution's folder.
  std::error_code ignored;
  fs::path installed = prefix() / WEFT_LIBDIR;
  return fs::exists(installed / "weft", ignored) ? installed : prefix() / "lib";
}
fs::path compat_dir() { return lib_dir() / "weft/compat"; }
fs::path plugin_dir() { return lib_dir() / "weft/plugin"; }
fs::path trace_library() { return lib_dir() / "weft/trace/libweft-trace.so"; }

std::string take_out(std::string_view list, const std::string& dir) {
  std::string rest;
  while (!list.empty()) {
    const size_t colon = list.find(':');
    const std::string_view item = list.substr(0, colon);
    // An empty item would mean the current folder to the loader; nobody wants that by accident.
    if (!item.empty() && item != dir) {
      if (!rest.empty()) rest += ':';
      rest += item;
    }
    if (colon == std::string_view::npos) break;
    list.remove_prefix(colon + 1);
  }
  return rest;
}

std::string put_first(std::string_view list, const std::string& dir) {
  const std::string rest = take_out(list, dir);
  return rest.empty() ? dir : dir + ":" + rest;
}

std::string library_path() {
  Dl_info info{};
  void* symbol = dlsym(RTLD_DEFAULT, "fi_getinfo");
  if (!symbol || !dladdr(symbol, &info) || !info.dli_fname) return "(unknown)";
  return info.dli_fname;
}

void prefer_library(const std::string& folder) {
  const std::string list = take_out(from_environment("LD_LIBRARY_PATH"), compat_dir().string());
  setenv("LD_LIBRARY_PATH", put_first(list, folder).c_str(), 1);
  setenv(guard_name, "1", 1);
}

bool is_executed_again() { return std::getenv(guard_name) != nullptr; }

void choose_library(Library wanted, char** argv) {
  if (is_executed_again()) {
    unsetenv(guard_name);  // not for the programs that we start
    check_result(wanted);
    return;
  }
  const std::string list = from_environment("LD_LIBRARY_PATH");
  if (wanted == Library::stock) execute_again(take_out(list, compat_dir().string()), argv);
  if (!fs::exists(compat_dir() / "libfabric.so.1")) {
    fail("Weft's library is not at {}; install it there, or give --stock for the system's libfabric",
         (compat_dir() / "libfabric.so.1").string());
  }
  execute_again(put_first(list, compat_dir().string()), argv);
}

}  // namespace weft::tool
