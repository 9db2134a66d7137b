#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "hybrid_trainer/core/prefetcher.h"
#include "hybrid_trainer/core/staged_tensor.h"
#include "hybrid_trainer/nn/live_weight.h"
#include "hybrid_trainer/nn/parameter.h"
#include "src/optim/sent_gradients.h"
#include "src/optim/update_predictor.h"

namespace hybrid_trainer {

/// A weight's f32 master for an optimizer that works where it lies. Says the dtype in which the
/// device computes with the weight, by which an optimizer may choose, and gives scratch memory for a
/// copy in bf16, as nobody reads it.
class ExactStorage final : public WeightStorage {
 public:
  ExactStorage(Tensor home, const LiveWeight& live) : home_(std::move(home)), live_(live) {}
  Tensor acquire(DType dtype, const Stream& stream) override;
  void release(DType dtype, Use, const Stream&) noexcept override;
  Tensor home_master() const override { return home_; }
  void compute_in(DType, const Stream&) override {}
  DType compute_dtype() const override { return live_.compute_dtype(); }
  void refresh_compute_copy(const Stream&) override {}
  /// Until it is called with an undefined tensor, the master is this one.
  void stand_in(Tensor here) { here_ = std::move(here); }

 private:
  Tensor home_, here_, scratch_;
  const LiveWeight& live_;
};

/// One weight on both sides, or some rows of it, and what is on its way between them.
struct ExactWeight {
  Parameter* parameter = nullptr;
  std::int64_t first_row = 0, rows = 0;  // of the parameter
  LiveWeight* live = nullptr;            // the parameter's
  ExactStorage* storage = nullptr;       // the exact one's
  std::unique_ptr<Parameter> exact{};    // what the exact optimizer updates
  std::vector<Tensor*> state{};          // the exact optimizer's tensors
  Tensor *m = nullptr, *v = nullptr;     // among them, where there are such
  std::size_t group = 0;                 // of its predictors
  double rate_factor = 1;                // of the learning rate
  SentGradients gradients{};
  std::vector<UpdateForecast> forecasts{};  // by step

  bool is_part() const { return rows < parameter->shape()[0]; }
  /// These rows of a tensor in the parameter's shape.
  Tensor of(const Tensor& whole) const {
    return whole && is_part() ? whole.rows(first_row, first_row + rows) : whole;
  }
};

/// Where to cut a parameter into pieces of at most `most` elements, or one row, that are whole pages of
/// its bf16 copy where rows allow it: the first row of each piece, and the end.
std::vector<std::int64_t> piece_rows(const Parameter& parameter, std::int64_t most);

/// A weight's master and state in host memory until this is destroyed: where they do not lie there
/// the prefetcher, which must outlive this, brings them and takes them back.
class AtHand {
 public:
  /// `prefetcher`: none where they lie on the host. Throws OutOfMemory, IoError.
  AtHand(ExactWeight& weight, Prefetcher* prefetcher, const Stream& host);
  ~AtHand();
  AtHand(const AtHand&) = delete;
  AtHand& operator=(const AtHand&) = delete;
  const Tensor& master() const { return master_; }

 private:
  std::deque<StagedTensor> held_;
  ExactWeight& weight_;
  Tensor master_;
  std::vector<Tensor> homes_;  // of the state
};

}  // namespace hybrid_trainer
