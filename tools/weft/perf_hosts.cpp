// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Greetings of client and server, and the server.
#include "perf_hosts.hpp"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <rdma/fabric.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "failure.hpp"
#include "install_tree.hpp"
#include "perf_compare.hpp"
#include "perf_lanes.hpp"
#include "perf_options.hpp"
#include "runner.hpp"
#include "worker.hpp"

namespace weft::tool {

namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr int protocol = 2;
constexpr milliseconds hello_limit{10'000};
constexpr milliseconds welcome_limit{20'000};
constexpr const char* serve_name =
    "WEFT_PERF_SERVE";  // "1:5,6": descriptors of a client's channels, 1: of one endpoint
constexpr size_t settings_most = 200;

// The build id of the object that has this address, as hexadecimal digits.
struct BuildId {
  uintptr_t address;
  std::string text;
};

int look_for_build_id(dl_phdr_info* info, size_t, void* out) {
  auto& wanted = *static_cast<BuildId*>(out);
  const auto in_segment = [&](const ElfW(Phdr) & p) {
    return p.p_type == PT_LOAD && wanted.address - (info->dlpi_addr + p.p_vaddr) < p.p_memsz;
  };
  const ElfW(Phdr)* end = info->dlpi_phdr + info->dlpi_phnum;
  if (std::none_of(info->dlpi_phdr, end, in_segment)) return 0;
  for (const ElfW(Phdr)* p = info->dlpi_phdr; p != end; ++p) {
    if (p->p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const std::byte*>(info->dlpi_addr + p->p_vaddr);
    for (size_t left = p->p_memsz; left >= sizeof(ElfW(Nhdr));) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const size_t name = (note.n_namesz + 3) & ~size_t{3};
      const size_t length = sizeof note + name + ((note.n_descsz + 3) & ~size_t{3});
      if (length > left) break;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
          std::memcmp(at + sizeof note, "GNU", 4) == 0) {
        for (size_t i = 0; i < note.n_descsz; ++i)
          wanted.text += fmt::format("{:02x}", std::to_integer<unsigned>(at[sizeof note + name + i]));
        return 1;
      }
      at += length;
      left -= length;
    }
  }
  return 1;
}

std::string build_of_library() {
  BuildId wanted{reinterpret_cast<uintptr_t>(&fi_getinfo), {}};
  dl_iterate_phdr(look_for_build_id, &wanted);
  return wanted.text;
}

bool is_setting(std::string_view name) {
  return (name.starts_with("FI_") || name.starts_with("WEFT_")) && !name.starts_with("WEFT_PERF_") &&
         name != "WEFT_LIBRARY_SETTLED" && name != "WEFT_BUILD" && name != "WEFT_STAGE" &&
         name != "WEFT_SOURCE";
}

std::string shown(const json& settings, const std::string& name) {
  return settings.contains(name) ? fmt::format("'{}'", settings.at(name).get<std::string>()) : "not set";
}

std::string new_token() {
  std::array<uint8_t, 8> bytes{};
  (void)!getrandom(bytes.data(), bytes.size(), 0);
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

void refuse(Channel& channel, const std::string& reason) {
  try {
    channel.send({{"error", reason}});
  } catch (const Failure&) {
    // It has gone.
  }
}

// The other channels of a client whose first one said hello.
std::vector<Channel> gather(Listener& listener, Channel first, const Hello& hello) {
  std::vector<Channel> lanes(hello.lanes);
  lanes[0] = std::move(first);
  for (unsigned there = 1; there < hello.lanes;) {
    Channel more = listener.accept(hello_limit);
    try {
      const json message = more.receive(hello_limit);
      const unsigned lane = message.value("lane", 0U);
      if (message.value("token", std::string()) != hello.token || lane == 0 || lane >= hello.lanes ||
          lanes[lane].fd() >= 0) {
        refuse(more, "the server is at work for another client");
        continue;
      }
      lanes[lane] = std::move(more);
      ++there;
    } catch (const std::exception&) {
      // Whoever it was, the client is still expected.
    }
  }
  return lanes;
}

// Executes this command for the client, on the library that it wants.
pid_t start_process(const Options& o, const Hello& hello, const std::vector<Channel>& lanes) {
  std::string folder;
  if (hello.library == "other") {
    if (o.compare_with.empty() || o.compare_with == "stock")
      fail("the server knows of no other library; start it with --server --keep --compare LIBRARY");
    folder = folder_of_library(o.compare_with);
  }
  std::vector<std::string> words = {"weft", "perf", "--server"};
  const auto add = [&words](const char* name, const std::string& value) {
    words.emplace_back(name);
    words.push_back(value);
  };
  if (o.stock || hello.library != "weft") words.emplace_back("--stock");
  if (!o.local.node.empty()) add("--node", o.local.node);
  if (!o.local.device.empty()) add("--device", o.local.device);
  if (o.local.gid_index >= 0) add("--gid-index", std::to_string(o.local.gid_index));
  if (!o.pin_text.empty()) add("--pin", o.pin_text);
  std::string descriptors = hello.one_server ? "1:" : "0:";
  for (const Channel& lane : lanes) descriptors += fmt::format("{},", lane.fd());
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) fail("cannot fork: {}", std::strerror(errno));
  if (pid > 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // also after execve(2)
  if (getppid() != parent) _exit(exit_failed);
  for (const Channel& lane : lanes) fcntl(lane.fd(), F_SETFD, 0);
  setenv(serve_name, descriptors.c_str(), 1);
  if (!folder.empty()) prefer_library(folder);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(executable().c_str(), arguments.data());
  _exit(127);
}

// Serves one client. True: as it should be.
bool serve_one(Listener& listener, const Options& o) {
  Channel first = listener.accept();
  std::vector<Channel> lanes;
  try {
    Hello hello;
    try {
      hello = hello_from(first.receive(hello_limit));
      if (hello.again && !o.keep) fail("--compare needs a server that stays: start it with --server --keep");
    } catch (const std::exception& failure) {
      refuse(first, failure.what());
      throw;
    }
    lanes = gather(listener, std::move(first), hello);
    pid_t pid = -1;
    try {
      pid = start_process(o, hello, lanes);
    } catch (const Failure& failure) {
      refuse(lanes[0], failure.what());
      throw;
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == exit_ok) return true;
    const std::string how = WIFSIGNALED(status) ? fmt::format("died of signal {}", WTERMSIG(status))
                                                : fmt::format("ended with status {}", WEXITSTATUS(status));
    for (Channel& lane : lanes) refuse(lane, "the process of the server " + how);
    fmt::print(stderr, "weft perf: the process for the client {}\n", how);
  } catch (const std::exception& failure) {
    fmt::print(stderr, "weft perf: a client was not served: {}\n", failure.what());
  }
  return false;
}

}  // namespace

bool Identification::is_weft() const {
  std::string lower = version;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower.find("weft") != std::string::npos;
}

Identification own_identification() {
  Identification one;
  one.tool = WEFT_VERSION;
  one.library = library_path();
  const char* text = fi_tostr("", FI_TYPE_VERSION);  // any pointer will do, but not null
  one.version = text ? text : "?";
  one.build = build_of_library();
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view pair = *entry;
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos || !is_setting(pair.substr(0, equals))) continue;
    one.settings[std::string(pair.substr(0, equals))] = std::string(pair.substr(equals + 1));
  }
  return one;
}

