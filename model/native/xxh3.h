// Copies that come with their checksum: XXH3's 128 bits with seed 0, as the specification of
// xxHash has them for inputs of more than 240 bytes. What is in a register for the copy is mixed
// into the sums before it goes, so the memory is read once for both.

#pragma once

#include "kernels.h"
#include "vectors.h"

namespace {

using splice::Copy;

constexpr int64_t kStripe = 64, kBlockStripes = 16;
constexpr int64_t kSecretBytes = 192;

constexpr uint64_t kPrime32[] = {0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D};
constexpr uint64_t kPrime64[] = {0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9,
                                 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5};
constexpr uint64_t kAvalanche = 0x165667919E3779F9;

constexpr uint8_t kSecret[kSecretBytes] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

// As much of a stripe as a register holds.
#if defined(__AVX512F__)
typedef uint64_t Words __attribute__((vector_size(64)));
#elif defined(__AVX2__)
typedef uint64_t Words __attribute__((vector_size(32)));
#else
typedef uint64_t Words __attribute__((vector_size(16)));
#endif
constexpr int kParts = kStripe / sizeof(Words);

// Each word's low half times its high half.
inline Words multiplied_halves(Words x) {
#if defined(__AVX512F__)
  return (Words)_mm512_mul_epu32((__m512i)x, (__m512i)(x >> 32));
#elif defined(__AVX2__)
  return (Words)_mm256_mul_epu32((__m256i)x, (__m256i)(x >> 32));
#elif defined(__SSE2__)
  return (Words)_mm_mul_epu32((__m128i)x, (__m128i)(x >> 32));
#else
  return (x & 0xffffffff) * (x >> 32);
#endif
}

// Words 0 and 1, 2 and 3, … change places.
inline Words swapped_pairs(Words x) {
#if defined(__AVX512F__)
  return (Words)_mm512_shuffle_epi32((__m512i)x, _MM_PERM_BADC);
#elif defined(__AVX2__)
  return (Words)_mm256_shuffle_epi32((__m256i)x, 0x4e);
#else
  return Words{x[1], x[0]};
#endif
}

template <class T>
inline T read(const void* from) {
  T x;
  __builtin_memcpy(&x, from, sizeof(T));
  return x;
}

inline void put(void* to, Words x) { __builtin_memcpy(to, &x, sizeof(Words)); }

// Without reading what was there, which costs half as much again; to a multiple of its size.
inline void put_past_caches(void* to, Words x) {
#if defined(__AVX512F__)
  _mm512_stream_si512((__m512i*)to, (__m512i)x);
#elif defined(__AVX2__)
  _mm256_stream_si256((__m256i*)to, (__m256i)x);
#elif defined(__SSE2__)
  _mm_stream_si128((__m128i*)to, (__m128i)x);
#else
  put(to, x);
#endif
}

// Before anybody else is told of what was put past the caches.
inline void all_is_put() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

struct Accumulators {
  Words parts[kParts];

  Accumulators() {
    const uint64_t first[] = {kPrime32[2], kPrime64[0], kPrime64[1], kPrime64[2],
                              kPrime64[3], kPrime32[1], kPrime64[4], kPrime32[0]};
    __builtin_memcpy(parts, first, sizeof(first));
  }

  void mix(int part, Words data, const uint8_t* secret) {
    Words key = data ^ read<Words>(secret + part * sizeof(Words));
    parts[part] += swapped_pairs(data) + multiplied_halves(key);
  }

  void scramble() {
    const uint8_t* secret = kSecret + kSecretBytes - kStripe;
    for (int i = 0; i < kParts; ++i) {
      parts[i] ^= parts[i] >> 47 ^ read<Words>(secret + i * sizeof(Words));
      parts[i] *= kPrime32[0];
    }
  }

  uint64_t merged(const uint8_t* secret, uint64_t start) const {
    uint64_t words[kStripe / 8];
    __builtin_memcpy(words, parts, sizeof(words));
    uint64_t x = start;
    for (int i = 0; i < kStripe / 8; i += 2) {
      unsigned __int128 product = words[i] ^ read<uint64_t>(secret + 8 * i);
      product *= words[i + 1] ^ read<uint64_t>(secret + 8 * i + 8);
      x += uint64_t(product) ^ uint64_t(product >> 64);
    }
    x ^= x >> 37;
    x *= kAvalanche;
    return x ^ x >> 32;
  }
};

inline void put_big_endian(uint8_t* to, uint64_t x) {
  for (int i = 0; i < 8; ++i) to[i] = uint8_t(x >> (56 - 8 * i));
}

// Several side by side, a stripe of each at a time: memory gives more where it is asked for several
// pages' at once. STREAMED: to multiples of a register's size.
template <int N, bool STREAMED>
inline void copy_together(const Copy* copies, int64_t num_bytes) {
  constexpr int64_t kAhead = 512;
  constexpr const uint8_t* kLastSecret = kSecret + kSecretBytes - kStripe;
  int64_t num_stripes = (num_bytes - 1) / kStripe;
  Accumulators sums[N];
  for (int64_t stripe = 0; stripe < num_stripes; ++stripe) {
    const uint8_t* secret = kSecret + stripe % kBlockStripes * 8;
#pragma GCC unroll 16
    for (int i = 0; i < N * kParts; ++i) {
      const Copy& copy = copies[i / kParts];
      int64_t at = stripe * kStripe + i % kParts * int64_t(sizeof(Words));
      __builtin_prefetch(copy.from + at + kAhead, 0, 3);
      Words data = read<Words>(copy.from + at);
      STREAMED ? put_past_caches(copy.to + at, data) : put(copy.to + at, data);
      sums[i / kParts].mix(i % kParts, data, secret);
    }
    if (stripe % kBlockStripes == kBlockStripes - 1)
      for (int i = 0; i < N; ++i) sums[i].scramble();
  }
  // The last stripe overlaps what was copied before, and its sum too must be of what has arrived.
  int64_t copied = num_stripes * kStripe, last = num_bytes - kStripe;
  uint64_t size = uint64_t(num_bytes);
  for (int i = 0; i < N; ++i) {
    const Copy& copy = copies[i];
    __builtin_memcpy(copy.to + copied, copy.from + copied, num_bytes - copied);
    for (int j = 0; j < kParts; ++j)
      sums[i].mix(j, read<Words>(copy.to + last + j * sizeof(Words)), kLastSecret - 7);
    put_big_endian(copy.checksum, sums[i].merged(kLastSecret - 11, ~(size * kPrime64[1])));
    put_big_endian(copy.checksum + 8, sums[i].merged(kSecret + 11, size * kPrime64[0]));
  }
  all_is_put();
}

template <int N>
inline void copy_some(const Copy* copies, int64_t num_bytes) {
  bool is_aligned = true;
  for (int i = 0; i < N; ++i) is_aligned &= uintptr_t(copies[i].to) % sizeof(Words) == 0;
  is_aligned ? copy_together<N, true>(copies, num_bytes)
             : copy_together<N, false>(copies, num_bytes);
}

// At least 241 bytes each; their checksums are 16, in the order in which they are written out.
inline void copy_with_checksums(const Copy* copies, int64_t count, int64_t num_bytes) {
  // As many as registers hold sums of.
  constexpr int64_t kTogether = sizeof(Words) < 32 ? 1 : splice::kCopiesTogether;
  for (; count >= kTogether; copies += kTogether, count -= kTogether)
    copy_some<kTogether>(copies, num_bytes);
  for (; count > 0; ++copies, --count) copy_some<1>(copies, num_bytes);
}

}  // namespace
