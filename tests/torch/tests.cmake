# Real jobs of PyTorch from PyPI: skipped where `make deps-torch` has not installed it.
kansoku_script_test(torch.gate run.py gate --kansoku ${kansoku_file} NEEDS KANSOKU_BPF !KANSOKU_SANITIZE !KANSOKU_FUZZ TIMEOUT 1200 LIVE)
