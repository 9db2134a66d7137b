#include <cublasLt.h>
#include <algorithm>
#include <bit>
#include <mutex>

#include "hybrid_trainer/core/error.h"
#include "kernels/products/algorithm_choice_cuda.h"
#include "kernels/products/product_cuda.h"
#include "src/core/cuda_runtime.h"
#include "src/core/libraries.h"

namespace hybrid_trainer::kernels::cuda {

namespace {

/// The cuBLASLt functions that this project uses, from the library opened at run time.
struct CublasLt {
  /// Throws DeviceError if the library is missing or too old.
  CublasLt();

  SharedLibrary library;
  decltype(cublasLtGetVersion)* version;
  decltype(cublasLtGetStatusName)* name_of_status;
  decltype(cublasLtCreate)* create;
  decltype(cublasLtMatmulDescCreate)* create_operation;
  decltype(cublasLtMatmulDescDestroy)* destroy_operation;
  decltype(cublasLtMatmulDescSetAttribute)* set_operation;
  decltype(cublasLtMatrixLayoutCreate)* create_layout;
  decltype(cublasLtMatrixLayoutDestroy)* destroy_layout;
  decltype(cublasLtMatmulPreferenceCreate)* create_preference;
  decltype(cublasLtMatmulPreferenceDestroy)* destroy_preference;
  decltype(cublasLtMatmulPreferenceSetAttribute)* set_preference;
  decltype(cublasLtMatmulAlgoGetHeuristic)* choose;
  decltype(cublasLtMatmulAlgoCheck)* check_algorithm;
  decltype(cublasLtMatmul)* multiply;

  /// Throws DeviceError with call and result, or OutOfMemory if `device` cannot load the kernels.
  void check(cublasStatus_t answer, const char* call, std::optional<int> device = {}) const;
};

/// Opens the library on the first call. Thread-safe. Throws DeviceError.
const CublasLt& cublaslt();

/// A product with its descriptors and algorithm. Only the pointers change between calls.
class ProductPlan {
 public:
  /// Throws DeviceError.
  explicit ProductPlan(const Product& product);

  /// Returns cuBLASLt's proposals, ordered by its estimate of their speed. Returns an empty list if
  /// it has no kernel for this product. Throws DeviceError.
  std::vector<AlgorithmBits> candidates(cublasLtHandle_t handle);
  /// Makes `run` use this algorithm. Returns false if it does not fit this product.
  bool take(cublasLtHandle_t handle, const AlgorithmBits& bits);
  bool usable() const { return usable_; }
  /// Enqueues a product of this kind. Not thread-safe. Throws DeviceError, OutOfMemory.
  void run(cublasLtHandle_t handle, const Product& product, const Stream& stream);

 private:
  struct DestroyOperation {
    void operator()(cublasLtMatmulDesc_t at) const { cublaslt().destroy_operation(at); }
  };
  struct DestroyLayout {
    void operator()(cublasLtMatrixLayout_t at) const { cublaslt().destroy_layout(at); }
  };
  using Operation = std::unique_ptr<cublasLtMatmulDescOpaque_t, DestroyOperation>;
  using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, DestroyLayout>;

  static Operation operation_for(const Product& product);
  static Layout layout_of(const Tensor& matrix);
  void point_to(const Product& product);

