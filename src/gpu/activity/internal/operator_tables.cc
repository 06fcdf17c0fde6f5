// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "gpu/activity/gemm.h"
#include "gpu/activity/internal/names.h"
#include "gpu/activity/internal/spread.h"
#include "gpu/activity/internal/tables.h"

namespace kansoku::gpu::activity {
namespace {

/// The product that a slice of the host stands for: a call of cuBLAS with its sizes, or one of
/// PyTorch's operators.
std::optional<GemmShape> gemm_of_slice(const Input& in, std::uint32_t slice) {
  constexpr std::uint64_t kExtentMax = std::uint64_t{1} << 31;
  const std::string_view name = in.args.string(in.trace.slices.name[slice]);
  if (name.starts_with("aten::"))
    return gemm_of_operator(name, in.args.text(slice, ArgName::kInputDims));
  if (!name.starts_with("cublas") && !name.starts_with("hipblas")) return std::nullopt;
  const auto m = in.args.count(slice, ArgName::kM), n = in.args.count(slice, ArgName::kN),
             k = in.args.count(slice, ArgName::kK);
  if (!m || !n || !k || *m == 0 || *n == 0 || *k == 0) return std::nullopt;
  const std::uint64_t batch = in.args.count(slice, ArgName::kBatch).value_or(1);
  if (std::max({*m, *n, *k, batch}) > kExtentMax) return std::nullopt;
  return GemmShape{batch, *m, *n, *k};
}

/// One product with what it launched.
struct Product {
  GemmShape shape;
  double us{0};
  std::uint64_t kernel_count{0};
  bool is_shared{false};
};

class Products {
 public:
  explicit Products(const Input& in) : in_(in) {}
  std::map<std::uint32_t, Product> read();

 private:
  /// The outermost product around a slice, so that nested calls count once.
  std::uint32_t product_of(std::uint32_t slice);

  const Input& in_;
  std::unordered_map<std::uint32_t, std::optional<GemmShape>> shapes_;  // by slice
};

std::uint32_t Products::product_of(std::uint32_t slice) {
  std::uint32_t outermost = kNoIndex;
  for (std::uint32_t at = in_.host.parent(slice); at != kNoIndex; at = in_.host.parent(at)) {
    const auto [known, is_new] = shapes_.try_emplace(at);
    if (is_new) known->second = gemm_of_slice(in_, at);
    if (known->second) outermost = at;
  }
  return outermost;
}

std::map<std::uint32_t, Product> Products::read() {
  std::map<std::uint32_t, Product> out;
  for (const Op& op : in_.work.ops) {
    if (op.call == kNoIndex || op.what == OpClass::kGraph || !is_busy(op.what)) continue;
    const std::uint32_t slice = product_of(in_.work.calls[op.call].slice);
    if (slice == kNoIndex) continue;
    Product& product = out[slice];
    product.shape = *shapes_.at(slice);
    product.us += us_of(op.time.end_ns - op.time.begin_ns);
    product.kernel_count += op.what == OpClass::kKernel ? 1 : 0;
    product.is_shared = product.is_shared || op.is_shared;
  }
  return out;
}

GemmRow gemm_row(const GemmShape& shape, const std::vector<const Product*>& products,
                 const Options& options) {
  GemmRow row;
  row.batch = shape.batch;
  row.m = shape.m;
  row.n = shape.n;
  row.k = shape.k;
  std::vector<double> alone_us;
  for (const Product* const product : products) {
    ++row.count;
    row.kernel_count += product->kernel_count;
    row.shared_count += product->is_shared ? 1 : 0;
    row.total_us += product->us;
    if (!product->is_shared) alone_us.push_back(product->us);
  }
  const Spread us = spread_of(alone_us);
  if (us.p50 > 0) row.tflops = flop_of(shape) / us.p50 / 1e6;
  if (row.tflops && options.peak_tflops) row.peak_share = *row.tflops / *options.peak_tflops;
  return row;
}

bool is_operator(const Input& in, std::uint32_t slice) {
  const std::string_view category = in.args.string(in.trace.slices.category[slice]);
  const std::string_view name = in.args.string(in.trace.slices.name[slice]);
  return is_operator_category(category) && !name.starts_with("ProfilerStep#");
}

struct OperatorSums {
  std::set<std::uint32_t> calls;
  std::uint64_t op_count{0};
  double us{0};
  std::map<std::string_view, double> kernels;
};

}  // namespace

std::vector<GemmRow> gemm_rows(const Input& in) {
  const auto products = Products(in).read();
  std::map<GemmShape, std::vector<const Product*>> by_shape;
  for (const auto& [slice, product] : products) {
    if (product.kernel_count > 0) by_shape[product.shape].push_back(&product);
  }
  std::vector<GemmRow> rows;
  rows.reserve(by_shape.size());
  for (const auto& [shape, of_shape] : by_shape)
    rows.push_back(gemm_row(shape, of_shape, in.options));
  std::stable_sort(rows.begin(), rows.end(),
                   [](const GemmRow& a, const GemmRow& b) { return a.total_us > b.total_us; });
  return rows;
}

std::vector<OperatorRow> operator_rows(const Input& in) {
  std::map<std::string_view, OperatorSums> sums;
  for (const Op& op : in.work.ops) {
    if (op.call == kNoIndex || !is_busy(op.what)) continue;
    std::uint32_t at = in.host.parent(in.work.calls[op.call].slice);
    while (at != kNoIndex && !is_operator(in, at))
      at = in.host.parent(at);
    if (at == kNoIndex) continue;
    OperatorSums& of = sums[in.args.string(in.trace.slices.name[at])];
    const double us = us_of(op.time.end_ns - op.time.begin_ns);
    of.calls.insert(at);
    ++of.op_count;
    of.us += us;
    of.kernels[in.args.string(in.trace.slices.name[op.slice])] += us;
  }
  std::vector<OperatorRow> rows;
  for (const auto& [name, of] : sums) {
    const auto top =
        std::max_element(of.kernels.begin(), of.kernels.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    rows.push_back(
        {std::string(name), of.calls.size(), of.op_count, of.us, std::string(top->first)});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const OperatorRow& a, const OperatorRow& b) {
    return a.device_us > b.device_us;
  });
  return rows;
}

}  // namespace kansoku::gpu::activity
