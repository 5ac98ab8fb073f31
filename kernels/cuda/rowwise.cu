// Row-wise softmax, RMSNorm and LayerNorm (optionally of a sum with a residual), one source for every width.
//
// A row is held in registers by THREADS_PER_ROW threads of a block, or by all threads of a cluster of CLUSTER blocks
// when it is long: every byte crosses device memory once (or is read again from a cache: REREAD). Partial statistics are
// merged by one reduction: inside a warp by shuffles, between warps through shared memory, between the blocks of a cluster
// through distributed shared memory: each sends its partial to all (st.async) and waits until as many bytes have come to
// its own barrier.
//
// OPERATOR         SOFTMAX, RMSNORM or LAYERNORM
// BF16             1: bfloat16, 0: float32
// VECTOR           elements of one load (16 bytes where alignment allows; 1 for odd widths)
// LOADS            loads of each thread
// THREADS, THREADS_PER_ROW, CLUSTER   mapping; THREADS / THREADS_PER_ROW rows per block when CLUSTER is 1
// RESIDUAL         1: h = x + residual is normalised, and written back (norms only)
// WEIGHT, BIAS     1: multiply by weight, add bias (norms only)
// ONLINE           1: maximum and sum in one reduction (Milakov and Gimelshein 2018); 0: two reductions (softmax only)
// NO_ALLOCATE      1: loads of the row leave no line in the first-level cache
// READ, WRITE      rank of what is read (of the row) or written among the lines of the second-level cache: 0 ordinary,
//                  1 the first to leave, 2 the last; what will be read again (REREAD) is ranked last in either case
// PINNED           1: weight and bias are the last to leave the second-level cache
// REREAD           n: registers keep only the statistic, and the row is read again from the caches to be scaled, n loads
//                  of a thread at a time, so that more rows are in flight (without PREFETCH)
// EXACT            1: the mapping covers the row without rest, so that no load is guarded
// PREFETCH         0: one row per block, many blocks; n: blocks stay, and their next n rows are on their way into shared
//                  memory (cp.async) while they work on this one
// RESIDENT         1, 2: staying blocks keep their part of weight and bias in registers (1) or shared memory (2)
// STATISTICS       1: write mean and reciprocal deviation of each row for the backward pass (norms only)

typedef unsigned int u32;
typedef unsigned short u16;
typedef long long i64;
typedef unsigned long long u64;

#define SOFTMAX 0
#define RMSNORM 1
#define LAYERNORM 2
#ifndef ONLINE
#define ONLINE 1
#endif
#ifndef NO_ALLOCATE
#define NO_ALLOCATE 0
#endif
#ifndef READ
#define READ 0
#endif
#ifndef WRITE
#define WRITE 0
#endif
#ifndef PINNED
#define PINNED 0
#endif
#ifndef REREAD
#define REREAD 0
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1
#endif
#ifndef EXACT
#define EXACT 0
#endif
#ifndef PREFETCH
#define PREFETCH 0
#endif
#ifndef RESIDENT
#define RESIDENT 0
#endif
#ifndef RESIDUAL
#define RESIDUAL 0
#endif
#ifndef WEIGHT
#define WEIGHT 0
#endif
#ifndef BIAS
#define BIAS 0
#endif
#ifndef STATISTICS
#define STATISTICS 0
#endif

constexpr int WARPS_PER_ROW = (THREADS_PER_ROW + 31) / 32;
constexpr int ROWS = THREADS / THREADS_PER_ROW;
static_assert(CLUSTER == 1 || ROWS == 1, "a cluster holds one row");
static_assert(!REREAD || (!PREFETCH && ONLINE && LOADS % REREAD == 0), "a row that is read again has no slot to wait in");
static_assert(THREADS_PER_ROW >= 32 || 32 % THREADS_PER_ROW == 0, "a row's threads divide a warp");

#if BF16
typedef u16 Element;
#else
typedef float Element;
#endif

struct alignas(sizeof(Element) * VECTOR) Vector { Element e[VECTOR]; };

__device__ __forceinline__ Vector load(const Element* from) { return *reinterpret_cast<const Vector*>(from); }

