#include "kernels/products/product_cpu.h"

#include <dnnl.hpp>
#include <map>
#include <unordered_map>

#include "hybrid_trainer/core/error.h"
#include "src/core/machine.h"
#include "src/core/threads.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

using Dims = dnnl::memory::dims;
using Arguments = std::unordered_map<int, dnnl::memory>;

dnnl::memory::data_type dnnl_type(DType dtype) {
  return dtype == DType::kF32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, DType dtype,
                          Transpose transpose) {
  const Dims strides = transpose == Transpose::kYes ? Dims{1, rows} : Dims{columns, 1};
  return {{rows, columns}, dnnl_type(dtype), strides};
}

/// Returns whether repacking B is worth it, as measured: A transposed (dw), or a very long k.
bool packs(const ProductKind& kind) {
  constexpr std::int64_t kLong = 8192;
  return kind.transpose_a == Transpose::kYes || kind.k >= kLong;
}

struct ProductNeed {
  std::size_t scratch_bytes = 0, packed_bytes = 0;  // packed_bytes: for B; 0 if it is read in place
};

Tensor workspace_of(std::size_t bytes, const Stream& stream) {
  return bytes == 0 ? Tensor()
                    : empty_workspace(static_cast<std::int64_t>(bytes / sizeof(float)) + 1,
                                      DType::kF32, stream);
}

/// A primitive, compiled when it first runs, with arguments whose pointers change.
class PreparedProduct {
 public:
  PreparedProduct(const ProductKind& kind, const dnnl::engine& engine) {
    const auto a = matrix(kind.m, kind.k, kind.inputs, kind.transpose_a);
    const auto b = matrix(kind.k, kind.n, kind.inputs, kind.transpose_b);
    const auto c = matrix(kind.m, kind.n, kind.output, Transpose::kNo);
    const dnnl::memory::desc any({kind.k, kind.n}, dnnl_type(kind.inputs),
                                 dnnl::memory::format_tag::any);
    const dnnl::memory::desc bias({1, kind.n}, dnnl::memory::data_type::f32, Dims{kind.n, 1});
    const auto& taken = packs(kind) ? any : b;
    const auto description =
        kind.bias ? dnnl::matmul::desc(a, taken, bias, c) : dnnl::matmul::desc(a, taken, c);
    chosen_ = {description, attributes(kind, c), engine};
    add(DNNL_ARG_SRC, a, engine);
    add(DNNL_ARG_WEIGHTS, chosen_.weights_desc(), engine);
    add(DNNL_ARG_DST, c, engine);
    add(DNNL_ARG_SCRATCHPAD, chosen_.scratchpad_desc(), engine);
    if (kind.bias) add(DNNL_ARG_BIAS, bias, engine);
    if (kind.residual) add(kResidual, c, engine);
    if (chosen_.weights_desc() != b) as_given_ = dnnl::memory(b, engine, nullptr);
    need_ = {chosen_.scratchpad_desc().get_size(),
             as_given_ ? chosen_.weights_desc().get_size() : 0};
  }
  const ProductNeed& need() const { return need_; }

  void run(const ProductArrays& arrays, dnnl::stream& queue, const Stream& stream) {
    const Tensor scratch = workspace_of(need_.scratch_bytes, stream);
    const Tensor packed = workspace_of(need_.packed_bytes, stream);
    if (!primitive_) compile();
    set(DNNL_ARG_SRC, arrays.a);
    set(DNNL_ARG_WEIGHTS, as_given_ ? packed.raw() : arrays.b);
    set(DNNL_ARG_DST, arrays.c);
    set(DNNL_ARG_SCRATCHPAD, scratch.raw());
    set(DNNL_ARG_BIAS, arrays.bias);
    set(kResidual, arrays.residual);
    const LibraryComputeScope on_its_threads;
    if (as_given_) {
      as_given_.set_data_handle(const_cast<void*>(arrays.b));
      packing_.execute(queue, as_given_, arguments_.at(DNNL_ARG_WEIGHTS));
    }
    primitive_.execute(queue, arguments_);
  }

 private:
  void compile() {
    primitive_ = dnnl::matmul(chosen_);
    if (as_given_) packing_ = dnnl::reorder(as_given_, arguments_.at(DNNL_ARG_WEIGHTS));
  }
  static constexpr int kResidual = DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1;

