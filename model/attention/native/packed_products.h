// Linear layers with packed weights as torch operators.

#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "buffer.h"
#include "levels.h"
#include "products.h"

namespace splice {

constexpr int64_t kTilesAtOnce = 4;   // that a thread makes ready, or waking it costs more
constexpr int64_t kMostRows = 512;  // that are made ready together: more take memory and save nothing

// Each thread takes a part of some bytes after the other.
template <class Part>
inline void share_out(int64_t num_units, int64_t unit_bytes, Part part) {
  int64_t num_threads = torch::stable::get_num_threads();
  int64_t size = std::max<int64_t>(1, kPartBytes / unit_bytes);
  int64_t num_parts = (num_units + size - 1) / size;
  if (num_threads == 1 || num_parts == 1) return part(0, num_units);
  std::atomic<int64_t> next{0};
  torch::stable::parallel_for(0, std::min(num_threads, num_parts), 1, [&](int64_t, int64_t) {
    for (int64_t i = next++; i < num_parts; i = next++)
      part(i * size, std::min((i + 1) * size, num_units));
  });
}

// `input` [..., I], `weight` [blocks, groups, bytes] as packed, `output` [..., O], contiguous.
inline void linear_quantized(Tensor output, const Tensor input, const Tensor weight,
                             std::optional<Tensor> bias, int64_t bits, int64_t level) {
  const Level& chosen = level_of(level);
  bool is_wide = bits == 8, is_half = input.element_size() == 2;
  Inputs inputs{};
  inputs.from = input.data_ptr();
  inputs.num_inputs = input.size(input.dim() - 1);
  inputs.num_rows = input.numel() / inputs.num_inputs;
  Quantized call{};
  call.weight = static_cast<const uint8_t*>(weight.data_ptr());
  call.bias = bias ? bias->data_ptr() : nullptr;
  call.output = output.data_ptr();
  call.is_half = is_half;
  call.num_rows = inputs.num_rows;
  call.num_groups = weight.size(1);
  call.num_outputs = output.size(output.dim() - 1);

  // Two codes are as large as a float.
  static thread_local Buffer buffer;
  int64_t count = call.num_rows * call.num_groups;
  inputs.scales = buffer.floats(count * (2 + kGroup / 2));
  inputs.sums = inputs.scales + count;
  inputs.codes = reinterpret_cast<int16_t*>(inputs.sums + count);
  chosen.quantize_inputs[is_half](inputs);
  call.codes = inputs.codes;
  call.scales = inputs.scales;
  call.sums = inputs.sums;
  share_out(weight.size(0), call.num_groups * group_bytes(bits),
            [&](int64_t begin, int64_t end) {
              chosen.multiply_quantized[is_wide](call, begin, end);
            });
}

// Whether `linear_bytes` is more at a level than `linear_quantized`.
inline bool multiplies_bytes(int64_t bits, int64_t level) {
  return level_of(level).has_tiles[bits == 8];
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

// As `linear_quantized`, but for many rows and, where the CPU multiplies bytes, with activations of
// 8 bits.
inline void linear_bytes(Tensor output, const Tensor input, const Tensor weight,
                         std::optional<Tensor> bias, int64_t bits, int64_t level) {
  const Level& chosen = level_of(level);
  if (!chosen.has_tiles[bits == 8])
    return linear_quantized(output, input, weight, bias, bits, level);
  int64_t num_blocks = weight.size(0), size = input.element_size();
  bool is_half = size == 2;
  Tiles tiles{};
  tiles.num_inputs = input.size(input.dim() - 1);
  tiles.num_groups = weight.size(1);
  ByteWeights call{};
  call.weight = static_cast<const uint8_t*>(weight.data_ptr());
  call.bias = bias ? bias->data_ptr() : nullptr;
  call.num_outputs = output.size(output.dim() - 1);
  int64_t num_rows = input.numel() / tiles.num_inputs;
  for (int64_t row = 0; row < num_rows; row += kMostRows) {
    tiles.num_rows = std::min(kMostRows, num_rows - row);
    tiles.from = static_cast<const char*>(input.data_ptr()) + row * tiles.num_inputs * size;
    call.output = static_cast<char*>(output.data_ptr()) + row * call.num_outputs * size;
    reserve(tiles);
    torch::stable::parallel_for(0, tiles.num_tiles(), kTilesAtOnce, [&](int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; ++tile) chosen.fill_tile[is_half](tiles, tile);
    });
    // With many rows the fewest blocks that are taken together are work enough.
    share_out(num_blocks, kPartBytes / kTileBlocks, [&](int64_t begin, int64_t end) {
      static thread_local Buffer buffer;
      float* scratch = buffer.floats(ByteWeights::scratch_bytes(tiles.num_groups) / sizeof(float));
      chosen.multiply_tiles[bits == 8][is_half](call, tiles, begin, end, scratch);
    });
  }
}

// `weight` as packed to `output` [groups * 32, blocks * 16], contiguous.
inline void unpack(Tensor output, const Tensor weight, int64_t bits, int64_t level) {
  const Level& chosen = level_of(level);
  Unpacked call{static_cast<const uint8_t*>(weight.data_ptr()), output.data_ptr(), weight.size(1),
                output.size(1)};
  share_out(weight.size(0), call.num_groups * group_bytes(bits), [&](int64_t begin, int64_t end) {
    chosen.unpack[bits == 8][output.element_size() == 2](call, begin, end);
  });
}

}  // namespace splice