// Ranks among the lines of the second-level cache. Ordinary lines carry no hint: a policy takes two registers.
constexpr int ORDINARY = 0, FIRST_OUT = 1, LAST_OUT = 2;
constexpr int AGAIN = READ == ORDINARY ? ORDINARY : LAST_OUT;  // what will be read again
constexpr int DONE = READ == ORDINARY ? ORDINARY : FIRST_OUT;  // what has been
template <int rank>
__device__ __forceinline__ u64 policy() {
    u64 made;
    if constexpr (rank == FIRST_OUT) asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(made));
    else asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(made));
    return made;
}

// Loads of 4 bytes and less are for odd rows and carry no hint.
#define LOAD(NAME, rank)                                                                                               \
    if constexpr (sizeof(Vector) == 16 && rank == ORDINARY)                                                            \
        asm volatile(NAME ".v4.b32 {%0, %1, %2, %3}, [%4];"                                                            \
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(from) : "memory");                         \
    else if constexpr (sizeof(Vector) == 16)                                                                           \
        asm volatile(NAME ".L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"                                         \
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(from), "l"(policy<rank>()) : "memory");    \
    else if constexpr (sizeof(Vector) == 8 && rank == ORDINARY)                                                        \
        asm volatile(NAME ".v2.b32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(from) : "memory");                  \
    else if constexpr (sizeof(Vector) == 8)                                                                            \
        asm volatile(NAME ".L2::cache_hint.v2.b32 {%0, %1}, [%2], %3;"                                                 \
                     : "=r"(w[0]), "=r"(w[1]) : "l"(from), "l"(policy<rank>()) : "memory");                            \
    else                                                                                                               \
        v = load(from);

// Loads part of a row for the first time.
template <int rank>
__device__ __forceinline__ Vector load_row(const Element* from) {
    Vector v;
    u32* w = reinterpret_cast<u32*>(&v);
#if NO_ALLOCATE
    LOAD("ld.global.nc.L1::no_allocate", rank)
#else
    if constexpr (rank == ORDINARY) return load(from);
#if REREAD
    LOAD("ld.global.L1::evict_last", rank)
#else
    LOAD("ld.global.nc", rank)
#endif
#endif
    return v;
}

// Loads from the caches what was read before; volatile, or the compiler would keep the first reading in registers.
__device__ __forceinline__ Vector load_again(const Element* from) {
    Vector v;
    u32* w = reinterpret_cast<u32*>(&v);
    LOAD("ld.global.L1::evict_first", DONE)
    return v;
}

// Loads part of weight or bias.
__device__ __forceinline__ Vector load_parameter(const Element* from) {
#if PINNED
    Vector v;
    u32* w = reinterpret_cast<u32*>(&v);
    LOAD("ld.global.nc.L1::evict_last", LAST_OUT)
    return v;
#else
    return load(from);
#endif
}

template <int rank = WRITE>
__device__ __forceinline__ void store(Element* to, const Vector& v) {
    const u32* w = reinterpret_cast<const u32*>(&v);
    if constexpr (rank == ORDINARY || sizeof(Vector) < 8)
        *reinterpret_cast<Vector*>(to) = v;
    else if constexpr (sizeof(Vector) == 16)
        asm volatile("st.global.L2::cache_hint.v4.b32 [%0], {%1, %2, %3, %4}, %5;"
                     ::"l"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(policy<rank>()) : "memory");
    else
        asm volatile("st.global.L2::cache_hint.v2.b32 [%0], {%1, %2}, %3;"
                     ::"l"(to), "r"(w[0]), "r"(w[1]), "l"(policy<rank>()) : "memory");
}

// Copies one vector into shared memory while the thread goes on.
__device__ __forceinline__ void copy_async(Vector* to, const Element* from) {
    u32 target = static_cast<u32>(__cvta_generic_to_shared(to));
    if constexpr (sizeof(Vector) == 16 && READ == ORDINARY)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target), "l"(from) : "memory");
    else if constexpr (sizeof(Vector) == 16)
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;"
                     ::"r"(target), "l"(from), "l"(policy<READ>()) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(target), "l"(from), "n"(sizeof(Vector)) : "memory");
}

