// Causal attention forward for Hopper (sm_90a): bf16, head dimension 128, grouped-query heads.
//
// One block owns a tile of 128 query rows. A producer warp copies Q, K and V tiles by TMA into a ring of shared-memory
// stages; two consumer warpgroups of 64 rows each multiply with wgmma and keep the online softmax in registers. The
// design follows FlashAttention-3 (Shah et al. 2024, sections 3.1-3.2): warp specialisation, ping-pong of the two
// warpgroups, and the overlap of one block's softmax with the previous block's P V inside a warpgroup. Each of them is
// a switch (-D NAME=0), so that an ablation can take it away.
//
// PERSISTENT     blocks take tiles from a counter until none is left; 0: one block per tile
// PINGPONG       the warpgroups take turns at the tensor cores; 0: they race
// OVERLAP        Q K of the next block is in flight while softmax runs; 0: every product is waited for
// LAZY_RESCALE   the accumulator is rescaled only when a row maximum grows by more than 2^8; 0: always
// STAGES         depth of the K and of the V ring

typedef unsigned int u32;
typedef unsigned long long u64;

#ifndef PERSISTENT
#define PERSISTENT 1
#endif
#ifndef PINGPONG
#define PINGPONG 1
#endif
#ifndef OVERLAP
#define OVERLAP 1
#endif
#ifndef LAZY_RESCALE
#define LAZY_RESCALE 1
#endif
#ifndef STAGES
#define STAGES 2
#endif

constexpr int HEAD = 128;       // elements of a head
constexpr int ROWS = 128;       // query rows of a tile: 64 for each consumer warpgroup
constexpr int KEYS = 128;       // keys of a block
constexpr int Q_STAGES = 2;     // so that the next tile's queries arrive while this one is computed
constexpr int HALF_BYTES = 128 * 64 * 2;       // 128 rows of 64 elements: one 128-byte-swizzled column half
constexpr int TILE_BYTES = 2 * HALF_BYTES;
constexpr float LAZY_LIMIT = 8.0f;             // in powers of two

struct alignas(64) TensorMap { char bytes[128]; };

// Order in shared memory; every tile starts on a 1,024-byte boundary, as the 128-byte swizzle wants.
struct Shared {
    char q[Q_STAGES][TILE_BYTES];
    char k[STAGES][TILE_BYTES];
    char v[STAGES][TILE_BYTES];
    u64 q_full[Q_STAGES], q_empty[Q_STAGES];
    u64 k_full[STAGES], k_empty[STAGES];
    u64 v_full[STAGES], v_empty[STAGES];
    int tile[Q_STAGES];
};

__device__ __forceinline__ u32 shared_address(const void* pointer) {
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void barrier_init(u64* barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count));
}

__device__ __forceinline__ void barrier_arrive(u64* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void barrier_expect(u64* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void barrier_wait(u64* barrier, u32 parity) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra ready;\n"
        "bra again;\n"
        "ready:\n}\n" ::"r"(shared_address(barrier)), "r"(parity)
        : "memory");
}

__device__ __forceinline__ void load_half(const TensorMap& map, void* target, u64* barrier, int column, int row, int head,
                                          int batch) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
        ::"r"(shared_address(target)), "l"(&map), "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(head), "r"(batch)
        : "memory");
}

__device__ __forceinline__ void load_tile(const TensorMap& map, char* target, u64* barrier, int row, int head, int batch) {
    barrier_expect(barrier, TILE_BYTES);
    load_half(map, target, barrier, 0, row, head, batch);
    load_half(map, target + HALF_BYTES, barrier, 64, row, head, batch);
}

__device__ __forceinline__ void store_half(const TensorMap& map, const void* source, int column, int row, int head,
                                           int batch) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
                 "r"(shared_address(source)), "r"(column), "r"(row), "r"(head), "r"(batch)
                 : "memory");
}

