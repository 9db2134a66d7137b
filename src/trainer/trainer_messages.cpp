#include "src/trainer/trainer_messages.h"

namespace hybrid_trainer {

void TrainerMessages::tell(const std::string& text) const {
  if (listener_) listener_(text);
}

void TrainerMessages::warn(const std::string& text) {
  warnings_ += (warnings_.empty() ? "" : "; ") + text;
  if (mishap_listener_) mishap_listener_(text);
  tell(text);
}

}  // namespace hybrid_trainer
