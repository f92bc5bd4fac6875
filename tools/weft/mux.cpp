// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `weft mux`: writes the one source that makes a plugin, compiles and links it, and says in words what a provider lacks. Knows weft/provider.hpp and
// a compiler; must not know what the provider does.
#include "mux.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli.hpp"
#include "failure.hpp"
#include "install_tree.hpp"
#include "mux_words.hpp"
#include "temporary.hpp"

// What every plugin is linked with, the same words as in weft-provider.pc.
#ifndef WEFT_PLUGIN_LINK
#define WEFT_PLUGIN_LINK "-Wl,-z,defs"
#endif

namespace fs = std::filesystem;

namespace weft::tool {
namespace {

const Manual manual = {
    R"(NAME
  weft mux - make a libfabric plugin out of a provider's header and objects

SYNOPSIS
  weft mux [OPTION]... HEADER [OBJECT|ARCHIVE|SOURCE]...
  weft mux -o OUTPUT OBJECT|ARCHIVE...

DESCRIPTION
  HEADER has a type with what weft/provider.hpp prescribes (weft::Packets); the files have its functions: objects
  (*.o) and archives (*.a), compiled with -fPIC, or sources (*.cpp, *.cc, *.cxx), which are compiled. What is
  missing, or has another type, is named. The result is one file for FI_PROVIDER_PATH of any libfabric.

  Without a header, one of the objects has WEFT_PROVIDER_OVER_PACKETS (weft/plugin.hpp) and is only linked: with the
  core of this install, whichever version it was compiled for.
)",
    R"(EXIT STATUS
  0  the plugin is made
  1  the provider lacks something, or the compiler refuses it
  2  the command line makes no sense

ENVIRONMENT
  CXX  the compiler, g++ if it is not set

EXAMPLES
  weft mux unix_packets.hpp unix_packets.o -o libminimal-fi.so
  weft mux --type vendor::Nic nic.hpp libnic.a --flag -I../sdk
  weft mux -o libnic-fi.so libnic.a
)"};

struct Wanted {
  std::string header;
  std::vector<std::string> files;
  std::string output;
  std::string type;
  std::string name;
  std::vector<std::string> flags;
};

struct Ran {
  bool ok;
  std::string said;
};

Ran execute(const std::vector<std::string>& words, const fs::path& log) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  // The words that are looked for are English; plugins of others are not asked for.
  std::vector<char*> environment;
  const auto starts = [](const char* entry, const char* with) {
    return std::strncmp(entry, with, std::strlen(with)) == 0;
  };
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!starts(*entry, "LC_") && !starts(*entry, "LANG") && !starts(*entry, "FI_PROVIDER"))
      environment.push_back(*entry);
  environment.push_back(nullptr);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0)
    fail("{} cannot be executed: {} (CXX names the compiler)", words[0], std::strerror(failed));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::ifstream in(log);
  std::string said{std::istreambuf_iterator<char>(in), {}};
  return {WIFEXITED(status) && WEXITSTATUS(status) == 0, std::move(said)};
}

bool has_extension(const std::string& file, std::initializer_list<const char*> extensions) {
  return std::ranges::any_of(extensions, [&](const char* one) { return fs::path(file).extension() == one; });
}

bool is_source(const std::string& file) { return has_extension(file, {".cpp", ".cc", ".cxx", ".C"}); }

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

class Maker {
 public:
  explicit Maker(const Wanted& wanted) : wanted_(wanted), prefix_(prefix()) {
    const char* cxx = std::getenv("CXX");
    compiler_ = words_of(cxx != nullptr && *cxx != 0 ? cxx : "g++");
    const fs::path archive = lib_dir() / "libweft-core.a";
    if (!fs::exists(archive))
      fail("{} is not there: this install has no provider author's kit", archive.string());
  }

  void make() {
    if (wanted_.header.empty()) return link(wanted_.files);
    check();
    warn_of_taken_name();
    std::vector<std::string> objects;
    for (const std::string& file : wanted_.files)
      objects.push_back(is_source(file) ? compile(file, "source" + std::to_string(objects.size()) + ".o")
                                        : file);
    // First, because archives give what those before them miss.
    objects.insert(objects.begin(),
                   compile(write("plugin.cpp", "#include <weft/plugin.hpp>\n" + include() +
                                                   "WEFT_PROVIDER_OVER_PACKETS(" + wanted_.type + ", \"" +
                                                   wanted_.name + "\");\n"),
                           "plugin.o"));
    link(objects);
  }

