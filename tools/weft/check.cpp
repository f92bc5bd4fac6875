// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `weft check`: puts a provider before the conformance program, in processes that may crash, and says what it showed of what it claims.
// Knows the public interface, the conformance program and the loader's search path; never calls the provider itself.
#include "check.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "check_child.hpp"
#include "check_claims.hpp"
#include "check_report.hpp"
#include "check_table.hpp"
#include "cli.hpp"
#include "failure.hpp"
#include "install_tree.hpp"
#include "temporary.hpp"

namespace fs = std::filesystem;

namespace weft::tool {

namespace {

using namespace checking;

constexpr unsigned question_seconds = 30;           // for what fi_getinfo(3) is asked
constexpr int loader_failed = 127;                  // ld.so(8)
constexpr std::chrono::seconds progress_pause{20};  // between two lines about it where there is no terminal

// The provider itself failed before a case could be run: an answer, and no failure of the check.
struct ProviderFailed : Failure {
  using Failure::Failure;
};

const Manual manual = {
    R"(NAME
  weft check - whether a provider shows what it claims

SYNOPSIS
  weft check [OPTION]... PROVIDER|PLUGIN
  weft check --list

DESCRIPTION
  PROVIDER is a name as fi_info shows it ("shm", "tcp;ofi_rxm"), PLUGIN the file of a plugin (lib...-fi.so), after which a
  layer may be named (./libfoo-fi.so;ofi_rxm). Runs the conformance cases over it, which know the public interface alone, in
  processes of their own: a case that crashes or hangs is counted and named. Prints for each type of endpoint what is claimed,
  what was shown and what is broken, and which programs and layers the provider is good enough for, with reasons.

  CLAIMED is what fi_getinfo(3) answers ("yes"), what the manual asks of every provider ("always"), or what no attribute tells
  ("by call"). A case that needs more than is claimed is not run.
)",
    R"(EXIT STATUS
  0  what is claimed was shown
  1  something that is claimed is broken; with --for: it is not good enough
  2  the command line makes no sense, nobody has that name, or the plugin cannot be loaded
  3  the check itself could not be done: a process that cannot be started, no memory, no cases

EXAMPLES
  weft check shm
  weft check ./libminimal-fi.so
  weft check --stock 'tcp;ofi_rxm'
  weft check --only FI_TAGGED -v ./libfoo-fi.so
  weft check --for ompi-mtl './libfoo-fi.so;ofi_rxm'
)"};

struct Options {
  std::string target, library, only, format = "text", type, purpose;
  bool stock = false, list = false, verbose = false;
  unsigned seconds = 60, wait_ms = 4000;
};

void declare(CLI::App& app, Options& o) {
  app.add_option("TARGET", o.target, "The provider's name, or the plugin's file")
      ->option_text("PROVIDER|PLUGIN");
  app.add_flag("--stock", o.stock, "Over the system's libfabric instead of Weft's");
  app.add_option("--library", o.library, "Over this libfabric.so.1")->option_text("FILE");
  app.add_option(
         "--only", o.only,
         "Only these capabilities, as --list names them, or cases (patterns with *), with commas between")
      ->option_text("WHAT");
  app.add_option("--for", o.purpose,
                 "Only whether it is good enough for that: ompi-mtl, ompi-btl, mpich, rxm or rxd")
      ->option_text("PROGRAM");
  app.add_option("--type", o.type, "Only this type of endpoint: rdm, msg or dgram")->option_text("TYPE");
  app.add_option("--format", o.format, "text or json")->option_text("FORMAT");
  app.add_option("--case-time", o.seconds, "How long a case may take, in seconds")
      ->option_text("SECONDS")
      ->check(CLI::Range(1, 3600));
  app.add_option("--wait-time", o.wait_ms, "How long a case waits for what should come, in milliseconds")
      ->option_text("MS")
      ->check(CLI::Range(50, 600'000));
  app.add_flag("-v,--verbose", o.verbose, "All that the failed cases said, and the cases that were not run");
  app.add_flag("--list", o.list, "The capabilities and their cases");
  set_manual(app, manual);
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

fs::path conformance_program() {
  fs::path program = prefix() / "libexec/weft/weft_conformance";
  if (access(program.c_str(), X_OK) != 0)
    fail("{} is not there, which has the cases (is GoogleTest installed where Weft was built?)",
         program.string());
  return program;
}

std::string this_program() { return executable().string(); }

// The provider, the library that it is looked for in, and the environment of the processes that meet them.
struct Subject {
  std::string provider, plugin;
  TemporaryFolder folder{"weft-check"};
  Environment environment;
};

std::string library_folder(const Options& o, Subject& subject) {
  if (o.library.empty()) {
    if (!fs::exists(compat_dir() / "libfabric.so.1"))
      fail_usage("Weft's library is not at {}; give --stock or --library",
                 (compat_dir() / "libfabric.so.1").string());
    return compat_dir().string();
  }
  const fs::path file = fs::absolute(o.library);
  if (!fs::is_regular_file(file)) fail_usage("--library {}: there is no such file", o.library);
  const fs::path own = subject.folder.path() / "library";
  fs::create_directory(own);
  fs::create_symlink(fs::canonical(file), own / "libfabric.so.1");
  return own.string();
}

// Whether the target is meant as a file.
bool is_file_name(const std::string& target) {
  const std::string first = target.substr(0, target.find(';'));
  return first.find('/') != std::string::npos || first.ends_with(".so");
}

void find_plugin(const Options& o, Subject& subject,
                 std::vector<std::pair<std::string, std::string>>& variables) {
  const size_t semicolon = o.target.find(';');
  const fs::path file = o.target.substr(0, semicolon);
  if (!fs::exists(file)) fail_usage("{}: there is no such file", file.string());
  if (!fs::is_regular_file(file)) fail_usage("{} is not a file", file.string());
  subject.plugin = file.string();
  const std::string real = fs::canonical(file).string();
  const Answered answered = run_to_end(this_program(), {"check", "--plugin-name", real},
                                       environment_with(variables), question_seconds);
  if (answered.status != 0) {
    std::string why = answered.err.substr(0, answered.err.find_last_not_of('\n') + 1);
    if (!answered.ending.empty())
      why = "the process that loaded it " + answered.ending + (why.empty() ? "" : ": " + why);
    fail_usage("{} cannot be used: {}", file.string(), why);
  }
  subject.provider = answered.out.substr(0, answered.out.find('\n'));
  if (semicolon != std::string::npos) subject.provider += o.target.substr(semicolon);
  // Only that plugin is seen, and what lies beside it ($ORIGIN in ld.so(8)). Libraries look for names that end so (fi_provider(3), DL provider).
  std::string name = file.filename().string();
  if (!name.ends_with("-fi.so")) name = file.stem().string() + "-fi.so";
  const fs::path own = subject.folder.path() / "plugin";
  fs::create_directory(own);
  fs::create_symlink(real, own / name);
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(real).parent_path())) {
    const std::string beside = entry.path().filename().string();
    if (beside.find(".so") != std::string::npos && !beside.ends_with("fi.so"))
      fs::create_symlink(entry.path(), own / beside);
  }
  variables.emplace_back("FI_PROVIDER_PATH", own.string());
}

void prepare(const Options& o, Subject& subject) {
  std::vector<std::pair<std::string, std::string>> variables;
  const char* list = std::getenv("LD_LIBRARY_PATH");
  const std::string old = take_out(list != nullptr ? list : "", compat_dir().string());
  variables.emplace_back("LD_LIBRARY_PATH", o.stock ? old : put_first(old, library_folder(o, subject)));
  // What would change the question.
  for (const char* name : {"FI_PROVIDER", "WEFT_LIBRARY_SETTLED", "WEFT_TEST_PROVIDER", "WEFT_TEST_NODE",
                           "WEFT_TEST_NO_SKIP", "WEFT_TEST_BIG"})
    variables.emplace_back(name, "");
  for (char** one = environ; *one != nullptr; ++one)
    if (const std::string_view text = *one; text.starts_with("GTEST_"))
      variables.emplace_back(text.substr(0, text.find('=')), "");
  // The children run elsewhere.
  std::string plugin_folders;
  const char* folders = std::getenv("FI_PROVIDER_PATH");
  for (std::string rest = folders != nullptr ? folders : ""; !rest.empty();) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    if (colon > 0)
      plugin_folders += (plugin_folders.empty() ? "" : ":") + fs::absolute(rest.substr(0, colon)).string();
    rest.erase(0, colon + 1);
  }
  if (is_file_name(o.target)) {
    find_plugin(o, subject, variables);
  } else {
    subject.provider = o.target;
    variables.emplace_back("FI_PROVIDER_PATH", plugin_folders);
  }
  variables.emplace_back("WEFT_TEST_MANUAL_ONLY", "1");
  variables.emplace_back("WEFT_TEST_WAIT_MS", std::to_string(o.wait_ms));
  variables.emplace_back("WEFT_TEST_PROVIDER", subject.provider);
  subject.environment = environment_with(variables);
}

Offer ask(const Options& o, const Subject& subject) {
  Environment environment = subject.environment;
  std::erase_if(environment, [](const std::string& one) { return one.starts_with("FI_LOG_"); });
  environment.emplace_back("FI_LOG_LEVEL=warn");  // a library says there why it does not take a plugin
  const Answered answered =
      run_to_end(this_program(), {"check", "--offer-of", subject.provider}, environment, question_seconds);
  if (!answered.ending.empty())
    throw ProviderFailed(fmt::format("asking fi_getinfo for {}: the process {}: {}", subject.provider,
                                     answered.ending, answered.err));
  if (answered.status == loader_failed) fail_usage("the library cannot be used: {}", answered.err);
  if (answered.status != 0)
    fail("asking fi_getinfo for {}: the process exited with status {}: {}", subject.provider, answered.status,
         answered.err);
  Offer offer = read_offer(answered.out);
  const bool ours = fs::weakly_canonical(offer.library).parent_path() == fs::weakly_canonical(compat_dir());
  if (o.stock && ours) fail("there is no libfabric.so.1 besides Weft's own: {}", offer.library);
  if (!o.stock && o.library.empty() && !ours)
    fail("the loader took {} and not the one in {}", offer.library, compat_dir().string());
  if (!o.library.empty() && !fs::equivalent(offer.library, o.library))
    fail("the loader took {} and not {}", offer.library, o.library);
  if (!o.library.empty()) offer.library = fs::canonical(o.library).string();
  if (offer.types.empty()) {
    std::string why = answered.err.substr(0, answered.err.find_last_not_of('\n') + 1);
    fail_usage("{} does not offer {}{}{}{}", offer.library, subject.provider,
               offer.all.empty() ? "" : fmt::format("; it has: {}", fmt::join(offer.all, " ")),
               !o.stock && o.library.empty() ? " (--stock asks the system's libfabric)" : "",
               why.empty() ? "" : "\n" + why);
  }
  return offer;
}

std::vector<std::string> all_cases(const Environment& environment) {
  const Answered answered =
      run_to_end(conformance_program().string(), {"--gtest_list_tests"}, environment, question_seconds);
  if (answered.status != 0)
    fail("the conformance program cannot say what it has: {} {}", answered.ending, answered.err);
  std::vector<std::string> names = read_case_list(answered.out);
  if (names.empty()) fail("the conformance program has no cases");
  return names;
}

// What --only names: capabilities, or patterns of cases.
std::vector<std::string> words_of(std::string_view list) {
  std::vector<std::string> words;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    std::string_view word = list.substr(at, end - at);
    while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
    while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
    if (!word.empty()) words.emplace_back(word);
    at = end + 1;
  }
  return words;
}

