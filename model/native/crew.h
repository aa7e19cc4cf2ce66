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

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

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
    CPU_CLR(sched_getcpu(), &others.set_);
    others.is_known_ = is_known_ && CPU_COUNT(&others.set_) > 0;
    return others;
  }

  // Whether there is one to run on.
  bool give(pthread_attr_t& attributes) const {
    return is_known_ && pthread_attr_setaffinity_np(&attributes, sizeof(set_), &set_) == 0;
  }

  void give(pthread_t thread) const {
    if (is_known_) pthread_setaffinity_np(thread, sizeof(set_), &set_);
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
  // The process's. It is never destroyed, for its threads end with the process.
  static Crew& get() {
    static Crew* crew = new Crew;
    return *crew;
  }

  // Runs `work()` here and in up to `num_threads - 1` helpers at once, and returns when all have
  // returned. It must take what is left to do part by part, and may find nothing left. While another
  // thread's call is being helped with, the caller does all of it.
  template <class Work>
  void run(int64_t num_threads, Work& work) {
    if (num_threads < 2) return work();
    std::unique_lock<std::mutex> lock(calls_, std::try_to_lock);
    if (!lock) return work();
    hire(num_threads - 1);
    open({[](void* context) { (*static_cast<Work*>(context))(); }, &work, num_threads - 1});
    struct Closing {
      Crew& crew;
      ~Closing() { crew.close(); }
    } closing{*this};  // however `work` ends, nobody is in it behind this
    work();
  }

 private:
  struct Job {
    void (*call)(void*);
    void* context;
    int64_t num_helpers;
  };

  struct Helper {
    Crew* crew;
    int64_t index;
    pthread_t thread;
    std::atomic<int> is_asleep{false};  // an int, for which waiting wakes nobody else
  };

  // `state_` counts the helpers at work in its low bits; a bit says whether one may join, and those
  // above it number the calls.
  static constexpr uint64_t kOpen = 1 << 16, kHelpers = kOpen - 1, kCall = kOpen << 1;
  static constexpr int kLooks = 64;  // between two times that a processor is given away
  static constexpr auto kPatience = std::chrono::milliseconds(4);  // a decode step's pause is shorter

  void hire(int64_t count) {
    while (int64_t(helpers_.size()) < count && !is_refused_) {
      auto* helper = new Helper{this, int64_t(helpers_.size())};
      is_refused_ = !begin_elsewhere(processors_, look_out, helper, &helper->thread);
      is_refused_ ? delete helper : helpers_.push_back(helper);
    }
  }

  void open(const Job& job) {
    job_ = job;
    state_ = (state_ & ~(kOpen | kHelpers)) + kCall | kOpen;
    for (int64_t i = 0; i < job.num_helpers && i < int64_t(helpers_.size()); ++i) {
      if (!helpers_[i]->is_asleep) continue;
      processors_.elsewhere().give(helpers_[i]->thread);
      helpers_[i]->is_asleep = false;
      helpers_[i]->is_asleep.notify_one();
    }
  }

  void close() {
    state_ &= ~kOpen;
    for (int looks = 1; state_ & kHelpers; ++looks) looks % kLooks ? relax() : void(sched_yield());
  }

  static void* look_out(void* begun) {
    auto* helper = static_cast<Helper*>(begun);
    helper->crew->help(*helper);
    return nullptr;
  }

  void help(Helper& me) {
    processors_.give(pthread_self());  // it may go wherever it gets on from here
    uint64_t last = 0;                 // call
    for (;;) {
      uint64_t seen = wait_for_call(me, last);
      if (!state_.compare_exchange_strong(seen, seen + 1)) continue;  // another came or it is over
      last = call_of(seen);
      if (me.index < job_.num_helpers) job_.call(job_.context);
      --state_;
    }
  }

  static uint64_t call_of(uint64_t state) { return state & ~(kOpen | kHelpers); }
  static bool is_new(uint64_t state, uint64_t last) { return state & kOpen && call_of(state) != last; }

  uint64_t wait_for_call(Helper& me, uint64_t last) {
    for (;;) {
      auto until = std::chrono::steady_clock::now() + kPatience;
      for (int looks = 1;; ++looks) {
        if (uint64_t seen = state_; is_new(seen, last)) return seen;
        relax();
        if (looks % kLooks) continue;
        sched_yield();
        if (std::chrono::steady_clock::now() > until) break;
      }
      me.is_asleep = true;
      // Whoever opens a call looks for sleepers behind that: one of the two sees the other.
      if (is_new(state_, last)) me.is_asleep = false;
      me.is_asleep.wait(true);
      processors_.give(pthread_self());
    }
  }

  const Processors processors_ = Processors::all();
  std::mutex calls_;
  std::vector<Helper*> helpers_;
  bool is_refused_ = false;
  Job job_{};
  alignas(64) std::atomic<uint64_t> state_{0};
};

}  // namespace splice
