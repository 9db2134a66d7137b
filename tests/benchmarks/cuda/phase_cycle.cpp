#include "tests/benchmarks/cuda/phase_cycle.h"

#include <chrono>
#include <thread>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/models/model_family.h"
#include "tests/benchmarks/program.h"

namespace hybrid_trainer::benchmarks {
namespace {

double seconds_now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

template <class Work>
double seconds_of(const Work& work) {
  const double begin = seconds_now();
  work();
  return seconds_now() - begin;
}

HybridTrainerConfig config_of(const CycleSettings& settings) {
  HybridTrainerConfig config;
  config.model = settings.model;
  config.data.batch_size = settings.batch;
  config.data.sequence_length = settings.sequence;
  const std::string precision = settings.bf16 ? "bf16" : "fp32";
  config.mixed_precision = {precision, precision, precision, precision};
  config.predict_aware_memory = PredictAwareMemoryConfig::balanced();
  return config;
}

Tensor random_tokens(const CycleSettings& settings, std::uint64_t seed, const Stream& stream) {
  const Stream host(MemoryPool::create("tokens"));
  const Tensor tokens =
      Tensor::empty({settings.batch, settings.sequence}, DType::kI32, MemoryKind::kData, host);
  const auto words = static_cast<std::uint64_t>(settings.model.vocabulary);
  for (std::int64_t i = 0; i < tokens.elements(); ++i) {
    tokens.data<std::int32_t>()[i] =
        static_cast<std::int32_t>(random_below({seed}, static_cast<std::uint64_t>(i), words));
  }
  return wait_for_device(tokens, stream);
}

/// Two tensors like each of the model's parameters, like AdamW's moments.
std::vector<Tensor> make_state(LossModel& model, const Stream& stream) {
  std::vector<Tensor> state;
  model.visit_parameters([&](Parameter& parameter) {
    for (int moment = 0; moment < 2; ++moment) {
      state.push_back(
          Tensor::zeros(parameter.shape(), DType::kF32, MemoryKind::kOptimizerState, stream));
    }
  });
  return state;
}

std::size_t live_state(const Stream& stream) {
  return stream.pool()->use().live[static_cast<std::size_t>(MemoryKind::kOptimizerState)];
}

/// A second optimizer state, in addition to the model's own, and its offload strategy.
class MovingState {
 public:
  MovingState(LossModel& model, const PredictAwareMemoryConfig& config,
              const std::shared_ptr<MemoryPool>& host_pool, const Stream& stream)
      : strategy_(make_offload_strategy(config, host_pool)),
        stream_(stream),
        tensors_(make_state(model, stream)) {
    for (Tensor& tensor : tensors_) bytes_ += tensor.bytes();
    stream.synchronize();
  }

  std::size_t bytes() const { return bytes_; }
  /// Seconds until the call returns, and until none of the state is live on the device.
  std::pair<double, double> move_out() {
    std::vector<OffloadSlot> slots;
    for (Tensor& tensor : tensors_) slots.push_back({"state", &tensor});
    const double begin = seconds_now();
    const MoveOutResult result = strategy_->move_out(std::move(slots), stream_);
    const double call = seconds_now() - begin;
    if (!result.problem.empty()) throw Error(ExitCode::kMemory, result.problem);
    while (live_state(stream_) > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      strategy_->release_moved_out();
    }
    return {call, seconds_now() - begin};
  }
  void begin_return() { strategy_->begin_return(); }
  void wait_until_restored() {
    strategy_->wait_until_restored();
    stream_.synchronize();
  }