// Elements to float and back. Pairs of bfloat16 take two and one instructions; nearly as much work as the mathematics.
__device__ __forceinline__ void widen(const Vector& v, float (&f)[VECTOR]) {
#if BF16 && VECTOR > 1
    const u32(&w)[VECTOR / 2] = reinterpret_cast<const u32(&)[VECTOR / 2]>(v);
#pragma unroll
    for (int i = 0; i < VECTOR / 2; ++i) {
        f[2 * i] = __uint_as_float(w[i] << 16);
        f[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
    }
#elif BF16
    f[0] = __uint_as_float(u32(v.e[0]) << 16);
#else
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) f[i] = v.e[i];
#endif
}

__device__ __forceinline__ Vector narrow(const float (&f)[VECTOR]) {
    Vector v;
#if BF16 && VECTOR > 1
    u32(&w)[VECTOR / 2] = reinterpret_cast<u32(&)[VECTOR / 2]>(v);
#pragma unroll
    for (int i = 0; i < VECTOR / 2; ++i) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w[i]) : "f"(f[2 * i + 1]), "f"(f[2 * i]));
#elif BF16
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(v.e[0]) : "f"(f[0]));
#else
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) v.e[i] = f[i];
#endif
    return v;
}

// The largest element of all loads of a thread.
__device__ __forceinline__ float largest(const Vector& v) {
#if BF16 && VECTOR > 1
    const u32(&w)[VECTOR / 2] = reinterpret_cast<const u32(&)[VECTOR / 2]>(v);
    u32 top = w[0];
#pragma unroll
    for (int i = 1; i < VECTOR / 2; ++i) asm("max.bf16x2 %0, %0, %1;" : "+r"(top) : "r"(w[i]));
    return fmaxf(__uint_as_float(top << 16), __uint_as_float(top & 0xffff0000u));
#else
    float f[VECTOR], top;
    widen(v, f);
    top = f[0];
#pragma unroll
    for (int i = 1; i < VECTOR; ++i) top = fmaxf(top, f[i]);
    return top;
#endif
}

__device__ __forceinline__ Vector plus(const Vector& x, const Vector& residual) {
    float a[VECTOR], b[VECTOR];
    widen(x, a);
    widen(residual, b);
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) a[i] += b[i];
    return narrow(a);
}

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

constexpr float LOG2E = 1.4426950408889634f;
#define INFINITE __int_as_float(0x7f800000)

// A partial statistic of part of a row and the rule that merges two of them.
#if OPERATOR == SOFTMAX
struct Partial { float maximum, sum; };     // sum of exp(x - maximum)
constexpr int WORDS = 2;
__device__ __forceinline__ Partial merge(Partial a, Partial b) {
    float top = fmaxf(a.maximum, b.maximum);
    // Nothing but -inf so far: keep the maximum finite, or (-inf) - (-inf) would make a NaN of an empty part.
    float anchor = top == -INFINITE ? 0.0f : top;
    return {top, a.sum * exp2_fast((a.maximum - anchor) * LOG2E) + b.sum * exp2_fast((b.maximum - anchor) * LOG2E)};
}
__device__ __forceinline__ Partial nothing() { return {-INFINITE, 0.0f}; }
#elif OPERATOR == RMSNORM
struct Partial { float squares; };
constexpr int WORDS = 1;
__device__ __forceinline__ Partial merge(Partial a, Partial b) { return {a.squares + b.squares}; }
__device__ __forceinline__ Partial nothing() { return {0.0f}; }
#elif EXACT
// Chan, Golub and LeVeque 1979, for two parts of `count` elements each: no division, which would be most of the latency
// between the last load and the first store of a row.
struct Partial { float mean, squares; };
constexpr int WORDS = 2;
__device__ __forceinline__ Partial merge(Partial a, Partial b, float count) {
    float delta = b.mean - a.mean;
    return {0.5f * (a.mean + b.mean), a.squares + b.squares + delta * delta * (0.5f * count)};
}
__device__ __forceinline__ Partial nothing() { return {0.0f, 0.0f}; }
#else
// The same for parts of any size.
struct Partial { float count, mean, squares; };
constexpr int WORDS = 3;
__device__ __forceinline__ Partial merge(Partial a, Partial b) {
    float count = a.count + b.count;
    float delta = b.mean - a.mean, share = count > 0.0f ? __fdividef(b.count, count) : 0.0f;
    return {count, a.mean + delta * share, a.squares + b.squares + delta * delta * a.count * share};
}
__device__ __forceinline__ Partial nothing() { return {0.0f, 0.0f, 0.0f}; }
#endif