// Some capabilities go by several names, with commas between; each of them will do.
bool names_case(const std::string& word, const std::string& name) {
  if (matches(word, name)) return true;
  const Capability* capability = capability_of(name);
  if (capability == nullptr) return false;
  const std::vector<std::string> names = words_of(lower(capability->name));
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& one) { return matches(lower(word), one); });
}

bool is_wanted(const Options& o, const std::string& name) {
  if (!o.purpose.empty() && !needs_case(*verdict_of(o.purpose), name)) return false;
  if (o.only.empty()) return true;
  const std::vector<std::string> words = words_of(o.only);
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return names_case(word, name); });
}

// Each word of --only must name something: a misspelt one would be a capability that nobody looked at.
void check_words(const Options& o, const std::vector<std::string>& names) {
  if (!o.only.empty() && words_of(o.only).empty()) fail_usage("--only {}: names nothing", o.only);
  for (const std::string& word : words_of(o.only))
    if (std::none_of(names.begin(), names.end(),
                     [&](const std::string& name) { return names_case(word, name); }))
      fail_usage("--only {}: no capability and no case is named so (weft check --list)", word);
}

int list_cases(const Options& o) {
  const std::vector<std::string> names = all_cases(environment_with({}));
  check_words(o, names);
  const Capability* none = nullptr;
  std::vector<const Capability*> order{none};
  for (const Capability& capability : capabilities()) order.push_back(&capability);
  for (const Capability* capability : order) {
    std::string text;
    for (const std::string& name : names)
      if (capability_of(name) == capability && is_wanted(o, name)) text += "    " + name + "\n";
    if (!text.empty())
      fmt::print("{} ({})\n{}", capability ? capability->name : "in no table",
                 capability ? capability->manual : "", text);
  }
  return exit_ok;
}

