// SPDX-License-Identifier: Apache-2.0
// Stands for libtorch_python.so: the function that calls operators for Python, as PyTorch 1.13
// declares it or, with -DARRAY_REF, 2.10. It does nothing with what it gets.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace c10 {
enum class DispatchKey : std::uint16_t {};
template <class T>
struct ArrayRef {
  const T* data;
  std::size_t length;
};
template <class T>
struct optional {
  T value;
  bool has_value;
};
}  // namespace c10

namespace pybind11 {
struct object {
  explicit object(void* pointer) : pointer_(pointer) {}
  object(const object& other) : pointer_(other.pointer_) {}
  ~object() { pointer_ = nullptr; }
  void* pointer_;
};
struct args : object {
  using object::object;
};
struct kwargs : object {
  using object::object;
};
}  // namespace pybind11

namespace torch::jit {
struct Operator {};
using Operators = std::vector<std::shared_ptr<Operator>>;

#ifdef ARRAY_REF
__attribute__((noinline)) pybind11::object invokeOperatorFromPython(
    c10::ArrayRef<std::shared_ptr<Operator>> operations, const pybind11::args& args,
    const pybind11::kwargs&, c10::optional<c10::DispatchKey>) {
  return pybind11::object(operations.length == 0 ? nullptr : args.pointer_);
}
c10::ArrayRef<std::shared_ptr<Operator>> as_passed(const Operators& operators) {
  return {operators.data(), operators.size()};
}
#else
__attribute__((noinline)) pybind11::object invokeOperatorFromPython(
    const std::vector<std::shared_ptr<Operator>>& operations, pybind11::args args,
    const pybind11::kwargs&, c10::optional<c10::DispatchKey>) {
  return pybind11::object(operations.empty() ? nullptr : args.pointer_);
}
const Operators& as_passed(const Operators& operators) {
  return operators;
}
#endif
}  // namespace torch::jit

/// Calls operator 0 or 1 with a tuple of Python.
extern "C" void call_operator(int which, void* tuple) {
  static const torch::jit::Operators kOperators[2] = {{nullptr}, {nullptr}};
  torch::jit::invokeOperatorFromPython(torch::jit::as_passed(kOperators[which]),
                                       pybind11::args(tuple), pybind11::kwargs(nullptr), {});
}

/// Address of the probed function.
extern "C" const void* operator_code() {
  return reinterpret_cast<const void*>(&torch::jit::invokeOperatorFromPython);
}
