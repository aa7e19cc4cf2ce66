// Copies as a torch operator: whoever calls it and a second thread take one after the other, and
// neither needs the interpreter meanwhile.

#pragma once

#include <pthread.h>
#include <sched.h>
#include <torch/csrc/stable/tensor.h>

#include <atomic>
#include <memory>

#include "levels.h"

namespace splice {

constexpr int64_t kSharedBytes = 32 << 20;  // one that slept begins later than these are copied

// What is to be copied, for whoever is free; outlives a thread that begins too late for any of it.
class Copies {
 public:
  // From the first to the second of each pair of addresses.
  Copies(const Level& level, const int64_t* pairs, int64_t count, int64_t num_bytes,
         uint8_t* checksums)
      : level_(level), pairs_(pairs), count_(count), num_bytes_(num_bytes), checksums_(checksums) {}

  void work() {
    for (int64_t i = next_++; i < count_; i = next_++) {
      level_.copy(reinterpret_cast<char*>(pairs_[2 * i + 1]),
                  reinterpret_cast<const char*>(pairs_[2 * i]), num_bytes_, checksums_ + 16 * i);
      if (++num_done_ == count_) num_done_.notify_all();
    }
  }

  void wait() const {
    for (int64_t done = num_done_; done < count_; done = num_done_) num_done_.wait(done);
  }

 private:
  const Level& level_;
  const int64_t* pairs_;
  int64_t count_, num_bytes_;
  uint8_t* checksums_;
  std::atomic<int64_t> next_{0}, num_done_{0};
};

inline void* help(void* copies) {
  std::unique_ptr<std::shared_ptr<Copies>> own(static_cast<std::shared_ptr<Copies>*>(copies));
  (*own)->work();
  return nullptr;
}

// Lets another thread work too, if the process may have one. It is kept off this thread's processor:
// a virtual machine's idle one counts as taken, so that the system would have both threads on one.
inline void let_another_help(const std::shared_ptr<Copies>& copies) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
#if defined(__linux__)
  cpu_set_t others;
  if (sched_getaffinity(0, sizeof(others), &others) == 0 && CPU_COUNT(&others) > 1) {
    CPU_CLR(sched_getcpu(), &others);
    pthread_attr_setaffinity_np(&attributes, sizeof(others), &others);
  }
#endif
  auto own = std::make_unique<std::shared_ptr<Copies>>(copies);
  pthread_t thread;
  if (pthread_create(&thread, &attributes, help, own.get()) == 0) own.release();
  pthread_attr_destroy(&attributes);
}

// From the first to the second of each pair of `addresses` [n, 2], `num_bytes` each, more than 240;
// `checksums` [n, 16] are those of the copies.
inline void copy(torch::stable::Tensor checksums, const torch::stable::Tensor addresses,
                 int64_t num_bytes, int64_t level) {
  auto copies = std::make_shared<Copies>(
      level_of(level), static_cast<const int64_t*>(addresses.data_ptr()), addresses.size(0),
      num_bytes, static_cast<uint8_t*>(checksums.data_ptr()));
  if (addresses.size(0) * num_bytes >= kSharedBytes) let_another_help(copies);
  copies->work();
  copies->wait();
}

}  // namespace splice