json to_json(const Identification& one) {
  return {{"tool", one.tool},
          {"library", one.library},
          {"version", one.version},
          {"build", one.build},
          {"settings", one.settings}};
}

Identification identification_from(const json& value) {
  Identification one;
  value.at("tool").get_to(one.tool);
  value.at("library").get_to(one.library);
  value.at("version").get_to(one.version);
  value.at("build").get_to(one.build);
  one.settings = value.at("settings");
  const bool fits =
      one.settings.is_object() && one.settings.size() <= settings_most &&
      std::all_of(one.settings.begin(), one.settings.end(), [](const json& v) { return v.is_string(); });
  if (!fits) fail("the other side does not speak our control protocol");
  return one;
}

std::vector<std::string> differences(const Identification& here, const Identification& there, bool is_verbs) {
  if (here.is_weft() != there.is_weft() && !is_verbs)
    fail(
        "the server measures with {} ({}), this side with {} ({}): two libraries that do not understand each "
        "other; "
        "give --stock to both or to neither",
        there.version, there.library, here.version, here.library);
  std::vector<std::string> all;
  if (here.tool != there.tool)
    all.push_back(fmt::format("the server is weft {}, this is weft {}", there.tool, here.tool));
  if (here.version != there.version)
    all.push_back(fmt::format("the server's library is {}, this side's {}", there.version, here.version));
  else if (here.build != there.build)
    all.emplace_back("the server's library is another build of the same version");
  std::set<std::string> names;
  for (const json* settings : {&here.settings, &there.settings})
    for (const auto& item : settings->items()) names.insert(item.key());
  for (const std::string& name : names)
    if (const std::string theirs = shown(there.settings, name), ours = shown(here.settings, name);
        theirs != ours)
      all.push_back(fmt::format("{} is {} on the server and {} here", name, theirs, ours));
  return all;
}