 private:
  std::unique_ptr<OffloadStrategy> strategy_;
  const Stream& stream_;
  std::vector<Tensor> tensors_;
  std::size_t bytes_ = 0;
};

}  // namespace

PhaseCycle::PhaseCycle(const CycleSettings& settings, const Stream& stream)
    : settings_(settings),
      stream_(stream),
      host_pool_(make_host_pool(stream.device())),
      model_(make_model(settings.model, 0, stream)),
      config_(config_of(settings)),
      trainable_(std::make_unique<ModelTrainable>(
          *model_, config_, stream, host_pool_,
          [](const std::string& note) { throw Error(ExitCode::kMemory, note); })),
      batch_(token_batch(random_tokens(settings, 1, stream), random_tokens(settings, 2, stream))) {}

std::vector<Mark> PhaseCycle::run() {
  cycle();
  marks_.clear();
  begin_seconds_ = seconds_now();
  cycle();
  return marks_;
}

void PhaseCycle::cycle() {
  const std::int64_t before = settings_.passes - settings_.lookahead;
  mark("enter Full", [&] { trainable_->enter_phase(Phase::kFull); });
  mark("Full step", [&] { train_step(); });
  mark("Full step", [&] { train_step(); });
  mark("enter Predict", [&] { trainable_->enter_phase(Phase::kPredict); });
  mark("first Predict pass", [&] { predict(1); });
  mark(concat(before - 1, " Predict passes"), [&] { predict(before - 1); });
  mark("begin restore", [&] { trainable_->begin_restore(); });
  mark(concat(settings_.lookahead, " Predict passes"), [&] { predict(settings_.lookahead); });
  mark("enter Correct", [&] { trainable_->enter_phase(Phase::kCorrect); });
  mark("Correct step", [&] { train_step(); });
}

/// Waits for the device, but not while a restore runs.
void PhaseCycle::mark(const std::string& what, const std::function<void()>& work) {
  stream_.pool()->reset_peaks();
  Mark mark;
  mark.what = what;
  mark.begin_seconds = seconds_now() - begin_seconds_;
  mark.seconds = seconds_of([&] {
    work();
    stream_.synchronize();
  });
  mark.device = stream_.pool()->use();
  mark.host_bytes = host_pool_->use().live_total;
  marks_.push_back(mark);
}

void PhaseCycle::train_step() {
  require(trainable_->wait_for_gradient(batch_).finite(), "the gradient is not finite");
  trainable_->apply_gradient();
}

void PhaseCycle::predict(std::int64_t passes) {
  for (std::int64_t pass = 0; pass < passes; ++pass)
    trainable_->wait_for_loss(batch_, batch_.size());
}

/// A GPU's speed drifts by more than a copy costs over many passes. Each round therefore runs only
/// as many passes as outlast the copies, and compares with the mean of the passes around it.
CopyTimes PhaseCycle::time_copies() {
  trainable_->enter_phase(Phase::kPredict);
  while (live_state(stream_) > 0) predict(1);
  MovingState state(*model_, config_.predict_aware_memory, host_pool_, stream_);
  CopyTimes times{.state_bytes = state.bytes()};
  std::vector<double> out_call, out, restore_call, restore, without, exposed;
  for (std::int64_t round = 0; round < settings_.rounds; ++round) {
    const auto [call, whole] = state.move_out();
    out_call.push_back(call);
    out.push_back(whole);
    restore.push_back(seconds_of([&] {
      restore_call.push_back(seconds_of([&] { state.begin_return(); }));
      state.wait_until_restored();
    }));
    state.move_out();
    predict(1);  // reallocates the memory that moving out released
    const double pass = seconds_of([&] { predict(1); });
    times.passes =
        std::max(times.passes, static_cast<std::int64_t>(2 * median(restore) / pass) + 1);
    const double before = seconds_of([&] { predict(times.passes); });
    const double with = seconds_of([&] {
      state.begin_return();
      predict(times.passes);
      state.wait_until_restored();
    });
    const double after = seconds_of([&] { predict(times.passes); });
    without.push_back((before + after) / 2);
    exposed.push_back(with - without.back());
  }
  times.out_call = median(out_call);
  times.out = median(out);
  times.restore_call = median(restore_call);
  times.restore_alone = median(restore);
  times.passes_without = median(without);
  times.exposed = median(exposed);
  return times;
}

}  // namespace hybrid_trainer::benchmarks
