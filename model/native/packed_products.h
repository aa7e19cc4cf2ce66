// Linear layers with packed weights as torch operators.

#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "buffer.h"
#include "levels.h"
#include "products.h"

namespace splice {

constexpr int64_t kTilesAtOnce = 4;  // that a thread makes ready, or calling it costs more
constexpr int64_t kMostRows = 512;  // that are made ready together: more take memory and save nothing

// Blocks of outputs that a thread takes at once, when few rows leave the weights to be waited for.
inline int64_t blocks_at_once(int64_t num_groups, int64_t bits) {
  return std::max<int64_t>(1, kPartBytes / (num_groups * group_bytes(bits)));
}

// Whether a level has products for many rows.
inline bool multiplies_bytes(int64_t bits, int64_t level) {
  return level_of(level).has_tiles[bits == 8];
}

// Layers of the same inputs [num_rows, num_inputs], all rows contiguous.
struct PackedCall {
  const char* from;
  bool is_half;  // bfloat16, not float
  int64_t num_rows, num_inputs, num_groups, bits;
  std::vector<PackedLayer> layers;
  std::vector<int64_t> num_blocks;  // of each layer's outputs
  const Level& level;
};

// With activations of 16 bits.
inline void multiply_few(const PackedCall& call) {
  // Two codes are as large as a float.
  static thread_local Buffer buffer;
  int64_t count = call.num_rows * call.num_groups;
  Inputs inputs{};
  inputs.from = call.from;
  inputs.num_inputs = call.num_inputs;
  inputs.num_rows = call.num_rows;
  inputs.scales = buffer.floats(count * (2 + kGroup / 2));
  inputs.sums = inputs.scales + count;
  inputs.codes = reinterpret_cast<int16_t*>(inputs.sums + count);
  call.level.quantize_inputs[call.is_half](inputs);
  Quantized rows{call.is_half, inputs.codes,    inputs.scales,
                 inputs.sums,  inputs.num_rows, call.num_groups};
  share_out(call.num_blocks, blocks_at_once(call.num_groups, call.bits),
            [&](size_t layer, int64_t begin, int64_t end) {
              call.level.multiply_quantized[call.bits == 8](call.layers[layer], rows, begin, end);
            });
}

// Memory for rows to be made ready in; it lasts until this thread's next call.
inline void reserve(Tiles& tiles) {
  static thread_local Buffer buffer;
  int64_t num_tiles = tiles.num_tiles(), num_parts = num_tiles * tile_parts(tiles.num_groups);
  // Each row of a part has its codes, a scale and a sum.
  tiles.scales = buffer.floats(num_parts * (kTileRows * (2 + kGroup / 4) + 1) + num_tiles);
  tiles.sums = tiles.scales + num_parts * kTileRows;
  tiles.codes = reinterpret_cast<int8_t*>(tiles.sums + num_parts * kTileRows);
  tiles.groups = reinterpret_cast<int32_t*>(tiles.codes + num_parts * kTileRows * kGroup);
  tiles.num_parts = tiles.groups + num_parts;
}

// With activations of 8 bits, where the CPU multiplies bytes.
inline void multiply_many(PackedCall call) {
  int64_t size = call.is_half ? 2 : 4;
  Tiles tiles{};
  tiles.num_inputs = call.num_inputs;
  tiles.num_groups = call.num_groups;
  for (int64_t row = 0; row < call.num_rows; row += kMostRows) {
    tiles.num_rows = std::min(kMostRows, call.num_rows - row);
    tiles.from = call.from + row * call.num_inputs * size;
    reserve(tiles);
    share_out({tiles.num_tiles()}, kTilesAtOnce, [&](size_t, int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; ++tile) call.level.fill_tile[call.is_half](tiles, tile);
    });
    // With many rows the fewest blocks that are taken together are work enough.
    share_out(call.num_blocks, kTileBlocks, [&](size_t layer, int64_t begin, int64_t end) {
      static thread_local Buffer buffer;
      float* scratch = buffer.floats(strip_bytes(tiles.num_groups) / sizeof(float));
      call.level.multiply_tiles[call.bits == 8][call.is_half](call.layers[layer], tiles, begin, end,
                                                              scratch);
    });
    for (PackedLayer& layer : call.layers) layer.output += kMostRows * layer.output_row * size;
  }
}

// Layers of the same input [..., I]: their outputs side by side, [..., sum of `sizes`].
// `parameters` are a weight of each, [blocks, groups, bytes] as packed, then as many biases or none.
// Up to `max_rows` rows take activations of 16 bits, and so do all where the CPU doesn't multiply
// bytes; more take 8.
inline Tensor linears_packed(const Tensor input, std::vector<Tensor> parameters,
                             std::vector<int64_t> sizes, int64_t bits, int64_t max_rows,
                             int64_t level) {
  int64_t num_outputs = 0, num_layers = sizes.size(), element = input.element_size();
  for (int64_t size : sizes) num_outputs += size;
  Tensor output = outputs_of(input, num_outputs), rows = torch::stable::contiguous(input);
  int64_t num_inputs = input.size(input.dim() - 1);
  PackedCall call{static_cast<const char*>(rows.data_ptr()),
                  element == 2,
                  input.numel() / num_inputs,
                  num_inputs,
                  parameters[0].size(1),
                  bits,
                  {},
                  {},
                  level_of(level)};
  char* to = static_cast<char*>(output.data_ptr());
  for (int64_t i = 0; i < num_layers; ++i) {
    bool has_bias = parameters.size() > sizes.size();
    call.layers.push_back({static_cast<const uint8_t*>(parameters[i].data_ptr()),
                           has_bias ? parameters[num_layers + i].data_ptr() : nullptr, to,
                           num_outputs, sizes[i]});
    call.num_blocks.push_back(parameters[i].size(0));
    to += sizes[i] * element;
  }
  if (call.num_rows > max_rows && multiplies_bytes(bits, level))
    multiply_many(std::move(call));
  else
    multiply_few(call);
  return output;
}

// `weight` as packed to `output` [groups * 32, blocks * 16], contiguous.
inline void unpack(Tensor output, const Tensor weight, int64_t bits, int64_t level) {
  const Level& chosen = level_of(level);
  Unpacked call{static_cast<const uint8_t*>(weight.data_ptr()), output.data_ptr(), weight.size(1),
                output.size(1)};
  share_out({weight.size(0)}, blocks_at_once(call.num_groups, bits),
            [&](size_t, int64_t begin, int64_t end) {
              chosen.unpack[bits == 8][output.element_size() == 2](call, begin, end);
            });
}

}  // namespace splice