std::string_view endpoint_word(fi_ep_type type) {
  return type == FI_EP_RDM ? "rdm" : type == FI_EP_MSG ? "msg" : "dgram";
}

// The cases of one type of endpoint.
TypeReport run_type(const Options& o, const Subject& subject, fi_ep_type type, const Answers& answers,
                    const std::vector<std::string>& names, int& interrupted) {
  std::vector<std::string> cases;
  for (const std::string& name : names)
    if (belongs_to(name, type) && is_wanted(o, name)) cases.push_back(name);
  RunOptions run;
  run.program = conformance_program().string();
  run.environment = subject.environment;
  run.environment.push_back(fmt::format("WEFT_TEST_ENDPOINT={}", endpoint_word(type)));
  run.case_seconds = o.seconds;
  run.interrupted = &interrupted;
  const bool shown = isatty(STDERR_FILENO);
  auto said = std::chrono::steady_clock::now();
  if (shown) {
    run.progress = [&](const std::string& name, size_t done) {
      fmt::print(stderr, "\r\033[K{} {}/{} {}", name_of(type), done + 1, cases.size(), name.substr(0, 60));
      std::fflush(stderr);
    };
  } else {
    run.progress = [&](const std::string& name, size_t done) {
      const auto now = std::chrono::steady_clock::now();
      if (now - said < progress_pause) return;
      said = now;
      fmt::print(stderr, "weft check: {} {}/{} {}\n", name_of(type), done + 1, cases.size(), name);
    };
  }
  // Told once, whatever the case was about.
  CaseResult closing{"Closing.after_every_case", Outcome::passed, {}};
  run.unclosed = [&](const std::string& name, const std::string& error) {
    closing.outcome = Outcome::failed;
    if (closing.reasons.empty()) closing.reasons.emplace_back();
    closing.reasons.push_back(name + ": fi_close returned " + error);
  };
  TypeReport report{type, answers, run_cases(run, cases)};
  if (shown) fmt::print(stderr, "\r\033[K");
  if (!closing.reasons.empty())
    closing.reasons.front() =
        fmt::format("in {} cases an object could not be closed at the end, the first: {}",
                    closing.reasons.size() - 1, closing.reasons[1]);
  if (belongs_to(closing.name, type) && !cases.empty() && o.only.empty() && o.purpose.empty())
    report.results.push_back(std::move(closing));
  return report;
}

