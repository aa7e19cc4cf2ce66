// The builds of the kernels, one for each level of instruction sets, and which of them can run here.

#pragma once

#include <vector>

#include "kernels.h"

namespace splice {

extern const Level level_portable;
#if defined(SPLICE_X86)
extern const Level level_avx2, level_avx512, level_avx512_vnni, level_avx512_bf16;
#endif

// Ascending; the CPU has all of the instructions of each.
inline std::vector<const Level*> usable_levels() {
  std::vector<const Level*> levels{&level_portable};
#if defined(SPLICE_X86)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c"))
    return levels;
  levels.push_back(&level_avx2);
  for (bool has : {__builtin_cpu_supports("avx512f") != 0, __builtin_cpu_supports("avx512bw") != 0,
                   __builtin_cpu_supports("avx512vl") != 0, __builtin_cpu_supports("avx512dq") != 0})
    if (!has) return levels;
  levels.push_back(&level_avx512);
  if (!__builtin_cpu_supports("avx512vnni")) return levels;
  levels.push_back(&level_avx512_vnni);
  if (__builtin_cpu_supports("avx512bf16")) levels.push_back(&level_avx512_bf16);
#endif
  return levels;
}

inline const std::vector<const Level*>& levels() {
  static const std::vector<const Level*> usable = usable_levels();
  return usable;
}

// -1: the best one.
inline const Level& level_of(int64_t level) {
  return level < 0 ? *levels().back() : *levels().at(level);
}

}  // namespace splice
