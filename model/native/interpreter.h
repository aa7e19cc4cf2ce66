// The Python interpreter's lock, where there is an interpreter.

#pragma once

#include <unistd.h>

// Found when the library is loaded, or null. Which name asks about the end depends on the version.
extern "C" {
[[gnu::weak]] int PyGILState_Check();
[[gnu::weak]] int Py_IsFinalizing();
[[gnu::weak]] int _Py_IsFinalizing();
[[gnu::weak]] void* PyEval_SaveThread();
[[gnu::weak]] void PyEval_RestoreThread(void*);
}

namespace splice {

// Lets other Python threads run for as long as it is there, if this one keeps them from it. An
// operator that Python calls doesn't, but a compiled step, in which they are called, holds the lock
// from its beginning to its end: blocks from the tiers would come only between steps.
class InterpreterLetGo {
 public:
  InterpreterLetGo() : state_(is_held() && !is_ending() ? PyEval_SaveThread() : nullptr) {}

  ~InterpreterLetGo() {
    if (!state_) return;
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      // A thread that comes back to an interpreter at its end is unwound, through C++ that can't bear
      // it. Here it stays, and the process ends without it.
      for (;;) pause();
    }
  }

  InterpreterLetGo(const InterpreterLetGo&) = delete;

 private:
  static bool is_held() { return PyGILState_Check && PyGILState_Check(); }

  static bool is_ending() {
    return (Py_IsFinalizing && Py_IsFinalizing()) || (_Py_IsFinalizing && _Py_IsFinalizing());
  }

  void* state_;
};

}  // namespace splice