// What this program asks itself, in a process that may crash: the provider's code runs there alone.
constexpr std::string_view offer_question = "--offer-of", name_question = "--plugin-name";

bool is_question(std::string_view word) { return word == offer_question || word == name_question; }

[[noreturn]] void answer_parent(std::string_view question, const char* about) {
  int status = exit_ok;
  // What a provider prints is no answer.
  std::FILE* answers = fdopen(dup(STDOUT_FILENO), "w");
  if (answers == nullptr || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) _exit(exit_failed);
  if (question == name_question) {
    status = print_plugin_name(about, answers);
  } else {
    print_offer(about, answers);
  }
  std::fflush(nullptr);
  _exit(status);  // what a library does at the exit is not asked here
}

int answer(const Options& o) {
  Subject subject;
  prepare(o, subject);
  Report report;
  report.offer = ask(o, subject);
  report.provider = subject.provider;
  report.plugin = subject.plugin;
  const std::vector<std::string> names = all_cases(subject.environment);
  check_words(o, names);
  const std::optional<Verdict> only_for = verdict_of(o.purpose);
  int interrupted = 0;
  for (const fi_ep_type type : {FI_EP_RDM, FI_EP_MSG, FI_EP_DGRAM}) {
    const auto found = report.offer.types.find(std::string(name_of(type)));
    if (found == report.offer.types.end() || (!o.type.empty() && o.type != endpoint_word(type))) continue;
    if (only_for && type != type_of(*only_for)) continue;
    report.types.push_back(run_type(o, subject, type, found->second, names, interrupted));
    if (interrupted != 0) break;
  }
  // What was found until then is worth something, though no verdict.
  if (interrupted != 0) {
    report.interrupted = true;
    fmt::print("{}", o.format == "json" ? as_json(report) : as_text(report, o.verbose));
    std::fflush(stdout);
    fmt::print(stderr, "weft check: was interrupted; what was found until then is all there is\n");
    return interrupted;
  }
  if (!o.only.empty() && std::all_of(report.types.begin(), report.types.end(),
                                     [](const TypeReport& type) { return type.results.empty(); }))
    fail_usage("--only {}: {} has no endpoints that these cases are about", o.only, subject.provider);
  if (report.types.empty() && !only_for)
    fail_usage("{} has no endpoints of type {}", subject.provider, o.type);
  if (o.only.empty() && o.type.empty()) {
    for (const Verdict verdict : verdicts) {
      if (only_for && verdict != *only_for) continue;
      const auto type = std::find_if(report.types.begin(), report.types.end(),
                                     [&](const TypeReport& t) { return t.type == type_of(verdict); });
      const bool there = type != report.types.end();
      report.judgements.push_back(
          judge(verdict, subject.provider, there ? &type->answers : nullptr,
                there ? std::span<const CaseResult>(type->results) : std::span<const CaseResult>()));
    }
  }
  fmt::print("{}", o.format == "json" ? as_json(report) : as_text(report, o.verbose));
  const bool good = only_for ? report.judgements.front().yes : all_claims_shown(report);
  return good ? exit_ok : exit_failed;
}

