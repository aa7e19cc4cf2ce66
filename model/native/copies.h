// Copies as a torch operator: whoever calls it and, where there is much to copy, a second thread each
// take the next few that nobody has, and neither needs the interpreter meanwhile.

#pragma once

#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "crew.h"
#include "levels.h"

namespace splice {

constexpr int64_t kSharedBytes = 8 << 20;  // of fewer, a thread that is begun now would find none left
constexpr int64_t kLeastBytes = 241;       // XXH3 has other ways for shorter ones

// What is to be copied, for whoever is free; outlives a thread that begins too late for any of it.
class CopyJob {
 public:
  // From the first to the second of each pair of addresses.
  CopyJob(const Level& level, const int64_t* pairs, int64_t count, int64_t num_bytes,
          uint8_t* checksums)
      : level_(level), num_bytes_(num_bytes) {
    for (int64_t i = 0; i < count; ++i)
      copies_.push_back({reinterpret_cast<const char*>(pairs[2 * i]),
                         reinterpret_cast<char*>(pairs[2 * i + 1]), checksums + 16 * i});
  }

  void copy_what_is_left() {
    int64_t count = copies_.size();
    for (int64_t i; (i = next_.fetch_add(kCopiesTogether)) < count;) {
      int64_t num_taken = std::min(kCopiesTogether, count - i);
      level_.copy(&copies_[i], num_taken, num_bytes_);
      if ((num_done_ += num_taken) == count) num_done_.notify_all();
    }
  }

  void wait_until_done() const {
    int64_t count = copies_.size();
    for (int64_t done = num_done_; done < count; done = num_done_) num_done_.wait(done);
  }

 private:
  const Level& level_;
  std::vector<Copy> copies_;
  int64_t num_bytes_;
  std::atomic<int64_t> next_{0}, num_done_{0};
};

// A thread that copies too.
struct Helper {
  Processors all;
  std::shared_ptr<CopyJob> job;

  // None, if the process may have no more threads or no other processor.
  static void begin(const std::shared_ptr<CopyJob>& job) {
    auto helper = std::make_unique<Helper>(Helper{Processors::all(), job});
    pthread_t thread;
    if (begin_elsewhere(helper->all, run, helper.get(), &thread)) helper.release();
  }

  static void* run(void* begun) {
    std::unique_ptr<Helper> helper(static_cast<Helper*>(begun));
    helper->all.give(pthread_self());  // it may go wherever it gets on from here
    helper->job->copy_what_is_left();
    return nullptr;
  }
};

// From the first to the second of each pair of `addresses` [n, 2], `num_bytes` each; `checksums`
// [n, 16] are those of the copies.
inline void copy(torch::stable::Tensor checksums, const torch::stable::Tensor addresses,
                 int64_t num_bytes, int64_t level) {
  STD_TORCH_CHECK(num_bytes >= kLeastBytes, "copies of at least 241 bytes");
  int64_t count = addresses.size(0);
  STD_TORCH_CHECK(addresses.numel() == 2 * count && checksums.numel() == 16 * count &&
                      addresses.is_contiguous() && checksums.is_contiguous(),
                  "two addresses and a checksum for each copy");
  auto job = std::make_shared<CopyJob>(
      level_of(level), static_cast<const int64_t*>(addresses.data_ptr()), count, num_bytes,
      static_cast<uint8_t*>(checksums.data_ptr()));
  if (count > kCopiesTogether && count * num_bytes >= kSharedBytes) Helper::begin(job);
  job->copy_what_is_left();
  job->wait_until_done();
}

}  // namespace splice
