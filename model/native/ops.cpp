// The torch operators: they cut a step into items, hand them to threads and join what a split of the
// history left apart. Uses torch's stable ABI alone, whose headers compile in a second.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "buffer.h"
#include "copies.h"
#include "crew.h"
#include "levels.h"
#include "packed_products.h"
#include "products.h"

namespace splice {

namespace {

using torch::stable::Tensor;

// Finer than threads are many, so that one that is held up takes less of the work.
constexpr int64_t kItemsPerThread = 8;
constexpr int64_t kLeastPositions = 128;  // of an item's heads, or joining costs more than it gains
constexpr int64_t kPackingRows = 12;      // what making a tile ready costs, in rows
// Rows times positions times head size; waking a thread takes longer than this.
constexpr int64_t kWorthThreads = 300'000;
// Of keys and values for 64 positions of an item's heads; twice as many are in the second cache.
constexpr int64_t kHeadBytes = 128 << 10;

// Rows of one sequence and some key-value heads, in `num_splits` items one behind the other.
struct Tile {
  Item item;
  int64_t num_splits;

  int64_t num_positions() const { return item.end - item.begin; }
  int64_t cost() const {
    return item.num_kv_heads * (item.num_rows + kPackingRows) * num_positions();
  }
};

struct Sequences {
  const int64_t* tables;
  const int64_t* spans;  // of each: where its table starts, its first row of T, behind its last, S
  int64_t count;
};

// How many heads an item takes: what they have of a position lies together, and comes from memory
// half as fast again when it is read so.
int64_t heads_at_once(const Attention& call, int64_t num_rows, int64_t element_size) {
  int64_t bytes = 2 * 64 * call.head_size * element_size;
  int64_t most = std::min(kRows / num_rows, kHeadBytes / bytes);
  return std::max<int64_t>(1, std::min(most, call.num_kv_heads));
}

std::vector<Tile> tiles_of(const Attention& call, const Sequences& sequences,
                           int64_t element_size) {
  std::vector<Tile> tiles;
  int64_t group = call.num_heads / call.num_kv_heads;
  for (int64_t i = 0; i < sequences.count; ++i) {
    const int64_t* span = sequences.spans + 4 * i;
    int64_t start = span[3] - (span[2] - span[1]), rows = (span[2] - span[1]) * group;
    int64_t num_tiles = (rows + kRows - 1) / kRows;
    // Of equal size, whole groups of four.
    int64_t size = std::min(kRows, ((rows + num_tiles - 1) / num_tiles + 3) / 4 * 4);
    for (int64_t row = 0; row < rows; row += size) {
      int64_t num_rows = std::min(size, rows - row);
      int64_t begin = std::max<int64_t>(0, start + row / group - call.window + 1);
      int64_t end = start + (row + num_rows - 1) / group + 1;
      int64_t at_once = heads_at_once(call, num_rows, element_size);
      for (int64_t head = 0; head < call.num_kv_heads; head += at_once) {
        int64_t num_heads = std::min(at_once, call.num_kv_heads - head);
        tiles.push_back({{sequences.tables + span[0], span[1], start, head, num_heads, row, num_rows,
                          begin, end, nullptr},
                         1});
      }
    }
  }
  return tiles;
}

// How many floats the splits' partial results take.
int64_t split(std::vector<Tile>& tiles, int64_t head_size, int64_t num_threads) {
  int64_t total = 0, num_floats = 0;
  for (const Tile& tile : tiles) total += tile.cost();
  int64_t fair = total / (num_threads * kItemsPerThread) + 1;
  for (Tile& tile : tiles) {
    int64_t most = tile.item.num_kv_heads * tile.num_positions() / kLeastPositions;
    tile.num_splits = std::max<int64_t>(1, std::min(most, tile.cost() / fair));
    if (tile.num_splits > 1)
      num_floats += tile.num_splits * partial_floats(tile.item.rows_in_all(), head_size);
  }
  return num_floats;
}

std::vector<Item> items_of(const std::vector<Tile>& tiles, int64_t head_size, float* partials) {
  std::vector<Item> items;
  for (const Tile& tile : tiles) {
    int64_t begin = tile.item.begin, length = tile.num_positions();
    for (int64_t i = 0; i < tile.num_splits; ++i) {
      Item item = tile.item;
      item.begin = begin + length * i / tile.num_splits;
      item.end = begin + length * (i + 1) / tile.num_splits;
      if (tile.num_splits > 1) {
        item.partial = partials;
        partials += partial_floats(item.rows_in_all(), head_size);
      }
      items.push_back(item);
    }
  }
  return items;
}

void put(float* to, float x) { *to = x; }
void put(uint16_t* to, float x) {
  uint32_t bits = __builtin_bit_cast(uint32_t, x);
  *to = std::isnan(x) ? 0x7fc0 : uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Joins a tile's partial results: what each row weighed is brought to the same largest score.
template <class T>
void join(const Attention& call, const Tile& tile, const float* partials) {
  int64_t group = call.num_heads / call.num_kv_heads, size = call.head_size;
  int64_t distance = partial_floats(tile.item.rows_in_all(), size);
  std::vector<float> sums(size);
  for (int64_t row = 0; row < tile.item.rows_in_all(); ++row) {
    const float* first = partials + row * (2 + size);
    float top = first[0], total = 0;
    for (int64_t i = 1; i < tile.num_splits; ++i) top = std::max(top, first[i * distance]);
    std::fill(sums.begin(), sums.end(), 0.f);
    for (int64_t i = 0; i < tile.num_splits; ++i) {
      const float* from = first + i * distance;
      float factor = std::exp2(from[0] - top);
      total += from[1] * factor;
      for (int64_t d = 0; d < size; ++d) sums[d] += from[2 + d] * factor;
    }
    int64_t index = tile.item.row + row % tile.item.num_rows;
    int64_t token = tile.item.first_token + index / group;
    int64_t kv_head = tile.item.kv_head + row / tile.item.num_rows;
    int64_t head = kv_head * group + index % group;
    T* to = static_cast<T*>(call.output) + (token * call.num_heads + head) * size;
    for (int64_t d = 0; d < size; ++d) put(to + d, sums[d] / total);
  }
}

template <class T>
void join_all(const Attention& call, const std::vector<Tile>& tiles, const float* partials) {
  for (const Tile& tile : tiles) {
    if (tile.num_splits == 1) continue;
    join<T>(call, tile, partials);
    partials += tile.num_splits * partial_floats(tile.item.rows_in_all(), call.head_size);
  }
}

using Kernel = void (*)(const Attention&, const Item&, void*);

void run(const Attention& call, const std::vector<Item>& items, const Level& level, Kernel kernel,
         int64_t num_threads) {
  std::atomic<size_t> next{0};
  auto work = [&] {
    static thread_local Buffer scratch;
    float* memory = scratch.floats(level.scratch_bytes(call.head_size) / sizeof(float));
    for (size_t i = next++; i < items.size(); i = next++) kernel(call, items[i], memory);
  };
  Crew::get().run(num_threads, work);
}

// A layer's variant; window and softcap 0: none; level -1: the best that the CPU has.
struct Variant {
  double scaling;
  int64_t window;
  double softcap;
  int64_t level;
};

// `kv` is one layer's view, [N, 2, P, K, D], or that of all layers, [N, L, 2, P, K, D].
Attention attention_over(const Tensor& kv, int64_t layer) {
  int64_t first = kv.dim() - 4;
  int64_t skipped = first > 1 ? layer * kv.stride(1) * int64_t(kv.element_size()) : 0;
  Attention call{};
  call.kv = static_cast<const char*>(kv.data_ptr()) + skipped;
  call.kv_block = kv.stride(0);
  call.kv_part = kv.stride(first);
  call.kv_slot = kv.stride(first + 1);
  call.kv_head = kv.stride(first + 2);
  call.kv_element = kv.element_size();
  call.block_size = kv.size(first + 1);
  call.num_kv_heads = kv.size(first + 2);
  call.head_size = kv.size(first + 3);
  return call;
}

// `sequences` [B, 4].
void attend_into(Attention& call, Tensor& output, const Tensor& query, const Tensor& tables,
                 const Tensor& sequences, const Variant& variant) {
  call.query = query.data_ptr();
  call.query_token = query.stride(0);
  call.query_head = query.stride(1);
  call.output = output.data_ptr();
  call.num_heads = query.size(1);
  call.scaling = float(variant.scaling);
  call.window = variant.window > 0 ? variant.window : int64_t(1) << 40;
  call.softcap = float(variant.softcap);

  auto tiles = tiles_of(call, {static_cast<const int64_t*>(tables.data_ptr()),
                               static_cast<const int64_t*>(sequences.data_ptr()),
                               sequences.size(0)},
                        call.kv_element);
  int64_t work = 0, num_threads = torch::stable::get_num_threads();
  for (const Tile& tile : tiles) work += tile.cost() * call.head_size;
  if (work < kWorthThreads) num_threads = 1;

  static thread_local Buffer buffer;
  float* partials = nullptr;
  if (num_threads > 1)
    if (int64_t count = split(tiles, call.head_size, num_threads)) partials = buffer.floats(count);
  const Level& chosen = level_of(variant.level);
  bool is_float = query.element_size() == 4;
  Kernel kernel = chosen.attend[call.kv_element == 2][!is_float];
  STD_TORCH_CHECK(kernel, "queries in bfloat16 want keys and values in it");
  run(call, items_of(tiles, call.head_size, partials), chosen, kernel, num_threads);
  is_float ? join_all<float>(call, tiles, partials) : join_all<uint16_t>(call, tiles, partials);
}

void attend(Tensor output, const Tensor query, const Tensor kv, const Tensor tables,
            const Tensor sequences, double scaling, int64_t window, double softcap, int64_t level) {
  Attention call = attention_over(kv, 0);
  attend_into(call, output, query, tables, sequences, {scaling, window, softcap, level});
}

// A head's keys or values, `count` of From, to as many of To.
template <class To, class From>
void put_head(char* to, const char* from, int64_t count) {
  if constexpr (std::is_same_v<To, From>)
    std::memcpy(to, from, count * sizeof(To));
  else
    for (int64_t d = 0; d < count; ++d)
      put(reinterpret_cast<To*>(to) + d, reinterpret_cast<const From*>(from)[d]);
}

// `rows` [T, K, D] go to their `places` [2, T], blocks and offsets; part 0 is keys, 1 values.
template <class To, class From>
void store(const Attention& call, int64_t part, const Tensor& rows, const Tensor& places) {
  int64_t num_rows = rows.size(0);
  const int64_t* blocks = static_cast<const int64_t*>(places.data_ptr());
  const int64_t* offsets = blocks + num_rows;
  const char* from = static_cast<const char*>(rows.data_ptr());
  char* kv = static_cast<char*>(const_cast<void*>(call.kv)) + part * call.kv_part * sizeof(To);
  for (int64_t t = 0; t < num_rows; ++t) {
    char* slot = kv + (blocks[t] * call.kv_block + offsets[t] * call.kv_slot) * sizeof(To);
    for (int64_t head = 0; head < call.num_kv_heads; ++head)
      put_head<To, From>(slot + head * call.kv_head * sizeof(To),
                         from + (t * rows.stride(0) + head * rows.stride(1)) * sizeof(From),
                         call.head_size);
  }
}

void store_any(const Attention& call, int64_t part, const Tensor& rows, const Tensor& places) {
  STD_TORCH_CHECK(int64_t(rows.element_size()) >= call.kv_element,
                  "keys and values in bfloat16 want a cache in it");
  bool is_half = call.kv_element == 2;
  if (int64_t(rows.element_size()) == call.kv_element)
    is_half ? store<uint16_t, uint16_t>(call, part, rows, places)
            : store<float, float>(call, part, rows, places);
  else
    store<uint16_t, float>(call, part, rows, places);
}

// Stores a layer's keys and values, then attends: one call a layer. All rows' last stride is 1.
Tensor attend_step(Tensor kv, const Tensor query, const Tensor key, const Tensor value,
                   const Tensor places, const Tensor tables, const Tensor sequences, int64_t layer,
                   double scaling, int64_t window, double softcap, int64_t level) {
  Attention call = attention_over(kv, layer);
  store_any(call, 0, key, places);
  store_any(call, 1, value, places);
  const int64_t shape[] = {query.size(0), query.size(1), query.size(2)};
  Tensor output = torch::stable::new_empty(query, {shape, 3});
  attend_into(call, output, query, tables, sequences, {scaling, window, softcap, level});
  return output;
}

// The levels' names, ascending, with a space between.
std::string level_names() {
  std::string names;
  for (const Level* level : levels()) names += (names.empty() ? "" : " ") + std::string(level->name);
  return names;
}

}  // namespace
}  // namespace splice

STABLE_TORCH_LIBRARY(SPLICE_NAMESPACE, library) {
  library.def(
      "attend(Tensor(a!) output, Tensor query, Tensor kv, Tensor tables, Tensor sequences, "
      "float scaling, int window, float softcap, int level) -> ()");
  library.def("linear(Tensor(a!) output, Tensor input, Tensor weight, Tensor? bias, int level) -> ()");
  library.def(
      "linears_packed(Tensor input, Tensor[] parameters, int[] sizes, int bits, int max_rows, "
      "int level) -> Tensor");
  library.def("multiplies_bytes(int bits, int level) -> bool");
  library.def("unpack(Tensor(a!) output, Tensor weight, int bits, int level) -> ()");
  library.def(
      "attend_step(Tensor(a!) kv, Tensor query, Tensor key, Tensor value, Tensor places, "
      "Tensor tables, Tensor sequences, int layer, float scaling, int window, float softcap, "
      "int level) -> Tensor");
  library.def(
      "linears(Tensor input, Tensor[] parameters, int[] sizes, int max_rows, int level) -> Tensor");
  library.def(
      "copy(Tensor(a!) checksums, Tensor addresses, int num_bytes, int level) -> ()");
  library.def("level_names() -> str");
}

STABLE_TORCH_LIBRARY_IMPL(SPLICE_NAMESPACE, CPU, library) {
  library.impl("attend", TORCH_BOX(&splice::attend));
  library.impl("linear", TORCH_BOX(&splice::linear));
  library.impl("linears_packed", TORCH_BOX(&splice::linears_packed));
  library.impl("unpack", TORCH_BOX(&splice::unpack));
  library.impl("attend_step", TORCH_BOX(&splice::attend_step));
  library.impl("linears", TORCH_BOX(&splice::linears));
  library.impl("copy", TORCH_BOX(&splice::copy));
}

STABLE_TORCH_LIBRARY_IMPL(SPLICE_NAMESPACE, CompositeExplicitAutograd, library) {
  library.impl("level_names", TORCH_BOX(&splice::level_names));
  library.impl("multiplies_bytes", TORCH_BOX(&splice::multiplies_bytes));
}