  ProductKind kind_;
  Operation operation_;
  Layout a_, b_, c_;
  std::vector<cublasLtMatmulHeuristicResult_t> proposed_;
  cublasLtMatmulAlgo_t algorithm_{};
  std::size_t workspace_bytes_ = 0;
  bool usable_ = false;
};

constexpr int kMaxCandidates = 16;

cudaDataType_t type_of(DType dtype) { return dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF; }

cublasOperation_t operation_of(Transpose transpose) {
  return transpose == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N;
}

cublasLtEpilogue_t epilogue_of(const Product& product) {
  switch (product.epilogue) {
    case Epilogue::kGelu:
      if (product.aux)
        return product.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      return product.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case Epilogue::kGeluSlope: return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::kRowSums: return CUBLASLT_EPILOGUE_BGRADB;  // op(A) is its second operand
    case Epilogue::kNone: break;
  }
  return product.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

template <class Value>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t which, const Value& value) {
  cublaslt().check(cublaslt().set_operation(operation, which, &value, sizeof(value)),
                   "cublasLtMatmulDescSetAttribute");
}

/// Returns whether cuBLASLt may return this result if it could not load a kernel.
bool may_mean_out_of_memory(cublasStatus_t answer) {
  return answer == CUBLAS_STATUS_NOT_INITIALIZED || answer == CUBLAS_STATUS_EXECUTION_FAILED ||
         answer == CUBLAS_STATUS_INTERNAL_ERROR;
}

/// Limits on cuBLASLt's choice.
class Preference {
 public:
  explicit Preference(const ProductKind& kind) {
    cublasLtMatmulPreference_t made = nullptr;
    cublaslt().check(cublaslt().create_preference(&made), "cublasLtMatmulPreferenceCreate");
    preference_.reset(made);
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMaxWorkspaceBytes);
    // Requires that split-K partial sums are added in a separate step, which is bit-reproducible.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    const auto bytes = [&](std::size_t i) {
      return static_cast<std::uint32_t>(kind.alignments[i]);
    };
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, bytes(1));  // A and B are swapped
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, bytes(0));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kind.adds ? bytes(3) : bytes(2));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, bytes(2));
  }
  cublasLtMatmulPreference_t get() const { return preference_.get(); }

 private:
  struct Destroy {
    void operator()(cublasLtMatmulPreference_t at) const { cublaslt().destroy_preference(at); }
  };
  template <class Value>
  void set(cublasLtMatmulPreferenceAttributes_t which, const Value& value) {
    cublaslt().check(cublaslt().set_preference(preference_.get(), which, &value, sizeof(value)),
                     "cublasLtMatmulPreferenceSetAttribute");
  }
  std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroy> preference_;
};

CublasLt::CublasLt() : library(SharedLibrary::open(cublaslt_library())) {
  const auto find = [this](auto*& function, const char* name) {
    function = library.function<std::remove_reference_t<decltype(*function)>>(name);
  };
  find(version, "cublasLtGetVersion");
  find(name_of_status, "cublasLtGetStatusName");
  find(create, "cublasLtCreate");
  find(create_operation, "cublasLtMatmulDescCreate");
  find(destroy_operation, "cublasLtMatmulDescDestroy");
  find(set_operation, "cublasLtMatmulDescSetAttribute");
  find(create_layout, "cublasLtMatrixLayoutCreate");
  find(destroy_layout, "cublasLtMatrixLayoutDestroy");
  find(create_preference, "cublasLtMatmulPreferenceCreate");
  find(destroy_preference, "cublasLtMatmulPreferenceDestroy");
  find(set_preference, "cublasLtMatmulPreferenceSetAttribute");
  find(choose, "cublasLtMatmulAlgoGetHeuristic");
  find(check_algorithm, "cublasLtMatmulAlgoCheck");
  find(multiply, "cublasLtMatmul");
}

void CublasLt::check(cublasStatus_t answer, const char* call, std::optional<int> device) const {
  if (answer == CUBLAS_STATUS_SUCCESS) return;
  const std::string what = concat("cuBLASLt: ", call, " failed with ", name_of_status(answer));
  if (device && (answer == CUBLAS_STATUS_ALLOC_FAILED ||
                 (may_mean_out_of_memory(answer) && is_short_of_device_memory(*device)))) {
    throw_out_of_device_memory(what, *device);
  }
  throw DeviceError(concat(what, "; `hybrid doctor` shows the device and ", library.path(),
                           "; --device cpu uses neither"));
}