__device__ __forceinline__ Partial shuffle(Partial p, int distance) {
    float(&w)[WORDS] = reinterpret_cast<float(&)[WORDS]>(p);
    Partial q;
    float(&v)[WORDS] = reinterpret_cast<float(&)[WORDS]>(q);
#pragma unroll
    for (int i = 0; i < WORDS; ++i) v[i] = __shfl_xor_sync(0xffffffffu, w[i], distance);
    return q;
}

// All lanes of each group of `width` get the group's statistic; `count`: elements behind each partial.
template <int width>
__device__ __forceinline__ Partial reduce_warp(Partial p, float count) {
#if OPERATOR == SOFTMAX
    // The maximum first and the sums after it: one exponential in place of two for every merge.
    float top = p.maximum;
#pragma unroll
    for (int distance = width / 2; distance > 0; distance /= 2)
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, distance));
    float total = p.sum * exp2_fast((p.maximum - (top == -INFINITE ? 0.0f : top)) * LOG2E);
#pragma unroll
    for (int distance = width / 2; distance > 0; distance /= 2) total += __shfl_xor_sync(0xffffffffu, total, distance);
    return {top, total};
#else
#pragma unroll
    for (int distance = 1; distance < width; distance *= 2) {
#if OPERATOR == LAYERNORM && EXACT
        p = merge(p, shuffle(p, distance), count * distance);
#else
        p = merge(p, shuffle(p, distance));
#endif
    }
    return p;
#endif
}

__device__ __forceinline__ void cluster_arrive() {
    if constexpr (CLUSTER > 1) asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
    if constexpr (CLUSTER > 1) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

#if REREAD
// Adds vector number `number` of a thread to its partial statistic.
__device__ __forceinline__ Partial include(Partial p, const Vector& v, int number) {
    float f[VECTOR];
    widen(v, f);
#if OPERATOR == SOFTMAX
    float top = fmaxf(p.maximum, largest(v));
    float anchor = top == -INFINITE ? 0.0f : top, sum = p.sum * exp2_fast((p.maximum - anchor) * LOG2E);
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) sum += exp2_fast((f[i] - anchor) * LOG2E);
    return {top, sum};
#elif OPERATOR == RMSNORM
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) p.squares = fmaf(f[i], f[i], p.squares);
    return p;
#else
    float mean = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) mean += f[i] * (1.0f / VECTOR);
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) squares = fmaf(f[i] - mean, f[i] - mean, squares);
#if EXACT
    float delta = mean - p.mean, share = __fdividef(1.0f, number + 1);
    return {p.mean + delta * share, p.squares + squares + delta * delta * (VECTOR * number * share)};
#else
    return merge(p, Partial{VECTOR, mean, squares});
#endif
#endif
}
#endif

__device__ __forceinline__ u32 address(const void* shared) { return static_cast<u32>(__cvta_generic_to_shared(shared)); }
__device__ __forceinline__ u32 remote(u32 shared, int block) {
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared), "r"(block));
    return there;
}

// Where the warps of a row, and the blocks of a cluster, leave their partials. Two sets, used in turn: one that is ahead
// must not write what a slower one still reads, and it cannot be two ahead, since it has waited for everybody's last.
struct Board {
    float of_warps[2][ROWS * WARPS_PER_ROW * WORDS];
    float of_blocks[2][CLUSTER * WORDS];
    u64 arrived[2];  // completes when all blocks' partials of a turn are there
};

