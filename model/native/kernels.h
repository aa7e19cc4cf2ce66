// What the kernels are given and what they are. Plain values, no torch: the kernels' translation
// units compile in a second or two, once for each level of instruction sets.

#pragma once

#include <cstddef>
#include <cstdint>

namespace splice {

// Strides count elements. Letters as in model/batch.py. Queries and output have one dtype, keys and
// values another, which is the same or bfloat16.
struct Attention {
  const void* query;  // [T, H, D]
  int64_t query_token, query_head;
  const void* kv;  // [N, 2, P, K, D], one layer's view of all blocks
  int64_t kv_block, kv_part, kv_slot, kv_head, kv_element;  // the last one in bytes
  void* output;  // [T, H, D], contiguous
  int64_t num_heads, num_kv_heads, head_size, block_size;
  float scaling;
  int64_t window;  // last positions that a token sees
  float softcap;   // 0: none
};

// Some rows of one sequence and of some key-value heads over a part of the history. A head's rows are
// the chunk's tokens times the query heads that share it, query heads innermost; all heads have the
// same rows, and one head's stand behind the other's.
struct Item {
  const int64_t* table;
  int64_t first_token;     // row of T of the sequence's first token in this step
  int64_t first_position;  // that token's position
  int64_t kv_head, num_kv_heads;
  int64_t row, num_rows;  // of a head
  int64_t begin, end;     // positions
  float* partial;         // null when `begin` to `end` is all that the rows see

  int64_t rows_in_all() const { return num_kv_heads * num_rows; }  // at most kRows
};

constexpr int64_t kRows = 128;

// bfloat16 throughout; input, weight and bias contiguous.
struct Linear {
  const void* input;  // [num_rows, num_inputs]
  const void* weight;  // [num_outputs, num_inputs]
  const void* bias;    // [num_outputs] or null
  void* output;        // [num_rows, num_outputs]
  int64_t output_row;  // a row's stride; more than num_outputs beside other layers' outputs
  int64_t num_rows, num_inputs, num_outputs;
};

// A layer with weights of 4 or 8 bits, whose layout model/packed_weights.py has, and where its
// outputs go.
struct PackedLayer {
  const uint8_t* weight;
  const void* bias;    // [num_outputs] or null, in the output's dtype
  char* output;        // [num_rows, num_outputs]
  int64_t output_row;  // a row's stride; more than num_outputs beside other layers' outputs
  int64_t num_outputs;
};

// Activations as `quantize_inputs` makes them ready: 16 bits each and, for each of a row's groups of
// 32, what one stands for and what all of them together do.
struct Quantized {
  bool is_half;  // the outputs are bfloat16, not float
  const int16_t* codes;  // [num_rows, num_groups, 32]
  const float* scales;   // [num_rows, num_groups]
  const float* sums;     // [num_rows, num_groups]
  int64_t num_rows, num_groups;
};

constexpr int64_t kGroup = 32;    // inputs that share a scale
constexpr int64_t kOutputs = 16;  // outputs whose weights lie together

// A block's bytes for one group: weights, scales and, for 4 bits, minima, both in float16.
constexpr int64_t group_bytes(int64_t bits) {
  return kOutputs * kGroup * bits / 8 + kOutputs * 2 * (bits == 4 ? 2 : 1);
}

// Rows to make ready, [num_rows, num_inputs]; the rest of the last group is filled with zeros.
struct Inputs {
  const void* from;
  int16_t* codes;
  float* scales;
  float* sums;
  int64_t num_rows, num_inputs;
};

// Where weights go as plain numbers, inputs by outputs: [num_groups * 32, num_outputs].
struct Unpacked {
  const uint8_t* weight;
  void* to;
  int64_t num_groups, num_outputs;
};

constexpr int64_t kTileRows = 4;    // that are multiplied together
constexpr int64_t kTileBlocks = 2;  // of outputs that are made bytes together, at most

// How many parts a tile has at most: each group's, and each once more where it is refined.
constexpr int64_t tile_parts(int64_t num_groups) { return 2 * num_groups; }

// Many rows made ready, in tiles: of each part, 8 bits an activation and, for each row, what one
// stands for and what all of them together do. `from` is [num_rows, num_inputs], the other shapes
// start with [tiles, tile_parts(num_groups)].
struct Tiles {
  const void* from;
  int8_t* codes;       // [.., kTileRows, 32]
  float* scales;       // [.., kTileRows]
  float* sums;         // [.., kTileRows]
  int32_t* groups;     // [..], which group a part is of
  int32_t* num_parts;  // [tiles]
  int64_t num_rows, num_inputs, num_groups;

  int64_t num_tiles() const { return (num_rows + kTileRows - 1) / kTileRows; }
};

// Of `multiply_tiles`, aligned to 64 bytes: a block's codes, scales and minima.
constexpr int64_t strip_bytes(int64_t num_groups) {
  return num_groups * kTileBlocks * kOutputs * (kGroup + 2 * int64_t(sizeof(float)));
}

// A partial result: for each row its largest score (as an exponent of two), the sum of its weights
// and the weighted sum of the values, not yet divided.
inline int64_t partial_floats(int64_t num_rows, int64_t head_size) {
  return num_rows * (2 + head_size);
}

constexpr int64_t kCopiesTogether = 4;  // side by side, and that a thread takes at once

// Bytes to be copied, and the XXH3 checksum of 16 that they have.
struct Copy {
  const char* from;
  char* to;
  uint8_t* checksum;
};

// One build of the kernels.
struct Level {
  const char* name;
  size_t (*scratch_bytes)(int64_t head_size);
  // The scratch memory is aligned to 64 bytes.
  // [keys and values float or bfloat16][queries likewise]; no bfloat16 behind floats.
  void (*attend[2][2])(const Attention&, const Item&, void* scratch);
  void (*multiply_bfloat16)(const Linear&, int64_t begin, int64_t end);  // outputs
  void (*quantize_inputs[2])(const Inputs&);  // [float or bfloat16]
  // Blocks of outputs `begin` to `end`; [4 or 8 bits].
  void (*multiply_quantized[2])(const PackedLayer&, const Quantized&, int64_t begin, int64_t end);
  void (*unpack[2][2])(const Unpacked&, int64_t begin, int64_t end);  // [..][float or bfloat16]
  bool has_tiles[2];                           // [4 or 8 bits]; or there are no products of tiles
  void (*fill_tile[2])(const Tiles&, int64_t tile);  // [float or bfloat16]
  // Blocks of outputs `begin` to `end`; [4 or 8 bits][float or bfloat16].
  void (*multiply_tiles[2][2])(const PackedLayer&, const Tiles&, int64_t begin, int64_t end,
                               void* scratch);
  void (*copy)(const Copy* copies, int64_t count, int64_t num_bytes);  // at least 241 each
};

}  // namespace splice
