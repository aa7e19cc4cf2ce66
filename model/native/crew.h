// Threads that help with one call at a time: whoever calls and whoever is free each take the next part
// that nobody has. Nobody is waited for before he has taken one, so a thread whose processor another
// process has costs its help and no more, where a team that begins and ends together costs everybody
// the time until it is back.
//
// A step makes some hundred and fifty such calls, microseconds apart, and waking a thread takes tens,
// on a virtual machine more. So a helper looks out for the next call for a while before it sleeps, and
// keeps giving its processor to whoever else wants it.

#pragma once

#include <pthread.h>
#include <sched.h>
#include <torch/csrc/stable/ops.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "interpreter.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace splice {

// A thread's processors. None is the caller's in `elsewhere`: a virtual machine's idle processor counts
// as taken, so that the system would begin, and wake, a helper behind whoever it is to help.
class Processors {
 public:
#if defined(__GLIBC__)
  static Processors all() {
    Processors found;
    found.is_known_ = sched_getaffinity(0, sizeof(found.set_), &found.set_) == 0;
    return found;
  }

  Processors elsewhere() const {
    Processors others = *this;
    if (is_known_) CPU_CLR(sched_getcpu(), &others.set_);
    return others;
  }

  // Whether there is one to run on. They are not known where there are more than a set has room for.
  bool give(pthread_attr_t& attributes) const {
    return !is_known_ || (CPU_COUNT(&set_) > 0 &&
                          pthread_attr_setaffinity_np(&attributes, sizeof(set_), &set_) == 0);
  }

  void give(pthread_t thread) const {
    if (is_known_ && CPU_COUNT(&set_) > 0) pthread_setaffinity_np(thread, sizeof(set_), &set_);
  }

 private:
  cpu_set_t set_;
  bool is_known_ = false;
#else
  static Processors all() { return {}; }
  Processors elsewhere() const { return {}; }
  bool give(pthread_attr_t&) const { return true; }
  void give(pthread_t) const {}
#endif
};

// Begins a thread that nobody joins, not on the caller's processor; false where there can be none.
inline bool begin_elsewhere(const Processors& all, void* (*run)(void*), void* argument,
                            pthread_t* thread) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  bool is_begun = all.elsewhere().give(attributes) &&
                  pthread_create(thread, &attributes, run, argument) == 0;
  pthread_attr_destroy(&attributes);
  return is_begun;
}