// A shared-memory matrix descriptor (PTX ISA, "Matrix descriptor format" of wgmma) with the 128-byte swizzle.
__device__ __forceinline__ u64 descriptor(const void* tile, u32 leading_bytes, u32 stride_bytes) {
    u64 address = (shared_address(tile) & 0x3FFFF) >> 4;
    return address | (u64(leading_bytes >> 4) << 16) | (u64(stride_bytes >> 4) << 32) | (u64(1) << 62);
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int pending>
__device__ __forceinline__ void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory"); }

// Keeps the compiler from moving uses of an accumulator across the asynchronous product that writes it.
__device__ __forceinline__ void pin(float (&d)[64]) {
#pragma unroll
    for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// d += A B^T for one 64x128x16 step; A and B by shared-memory descriptors, both K-major.
__device__ __forceinline__ void wgmma_ss(float (&d)[64], u64 a, u64 b, int accumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, "
        "%56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, p, 1, 1, 0, 0;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(a), "l"(b), "r"(accumulate));
}

// d += A B for one 64x128x16 step; A from registers, B by a descriptor of an MN-major tile (rows are the reduction).
__device__ __forceinline__ void wgmma_rs(float (&d)[64], u32 a0, u32 a1, u32 a2, u32 a3, u64 b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, "
        "%56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}

// scores = Q K^T of 64 rows and 128 keys: 8 steps of 16 head elements, 4 in each swizzled half.
__device__ __forceinline__ void multiply_scores(float (&scores)[64], const char* q, const char* k) {
    u64 a = descriptor(q, 16, 1024), b = descriptor(k, 16, 1024);
#pragma unroll
    for (int step = 0; step < 8; ++step) {
        u64 offset = (step >> 2) * (HALF_BYTES >> 4) + (step & 3) * (32 >> 4);
        wgmma_ss(scores, a + offset, b + offset, step != 0);
    }
}

// output += P V: 8 steps of 16 keys, P in registers.
__device__ __forceinline__ void multiply_values(float (&output)[64], const u32 (&p)[32], const char* v) {
    u64 b = descriptor(v, HALF_BYTES, 1024);
#pragma unroll
    for (int step = 0; step < 8; ++step)
        wgmma_rs(output, p[4 * step], p[4 * step + 1], p[4 * step + 2], p[4 * step + 3], b + step * (2048 >> 4));
}

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ u32 pack_bf16(float low, float high) {
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// Hides keys after the query. `row` and `column`: this thread's first row and first column in the block.
// Element i of the fragment: column 8 (i / 4) + i % 2, row 8 ((i / 2) % 2).
__device__ __forceinline__ void mask_causal(float (&scores)[64], int row, int column) {
#pragma unroll
    for (int i = 0; i < 64; ++i)
        if (column + 8 * (i / 4) + (i & 1) > row + 8 * ((i >> 1) & 1)) scores[i] = -__int_as_float(0x7f800000);
}

// The online softmax of two rows per thread (Milakov and Gimelshein 2018): running maximum and sum, in powers of two.
struct Online {
    float maximum[2], sum[2];

    // scores -> exp2(scale scores - maximum); returns the factors by which earlier output must be scaled.
    __device__ __forceinline__ void step(float (&scores)[64], float scale, float (&factor)[2], bool first) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float top = scores[2 * half];
#pragma unroll
            for (int j = 0; j < 16; ++j) top = fmaxf(top, fmaxf(scores[4 * j + 2 * half], scores[4 * j + 2 * half + 1]));
            top = quad_max(top) * scale;
            if (first) {
                maximum[half] = top;
                factor[half] = 1.0f;
            } else {
#if LAZY_RESCALE
                bool grow = top - maximum[half] > LAZY_LIMIT;
                float next = grow ? top : maximum[half];
#else
                float next = fmaxf(top, maximum[half]);
#endif
                factor[half] = exp2_fast(maximum[half] - next);
                maximum[half] = next;
            }
            float total = 0.0f;
#pragma unroll
            for (int j = 0; j < 16; ++j)
#pragma unroll
                for (int c = 0; c < 2; ++c) {
                    float p = exp2_fast(fmaf(scores[4 * j + 2 * half + c], scale, -maximum[half]));
                    scores[4 * j + 2 * half + c] = p;
                    total += p;
                }
            sum[half] = first ? total : fmaf(sum[half], factor[half], total);
        }
    }
};

__device__ __forceinline__ void rescale(float (&output)[64], const float (&factor)[2]) {
#if LAZY_RESCALE
    if (!__any_sync(0xffffffffu, factor[0] != 1.0f || factor[1] != 1.0f)) return;
#endif
#pragma unroll
    for (int i = 0; i < 64; ++i) output[i] *= factor[(i >> 1) & 1];
}

// Accumulator fragments of 16 columns are the A fragments of one wgmma step of 16.
__device__ __forceinline__ void pack_probabilities(u32 (&p)[32], const float (&scores)[64]) {
#pragma unroll
    for (int i = 0; i < 32; ++i) p[i] = pack_bf16(scores[2 * i], scores[2 * i + 1]);
}

struct Tile { int row, head, kv_head, batch, blocks; };

// Long rows first, and heads in sections whose keys and values stay in the L2 cache together.
__device__ __forceinline__ Tile tile_at(int index, int batch, int heads, int kv_heads, int length, int section) {
    int row_tiles = (length + ROWS - 1) / ROWS, group = heads / kv_heads, pairs = batch * kv_heads;
    int per_section = section * group * row_tiles;
    int first = index / per_section * section, rest = index % per_section;
    int width = min(section, pairs - first) * group;
    int pair = first + rest % width / group, m = row_tiles - 1 - rest / width;
    Tile tile;
    tile.row = m * ROWS;
    tile.batch = pair / kv_heads;
    tile.kv_head = pair % kv_heads;
    tile.head = tile.kv_head * group + rest % width % group;
    tile.blocks = m + 1;  // ROWS == KEYS
    return tile;
}

struct Ring {
    int slot = 0;
    u32 phase = 0;
    __device__ __forceinline__ void advance(int stages) {
        if (++slot == stages) { slot = 0; phase ^= 1; }
    }
};

__device__ __forceinline__ void turn_wait(int group) {
#if PINGPONG
    asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory");
#endif
}

__device__ __forceinline__ void turn_pass(int group) {
#if PINGPONG
    asm volatile("bar.arrive %0, 256;" ::"r"(2 - group) : "memory");
#endif
}

extern "C" __global__ void __launch_bounds__(384, 1)
attention_forward(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                  const __grid_constant__ TensorMap v_map, const __grid_constant__ TensorMap o_map, int batch, int heads,
                  int kv_heads, int length, int section, float scale, int* counter) {
    extern __shared__ char raw[];
    Shared& shared = *reinterpret_cast<Shared*>((reinterpret_cast<u64>(raw) + 1023) & ~u64(1023));
    int tiles = batch * heads * ((length + ROWS - 1) / ROWS);
    // Broadcast, so that the compiler knows the role to be the same for a whole warp.
    int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0), lane = threadIdx.x % 32;

    if (threadIdx.x == 0) {
        for (int i = 0; i < Q_STAGES; ++i) { barrier_init(&shared.q_full[i], 1); barrier_init(&shared.q_empty[i], 2); }
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(&shared.k_full[i], 1); barrier_init(&shared.k_empty[i], 8);
            barrier_init(&shared.v_full[i], 1); barrier_init(&shared.v_empty[i], 8);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    if (warpgroup == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x != 0) return;
        Ring q, k, v;
        int index = blockIdx.x;
        while (index < tiles) {
            Tile tile = tile_at(index, batch, heads, kv_heads, length, section);
            barrier_wait(&shared.q_empty[q.slot], q.phase ^ 1);
            shared.tile[q.slot] = index;
            load_tile(q_map, shared.q[q.slot], &shared.q_full[q.slot], tile.row, tile.head, tile.batch);
            q.advance(Q_STAGES);
#if PERSISTENT
            index = gridDim.x + atomicAdd(counter, 1);
#else
            index = tiles;
#endif
            for (int n = tile.blocks; n >= 0; --n) {
                if (n > 0) {
                    barrier_wait(&shared.k_empty[k.slot], k.phase ^ 1);
                    load_tile(k_map, shared.k[k.slot], &shared.k_full[k.slot], (n - 1) * KEYS, tile.kv_head, tile.batch);
                    k.advance(STAGES);
                }
                if (n < tile.blocks) {
                    barrier_wait(&shared.v_empty[v.slot], v.phase ^ 1);
                    load_tile(v_map, shared.v[v.slot], &shared.v_full[v.slot], n * KEYS, tile.kv_head, tile.batch);
                    v.advance(STAGES);
                }
            }
        }
        barrier_wait(&shared.q_empty[q.slot], q.phase ^ 1);
        shared.tile[q.slot] = -1;
        barrier_arrive(&shared.q_full[q.slot]);
#if PERSISTENT
        // The last block to finish sets the counter back, so that the next launch needs no clearing.
        __threadfence();
        if (atomicAdd(counter + 1, 1) == int(gridDim.x) - 1) { counter[0] = 0; counter[1] = 0; }
#endif
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    int group = warpgroup - 1;
    bool leader = threadIdx.x % 128 == 0;
    int row = group * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4, column = lane % 4 * 2;
    Ring q, k, v;
    bool storing = false;
    int store_slot = 0;
    if (group == 1) turn_pass(group);
    for (;;) {
        barrier_wait(&shared.q_full[q.slot], q.phase);
        int index = __shfl_sync(0xffffffffu, shared.tile[q.slot], 0);
        if (index < 0) break;
        Tile tile = tile_at(index, batch, heads, kv_heads, length, section);
        const char* q_rows = shared.q[q.slot] + group * 64 * 128;
        float output[64], scores[64], factor[2];
        u32 p[32];
        Online online;
#pragma unroll
        for (int i = 0; i < 64; ++i) output[i] = 0.0f;

        barrier_wait(&shared.k_full[k.slot], k.phase);
        turn_wait(group);
        pin(scores);
        wgmma_fence();
        multiply_scores(scores, q_rows, shared.k[k.slot]);
        wgmma_commit();
        turn_pass(group);
        wgmma_wait<0>();
        pin(scores);
        if (lane == 0) barrier_arrive(&shared.k_empty[k.slot]);
        k.advance(STAGES);
        if (leader && storing) {  // the previous tile's output has left its buffer by now: hand that buffer back
            asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            barrier_arrive(&shared.q_empty[store_slot]);
            storing = false;
        }
        mask_causal(scores, row, column);
        online.step(scores, scale, factor, true);
        pack_probabilities(p, scores);

        for (int n = tile.blocks - 2; n >= 0; --n) {
            barrier_wait(&shared.k_full[k.slot], k.phase);
            turn_wait(group);
            pin(scores);
            pin(output);
            wgmma_fence();
            multiply_scores(scores, q_rows, shared.k[k.slot]);
            wgmma_commit();
#if !OVERLAP
            wgmma_wait<0>();
#endif
            barrier_wait(&shared.v_full[v.slot], v.phase);
            multiply_values(output, p, shared.v[v.slot]);
            wgmma_commit();
            turn_pass(group);
#if OVERLAP
            wgmma_wait<1>();
#else
            wgmma_wait<0>();
#endif
            pin(scores);
            if (lane == 0) barrier_arrive(&shared.k_empty[k.slot]);
            k.advance(STAGES);
            online.step(scores, scale, factor, false);
            wgmma_wait<0>();
            pin(output);
            if (lane == 0) barrier_arrive(&shared.v_empty[v.slot]);
            v.advance(STAGES);
            rescale(output, factor);
            pack_probabilities(p, scores);
        }
        barrier_wait(&shared.v_full[v.slot], v.phase);
        pin(output);
        wgmma_fence();
        multiply_values(output, p, shared.v[v.slot]);
        wgmma_commit();
        float inverse[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) inverse[half] = 1.0f / quad_sum(online.sum[half]);
        wgmma_wait<0>();
        pin(output);
        if (lane == 0) barrier_arrive(&shared.v_empty[v.slot]);
        v.advance(STAGES);

        // Output through this warpgroup's own query rows, which nobody reads any more; 16-byte chunk c of row r lies at
        // chunk c ^ (r % 8).
        char* stage = shared.q[q.slot] + group * 64 * 128;
#pragma unroll
        for (int i = 0; i < 64; i += 2) {
            int half = (i >> 1) & 1, chunk = (i / 4) % 8, r = row - group * 64 + 8 * half;
            char* target = stage + (i / 32) * HALF_BYTES + r * 128 + ((chunk ^ (r & 7)) << 4) + column * 2;
            *reinterpret_cast<u32*>(target) = pack_bf16(output[i] * inverse[half], output[i + 1] * inverse[half]);
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("bar.sync %0, 128;" ::"r"(3 + group) : "memory");
        if (leader) {
            store_half(o_map, stage, 0, tile.row + group * 64, tile.head, tile.batch);
            store_half(o_map, stage + HALF_BYTES, 64, tile.row + group * 64, tile.head, tile.batch);
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            storing = true;
            store_slot = q.slot;
        }
        q.advance(Q_STAGES);
    }
    if (leader && storing) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
