// Row-wise softmax, RMSNorm and LayerNorm (optionally of a sum with a residual), one source for every width.
//
// A row is held in registers by THREADS_PER_ROW threads of a block, or by all threads of a cluster of CLUSTER blocks
// when it is long: every byte crosses device memory once (or is read again from a cache: REREAD). Partial statistics are merged by one reduction: inside a warp
// by shuffles, then each warp writes its partial into the shared memory of every block of the cluster (distributed
// shared memory), and one barrier later everybody reduces the same list.
//
// OPERATOR         SOFTMAX, RMSNORM or LAYERNORM
// BF16             1: bfloat16, 0: float32
// VECTOR           elements of one load (16 bytes where alignment allows; 1 for odd widths)
// LOADS            loads of each thread
// THREADS, THREADS_PER_ROW, CLUSTER   mapping; THREADS / THREADS_PER_ROW rows per block when CLUSTER is 1
// RESIDUAL         1: h = x + residual is normalised, and written back (norms only)
// WEIGHT, BIAS     1: multiply by weight, add bias (norms only)
// ONLINE           1: maximum and sum in one reduction (Milakov and Gimelshein 2018); 0: two reductions (softmax only)
// NO_ALLOCATE      1: 16-byte loads of the row leave no line in the first-level cache
// STREAMING        1: 16-byte stores are the first to leave the second-level cache
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

#define SOFTMAX 0
#define RMSNORM 1
#define LAYERNORM 2
#ifndef ONLINE
#define ONLINE 1
#endif
#ifndef NO_ALLOCATE
#define NO_ALLOCATE 0
#endif
#ifndef STREAMING
#define STREAMING 0
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
constexpr int PARTIALS = WARPS_PER_ROW * CLUSTER;      // partial statistics of one row
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

__device__ __forceinline__ Vector load_streaming(const Element* from) {
    Vector v;
    if constexpr (NO_ALLOCATE && sizeof(Vector) == 16) {
        u32(&w)[4] = reinterpret_cast<u32(&)[4]>(v);
        asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(from));
    } else {
        v = *reinterpret_cast<const Vector*>(from);
    }
    return v;
}

#if REREAD
// Reads from the caches what was read before; volatile, or the compiler would keep the first reading in registers.
__device__ __forceinline__ Vector load_again(const Element* from) {
    Vector v;
    static_assert(sizeof(Vector) == 16);
    u32(&w)[4] = reinterpret_cast<u32(&)[4]>(v);
    asm volatile("ld.global.L1::evict_first.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(from) : "memory");
    return v;
}
#endif

__device__ __forceinline__ void store(Element* to, const Vector& v) {
    if constexpr (STREAMING && sizeof(Vector) == 16) {
        const u32(&w)[4] = reinterpret_cast<const u32(&)[4]>(v);
        asm volatile("st.global.cs.v4.b32 [%0], {%1, %2, %3, %4};"
                     ::"l"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
    } else {
        *reinterpret_cast<Vector*>(to) = v;
    }
}

// Copies one vector into shared memory while the thread goes on.
__device__ __forceinline__ void copy_async(Vector* to, const Element* from) {
    u32 target = static_cast<u32>(__cvta_generic_to_shared(to));
    if constexpr (sizeof(Vector) == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target), "l"(from) : "memory");
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

// Merges the partials of all threads of a row; every thread gets the result. `slots`: WORDS floats per partial.
__device__ __forceinline__ Partial reduce_row(Partial p, float* slots, int rank) {
    constexpr int WIDTH = THREADS_PER_ROW < 32 ? THREADS_PER_ROW : 32;
    constexpr float OF_THREAD = LOADS * VECTOR, OF_WARP = OF_THREAD * WIDTH;
    p = reduce_warp<WIDTH>(p, OF_THREAD);
    if constexpr (PARTIALS > 1) {
        int thread = threadIdx.x % THREADS_PER_ROW, lane = threadIdx.x % 32;
        float* row_slots = slots + threadIdx.x / THREADS_PER_ROW * PARTIALS * WORDS;
        float(&w)[WORDS] = reinterpret_cast<float(&)[WORDS]>(p);
        int slot = rank * WARPS_PER_ROW + thread / 32;
        if constexpr (CLUSTER > 1) {
            if (lane < CLUSTER) {
                u32 address = static_cast<u32>(__cvta_generic_to_shared(row_slots + slot * WORDS)), remote;
                asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(lane));
#pragma unroll
                for (int i = 0; i < WORDS; ++i)
                    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote + 4 * i), "f"(w[i]) : "memory");
            }
            cluster_arrive();
            cluster_wait();
        } else {
            if (lane == 0)
#pragma unroll
                for (int i = 0; i < WORDS; ++i) row_slots[slot * WORDS + i] = w[i];
            __syncthreads();
        }
        constexpr int LISTS = PARTIALS > 32 ? PARTIALS / 32 : 1, LANES = PARTIALS < 32 ? PARTIALS : 32;
        Partial list[LISTS];
#pragma unroll
        for (int i = 0; i < LISTS; ++i) {
            float(&v)[WORDS] = reinterpret_cast<float(&)[WORDS]>(list[i]);
#pragma unroll
            for (int j = 0; j < WORDS; ++j) v[j] = row_slots[(i * 32 + lane % LANES) * WORDS + j];
        }
#pragma unroll
        for (int half = LISTS / 2; half > 0; half /= 2)
#pragma unroll
            for (int i = 0; i < half; ++i)
#if OPERATOR == LAYERNORM && EXACT
                list[i] = merge(list[i], list[i + half], OF_WARP * (LISTS / 2 / half));
#else
                list[i] = merge(list[i], list[i + half]);
#endif
        p = reduce_warp<LANES>(list[0], OF_WARP * LISTS);
    }
    return p;
}