  static dnnl::primitive_attr attributes(const ProductKind& kind, const dnnl::memory::desc& c) {
    dnnl::post_ops after;
    if (kind.accumulate) after.append_sum(1.0f);
    if (kind.residual) after.append_binary(dnnl::algorithm::binary_add, c);
    dnnl::primitive_attr result;
    result.set_post_ops(after);
    result.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return result;
  }
  void add(int argument, const dnnl::memory::desc& description, const dnnl::engine& engine) {
    arguments_.emplace(argument, dnnl::memory(description, engine, nullptr));
  }
  void set(int argument, const void* data) {
    const auto found = arguments_.find(argument);
    if (found != arguments_.end()) found->second.set_data_handle(const_cast<void*>(data));
  }
  dnnl::matmul::primitive_desc chosen_;
  dnnl::matmul primitive_;
  ProductNeed need_;
  Arguments arguments_;
  dnnl::reorder packing_;
  dnnl::memory as_given_;  // B; empty if it is read in place
};

/// All state of oneDNN between calls, but no values. Each calling thread has its own.
struct PreparedProducts {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream queue{engine};
  std::map<ProductKind, PreparedProduct> by_kind;
  std::map<ProductKind, ProductNeed> simulated;  // separate: a plan has many more kinds

  void simulate(const ProductKind& kind, const Stream& stream) {
    auto found = simulated.find(kind);
    if (found == simulated.end())
      found = simulated.emplace(kind, PreparedProduct(kind, engine).need()).first;
    const Tensor scratch = workspace_of(found->second.scratch_bytes, stream);
    const Tensor packed = workspace_of(found->second.packed_bytes, stream);
  }
};

void multiply_on_this_thread(const StridedProduct& p) {
  const dnnl_status_t status =
      dnnl_sgemm(p.transpose_a == Transpose::kYes ? 'T' : 'N',
                 p.transpose_b == Transpose::kYes ? 'T' : 'N', p.m, p.n, p.k, p.scale, p.a,
                 p.stride_a, p.b, p.stride_b, p.accumulate ? 1.0f : 0.0f, p.c, p.stride_c);
  if (status == dnnl_success) return;
  const std::string which =
      concat("a product of (", p.m, ", ", p.k, ") and (", p.k, ", ", p.n, ")");
  if (status != dnnl_out_of_memory)
    throw Error(ExitCode::kInternal,
                concat("oneDNN cannot compute ", which, ": status ", int{status}));
  throw OutOfMemory(concat("not enough memory for oneDNN to pack the operands of ", which), 0, 0);
}

/// Returns the number of parts of C, at most one per thread, because each packs its operands.
std::int64_t part_count(const StridedProduct& p) {
  constexpr std::int64_t kMinSide = 64, kMinOperations = 1 << 20;
  const std::int64_t most =
      std::min(std::max(p.m, p.n) / kMinSide, p.m * p.n * p.k / kMinOperations);
  return std::clamp<std::int64_t>(most, 1, threads());
}

StridedProduct part_of(const StridedProduct& whole, std::int64_t begin, std::int64_t end) {
  StridedProduct part = whole;
  if (whole.m >= whole.n) {
    part.m = end - begin;
    part.a += whole.transpose_a == Transpose::kYes ? begin : begin * whole.stride_a;
    part.c += begin * whole.stride_c;
  } else {
    part.n = end - begin;
    part.b += whole.transpose_b == Transpose::kYes ? begin * whole.stride_b : begin;
    part.c += begin;
  }
  return part;
}

}  // namespace

void multiply_alone(const StridedProduct& product) {
  instruction_set();  // see below
  multiply_on_this_thread(product);
}

void multiply(const StridedProduct& product) {
  instruction_set();  // also limits oneDNN, if required, before its first product
  const std::int64_t parts = part_count(product);
  const std::int64_t side = std::max(product.m, product.n);
  run_tasks(parts, [&](std::int64_t, std::int64_t part) {
    multiply_on_this_thread(part_of(product, side * part / parts, side * (part + 1) / parts));
  });
}

void multiply_prepared(const ProductKind& kind, const ProductArrays& arrays, const Stream& stream) {
  thread_local PreparedProducts products;
  if (simulated(stream)) return products.simulate(kind, stream);
  auto found = products.by_kind.find(kind);
  if (found == products.by_kind.end())
    found = products.by_kind.emplace(kind, PreparedProduct(kind, products.engine)).first;
  found->second.run(arrays, products.queue, stream);
}

}  // namespace hybrid_trainer::kernels::cpu