int run(int argc, char** argv) {
  CLI::App app("weft check", "check");
  Options options;
  declare(app, options);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  if (options.format != "text" && options.format != "json")
    fail_usage("--format {}: there are text and json", options.format);
  if (!options.type.empty() && options.type != "rdm" && options.type != "msg" && options.type != "dgram")
    fail_usage("--type {}: there are rdm, msg and dgram", options.type);
  if (!options.purpose.empty() && !verdict_of(options.purpose))
    fail_usage("--for {}: there are ompi-mtl, ompi-btl, mpich, rxm and rxd", options.purpose);
  if (!options.purpose.empty() && (!options.only.empty() || !options.type.empty()))
    fail_usage("--for chooses the cases itself: neither --only nor --type");
  if (options.stock && !options.library.empty()) fail_usage("--stock and --library exclude each other");
  if (options.list) return list_cases(options);
  if (options.target.empty()) fail_usage("which provider? (weft check --help)");
  clean_up_at_signals();
  return answer(options);
}

}  // namespace

int check(int argc, char** argv) {
  if (argc == 3 && is_question(argv[1])) answer_parent(argv[1], argv[2]);
  // Status 1 is an answer, so what hinders the answer has another one.
  try {
    return run(argc, argv);
  } catch (const ProviderFailed&) {
    throw;
  } catch (const Failure& failure) {
    throw Failure(failure.what(), failure.status() == exit_failed ? exit_unable : failure.status());
  } catch (const std::bad_alloc&) {
    throw Failure("out of memory", exit_unable);
  } catch (const std::exception& error) {
    throw Failure(error.what(), exit_unable);
  }
}

}  // namespace weft::tool
