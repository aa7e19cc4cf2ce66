// Paged attention of one item: keys and values are read through the block table in place, a tile of
// positions at a time, with the softmax kept online (Milakov and Gimelshein 2018; the tiles as in
// FlashAttention, Dao et al. 2022).
//
// A tile's keys are transposed once, so that positions lie across the lanes, then every row takes
// them; likewise its values. Heads are innermost, for theirs lie beside each other. Positions that
// the sequence has not are read from a row of zeros, never from their slot, which may hold anything.

#pragma once

#include "coded.h"
#include "kernels.h"

namespace {

using splice::Attention;
using splice::Item;
using splice::kRows;

constexpr int64_t kTile = 64;  // positions
constexpr float kLowest = -1e30f;
constexpr float kHidden = -__builtin_inff();
constexpr float kLog2E = 1.4426950f;

// What an item works in, in one piece of memory, padded to whole vectors. Scores are those of the
// rows that take a tile together, so that a tile's keys and values stay in the nearest cache.
template <class T>
struct Room {
  int64_t width;  // of a row of the output
  int64_t depth;  // of a row of queries, in units
  float *queries, *keys, *values, *scores, *sums, *totals, *tops, *factors;
  // What codes stand for: by row, by position, and by row what a tile's products do.
  float *query_scales, *key_scales, *tile_factors;
  T* zeros;

  static int64_t padded(int64_t head_size) { return rounded_up(head_size, kWidth); }

  static size_t bytes(int64_t head_size) {
    int64_t padded_size = padded(head_size);
    return 4 * (2 * kRows * padded_size + 2 * kTile * padded_size + kDown * kTile +
                kRows * kWidth + 4 * kRows + kTile + padded_size);
  }

  Room(void* memory, int64_t head_size) {
    constexpr int64_t elements = AttendedUnit<T>::kElements;
    width = padded(head_size);
    depth = (head_size + elements - 1) / elements;
    queries = static_cast<float*>(memory);
    sums = queries + kRows * width;
    keys = sums + kRows * width;
    values = keys + kTile * width;
    scores = values + kTile * width;
    totals = scores + kDown * kTile;
    tops = totals + kRows * kWidth;
    factors = tops + kRows;
    query_scales = factors + kRows;
    tile_factors = query_scales + kRows;
    key_scales = tile_factors + kRows;
    zeros = reinterpret_cast<T*>(key_scales + kTile);
  }
};

// Queries and output are of Q, which is T or wider.
template <class T, class Q>
class Run {
  using Unit = AttendedUnit<T>;
  static constexpr int64_t kElements = Unit::kElements;

 public:
  Run(const Attention& call, const Item& item, void* scratch)
      : call_(call), item_(item), room_(scratch, call.head_size) {
    group_ = call.num_heads / call.num_kv_heads;
  }

  void all() {
    take_queries();
    find_slots(item_.begin);
    for (int64_t begin = item_.begin; begin < item_.end; begin += kTile) {
      begin_ = begin;
      count_ = min(kTile, item_.end - begin);
      padded_count_ = rounded_up(count_, kWidth);
      for (int64_t i = 0; i < kTile; ++i) slots_[i] = ahead_[i];
      find_slots(begin + kTile);
      choose_rows();
      if (first_row_ == last_row_) continue;
      for (head_ = 0; head_ < item_.num_kv_heads; ++head_) {
        if (head_ > 0) go_to_next_head();
        take_keys();
        take_values();
        int64_t row = head_ * item_.num_rows;
        by_rows(*this, row + first_row_, row + last_row_);
      }
    }
    item_.partial ? give_partial() : give_output();
  }

  // R rows take the tile.
  template <int R>
  void run_rows(int64_t row) {
    cover_row<Scores, R, kAcross>(Scores{*this}, row, padded_count_ / kWidth);
    for (int r = 0; r < R; ++r) weigh(row + r, room_.scores + r * kTile);
    cover_row<Sums, R, kAcross>(Sums{*this}, row, room_.width / kWidth);
  }

  // The two products, as bodies of `cover_row`.
  struct Scores {
    const Run& run;

    template <int R, int N>
    SPLICE_APART void run_tile(int64_t row, int64_t vector) {
      typename Unit::Sum sums[R][N] = {};
      const Room<T>& room = run.room_;
      multiply<Unit, R, N>(room.queries + row * room.width, room.width,
                           room.keys + vector * kWidth, kTile, room.depth, sums);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n)
          store(room.scores + r * kTile + (vector + n) * kWidth, Unit::whole(sums[r][n]));
    }
  };

  struct Sums {
    const Run& run;