 private:
  std::string include() const { return "#include \"" + fs::absolute(wanted_.header).string() + "\"\n"; }
  std::string write(const std::string& name, const std::string& text) const {
    const fs::path path = folder_ / name;
    std::ofstream(path) << text;
    return path.string();
  }
  std::vector<std::string> command(std::initializer_list<std::string> more) const {
    std::vector<std::string> words = compiler_;
    words.insert(words.end(), {"-std=c++20", "-I" + (prefix_ / "include").string()});
    words.insert(words.end(), wanted_.flags.begin(), wanted_.flags.end());
    words.insert(words.end(), more);
    return words;
  }

  // Function by function, before anything that would fail with it in longer words.
  void check() const {
    const std::string source = write(
        "check.cpp", "#include <weft/provider.hpp>\n" + include() + "using WeftChecked = " + wanted_.type +
                         ";\nstatic_assert(::weft::explain_packets<WeftChecked>());\n");
    const Ran ran = execute(command({"-fsyntax-only", source}), folder_ / "log");
    if (ran.ok) return;
    const std::vector<std::string> complaints = complaints_of(ran.said);
    if (complaints.empty()) not_checked(ran);
    std::string text = fmt::format("{} in {} is no provider:", wanted_.type, wanted_.header);
    const std::string said = types_of(complaints);
    for (const std::string& complaint : complaints) {
      text += "\n  " + complaint;
      if (const std::string name = name_in(complaint); !name.empty())
        text += "\n    " + answer_of_types(said, name);
    }
    fail("{}\n(weft/provider.hpp says what each must do)", text);
  }
  // What the compiler says of the types that are there instead.
  std::string types_of(const std::vector<std::string>& complaints) const {
    std::vector<std::string> names;
    for (const std::string& complaint : complaints)
      if (std::string name = name_in(complaint); !name.empty()) names.push_back(std::move(name));
    const std::string source = write("types.cpp", include() + question_of_types(wanted_.type, names));
    return execute(command({"-fsyntax-only", source}), folder_ / "log").said;
  }
  // Of two providers with one name a libfabric takes one.
  void warn_of_taken_name() const {
    for (const bool stock : {false, true}) {
      std::vector<std::string> words = {executable().string(), "info", "-l"};
      if (stock) words.emplace_back("--stock");
      const Ran ran = execute(words, folder_ / "log");
      const std::vector<std::string> names = ran.ok ? names_listed(ran.said) : std::vector<std::string>();
      if (std::ranges::find(names, wanted_.name) != names.end())
        fmt::print(
            stderr,
            "weft mux: warning: {} has a provider \"{}\" of its own, and of two with one name the higher "
            "version is used (--name gives another)\n",
            stock ? "the system's libfabric" : "Weft", wanted_.name);
    }
  }
  [[noreturn]] void not_checked(const Ran& checked) const {
    const Ran header = execute(command({"-fsyntax-only", write("header.cpp", include())}), folder_ / "log");
    if (!header.ok) fail("{} does not compile:\n{}", wanted_.header, header.said);
    const std::string source = write("type.cpp", include() + "using WeftChecked = " + wanted_.type + ";\n");
    if (!execute(command({"-fsyntax-only", source}), folder_ / "log").ok) {
      const std::string asked =
          write("meant.cpp", include() + "using WeftMeant = decltype(" + wanted_.type + "());\n");
      const std::string meant =
          type_meant(execute(command({"-fsyntax-only", asked}), folder_ / "log").said, wanted_.type);
      if (!meant.empty())
        fail("{} has no type {}, but {}: --type {}", wanted_.header, wanted_.type, meant, meant);
      fail("{} has no type {} (--type names another)", wanted_.header, wanted_.type);
    }
    fail("{} in {} is no provider:\n{}", wanted_.type, wanted_.header, checked.said);
  }
  std::string compile(const std::string& source, const std::string& object) const {
    std::string made = (folder_ / object).string();
    const Ran ran = execute(command({"-O2", "-g", "-fPIC", "-fvisibility=hidden", "-c", source, "-o", made}),
                            folder_ / "log");
    if (!ran.ok) fail("{} does not compile:\n{}", source, ran.said);
    return made;
  }
  void link(const std::vector<std::string>& objects) const {
    std::vector<std::string> words = compiler_;
    // Beside its place first: a plugin that is in use is not overwritten, and a failure leaves the old one.
    const std::string made = wanted_.output + ".new";
    words.insert(words.end(), {"-shared", "-o", made});
    words.insert(words.end(), objects.begin(), objects.end());
    words.insert(words.end(), {"-L" + lib_dir().string(), "-lweft-core", "-lweft-common", "-ldl", "-pthread",
                               "-Wl,--require-defined=fi_prov_ini",
                               "-Wl,--version-script=" + (lib_dir() / "weft" / "plugin.map").string()});
    for (const std::string& word : words_of(WEFT_PLUGIN_LINK)) words.push_back(word);
    for (const std::string& flag : wanted_.flags)
      if (flag.starts_with("-l") || flag.starts_with("-L")) words.push_back(flag);
    const Ran ran = execute(words, folder_ / "log");
    if (ran.ok) {
      fs::rename(made, wanted_.output);
      return;
    }
    std::error_code ignored;
    fs::remove(made, ignored);
    const std::vector<std::string> undefined = undefined_in(ran.said);
    if (wanted_.header.empty() && ran.said.find("required symbol") != std::string::npos)
      fail("none of the files has WEFT_PROVIDER_OVER_PACKETS (weft/plugin.hpp): give the header, too");
    if (!wanted_.header.empty() && ran.said.find("multiple definition of `fi_prov_ini'") != std::string::npos)
      fail(
          "one of the files has WEFT_PROVIDER_OVER_PACKETS (weft/plugin.hpp) already: leave out the header, "
          "as in weft mux -o {} {}",
          wanted_.output, fmt::join(wanted_.files, " "));
    if (undefined.empty()) fail("the linker refuses:\n{}", ran.said);
    std::string text = fmt::format("{} declares, or uses, what none of the files has:",
                                   wanted_.header.empty() ? "the provider" : wanted_.header);
    for (const std::string& symbol : undefined) text += "\n  " + symbol;
    fail("{}", text);
  }

