// The crew alone, for what its users can't be brought to do: throw, and be forked.

#include "crew.h"

#include <chrono>
#include <stdexcept>
#include <thread>

namespace {

// Whose work throws.
enum Thrower : int64_t { kNobody, kCaller, kHelper };

struct Parts {
  int64_t count;
  Thrower thrower;
  std::thread::id caller = std::this_thread::get_id();
  std::atomic<int64_t> next{0}, num_done{0}, num_helpers{0};

  void operator()() {
    bool is_caller = std::this_thread::get_id() == caller;
    if (!is_caller) ++num_helpers;
    if (is_caller && thrower == kHelper)
      while (!num_helpers) sched_yield();
    if (thrower == (is_caller ? kCaller : kHelper)) throw std::runtime_error("as it was told");
    while (next++ < count) ++num_done;
  }
};

}  // namespace

// Computes for some milliseconds.
extern "C" void compute(int64_t num_threads) {
  auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  auto work = [&] {
    while (std::chrono::steady_clock::now() < until) splice::relax();
  };
  splice::Crew::get().run(num_threads, work);
}

// How many parts were done; less than none if what was thrown reached whoever called.
extern "C" int64_t parts_done(int64_t num_threads, int64_t count, int64_t thrower) {
  Parts parts{count, Thrower(thrower)};
  try {
    splice::Crew::get().run(num_threads, parts);
  } catch (const std::runtime_error&) {
    return -1;
  }
  return parts.num_done;
}
