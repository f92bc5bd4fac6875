// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The threads and processes of several lanes.
#include "perf_lanes.hpp"

#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "failure.hpp"
#include "lanes.hpp"
#include "peers.hpp"
#include "perf_children.hpp"

namespace weft::tool {

void lead_lanes(std::vector<Channel>& followers, const PerfOptions& options, const std::vector<Step>& steps,
                const std::vector<int>& cpus, const Progress& progress) {
  std::vector<Channel> lanes;
  std::vector<Child> clients;
  std::vector<std::thread> threads;
  std::vector<Channel> theirs;
  theirs.reserve(followers.size());
  for (unsigned lane = 0; lane < followers.size(); ++lane) {
    std::pair<Channel, Channel> ends = local_channel();
    if (options.peers > 1) {
      clients.push_back(start(fmt::format("client {}", lane), cpus[lane], [&](Channel&) {
        ends.first.close();
        for (Channel& other : lanes) other.close();
        for (unsigned i = 0; i < followers.size(); ++i)
          if (i != lane) followers[i].close();
        work_lane(ends.second, followers[lane], options, lane);
      }));
      followers[lane].close();
    } else {
      theirs.push_back(std::move(ends.second));
      threads.emplace_back(
          [&options, &follower = followers[lane], &conductor = theirs.back(), lane, cpu = cpus[lane]] {
            try {
              pin_to(cpu);
              work_lane(conductor, follower, options, lane);
            } catch (const std::exception&) {
              conductor.close();  // it was told; without its channel the conductor ends
            }
          });
    }
    lanes.push_back(std::move(ends.first));
  }
  try {
    conduct(lanes, options, steps, progress);
  } catch (const Failure& failure) {
    for (std::thread& thread : threads) thread.detach();  // this process ends at once
    for (Child& client : clients) {
      if (const auto signal = died_of(client, std::chrono::milliseconds(200)))
        throw Died(fmt::format("{} died of signal {} ({})", client.role, *signal, strsignal(*signal)));
    }
    throw;
  }
  for (std::thread& thread : threads) thread.join();
  for (Child& client : clients) waitpid(client.pid, nullptr, 0);
}

void follow_lanes(std::vector<Channel>& leaders, bool one_server, const Local& local,
                  const std::vector<int>& cpus) {
  if (one_server) {
    pin_to(cpus[0]);
    return serve(leaders, local.node);
  }
  std::vector<std::thread> threads;
  std::atomic<unsigned> failed = 0;
  std::mutex mutex;
  std::string reason;
  for (size_t lane = 0; lane < leaders.size(); ++lane) {
    threads.emplace_back([&, lane] {
      try {
        pin_to(cpus[lane]);
        follow(leaders[lane], local);
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        if (failed++ == 0) reason = error.what();
        for (Channel& leader : leaders) shutdown(leader.fd(), SHUT_RDWR);  // so that the others end
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failed != 0) fail("{}", reason);
}

}  // namespace weft::tool
