// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Children of `weft check`: starting, reading, ending them.
#include "check_child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "failure.hpp"
#include "temporary.hpp"

extern char** environ;

namespace weft::tool::checking {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t text_max =
    256 * 1024;  // of what a child says on standard error, and without end on standard output
constexpr std::string_view case_mark = "conformance: case ";  // tests/conformance/main.cpp
constexpr int hung_before_haste = 3;
constexpr unsigned hasty_seconds = 5;
constexpr int report_number = 3;  // where the conformance program finds its report

volatile std::sig_atomic_t ended_by = 0;

struct Pipe {
  int in = -1, out = -1;
  Pipe() {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) fail("cannot make a pipe: {}", std::strerror(errno));
    in = fds[0];
    out = fds[1];
  }
  ~Pipe() {
    close_end(in);
    close_end(out);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  static void close_end(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
};

std::string ending_of(int status) {
  if (WIFSIGNALED(status)) {
    const char* name = sigabbrev_np(WTERMSIG(status));
    return fmt::format("was ended by SIG{}",
                       name != nullptr ? name : std::to_string(WTERMSIG(status)).c_str());
  }
  return fmt::format("exited with status {}", WEXITSTATUS(status));
}

// libfabric's shm names its memory by the process, and who is killed leaves it: the next one with that number would find it.
void remove_memory_of(pid_t pid) {
  const std::string begin = std::to_string(pid) + ":";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error))
    if (entry.path().filename().string().starts_with(begin)) std::filesystem::remove(entry.path(), error);
}

// A process whose three outputs we read. Ended with its group when it is still there at the end: a provider may have children.
class Child {
 public:
  Child(const std::string& program, const std::vector<std::string>& arguments, const Environment& environment,
        bool reports) {
    std::vector<char*> argv{const_cast<char*>(program.c_str())}, envp;
    for (const std::string& one : arguments) argv.push_back(const_cast<char*>(one.c_str()));
    for (const std::string& one : environment) envp.push_back(const_cast<char*>(one.c_str()));
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out_.out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err_.out, STDERR_FILENO);
    if (reports) posix_spawn_file_actions_adddup2(&actions, report_.out, report_number);
    // Libraries drop files where they crash.
    posix_spawn_file_actions_addchdir_np(&actions, folder_.path().c_str());
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
    const int error = posix_spawn(&pid_, program.c_str(), &actions, &attributes, argv.data(), envp.data());
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (error != 0) fail("cannot run {}: {}", program, std::strerror(error));
    for (Pipe* one : {&out_, &err_, &report_}) {
      Pipe::close_end(one->out);
      fcntl(one->in, F_SETFL, O_NONBLOCK);
    }
  }
  ~Child() {
    if (pid_ > 0) end();
  }

  // Waits for something to read, at most so long. False when the process is over and everything was read.
  bool read_some(Clock::time_point until) {
    if (ended_by != 0) throw Interrupted(ended_by);
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    // Grandchildren may keep the pipes open, so the process itself is looked at, too.
    pollfd fds[] = {{out_.in, POLLIN, 0}, {err_.in, POLLIN, 0}, {report_.in, POLLIN, 0}};
    poll(fds, 3, static_cast<int>(std::clamp<long>(left, 0, 50)));
    const bool over = over_ || waitpid(pid_, &status_, WNOHANG) == pid_;
    over_ = over;
    drain(out_.in, out);
    drain(err_.in, err);
    drain(report_.in, report);
    if (out.size() > text_max) out.erase(0, out.size() - text_max);
    if (err.size() > text_max) err.erase(0, err.size() - text_max);
    if (over) {
      kill(-pid_, SIGKILL);
      remove_memory_of(pid_);
      pid_ = -1;
    }
    return !over;
  }

  // Ends it now.
  void end() {
    kill(-pid_, SIGKILL);
    while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
    remove_memory_of(pid_);
    pid_ = -1;
  }

  int status() const { return status_; }

  std::string out, err, report;

 private:
  static void drain(int& fd, std::string& into) {
    char space[16384];
    ssize_t n = 0;
    while (fd >= 0 && (n = read(fd, space, sizeof space)) > 0) {
      into.append(space, static_cast<size_t>(n));
      if (into.size() > 4 * text_max) return;
    }
    if (n == 0) Pipe::close_end(fd);  // poll() would return at once for ever
  }

  TemporaryFolder folder_{"weft-check-child"};
  Pipe out_, err_, report_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool over_ = false;
};

