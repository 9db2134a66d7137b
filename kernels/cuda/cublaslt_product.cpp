#include <map>
#include <mutex>

#include "hybrid_trainer/core/cuda_runtime.h"
#include "kernels/cuda/algorithm_choice.h"
#include "kernels/cuda/cublaslt_plan.h"
#include "kernels/cuda/sums_apart.h"

namespace hybrid_trainer::kernels::cuda {
namespace {

/// What is kept per device: how to multiply there, never a value.
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
    // Beforehand, so that the memory of its trial is free again when this one takes its own.
    ProductPlan* const plain_plan =
        product.epilogue == Epilogue::kRowSums ? &plan_for(without_sums(product), stream) : nullptr;
    ProductPlan plan(product);
    const auto multiply = [&](const Product& plain, const Stream& on) {
      if (!plain_plan->usable()) throw DeviceError("cuBLASLt: no kernel");
      plain_plan->run(handle_, plain, on);
    };
    bool apart = false;
    const AlgorithmOffer offer{
        .candidates = [&] { return plan.candidates(handle_); },
        .take = [&](const AlgorithmBits& bits) { return plan.take(handle_, bits); },
        .run = [&](const Product& trial, const Stream& on) { plan.run(handle_, trial, on); }};
    chooser_.choose(product, with_sums_apart(product, offer, apart, multiply), stream);
    if (apart) plan = ProductPlan(product);  // not usable: the caller computes the sums
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
  // Never destroyed: at program exit CUDA may be gone already.
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