  const Wanted& wanted_;
  fs::path prefix_;
  std::vector<std::string> compiler_;
  TemporaryFolder folder_{"weft-mux"};
};

// Before the compiler runs for long.
void writable(const std::string& output) {
  const fs::path folder = fs::absolute(output).parent_path();
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    fail("{} cannot be written: {}: {}", output, folder.string(), std::strerror(errno));
}

void complete(Wanted& wanted) {
  const auto missing = [](const std::string& file) {
    if (!fs::exists(file)) fail_usage("{}: there is no such file", file);
  };
  missing(wanted.header);
  if (has_extension(wanted.header, {".o", ".a"})) {
    if (wanted.output.empty()) fail_usage("without a header the plugin needs a name (-o)");
    wanted.files.insert(wanted.files.begin(), std::exchange(wanted.header, {}));
  }
  for (const std::string& file : wanted.files) {
    missing(file);
    if (!is_source(file) && !has_extension(file, {".o", ".a"}))
      fail_usage("{}: neither an object, an archive nor a C++ source", file);
  }
  if (!wanted.output.empty() && !wanted.output.ends_with("fi.so"))
    fail_usage("{}: libfabric loads files whose names end in \"fi.so\"", wanted.output);
  if (wanted.header.empty()) return writable(wanted.output);
  const std::string file_name = fs::path(wanted.header).filename().string();
  if (wanted.type.empty()) wanted.type = type_of_header(file_name);
  if (wanted.name.empty() && !wanted.output.empty())
    wanted.name = name_of_plugin(fs::path(wanted.output).filename().string());
  if (wanted.name.empty()) wanted.name = fs::path(file_name).stem().string();
  if (const std::string fault = fault_of_name(wanted.name); !fault.empty())
    fail_usage("\"{}\" is no name for a provider: {} (--name)", wanted.name, fault);
  if (wanted.output.empty()) wanted.output = "lib" + wanted.name + "-fi.so";
  writable(wanted.output);
}

}  // namespace

int mux(int argc, char** argv) {
  CLI::App app("weft mux", "mux");
  set_manual(app, manual);
  Wanted wanted;
  app.add_option("HEADER", wanted.header, "The header with the type, or an object with the macro")
      ->required();
  app.add_option("FILE", wanted.files, "Objects, archives and sources with its functions");
  app.add_option("-o,--output", wanted.output, "The plugin (default: lib<name>-fi.so in this folder)");
  app.add_option("-t,--type", wanted.type,
                 "The type (default: the header's name, as in unix_packets.hpp and UnixPackets)");
  app.add_option("-n,--name", wanted.name,
                 "The provider's name (default: that of the output, else of the header)");
  app.add_option("--flag", wanted.flags, "One more flag for the compiler; -l and -L for the linker, too")
      ->allow_extra_args(false)
      ->take_all();
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  complete(wanted);
  Maker(wanted).make();
  const fs::path folder = fs::absolute(wanted.output).parent_path();
  if (wanted.name.empty()) {
    fmt::print("{}; FI_PROVIDER_PATH={} fi_info -l\n", wanted.output, folder.string());
    return exit_ok;
  }
  fmt::print("{}: the provider \"{}\"; FI_PROVIDER_PATH={} fi_info -p {}\n", wanted.output, wanted.name,
             folder.string(), wanted.name);
  return exit_ok;
}

}  // namespace weft::tool
