#include "phases/methods.h"

#include "phases/asynchronous_gradients/asynchronous_gradients.h"
#include "phases/asynchronous_optimizer/asynchronous_optimizer.h"
#include "phases/local_sgd/local_sgd.h"
#include "phases/skip_backward/skip_backward.h"

namespace hybrid_trainer {
namespace {

template <class M>
MethodRow row_of(const char* name) {
  return {name, M::refusals, M::text,
          [](PhaseParts& parts) -> std::unique_ptr<Method> { return std::make_unique<M>(parts); }};
}

const MethodRow& row_of_method(const std::string& name) {
  return named_row(methods(), "phases.method", name);
}

}  // namespace

const std::vector<MethodRow>& methods() {
  static const std::vector<MethodRow> rows{
      row_of<SkipBackwardMethod>("skip_backward"),
      row_of<AsynchronousOptimizerMethod>("asynchronous_optimizer"),
      row_of<AsynchronousGradientsMethod>("asynchronous_gradients"),
      row_of<LocalSgdMethod>("local_sgd"),
  };
  return rows;
}

const std::vector<std::string>& method_names() {
  static const std::vector<std::string> names = names_of(methods());
  return names;
}

const std::vector<Refusal>& refusals_of(const std::string& method) {
  return row_of_method(method).refusals();
}

std::string PhaseConfig::predict_text() const { return row_of_method(method).text(*this); }

}  // namespace hybrid_trainer