// Sends this block's partial to every block of the cluster; each then holds the whole list.
__device__ __forceinline__ Partial exchange(Partial p, Board& board, u32 step, int rank, float count) {
    int lane = threadIdx.x % 32, turn = step & 1;
    float(&w)[WORDS] = reinterpret_cast<float(&)[WORDS]>(p);
    u32 barrier = address(&board.arrived[turn]);
    if (threadIdx.x == 0)
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "n"(CLUSTER * WORDS * 4) : "memory");
    if (threadIdx.x < CLUSTER) {
        u32 there = remote(address(&board.of_blocks[turn][rank * WORDS]), lane), signal = remote(barrier, lane);
#pragma unroll
        for (int i = 0; i < WORDS; ++i)
            asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
                         ::"r"(there + 4 * i), "r"(__float_as_uint(w[i])), "r"(signal) : "memory");
    }
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(barrier), "r"((step >> 1) & 1) : "memory");
#pragma unroll
    for (int i = 0; i < WORDS; ++i) w[i] = board.of_blocks[turn][lane % CLUSTER * WORDS + i];
    return reduce_warp<CLUSTER>(p, count);
}

// Merges the partials of all threads of a row; every thread gets the result. `step` counts the calls.
__device__ __forceinline__ Partial reduce_row(Partial p, Board& board, u32 step, int rank) {
    constexpr int WIDTH = THREADS_PER_ROW < 32 ? THREADS_PER_ROW : 32;
    constexpr float OF_THREAD = LOADS * VECTOR, OF_WARP = OF_THREAD * WIDTH, OF_BLOCK = OF_WARP * WARPS_PER_ROW;
    p = reduce_warp<WIDTH>(p, OF_THREAD);
    if constexpr (WARPS_PER_ROW > 1) {
        int warp = threadIdx.x % THREADS_PER_ROW / 32, lane = threadIdx.x % 32;
        float* list = board.of_warps[step & 1] + threadIdx.x / THREADS_PER_ROW * WARPS_PER_ROW * WORDS;
        float(&w)[WORDS] = reinterpret_cast<float(&)[WORDS]>(p);
        if (lane == 0)
#pragma unroll
            for (int i = 0; i < WORDS; ++i) list[warp * WORDS + i] = w[i];
        __syncthreads();
        if (CLUSTER == 1 || warp == 0) {
#pragma unroll
            for (int i = 0; i < WORDS; ++i) w[i] = list[lane % WARPS_PER_ROW * WORDS + i];
            p = reduce_warp<WARPS_PER_ROW>(p, OF_WARP);
        }
    }
    if constexpr (CLUSTER > 1) p = exchange(p, board, step, rank, OF_BLOCK);
    return p;
}