const CublasLt& cublaslt() {
  // Never closed: CUDA may already be unloaded at program exit.
  static const CublasLt* const opened = new CublasLt;
  return *opened;
}

/// cuBLASLt's matrices are column-major, so that ours appear transposed: it computes Cᵀ =
/// op(B)ᵀ·op(A)ᵀ, with B as its first operand.
ProductPlan::ProductPlan(const Product& product)
    : kind_(product),
      operation_(operation_for(product)),
      a_(layout_of(product.a)),
      b_(layout_of(product.b)),
      c_(layout_of(product.c)) {
  point_to(product);
}

ProductPlan::Operation ProductPlan::operation_for(const Product& product) {
  cublasLtMatmulDesc_t made = nullptr;
  cublaslt().check(cublaslt().create_operation(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                   "cublasLtMatmulDescCreate");
  Operation operation(made);
  set(made, CUBLASLT_MATMUL_DESC_TRANSA, operation_of(product.transpose_b));
  set(made, CUBLASLT_MATMUL_DESC_TRANSB, operation_of(product.transpose_a));
  set(made, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(product));
  return operation;
}

ProductPlan::Layout ProductPlan::layout_of(const Tensor& matrix) {
  cublasLtMatrixLayout_t made = nullptr;
  cublaslt().check(cublaslt().create_layout(
                       &made, type_of(matrix.dtype()), static_cast<std::uint64_t>(matrix.size(1)),
                       static_cast<std::uint64_t>(matrix.size(0)), matrix.size(1)),
                   "cublasLtMatrixLayoutCreate");
  return Layout(made);
}

void ProductPlan::point_to(const Product& product) {
  if (product.bias) set(operation_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias.raw());
  if (product.aux) {
    set(operation_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, product.aux.raw());
    set(operation_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, product.n());
  }
}

std::vector<AlgorithmBits> ProductPlan::candidates(cublasLtHandle_t handle) {
  // cuBLASLt requires that rows of the auxiliary matrix have a multiple of 8 elements.
  if (kind_.has_aux && kind_.n % 8 != 0) return {};
  proposed_.resize(kMaxCandidates);
  int found = 0;
  const cublasStatus_t answer =
      cublaslt().choose(handle, operation_.get(), b_.get(), a_.get(), c_.get(), c_.get(),
                        Preference(kind_).get(), kMaxCandidates, proposed_.data(), &found);
  proposed_.resize(static_cast<std::size_t>(found));
  const bool plain = !kind_.has_bias && kind_.epilogue == Epilogue::kNone;
  const bool refused = answer == CUBLAS_STATUS_INVALID_VALUE && !plain;
  if (answer == CUBLAS_STATUS_NOT_SUPPORTED || refused) return {};
  cublaslt().check(answer, "cublasLtMatmulAlgoGetHeuristic");
  std::erase_if(proposed_, [](const auto& one) { return one.state != CUBLAS_STATUS_SUCCESS; });
  std::vector<AlgorithmBits> all;
  for (const auto& one : proposed_) all.push_back(std::bit_cast<AlgorithmBits>(one.algo));
  return all;
}

bool ProductPlan::take(cublasLtHandle_t handle, const AlgorithmBits& bits) {
  static_assert(sizeof(bits) == sizeof(cublasLtMatmulAlgo_t));
  const auto known = std::find_if(proposed_.begin(), proposed_.end(), [&](const auto& one) {
    return std::bit_cast<AlgorithmBits>(one.algo) == bits;
  });
  cublasLtMatmulHeuristicResult_t result{};
  if (known != proposed_.end()) {
    result = *known;
  } else {
    const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(bits);
    const cublasStatus_t answer = cublaslt().check_algorithm(
        handle, operation_.get(), b_.get(), a_.get(), c_.get(), c_.get(), &algorithm, &result);
    if (answer != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kMaxWorkspaceBytes) return false;
  }
  algorithm_ = std::bit_cast<cublasLtMatmulAlgo_t>(bits);
  workspace_bytes_ = result.workspaceSize;
  return usable_ = true;
}

void ProductPlan::run(cublasLtHandle_t handle, const Product& product, const Stream& stream) {
  const float one = 1;
  const float of_addend = product.addend ? 1 : 0;
  const Tensor& addend = product.addend ? product.addend : product.c;
  const Tensor workspace =
      workspace_bytes_ == 0
          ? Tensor()
          : empty_workspace(static_cast<std::int64_t>(workspace_bytes_), DType::kU8, stream);
  point_to(product);
  cublaslt().check(cublaslt().multiply(handle, operation_.get(), &one, product.b.raw(), b_.get(),
                                       product.a.raw(), a_.get(), &of_addend, addend.raw(),
                                       c_.get(), product.c.raw(), c_.get(), &algorithm_,
                                       workspace.raw(), workspace_bytes_, stream.native()),
                   "cublasLtMatmul", stream.device().index);
}

/// Products prepared for one device. Stores no values.
class Multiplier {
 public:
  explicit Multiplier(int device)
      : owner_{cublaslt().version(), cuda_runtime().properties(device).name},
        chooser_(AlgorithmChooser::environment(), owner_) {
    cuda_runtime().use(device);
    cublaslt().check(cublaslt().create(&handle_), "cublasLtCreate", device);
  }

  void begin(const ProductRun& run) {
    std::lock_guard lock(mutex_);
    plans_.clear();
    chooser_ = AlgorithmChooser(AlgorithmChooser::environment(run), owner_);
  }

  bool try_multiply(const Product& product, const Stream& stream) {
    std::lock_guard lock(mutex_);
    ProductPlan& plan = plan_for(product, stream);
    if (plan.usable()) plan.run(handle_, product, stream);
    return plan.usable();
  }

 private:
  ProductPlan& plan_for(const Product& product, const Stream& stream) {
    const ProductKind kind(product);
    const auto found = plans_.find(kind);
    if (found != plans_.end()) return found->second;
    // Created first, so that its trial's memory is free again when the next plan needs memory.
    ProductPlan* const plain_plan =
        product.epilogue == Epilogue::kRowSums ? &plan_for(without_sums(product), stream) : nullptr;
    ProductPlan plan(product);
    const auto multiply = [&](const Product& plain, const Stream& on) {
      if (!plain_plan->usable()) throw DeviceError("cuBLASLt: no kernel supports this product");
      plain_plan->run(handle_, plain, on);
    };
    bool separate = false;
    const AlgorithmOffer offer{
        .candidates = [&] { return plan.candidates(handle_); },
        .take = [&](const AlgorithmBits& bits) { return plan.take(handle_, bits); },
        .run = [&](const Product& trial, const Stream& on) { plan.run(handle_, trial, on); }};
    chooser_.choose(product, with_separate_sums(product, offer, separate, multiply), stream);
    if (separate) plan = ProductPlan(product);  // not usable: the caller computes the sums
    return plans_.emplace(kind, std::move(plan)).first->second;
  }

  std::mutex mutex_;
  cublasLtHandle_t handle_ = nullptr;
  AlgorithmOwner owner_;
  AlgorithmChooser chooser_;
  std::map<ProductKind, ProductPlan> plans_;
};

Multiplier& multiplier_of(int device) {
  static std::mutex mutex;
  // Never destroyed: CUDA may already be unloaded at program exit.
  static auto* const all = new std::map<int, Multiplier>;
  std::lock_guard lock(mutex);
  return all->try_emplace(device, device).first->second;
}

}  // namespace

void begin_products(const ProductRun& run, int device) { multiplier_of(device).begin(run); }

bool try_multiply(const Product& product, const Stream& stream) {
  return multiplier_of(stream.device().index).try_multiply(product, stream);
}

}  // namespace hybrid_trainer::kernels::cuda
