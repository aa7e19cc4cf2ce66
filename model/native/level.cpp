// One level of instruction sets: all kernels, compiled with its flags, LEVEL naming it.

#include "attend.h"
#include "linear.h"
#include "quantized.h"
#include "tiles.h"
#include "xxh3.h"

namespace {

size_t scratch_bytes(int64_t head_size) { return Room<float>::bytes(head_size); }

}  // namespace

#define JOINED(a, b) a##b
#define LEVEL_NAME(level) JOINED(level_, level)
#define QUOTED(x) #x
#define TEXT(x) QUOTED(x)

namespace splice {
extern const Level LEVEL_NAME(LEVEL);
const Level LEVEL_NAME(LEVEL) = {
    TEXT(LEVEL),
    scratch_bytes,
    {{attend<float, float>, nullptr}, {attend<BFloat16, float>, attend<BFloat16, BFloat16>}},
    multiply_bfloat16,
    {quantize_inputs<float>, quantize_inputs<BFloat16>},
    {multiply_quantized<4>, multiply_quantized<8>},
    {{unpack<4, float>, unpack<4, BFloat16>}, {unpack<8, float>, unpack<8, BFloat16>}},
    {kHasTiles[0], kHasTiles[1]},
    {fill_tile<float>, fill_tile<BFloat16>},
    {{multiply_tiles<4, float>, multiply_tiles<4, BFloat16>},
     {multiply_tiles<8, float>, multiply_tiles<8, BFloat16>}},
    copy_with_checksums,
};
}  // namespace splice
