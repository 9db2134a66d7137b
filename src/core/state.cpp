#include "hybrid_trainer/core/state.h"

namespace hybrid_trainer {

namespace {

template <class Map>
const auto& find(const Map& map, const std::string& name, const char* type) {
  const auto found = map.find(name);
  if (found == map.end())
    throw DataError(concat("the saved state has no ", type, " \"", name, "\""));
  return found->second;
}

}  // namespace

std::int64_t State::integer(const std::string& name) const {
  return find(integers, name, "integer");
}
double State::real(const std::string& name) const { return find(reals, name, "real number"); }
const std::vector<double>& State::reals_of(const std::string& name) const {
  return find(series, name, "series");
}
const std::string& State::text(const std::string& name) const { return find(texts, name, "text"); }
const Tensor& State::tensor(const std::string& name) const { return find(tensors, name, "tensor"); }

}  // namespace hybrid_trainer
