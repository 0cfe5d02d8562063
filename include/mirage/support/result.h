// Result<T>: a value, or the diagnostics that say why there is none. For mistakes of users and environments, never for our own bugs.
#pragma once
#include <utility>
#include <variant>
#include <vector>
#include "mirage/support/assert.h"
#include "mirage/support/diagnostic.h"

namespace mirage {

using Diagnostics = std::vector<Diagnostic>;

template <class T> class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}                                  // NOLINT: implicit on purpose
  Result(Diagnostic d) : state_(Diagnostics{std::move(d)}) {}                    // NOLINT
  Result(Diagnostics d) : state_(std::move(d)) {}                                // NOLINT
  bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }
  T& value() { MIRAGE_ASSERT(ok()) << "value() of a failed Result"; return std::get<T>(state_); }
  const T& value() const { MIRAGE_ASSERT(ok()) << "value() of a failed Result"; return std::get<T>(state_); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Diagnostics& errors() const { return std::get<Diagnostics>(state_); }
 private:
  std::variant<T, Diagnostics> state_;
};

}  // namespace mirage