// Of what was said on standard error since the last case began; it marks its beginning there.
std::string last_line(const std::string& all) {
  const size_t mark = all.rfind(case_mark);
  const std::string text =
      mark == std::string::npos ? all : all.substr(std::min(all.find('\n', mark), all.size()));
  const size_t end = text.find_last_not_of(" \n");
  if (end == std::string::npos) return {};
  const size_t begin = text.rfind('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1,
                     end - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

// One process over the cases from `first` on. Returns the index of the first one that it did not reach.
class Batch {
 public:
  Batch(const RunOptions& options, const std::vector<std::string>& cases, std::vector<CaseResult>& results)
      : options_(options), cases_(cases), results_(results) {}

  size_t run(size_t first) {
    std::string filter = "--gtest_filter=";
    for (size_t i = first; i < cases_.size(); ++i) filter += (i > first ? ":" : "") + cases_[i];
    Environment environment = options_.environment;
    environment.push_back(fmt::format("WEFT_TEST_CASE_SECONDS={}", seconds()));
    Child child(options_.program, {filter, "--gtest_color=no"}, environment, true);
    next_ = first;
    running_ = false;
    deadline_ = Clock::now() + limit();
    bool alive = true;
    while (alive) {
      alive = child.read_some(deadline_);
      take(child);
      if (alive && Clock::now() >= deadline_) {
        child.end();
        if (!running_)
          return give_up(first, fmt::format("did not begin within {} s", limit().count()), first > 0);
        finish(Outcome::hung, {fmt::format("did not end within {} s", limit().count())});
        return next_;
      }
    }
    if (running_) {
      std::string said = last_line(child.err);
      std::vector<std::string> reasons{"the process " + ending_of(child.status())};
      if (!said.empty()) reasons.front() += ": " + said;
      finish(hang_ ? Outcome::hung : Outcome::crashed,
             hang_ ? std::vector<std::string>{"a call did not return"} : reasons);
      return next_;
    }
    if (next_ == first && !done_)
      return give_up(first,
                     ending_of(child.status()) + (child.err.empty() ? "" : ": " + last_line(child.err)),
                     first > 0 && WIFSIGNALED(child.status()));
    // After its last case: what is undone at the exit may crash, too.
    if (WIFSIGNALED(child.status()) && next_ > first)
      blame(results_[next_ - 1], "after it the process " + ending_of(child.status()));
    return next_;
  }

 private:
  // A provider that hangs often gets a shorter time limit, or a run would take all day.
  unsigned seconds() const {
    const auto hung = std::count_if(results_.begin(), results_.end(),
                                    [](const CaseResult& r) { return r.outcome == Outcome::hung; });
    return hung < hung_before_haste ? options_.case_seconds : std::min(options_.case_seconds, hasty_seconds);
  }
  // The program ends such a case itself and says so; this is for one that does not.
  std::chrono::seconds limit() const { return std::chrono::seconds(seconds() + 2); }

  // The program does not even start. `blamed`: what a case before it left may be the cause; otherwise nothing is known of the provider.
  size_t give_up(size_t first, const std::string& why, bool blamed) {
    if (!blamed) fail("{} {}", options_.program, why);
    for (size_t i = first; i < cases_.size(); ++i)
      results_.push_back({cases_[i], Outcome::crashed, {"the conformance program " + why}});
    return cases_.size();
  }

  static void blame(CaseResult& result, std::string why) {
    result.outcome = Outcome::crashed;
    result.reasons.insert(result.reasons.begin(), std::move(why));
  }

  void finish(Outcome outcome, std::vector<std::string> reasons) {
    results_.push_back({cases_[next_], outcome, std::move(reasons)});
    ++next_;
    running_ = false;
  }

  void take(Child& child) {
    size_t end = 0;
    while ((end = child.report.find('\n')) != std::string::npos) {
      ReportLine line;
      const bool good = read_report_line(child.report.substr(0, end), line);
      child.report.erase(0, end + 1);
      if (!good) continue;
      if (line.word == "done") {
        done_ = true;
      } else if (line.word == "hang") {
        hang_ = true;
      } else if (line.word == "unclosed") {
        if (options_.unclosed) options_.unclosed(line.name, line.reasons.empty() ? "" : line.reasons.front());
      } else if (next_ >= cases_.size() || line.name != cases_[next_]) {
        continue;  // the program runs the cases in its own order, which is that of its list
      } else if (line.word == "start") {
        running_ = true;
        hang_ = false;
        deadline_ = Clock::now() + limit();
        if (options_.progress) options_.progress(line.name, next_);
      } else if (running_) {
        // A library explains in its log what its calls say in a number.
        if (const std::string said = last_line(child.err); line.word == "fail" && !said.empty())
          line.reasons.push_back(std::string(said_meanwhile) + said);
        finish(line.word == "pass"   ? Outcome::passed
               : line.word == "skip" ? Outcome::skipped
                                     : Outcome::failed,
               std::move(line.reasons));
      }
    }
  }

  const RunOptions& options_;
  const std::vector<std::string>& cases_;
  std::vector<CaseResult>& results_;
  size_t next_ = 0;
  bool running_ = false, hang_ = false, done_ = false;
  Clock::time_point deadline_;
};

}  // namespace

void clean_up_at_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = [](int which) { ended_by = which; };
    sigaction(number, &action, nullptr);
  }
}

