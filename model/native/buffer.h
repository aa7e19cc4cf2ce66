// Memory that calls use one after the other.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace splice {

// Memory that only grows, aligned for vectors; one for each thread and purpose.
class Buffer {
 public:
  float* floats(size_t count) {
    if (count > size_) {
      memory_ = std::make_unique<float[]>(count + 16);
      size_ = count;
    }
    auto address = reinterpret_cast<uintptr_t>(memory_.get());
    return reinterpret_cast<float*>((address + 63) / 64 * 64);
  }

 private:
  std::unique_ptr<float[]> memory_;
  size_t size_ = 0;
};

}  // namespace splice
