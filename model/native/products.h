// Linear layers as torch operators: their outputs are shared out among threads.

#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <vector>

#include "crew.h"
#include "levels.h"

namespace splice {

using torch::stable::Tensor;

constexpr int64_t kPartBytes = 128 << 10;  // of weights that a thread takes at once

inline Linear linear_of(const Tensor& input, const Tensor& weight, const Tensor* bias) {
  Linear call{};
  call.input = input.data_ptr();
  call.weight = weight.data_ptr();
  call.bias = bias ? bias->data_ptr() : nullptr;
  call.num_inputs = weight.size(1);
  call.num_outputs = weight.size(0);
  call.num_rows = input.numel() / call.num_inputs;
  return call;
}

// Layers of the same input, one call of the threads for all: each takes `size` units of one layer
// after the other. `counts` are the layers' units; `part` is told which layer, and its units.
template <class Part>
inline void share_out(const std::vector<int64_t>& counts, int64_t size, Part part) {
  std::vector<int64_t> ends;  // of each layer's parts
  for (int64_t count : counts)
    ends.push_back((ends.empty() ? 0 : ends.back()) + (count + size - 1) / size);
  std::atomic<int64_t> next{0};
  auto work = [&] {
    size_t k = 0;
    for (int64_t i = next++; i < ends.back(); i = next++) {
      while (i >= ends[k]) ++k;
      int64_t begin = (i - (k ? ends[k - 1] : 0)) * size;
      part(k, begin, std::min(begin + size, counts[k]));
    }
  };
  Crew::get().run(std::min<int64_t>(torch::stable::get_num_threads(), ends.back()), work);
}

inline void multiply(const std::vector<Linear>& layers, const Level& level) {
  std::vector<int64_t> counts;
  for (const Linear& layer : layers) counts.push_back(layer.num_outputs);
  int64_t size = std::max<int64_t>(4, kPartBytes / (2 * layers[0].num_inputs) / 4 * 4);
  share_out(counts, size, [&](size_t layer, int64_t begin, int64_t end) {
    level.multiply_bfloat16(layers[layer], begin, end);
  });
}

// `input` [..., I], `weight` [O, I], `output` [..., O], contiguous.
inline void linear(Tensor output, const Tensor input, const Tensor weight,
                   std::optional<Tensor> bias, int64_t level) {
  Linear call = linear_of(input, weight, bias ? &*bias : nullptr);
  call.output = output.data_ptr();
  call.output_row = call.num_outputs;
  multiply({call}, level_of(level));
}

inline Tensor linear_by_torch(const Tensor& input, const Tensor& weight, const Tensor* bias) {
  using torch::stable::detail::from;
  StableIValue stack[] = {from(input), from(weight),
                          from(bias ? std::optional<Tensor>(*bias) : std::nullopt)};
  STABLE_TORCH_ERROR_CODE_CHECK(
      torch_call_dispatcher("aten::linear", "", stack, TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

// Memory for what comes of an input [..., I]: [..., num_outputs].
inline Tensor outputs_of(const Tensor& input, int64_t num_outputs) {
  std::vector<int64_t> shape;
  for (int64_t i = 0; i < input.dim() - 1; ++i) shape.push_back(input.size(i));
  shape.push_back(num_outputs);
  return torch::stable::new_empty(input, {shape.data(), shape.size()});
}

// Layers of the same input [..., I]: their outputs side by side, [..., sum of `sizes`]. `parameters`
// are a weight of each, [O, I], then as many biases or none; one list, because torch's compiled code
// can't hand on an empty one. From more than `max_rows` rows on torch's product is as fast.
inline Tensor linears(const Tensor input, std::vector<Tensor> parameters,
                      std::vector<int64_t> sizes, int64_t max_rows, int64_t level) {
  int64_t num_layers = sizes.size(), num_outputs = 0;
  for (int64_t size : sizes) num_outputs += size;
  auto weights = parameters.begin(), end = weights + num_layers;
  bool is_few = input.numel() <= max_rows * weights[0].size(1);
  auto bias = [&](int64_t i) { return end == parameters.end() ? nullptr : &end[i]; };
  if (!is_few && num_layers == 1) return linear_by_torch(input, weights[0], bias(0));
  Tensor output = outputs_of(input, num_outputs);
  Tensor rows = torch::stable::contiguous(input);
  std::vector<Linear> layers;
  int64_t begin = 0;
  for (int64_t i = 0; i < num_layers; ++i) {
    int64_t size = sizes[i];
    if (is_few) {
      layers.push_back(linear_of(rows, weights[i], bias(i)));
      layers.back().output = static_cast<uint16_t*>(output.data_ptr()) + begin;
      layers.back().output_row = num_outputs;
    } else {
      Tensor part = torch::stable::narrow(output, input.dim() - 1, begin, size);
      torch::stable::copy_(part, linear_by_torch(input, weights[i], bias(i)));
    }
    begin += size;
  }
  if (is_few) multiply(layers, level_of(level));
  return output;
}

}  // namespace splice