Environment environment_with(const std::vector<std::pair<std::string, std::string>>& changes) {
  Environment result;
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string_view text = *one;
    const std::string_view name = text.substr(0, text.find('='));
    if (std::none_of(changes.begin(), changes.end(),
                     [&](const auto& change) { return change.first == name; }))
      result.emplace_back(text);
  }
  for (const auto& [name, value] : changes)
    if (!value.empty()) result.emplace_back(name).append("=").append(value);
  return result;
}

Answered run_to_end(const std::string& program, const std::vector<std::string>& arguments,
                    const Environment& environment, unsigned seconds) {
  Child child(program, arguments, environment, false);
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  Answered answered;
  while (child.read_some(end)) {
    if (Clock::now() < end) continue;
    child.end();
    answered.status = -1;
    answered.ending = fmt::format("did not end within {} s", seconds);
    break;
  }
  if (answered.ending.empty()) {
    answered.status = WIFEXITED(child.status()) ? WEXITSTATUS(child.status()) : -1;
    if (answered.status < 0) answered.ending = ending_of(child.status());
  }
  answered.out = std::move(child.out);
  answered.err = std::move(child.err);
  return answered;
}

std::vector<CaseResult> run_cases(const RunOptions& options, const std::vector<std::string>& cases) {
  std::vector<CaseResult> results;
  RunOptions own = options;
  own.environment.push_back(fmt::format("WEFT_TEST_REPORT={}", report_number));
  size_t next = 0;
  try {
    while (next < cases.size()) next = Batch(own, cases, results).run(next);
  } catch (const Interrupted& interrupted) {
    if (options.interrupted == nullptr) throw;
    *options.interrupted = interrupted.status();
  }
  return results;
}

std::vector<std::string> read_case_list(const std::string& text) {
  std::vector<std::string> names;
  std::string suite;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    line = line.substr(0, line.find('#'));
    line.erase(line.find_last_not_of(' ') + 1);
    if (line.empty()) continue;
    if (line.front() != ' ') {
      suite = line;
    } else if (suite.ends_with('.')) {
      names.push_back(suite + line.substr(line.find_first_not_of(' ')));
    }
  }
  return names;
}

bool read_report_line(const std::string& line, ReportLine& out) {
  std::vector<std::string> fields;
  for (size_t at = 0;;) {
    const size_t tab = line.find('\t', at);
    fields.push_back(line.substr(at, tab == std::string::npos ? tab : tab - at));
    if (tab == std::string::npos) break;
    at = tab + 1;
  }
  const size_t space = fields.front().find(' ');
  out.word = fields.front().substr(0, space);
  out.name = space == std::string::npos ? "" : fields.front().substr(space + 1);
  out.reasons.assign(fields.begin() + 1, fields.end());
  constexpr std::string_view words[] = {"start", "pass", "skip", "fail", "hang", "unclosed"};
  return (out.word == "done" && out.name.empty()) ||
         (std::find(std::begin(words), std::end(words), out.word) != std::end(words) && !out.name.empty());
}

}  // namespace weft::tool::checking