__device__ __forceinline__ float exponential(float x, float anchor) { return exp2_fast((x - anchor) * LOG2E); }

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
rowwise(const Element* __restrict__ x, const Element* __restrict__ residual, const Element* __restrict__ weight,
        const Element* __restrict__ bias, Element* __restrict__ y, Element* __restrict__ sum, float* __restrict__ statistics,
        i64 rows, int columns, i64 x_stride, i64 residual_stride, i64 y_stride, float epsilon) {
    __shared__ Board board;
    int rank = 0;
    u32 step = 0;
    if constexpr (CLUSTER > 1) asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    int first = (rank * LOADS * THREADS_PER_ROW + threadIdx.x % THREADS_PER_ROW) * VECTOR;
    constexpr int STEP = THREADS_PER_ROW * VECTOR;
    i64 row = i64(blockIdx.x / CLUSTER) * ROWS + threadIdx.x / THREADS_PER_ROW;
    i64 stride = i64(gridDim.x / CLUSTER) * ROWS;
    // Every thread of the block (and of the cluster) takes the same number of turns, so that barriers meet.
    i64 turns = (rows - i64(blockIdx.x / CLUSTER) * ROWS + stride - 1) / stride;

#if !REREAD
    Vector data[LOADS], more[LOADS];
#endif
    auto within = [&](int l) { return EXACT || first + l * STEP < columns; };
#if PREFETCH
    // Every thread copies into, and reads back from, slots of its own: no barrier is needed, only its own waiting.
    extern __shared__ __align__(16) char raw[];
    Vector* ahead = reinterpret_cast<Vector*>(raw) + threadIdx.x;
    constexpr int INPUTS = 1 + RESIDUAL;
    int slot = 0;
    auto send = [&](int to, i64 at) {
        if (at < rows)
#pragma unroll
            for (int l = 0; l < LOADS; ++l)
                if (within(l)) {
                    int column = first + l * STEP;
                    copy_async(ahead + (to * INPUTS * LOADS + l) * THREADS, x + at * x_stride + column);
                    if constexpr (RESIDUAL)
                        copy_async(ahead + ((to * INPUTS + 1) * LOADS + l) * THREADS, residual + at * residual_stride + column);
                }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
#pragma unroll
    for (int i = 0; i < PREFETCH; ++i) send(i, row + i * stride);
#endif
#if RESIDENT == 2
    Vector* kept_weight = ahead + PREFETCH * INPUTS * LOADS * THREADS;
    Vector* kept_bias = kept_weight + WEIGHT * LOADS * THREADS;
    constexpr int KEPT_STEP = THREADS;
#elif RESIDENT
    Vector kept_weight[LOADS], kept_bias[LOADS];
    constexpr int KEPT_STEP = 1;
#endif
#if RESIDENT
#pragma unroll
    for (int l = 0; l < LOADS; ++l)
        if (within(l)) {
            if constexpr (WEIGHT) kept_weight[l * KEPT_STEP] = load_parameter(weight + first + l * STEP);
            if constexpr (BIAS) kept_bias[l * KEPT_STEP] = load_parameter(bias + first + l * STEP);
        }
#endif
    if (CLUSTER > 1 && threadIdx.x == 0) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&board.arrived[i])) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_arrive();
    cluster_wait();  // every block of the cluster runs by now, so that its shared memory may be written

    for (i64 done = 0; done < turns; ++done, row += stride) {
        bool inside = ROWS == 1 || row < rows;
        auto covered = [&](int l) { return inside && within(l); };
#if PREFETCH
        asm volatile("cp.async.wait_group %0;" ::"n"(PREFETCH - 1) : "memory");
#pragma unroll
        for (int l = 0; l < LOADS; ++l) {
            data[l] = ahead[(slot * INPUTS * LOADS + l) * THREADS];
            if constexpr (RESIDUAL) more[l] = ahead[((slot * INPUTS + 1) * LOADS + l) * THREADS];
        }
#elif !REREAD
#pragma unroll
        for (int l = 0; l < LOADS; ++l)
            if (covered(l)) {
                data[l] = load_row<READ>(x + row * x_stride + first + l * STEP);
                if constexpr (RESIDUAL) more[l] = load_row<READ>(residual + row * residual_stride + first + l * STEP);
            }
#endif
#if RESIDUAL && !REREAD
#pragma unroll
        for (int l = 0; l < LOADS; ++l) {
            data[l] = plus(data[l], more[l]);
            if (covered(l)) store(sum + row * y_stride + first + l * STEP, data[l]);
        }
#endif
        // The slot may be filled again once the statistic has taken in all that was read from it.
        auto refill = [&]() {
#if PREFETCH
            send(slot, row + PREFETCH * stride);
            slot = slot + 1 == PREFETCH ? 0 : slot + 1;
#endif
        };

        // This thread's partial statistic.
        Partial p = nothing();
#if REREAD
#pragma unroll 1
        for (int base = 0; base < LOADS; base += REREAD) {
            Vector part[REREAD], other[REREAD];
#pragma unroll
            for (int i = 0; i < REREAD; ++i)
                if (covered(base + i)) {
                    part[i] = load_row<RESIDUAL ? READ : AGAIN>(x + row * x_stride + first + (base + i) * STEP);
                    if constexpr (RESIDUAL)
                        other[i] = load_row<READ>(residual + row * residual_stride + first + (base + i) * STEP);
                }
#pragma unroll
            for (int i = 0; i < REREAD; ++i)
                if (covered(base + i)) {
                    if constexpr (RESIDUAL) {
                        part[i] = plus(part[i], other[i]);
                        store<AGAIN>(sum + row * y_stride + first + (base + i) * STEP, part[i]);
                    }
                    p = include(p, part[i], base + i);
                }
        }
#elif OPERATOR == SOFTMAX
        float top = -INFINITE;
#pragma unroll
        for (int l = 0; l < LOADS; ++l)
            if (covered(l)) top = fmaxf(top, largest(data[l]));
        p.maximum = top;  // a NaN is dropped here, but the sum takes it up, and with it the whole row
#if !ONLINE
        p = reduce_row(p, board, step, rank);
        ++step;
        top = p.maximum;
        p.sum = 0.0f;
#endif
        float anchor = top == -INFINITE ? 0.0f : top;
#pragma unroll
        for (int l = 0; l < LOADS; ++l)
            if (covered(l)) {
                float f[VECTOR];
                widen(data[l], f);
#pragma unroll
                for (int i = 0; i < VECTOR; ++i) p.sum += exponential(f[i], anchor);
            }
#elif OPERATOR == RMSNORM
#pragma unroll
        for (int l = 0; l < LOADS; ++l)
            if (covered(l)) {
                float f[VECTOR];
                widen(data[l], f);
#pragma unroll
                for (int i = 0; i < VECTOR; ++i) p.squares = fmaf(f[i], f[i], p.squares);
            }
#else
        // Exact inside the thread (mean first, then deviations), merged pairwise after that: no cancellation.
        float total = 0.0f;
#pragma unroll
        for (int l = 0; l < LOADS; ++l)
            if (covered(l)) {
                float f[VECTOR];
                widen(data[l], f);
#if !EXACT
                p.count += VECTOR;
#endif
#pragma unroll
                for (int i = 0; i < VECTOR; ++i) total += f[i];
            }
#if EXACT
        p.mean = total * (1.0f / (LOADS * VECTOR));
#else
        p.mean = p.count > 0.0f ? total / p.count : 0.0f;
#endif
#pragma unroll
        for (int l = 0; l < LOADS; ++l)
            if (covered(l)) {
                float f[VECTOR];
                widen(data[l], f);
#pragma unroll
                for (int i = 0; i < VECTOR; ++i) p.squares = fmaf(f[i] - p.mean, f[i] - p.mean, p.squares);
            }
#endif
        refill();
        p = reduce_row(p, board, step, rank);
#if OPERATOR == SOFTMAX
        // An all-masked row (only -inf) has no softmax: NaN, as in the framework.
        float scale = p.maximum == -INFINITE ? __int_as_float(0x7fc00000) : 1.0f / p.sum, base = p.maximum;
#else
        float scale = rsqrtf(p.squares / columns + epsilon), base = 0.0f;
#if OPERATOR == LAYERNORM
        base = p.mean;
#endif
#endif
        ++step;

        // Scales and stores load number `l` of a thread.
        auto finish = [&](int l, const Vector& v) {
            int column = first + l * STEP;
            if (!covered(l)) return;
            float f[VECTOR];
            widen(v, f);
#if OPERATOR == SOFTMAX
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) f[i] = exponential(f[i], base) * scale;
#else
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) f[i] = OPERATOR == RMSNORM ? f[i] * scale : (f[i] - base) * scale;
            if constexpr (WEIGHT) {
                float w[VECTOR];
#if RESIDENT
                widen(kept_weight[l * KEPT_STEP], w);
#else
                widen(load_parameter(weight + column), w);
#endif
#pragma unroll
                for (int i = 0; i < VECTOR; ++i) f[i] *= w[i];
            }
            if constexpr (BIAS) {
                float b[VECTOR];
#if RESIDENT
                widen(kept_bias[l * KEPT_STEP], b);
#else
                widen(load_parameter(bias + column), b);
#endif
#pragma unroll
                for (int i = 0; i < VECTOR; ++i) f[i] += b[i];
            }
#endif
            store(y + row * y_stride + column, narrow(f));
        };
#if REREAD
        const Element* from = (RESIDUAL ? sum + row * y_stride : x + row * x_stride) + first;
#pragma unroll 1
        for (int base = 0; base < LOADS; base += REREAD) {
            Vector part[REREAD];
#pragma unroll
            for (int i = 0; i < REREAD; ++i)
                if (covered(base + i)) part[i] = load_again(from + (base + i) * STEP);
#pragma unroll
            for (int i = 0; i < REREAD; ++i) finish(base + i, part[i]);
        }
#else
#pragma unroll
        for (int l = 0; l < LOADS; ++l) finish(l, data[l]);
#endif
#if STATISTICS
        if (inside && rank == 0 && threadIdx.x % THREADS_PER_ROW == 0) {
            statistics[2 * row] = base;
            statistics[2 * row + 1] = scale;
        }
#endif
    }
    // Nobody leaves while a slower block may still be read from or written to.
    cluster_arrive();
    cluster_wait();
}