    template <int R, int N>
    SPLICE_APART void run_tile(int64_t row, int64_t vector) {
      typename Unit::Sum sums[R][N] = {};
      const Room<T>& room = run.room_;
      float* to = room.sums + row * room.width + vector * kWidth;
      auto before = [&](int r, int n) {
        return load(to + r * room.width + n * kWidth) * room.factors[row + r];
      };
      if constexpr (!Unit::kIsCoded) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
          for (int n = 0; n < N; ++n) sums[r][n] = before(r, n);
      }
      multiply<Unit, R, N>(room.scores, kTile, room.values + vector * kWidth, room.width,
                           (run.count_ + kElements - 1) / kElements, sums);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) {
          Floats sum = Unit::whole(sums[r][n]);
          if constexpr (Unit::kIsCoded) sum = before(r, n) + sum * room.tile_factors[row + r];
          store(to + r * room.width + n * kWidth, sum);
        }
    }
  };

 private:
  int64_t position_of(int64_t row) const {
    return item_.first_position + (item_.row + row) / group_;
  }

  int64_t element_of(int64_t row, int64_t token_stride, int64_t head_stride) const {
    int64_t index = item_.row + row % item_.num_rows;
    int64_t kv_head = item_.kv_head + row / item_.num_rows;
    int64_t head = kv_head * group_ + index % group_;
    return (item_.first_token + index / group_) * token_stride + head * head_stride;
  }

  void take_queries() {
    const Q* query = static_cast<const Q*>(call_.query);
    for (int64_t row = 0; row < item_.rows_in_all(); ++row) {
      const Q* from = query + element_of(row, call_.query_token, call_.query_head);
      take_query(row, from);
      for (int64_t i = 0; i < room_.width; ++i) room_.sums[row * room_.width + i] = 0;
      room_.tops[row] = kLowest;
      store(room_.totals + row * kWidth, Floats{});
    }
    for (int64_t i = 0; i < room_.width; ++i) round_to(room_.zeros[i], 0.f);
  }

  void take_query(int64_t row, const Q* from) {
    float* to = room_.queries + row * room_.width;
    if constexpr (Unit::kIsCoded) {
      room_.query_scales[row] = Unit::put_codes(from, call_.head_size, to);
    } else {
      for (int64_t unit = 0; unit < room_.depth; unit += kWidth)
        store(to + unit, Unit::load(from + unit * kElements, call_.head_size - unit * kElements));
    }
  }

  // Rows whose positions lie before the tile see nothing of it, nor those whose window is behind it;
  // the same of every head.
  void choose_rows() {
    first_row_ = max(0, (begin_ - item_.first_position) * group_ - item_.row);
    int64_t first_blind = begin_ + count_ - 1 + call_.window;  // a position
    last_row_ = min(item_.num_rows, (first_blind - item_.first_position) * group_ - item_.row);
    first_row_ = min(first_row_, item_.num_rows);
    last_row_ = max(last_row_, first_row_);
  }

  // Where the tile at `begin` has its first head's keys. A tile ahead, for no CPU foresees the way
  // from block to block: unasked, a history that isn't in its cache comes at a third of the memory's
  // speed. It is asked into the second cache: the first one waits for few lines at a time, which is
  // half the speed.
  void find_slots(int64_t begin) {
    const T* kv = static_cast<const T*>(call_.kv) + item_.kv_head * call_.kv_head;
    int64_t block = begin / call_.block_size, offset = begin % call_.block_size;
    int64_t count = max(0, min(kTile, item_.end - begin)), i = 0;
    while (i < count) {
      const T* slot = kv + item_.table[block++] * call_.kv_block + offset * call_.kv_slot;
      int64_t end = min(count, i + call_.block_size - offset);
      for (; i < end; ++i, slot += call_.kv_slot) ahead_[i] = slot;
      offset = 0;
    }
    for (; i < kTile; ++i) ahead_[i] = room_.zeros;
  }

  void go_to_next_head() {
    for (int64_t i = 0; i < count_; ++i) slots_[i] += call_.kv_head;
  }

  const T* values_of(int64_t i) const { return slots_[i] + (i < count_ ? call_.kv_part : 0); }

  SPLICE_APART void take_keys() {
    for (int64_t lane = 0; lane < padded_count_; lane += kWidth) {
      for (int64_t unit = 0; unit < room_.depth; unit += kWidth) {
        Floats x[kWidth];
        int64_t element = unit * kElements;
        for (int i = 0; i < kWidth; ++i)
          x[i] = Unit::load(slots_[lane + i] + element, call_.head_size - element);
        for (int i = 0; i < kWidth; ++i) ask(lane + i, element);
        transpose(x);
        int64_t num_units = min(kWidth, room_.depth - unit);
        for (int64_t i = 0; i < num_units; ++i) store(room_.keys + (unit + i) * kTile + lane, x[i]);
      }
      if constexpr (Unit::kIsCoded) {
        Floats scales = Unit::code_lanes(room_.keys + lane, kTile, room_.depth, call_.head_size);
        store(room_.key_scales + lane, scales);
      }
    }
  }

  SPLICE_APART void take_values() {
    float inverse = 1;
    if constexpr (Unit::kIsCoded) {
      typename Unit::Largest largest;
      for (int64_t i = 0; i < count_; ++i) largest.take(values_of(i), call_.head_size);
      value_scale_ = largest.scale(Unit::kMostValue);
      inverse = inverse_of(value_scale_);
    }
    for (int64_t i = 0; i < count_; i += kElements) {
      const T* rows[kElements];
      for (int64_t j = 0; j < kElements; ++j) rows[j] = values_of(i + j);
      float* to = room_.values + i / kElements * room_.width;
      constexpr int64_t kStep = Unit::kValuesAtOnce;
      for (int64_t element = 0; element < call_.head_size; element += kStep) {
        for (int64_t j = 0; j < kElements; ++j) ask(i + j, call_.kv_part + element);
        Unit::pack_values(rows, element, call_.head_size - element, inverse, to + element);
      }
    }
  }

  // For what this head has in the next tile.
  void ask(int64_t i, int64_t element) const {
    __builtin_prefetch(ahead_[i] + head_ * call_.kv_head + element, 0, 2);
  }

  // A row's scores become weights; what it had before is to be multiplied by its factor.
  SPLICE_APART void weigh(int64_t row, float* scores) {
    int64_t position = position_of(row - head_ * item_.num_rows);
    int64_t from = max(0, position - call_.window + 1 - begin_);
    int64_t to = min(count_, position + 1 - begin_);
    float scaling = call_.scaling;
    if constexpr (Unit::kIsCoded) scaling *= room_.query_scales[row];
    Floats most = splat(kLowest);
    for (int64_t lane = 0; lane < padded_count_; lane += kWidth) {
      Floats x = load(scores + lane);
      if constexpr (Unit::kIsCoded) x = x * load(room_.key_scales + lane);
      if (call_.softcap > 0)
        x = tanh_of(x * (scaling / call_.softcap)) * (call_.softcap * kLog2E);
      else
        x = x * (scaling * kLog2E);
      if (lane < from || lane + kWidth > to) x = hide(x, int32_t(from - lane), int32_t(to - lane));
      store(scores + lane, x);
      most = larger(most, x);
    }
    float tile_top = largest(most), before = room_.tops[row];
    float top = tile_top > before ? tile_top : before;
    // Codes of weights that are small in this tile would all be zero beside another's large ones.
    float one = Unit::kIsCoded ? tile_top : top;
    Floats total{};
    for (int64_t lane = 0; lane < padded_count_; lane += kWidth) {
      Floats weights = power_of_two(load(scores + lane) - one);
      total += Unit::store_weights(scores, lane, weights);
    }
    Floats exponents = splat(before - top);
    exponents[1] = one - top;
    Floats factors = power_of_two(exponents);
    room_.tops[row] = top;
    room_.factors[row] = factors[0];
    if constexpr (Unit::kIsCoded)
      room_.tile_factors[row] = factors[1] * value_scale_ / Unit::kMostWeight;
    float* totals = room_.totals + row * kWidth;
    store(totals, load(totals) * factors[0] + total * factors[1]);
  }

  // What is left of a vector's lanes are those `from` to `to`.
  static Floats hide(Floats x, int32_t from, int32_t to) {
    Ints lanes = lane_numbers();
    return (lanes >= from) & (lanes < to) ? x : splat(kHidden);
  }

  float total_of(int64_t row) const { return sum(load(room_.totals + row * kWidth)); }

  void give_output() {
    Q* output = static_cast<Q*>(call_.output);
    for (int64_t row = 0; row < item_.rows_in_all(); ++row) {
      Q* to = output + element_of(row, call_.num_heads * call_.head_size, call_.head_size);
      const float* from = room_.sums + row * room_.width;
      float share = 1 / total_of(row);
      for (int64_t i = 0; i < call_.head_size; i += kWidth)
        store_elements(to + i, call_.head_size - i, load(from + i) * share);
    }
  }

  void give_partial() {
    float* to = item_.partial;
    for (int64_t row = 0; row < item_.rows_in_all(); ++row) {
      *to++ = room_.tops[row];
      *to++ = total_of(row);
      for (int64_t i = 0; i < call_.head_size; ++i) *to++ = room_.sums[row * room_.width + i];
    }
  }

  const Attention& call_;
  const Item& item_;
  Room<T> room_;
  int64_t group_;
  int64_t begin_, count_, padded_count_;  // the tile's positions
  int64_t first_row_, last_row_;          // of a head that see any of them
  int64_t head_ = 0;                      // of the item's
  float value_scale_ = 1;                 // of the tile's codes
  const T* slots_[kTile];
  const T* ahead_[kTile];  // of the tile behind it
};

template <class T, class Q>
void attend(const Attention& call, const Item& item, void* scratch) {
  Run<T, Q>(call, item, scratch).all();
}

}  // namespace