__device__ __forceinline__ float exponential(float x, float anchor) { return exp2_fast((x - anchor) * LOG2E); }

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
rowwise(const Element* __restrict__ x, const Element* __restrict__ residual, const Element* __restrict__ weight,
        const Element* __restrict__ bias, Element* __restrict__ y, Element* __restrict__ sum, float* __restrict__ statistics,
        i64 rows, int columns, i64 x_stride, i64 residual_stride, i64 y_stride, float epsilon) {
    // Two sets, used in turn: a block that is ahead must not write what a slower one still reads.
    __shared__ float slots[2][ROWS * PARTIALS * WORDS];
    int rank = 0, turn = 0;
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
            if constexpr (WEIGHT) kept_weight[l * KEPT_STEP] = load(weight + first + l * STEP);
            if constexpr (BIAS) kept_bias[l * KEPT_STEP] = load(bias + first + l * STEP);
        }
#endif
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
                data[l] = load_streaming(x + row * x_stride + first + l * STEP);
                if constexpr (RESIDUAL) more[l] = load_streaming(residual + row * residual_stride + first + l * STEP);
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
                    part[i] = load_streaming(x + row * x_stride + first + (base + i) * STEP);
                    if constexpr (RESIDUAL)
                        other[i] = load_streaming(residual + row * residual_stride + first + (base + i) * STEP);
                }
#pragma unroll
            for (int i = 0; i < REREAD; ++i)
                if (covered(base + i)) {
                    if constexpr (RESIDUAL) {
                        part[i] = plus(part[i], other[i]);
                        store(sum + row * y_stride + first + (base + i) * STEP, part[i]);
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
        p = reduce_row(p, slots[turn], rank);
        turn ^= 1;
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
        p = reduce_row(p, slots[turn], rank);
#if OPERATOR == SOFTMAX
        // An all-masked row (only -inf) has no softmax: NaN, as in the framework.
        float scale = p.maximum == -INFINITE ? __int_as_float(0x7fc00000) : 1.0f / p.sum, base = p.maximum;
#else
        float scale = rsqrtf(p.squares / columns + epsilon), base = 0.0f;
#if OPERATOR == LAYERNORM
        base = p.mean;
#endif
#endif
        turn ^= 1;

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
                widen(load(weight + column), w);
#endif
#pragma unroll
                for (int i = 0; i < VECTOR; ++i) f[i] *= w[i];
            }
            if constexpr (BIAS) {
                float b[VECTOR];
#if RESIDENT
                widen(kept_bias[l * KEPT_STEP], b);
#else
                widen(load(bias + column), b);
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
