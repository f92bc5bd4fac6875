// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Where this command stands in its install tree, and how a program comes to load the library from there.
// Must not know what the library does.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace weft::tool {

// This executable, also where /proc is missing.
const std::filesystem::path& executable();
// The folder above bin/ of it.
std::filesystem::path prefix();
// Its folder of libraries.
std::filesystem::path lib_dir();
// The drop-in libfabric.so.1 and the plugin for a stock libfabric, as installed below the prefix.
std::filesystem::path compat_dir();
std::filesystem::path plugin_dir();
// What `weft trace` loads before a program's libraries.
std::filesystem::path trace_library();

// Colon-separated search lists. `put_first` leaves one occurrence of `dir`, at the front.
std::string put_first(std::string_view list, const std::string& dir);
std::string take_out(std::string_view list, const std::string& dir);

enum class Library {
  ours,   // lib/weft/compat of this install tree
  stock,  // whatever the system has
};

// Sees to it that this process runs on the wanted library: executes itself again, once, with the search path
// changed.
// The loader has read LD_LIBRARY_PATH long before main(), so there is no other way for a normally linked
// program.
// Throws Failure when the library is not installed or the loader took another one all the same.
void choose_library(Library wanted, char** argv);
// Between that and choose_library(): what is said once was said before.
bool is_executed_again();

// Before this command is executed again: choose_library(Library::stock) will take the library of that folder.
void prefer_library(const std::string& folder);

// The file that fi_getinfo() comes from.
std::string library_path();

}  // namespace weft::tool