json to_json(const Hello& hello) {
  return {{"command", "hello"},       {"protocol", protocol},
          {"lanes", hello.lanes},     {"one_server", hello.one_server},
          {"library", hello.library}, {"again", hello.again},
          {"token", hello.token}};
}

Hello hello_from(const json& message) {
  if (message.value("command", std::string()) != "hello" || message.value("protocol", 0) != protocol)
    fail("client and server are weft perf of versions that do not understand each other (this server: {})",
         WEFT_VERSION);
  Hello hello;
  message.at("lanes").get_to(hello.lanes);
  message.at("one_server").get_to(hello.one_server);
  message.at("library").get_to(hello.library);
  message.at("again").get_to(hello.again);
  message.at("token").get_to(hello.token);
  const std::string& library = hello.library;
  if (hello.lanes == 0 || hello.lanes > lanes_most ||
      (library != "weft" && library != "stock" && library != "other"))
    fail("the client asks for what there is not");
  return hello;
}

std::vector<Channel> reach_server(const std::string& host, uint16_t port, Hello hello,
                                  Identification& there) {
  hello.token = new_token();
  std::vector<Channel> lanes;
  lanes.push_back(connect_to(host, port, std::chrono::seconds(5)));
  lanes[0].send(to_json(hello));
  for (unsigned lane = 1; lane < hello.lanes; ++lane) {
    lanes.push_back(connect_to(host, port, std::chrono::seconds(5)));
    lanes[lane].send({{"command", "lane"}, {"lane", lane}, {"token", hello.token}});
  }
  json welcome;
  try {
    welcome = lanes[0].receive(welcome_limit);
  } catch (const Failure& failure) {
    fail("the server at {}: {} (does it serve another client, or another version?)", host, failure.what());
  }
  try {
    there = identification_from(welcome.at("welcome"));
  } catch (const json::exception&) {
    fail("the server at {} does not speak our control protocol", host);
  }
  return lanes;
}

int run_server(const Options& o) {
  Listener listener(o.port);
  fmt::print("weft perf: waiting for a client on port {}\n", listener.port());
  std::fflush(stdout);
  bool served = serve_one(listener, o);
  while (o.keep) served = serve_one(listener, o);
  return served ? exit_ok : exit_failed;
}

bool is_server_process() { return std::getenv(serve_name) != nullptr; }

int serve_client(const Options& options) {
  const std::string text = std::getenv(serve_name);
  unsetenv(serve_name);
  std::vector<Channel> lanes;
  for (size_t at = 2; at < text.size(); at = text.find(',', at) + 1) {
    lanes.emplace_back(static_cast<int>(std::strtol(text.c_str() + at, nullptr, 10)));
    fcntl(lanes.back().fd(), F_SETFD, FD_CLOEXEC);
  }
  lanes.at(0).send({{"welcome", to_json(own_identification())}});
  Local local = options.local;
  if (local.node.empty()) local.node = local_address(lanes[0]);
  int status = exit_ok;
  try {
    if (lanes.size() == 1) {
      pin_to(options.cpus.second);
      follow(lanes[0], local);
    } else {
      const std::vector<int> cpus(lanes.size(), options.pin_text.empty() ? -1 : options.cpus.second);
      follow_lanes(lanes, text[0] == '1', local, cpus);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "weft perf: {}\n", error.what());
    status = exit_failed;
  }
  std::fflush(nullptr);
  if (status != exit_ok) _exit(status);  // threads may still be in the library
  return status;
}

}  // namespace weft::tool
