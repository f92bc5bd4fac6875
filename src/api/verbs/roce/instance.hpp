// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Instance: one RoCEv2 device that this process has open, for all of its contexts. Must not know the objects of verbs.h
// beyond the events that it passes on.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <weft/verbs_provider.h>
#include "api/verbs/roce/named_devices.hpp"
#include "base/list.hpp"
#include "base/result.hpp"
#include "link/roce/device.hpp"

namespace weft::verbs::soft {

namespace roce = proto::roce;

// What the library gave to start().
const weft_verbs_services& services() noexcept;
void set_services(const weft_verbs_services& services) noexcept;
// For a person: why something was refused. Level as of weft_verbs_services::log.
void log(int level, const std::string& text) noexcept;
// Says why, and returns the errno.
int refuse(const Error& error) noexcept;

uint64_t guid_of(const Named& named) noexcept;

class Instance final : roce::Events, link::roce::AfterUnlock {
 public:
  // Lets go of it; the last one closes it, before anybody can open it anew.
  struct Close {
    void operator()(Instance* instance) const noexcept;
  };
  using Reference = std::unique_ptr<Instance, Close>;
  // The one of this name; opened if it is not.
  static Result<Reference> open(const Named& named);
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;
  ~Instance();

  const Named& named() const noexcept { return named_; }
  link::roce::Device& device() noexcept { return *device_; }
  os::Lock& lock() noexcept { return device_->lock(); }
  uint8_t active_mtu() const noexcept { return active_mtu_; }

  // --- with the lock ---
  uint32_t next_number() noexcept { return ++numbers_; }  // of protection and XRC domains; never 0
  uint32_t domains = 0;                                   // protection domains
  uint32_t handles = 0;                                   // address handles
  // XRC domains that files name (ibv_open_xrcd(3)).
  struct FileDomain {
    uint64_t device;
    uint64_t inode;
    uint32_t number;
    uint32_t users;
  };
  std::vector<FileDomain> file_domains;

  // After a completion queue was taken out of the adapter: the progress thread does not know it any more. With the lock or without.
  void await_raised() const noexcept;

 private:
  explicit Instance(Named named) : named_(std::move(named)) {}
  void on_completion(roce::CompletionQueue& cq) noexcept override;
  void on_async(const roce::AsyncEvent& event) noexcept override;
  void after_unlock() noexcept override;

  Named named_;
  unsigned users_ = 1;  // contexts
  uint8_t active_mtu_ = 3;
  uint32_t numbers_ = 0;
  // Completion events of the progress thread, which raises them without the lock: the program that they wake calls at once.
  std::array<ibv_cq*, 16> to_raise_{};  // of that thread alone
  size_t to_raise_count_ = 0;
  std::atomic<bool> is_raising_{false};  // set with the lock
  std::unique_ptr<link::roce::Device> device_;
};

}  // namespace weft::verbs::soft
