// The Python interpreter's lock, where there is an interpreter.

#pragma once

// Found when the library is loaded, or null.
extern "C" {
[[gnu::weak]] int PyGILState_Check();
[[gnu::weak]] void* PyEval_SaveThread();
[[gnu::weak]] void PyEval_RestoreThread(void*);
}

namespace splice {

// Lets other Python threads run for as long as it is there, if this one keeps them from it. An
// operator that Python calls doesn't, but a compiled step, in which they are called, holds the lock
// from its beginning to its end: blocks from the tiers would come only between steps.
class InterpreterLetGo {
 public:
  InterpreterLetGo()
      : state_(PyGILState_Check && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~InterpreterLetGo() {
    if (state_) PyEval_RestoreThread(state_);
  }
  InterpreterLetGo(const InterpreterLetGo&) = delete;

 private:
  void* state_;
};

}  // namespace splice
