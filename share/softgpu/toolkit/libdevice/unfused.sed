# SPDX-License-Identifier: Apache-2.0
# Products, sums and differences of libclc that the compiler must not fuse: its reductions of
# arguments count the rounding errors of each. With a rounding mode in its name an operation stays
# alone, whatever the flags of the program that it is linked into.
s/^( *%[^ ]+) = fmul ([a-z ]*)float ([^,]+), ([^,]+)(,.*)?$/\1 = call float @llvm.nvvm.mul.rn.f(float \3, float \4)/
s/^( *%[^ ]+) = fmul ([a-z ]*)double ([^,]+), ([^,]+)(,.*)?$/\1 = call double @llvm.nvvm.mul.rn.d(double \3, double \4)/
s/^( *%[^ ]+) = fadd ([a-z ]*)float ([^,]+), ([^,]+)(,.*)?$/\1 = call float @llvm.nvvm.add.rn.f(float \3, float \4)/
s/^( *%[^ ]+) = fadd ([a-z ]*)double ([^,]+), ([^,]+)(,.*)?$/\1 = call double @llvm.nvvm.add.rn.d(double \3, double \4)/
s/^( *)%([^ ]+) = fsub ([a-z ]*)float ([^,]+), ([^,]+)(,.*)?$/\1%minus.\2 = fneg float \5\n\1%\2 = call float @llvm.nvvm.add.rn.f(float \4, float %minus.\2)/
s/^( *)%([^ ]+) = fsub ([a-z ]*)double ([^,]+), ([^,]+)(,.*)?$/\1%minus.\2 = fneg double \5\n\1%\2 = call double @llvm.nvvm.add.rn.d(double \4, double %minus.\2)/
# A table that libclc reads in pieces of 16 bytes, beyond its end and wherever it lies.
s/^(@PIBITS_TBL = .*constant )\[158 x i8\] c"(.*)", align 1$/\1[160 x i8] c"\2\\00\\00", align 16/
# Where the checkout lies is no part of it: whoever compiled with one has not to compile again with another.
s/^source_filename = .*/source_filename = "libdevice.cu"/