inline void relax() {
#if defined(__SSE2__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Crew {
 public:
  // The process's. It is never destroyed, for its threads end with the process; a process that is
  // forked off has none of them, and a crew of its own.
  static Crew& get() {
    static Crew* crew = [] {
      pthread_atfork(nullptr, nullptr, [] { crew = new Crew; });
      return new Crew;
    }();
    return *crew;
  }

  // Runs `work()` here and in up to `num_threads - 1` helpers at once, and returns when all have
  // returned. It must take what is left to do part by part, and may find nothing left. While another
  // thread's call is being helped with, the caller does all of it. Throws what one of them threw.
  template <class Work>
  void run(int64_t num_threads, Work& work) {
    InterpreterLetGo let_go;
    if (num_threads < 2) return work();
    std::unique_lock<std::mutex> lock(calls_, std::try_to_lock);
    if (!lock) return work();
    hire(num_threads - 1);
    if (helpers_.empty()) {
      lock.unlock();
      auto part = [&](int64_t, int64_t) { work(); };
      return torch::stable::parallel_for(0, num_threads, 1, part);
    }
    open([](void* context) { (*static_cast<Work*>(context))(); }, &work, num_threads - 1);
    attempt();
    close();
    if (auto fault = std::exchange(fault_, nullptr)) std::rethrow_exception(fault);
  }

 private:
  enum Rest : int { kAwake, kAsleep, kWoken };  // an int, for which waiting wakes nobody else

  struct Helper {
    Crew* crew;
    int64_t index;
    Processors processors;  // where it may go once it gets on
    pthread_t thread;
    std::atomic<int> rest{kAwake};
  };

  // `state_` counts the helpers at work in its low bits; a bit says whether one may join, and those
  // above it number the calls.
  static constexpr uint64_t kOpen = 1 << 16, kHelpers = kOpen - 1, kCall = kOpen << 1;
  static constexpr int kLooks = 64;  // between two times that a processor is given away
  static constexpr auto kPatience = std::chrono::milliseconds(4);  // a decode step's pause is shorter
  static constexpr auto kRefusal = std::chrono::seconds(1);        // until threads are asked for again

  using Clock = std::chrono::steady_clock;

  // There are fewer where the process may have no more threads, or no other processor: torch's own
  // threads may run elsewhere than where their caller is bound to.
  void hire(int64_t count) {
    if (int64_t(helpers_.size()) >= count || Clock::now() < no_sooner_) return;
    auto all = Processors::all();
    while (int64_t(helpers_.size()) < count) {
      helpers_.reserve(count);
      std::unique_ptr<Helper> helper(new Helper{this, int64_t(helpers_.size()), all});
      if (!begin_elsewhere(all, look_out, helper.get(), &helper->thread)) {
        no_sooner_ = Clock::now() + kRefusal;
        return;
      }
      helpers_.push_back(helper.release());
    }
  }

  void open(void (*call)(void*), void* context, int64_t num_helpers) {
    call_ = call;
    context_ = context;
    num_helpers_ = num_helpers;
    state_ = (state_ & ~(kOpen | kHelpers)) + kCall | kOpen;
    for (int64_t i = 0; i < num_helpers && i < int64_t(helpers_.size()); ++i) wake(*helpers_[i]);
  }

  void wake(Helper& helper) {
    int asleep = kAsleep;
    if (helper.rest != kAsleep || !helper.rest.compare_exchange_strong(asleep, kWoken)) return;
    helper.processors = Processors::all();  // the caller's, who may have been moved
    helper.processors.elsewhere().give(helper.thread);
    helper.rest = kAwake;
    helper.rest.notify_one();
  }

  void attempt() {
    try {
      call_(context_);
    } catch (...) {
      if (!is_faulty_.exchange(true)) fault_ = std::current_exception();
    }
  }

  void close() {
    state_ &= ~kOpen;
    for (int looks = 1; state_ & kHelpers; ++looks) looks % kLooks ? relax() : void(sched_yield());
    is_faulty_ = false;
  }

  static void* look_out(void* begun) {
    auto* helper = static_cast<Helper*>(begun);
    helper->crew->help(*helper);
    return nullptr;
  }

  void help(Helper& me) {
    me.processors.give(pthread_self());
    uint64_t last = 0;  // call
    for (;;) {
      uint64_t seen = wait_for_call(me, last);
      if (!state_.compare_exchange_strong(seen, seen + 1)) continue;  // another came or it is over
      last = call_of(seen);
      attempt();
      --state_;
    }
  }

  static uint64_t call_of(uint64_t state) { return state & ~(kOpen | kHelpers); }

  // If the call is over meanwhile, `num_helpers_` may be another's; then nobody can join it either.
  bool is_wanted(const Helper& me, uint64_t state, uint64_t last) const {
    return state & kOpen && call_of(state) != last && me.index < num_helpers_;
  }

  uint64_t wait_for_call(Helper& me, uint64_t last) {
    for (;;) {
      auto until = Clock::now() + kPatience;
      for (int looks = 1;; ++looks) {
        if (uint64_t seen = state_; is_wanted(me, seen, last)) return seen;
        relax();
        if (looks % kLooks) continue;
        sched_yield();
        if (Clock::now() > until) break;
      }
      sleep(me, last);
    }
  }

  void sleep(Helper& me, uint64_t last) {
    me.rest = kAsleep;
    // Whoever opens a call looks for sleepers behind that: one of the two sees the other.
    int asleep = kAsleep;
    if (is_wanted(me, state_, last) && me.rest.compare_exchange_strong(asleep, kAwake)) return;
    for (int rest = me.rest; rest != kAwake; rest = me.rest) me.rest.wait(rest);
    me.processors.give(pthread_self());
  }

  std::mutex calls_;
  std::vector<Helper*> helpers_;
  Clock::time_point no_sooner_;
  void (*call_)(void*) = nullptr;
  void* context_ = nullptr;
  std::exception_ptr fault_;
  std::atomic<bool> is_faulty_{false};
  std::atomic<int64_t> num_helpers_{0};
  alignas(64) std::atomic<uint64_t> state_{0};
};

}  // namespace splice
