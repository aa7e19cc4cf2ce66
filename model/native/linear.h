// A bfloat16 matrix times a few rows, each weight read once at the speed of memory. Sums are float32.

#pragma once

#include "kernels.h"
#include "units.h"

namespace {

using splice::Linear;

// One step along the inputs, of which `rest` remain.
template <int R, int N>
inline void multiply_step(const Linear& call, const BFloat16* x, const BFloat16* w, int64_t rest,
                          Floats (&sums)[R][N]) {
  using Unit = UnitOf<BFloat16>::Type;
  Floats weights[N];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    // The next tile's, into the second cache: the first one waits for few lines at a time.
    __builtin_prefetch(w + (n + N) * call.num_inputs, 0, 2);
    weights[n] = Unit::load(w + n * call.num_inputs, rest);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    Floats inputs = Unit::load(x + r * call.num_inputs, rest);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n)
      sums[r][n] = Unit::multiply_add_each(sums[r][n], weights[n], inputs);
  }
}

// R rows times N outputs.
template <int R, int N>
inline void multiply_tile(const Linear& call, int64_t row, int64_t output) {
  constexpr int64_t kStep = kWidth * UnitOf<BFloat16>::Type::kElements;
  const BFloat16* x = static_cast<const BFloat16*>(call.input) + row * call.num_inputs;
  const BFloat16* w = static_cast<const BFloat16*>(call.weight) + output * call.num_inputs;
  Floats sums[R][N] = {};
  int64_t i = 0;
  for (; i + kStep <= call.num_inputs; i += kStep) multiply_step(call, x + i, w + i, kStep, sums);
  if (i < call.num_inputs) multiply_step(call, x + i, w + i, call.num_inputs - i, sums);
  const BFloat16* bias = static_cast<const BFloat16*>(call.bias);
  BFloat16* to = static_cast<BFloat16*>(call.output) + row * call.output_row + output;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n)
      round_to(to[r * call.output_row + n],
               sum(sums[r][n]) + (bias ? as_float(bias[output + n]) : 0.f));
}

template <int R>
inline void multiply_rows(const Linear& call, int64_t row, int64_t begin, int64_t end) {
  int64_t output = begin;
  for (; output + kAcross <= end; output += kAcross)
    multiply_tile<R, kAcross>(call, row, output);
  for (; output < end; ++output) multiply_tile<R, 1>(call, row, output);
}

// Outputs `begin` to `end` of all rows.
void multiply_bfloat16(const Linear& call, int64_t begin, int64_t end) {
  int64_t row = 0;
  for (; row + 4 <= call.num_rows; row += 4) multiply_rows<4>(call, row, begin, end);
  int64_t rest = call.num_rows - row;
  if (rest == 3) multiply_rows<3>(call, row, begin, end);
  if (rest == 2) multiply_rows<2>(call, row, begin, end);
  if (rest == 1) multiply_rows<1>(call, row, begin, end);
}

}  // namespace
