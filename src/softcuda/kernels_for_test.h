// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kansoku::softcuda {

/// Small kernels for the tests of the driver: one PTX module.
inline constexpr char kTestKernels[] = R"(.version 8.0
.target sm_80
.address_size 64

.visible .global .align 4 .u32 counter = 7;
.visible .global .align 8 .b8 area[64];
.visible .const .align 4 .u32 table[4] = {10, 20, 30, 40};
.extern .shared .align 16 .b8 dynamic[];

// out[i] = i for i < n
.visible .entry iota(.param .u64 out, .param .u32 n)
{
	.reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<2>;
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %ntid.x;
	mov.u32 %r3, %tid.x;
	mad.lo.u32 %r4, %r1, %r2, %r3;
	ld.param.u32 %r5, [n];
	setp.ge.u32 %p1, %r4, %r5;
	@%p1 bra $done;
	ld.param.u64 %rd1, [out];
	mul.wide.u32 %rd2, %r4, 4;
	add.u64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r4;
$done:
	ret;
}

// out[0] = value
.visible .entry store(.param .u64 out, .param .u32 value)
{
	.reg .b32 %r<2>; .reg .b64 %rd<2>;
	ld.param.u64 %rd1, [out];
	ld.param.u32 %r1, [value];
	st.global.u32 [%rd1], %r1;
	ret;
}

// p[0] = p[0] * 2 + bit: what ran in which order
.visible .entry append(.param .u64 p, .param .u32 bit)
{
	.reg .b32 %r<4>; .reg .b64 %rd<2>;
	ld.param.u64 %rd1, [p];
	ld.param.u32 %r1, [bit];
	ld.global.u32 %r2, [%rd1];
	mad.lo.u32 %r3, %r2, 2, %r1;
	st.global.u32 [%rd1], %r3;
	ret;
}

// out[0] = in[0] + 1
.visible .entry next(.param .u64 in, .param .u64 out)
{
	.reg .b32 %r<3>; .reg .b64 %rd<3>;
	ld.param.u64 %rd1, [in];
	ld.param.u64 %rd2, [out];
	ld.global.u32 %r1, [%rd1];
	add.u32 %r2, %r1, 1;
	st.global.u32 [%rd2], %r2;
	ret;
}

// waits until flag[0] is not 0; out[0] = what it was then
.visible .entry await(.param .u64 flag, .param .u64 out)
{
	.reg .b32 %r<2>; .reg .b64 %rd<3>; .reg .pred %p<2>;
	ld.param.u64 %rd1, [flag];
	ld.param.u64 %rd2, [out];
$again:
	ld.volatile.global.u32 %r1, [%rd1];
	setp.eq.u32 %p1, %r1, 0;
	@%p1 bra $again;
	st.global.u32 [%rd2], %r1;
	ret;
}

// out[0] = a + b + c + d: parameters of four sizes
.visible .entry sum(.param .u64 out, .param .u8 a, .param .u16 b, .param .u32 c, .param .u64 d)
{
	.reg .b16 %h<3>; .reg .b32 %r<2>; .reg .b64 %rd<8>;
	ld.param.u64 %rd1, [out];
	ld.param.u8 %h1, [a];
	ld.param.u16 %h2, [b];
	ld.param.u32 %r1, [c];
	ld.param.u64 %rd2, [d];
	cvt.u64.u16 %rd3, %h1;
	cvt.u64.u16 %rd4, %h2;
	cvt.u64.u32 %rd5, %r1;
	add.u64 %rd3, %rd3, %rd4;
	add.u64 %rd3, %rd3, %rd5;
	add.u64 %rd3, %rd3, %rd2;
	st.global.u64 [%rd1], %rd3;
	ret;
}

// counter += 1; out[i] = table[i] + counter for i < 4
.visible .entry variables(.param .u64 out)
{
	.reg .b32 %r<6>; .reg .b64 %rd<8>; .reg .pred %p<2>;
	mov.u32 %r1, %tid.x;
	setp.ne.u32 %p1, %r1, 0;
	mov.u64 %rd1, counter;
	@%p1 bra $all;
	ld.global.u32 %r2, [%rd1];
	add.u32 %r2, %r2, 1;
	st.global.u32 [%rd1], %r2;
$all:
	bar.sync 0;
	ld.global.u32 %r2, [%rd1];
	mul.wide.u32 %rd2, %r1, 4;
	mov.u64 %rd3, table;
	add.u64 %rd3, %rd3, %rd2;
	ld.const.u32 %r3, [%rd3];
	add.u32 %r3, %r3, %r2;
	ld.param.u64 %rd4, [out];
	add.u64 %rd4, %rd4, %rd2;
	st.global.u32 [%rd4], %r3;
	ret;
}

// the last of n bytes of dynamic shared memory, written and read back
.visible .entry shared_end(.param .u64 out, .param .u32 n)
{
	.reg .b32 %r<6>; .reg .b64 %rd<2>;
	ld.param.u64 %rd1, [out];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, dynamic;
	add.u32 %r2, %r2, %r1;
	mov.u32 %r3, 77;
	st.shared.u8 [%r2+-1], %r3;
	ld.shared.u8 %r4, [%r2+-1];
	st.global.u32 [%rd1], %r4;
	ret;
}

// 1 KiB of static shared memory
.visible .entry shared_static(.param .u64 out)
{
	.shared .align 4 .b8 block[1024];
	.reg .b32 %r<4>; .reg .b64 %rd<2>;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, block;
	mov.u32 %r2, 5;
	st.shared.u32 [%r1], %r2;
	ld.shared.u32 %r3, [%r1];
	st.global.u32 [%rd1], %r3;
	ret;
}

.visible .entry of_64() .reqntid 64, 1, 1 { ret; }
.visible .entry up_to_128() .maxntid 128, 1, 1 { ret; }
.visible .entry nothing() { ret; }

// every block waits for all others
.visible .entry meet(.param .u64 arrived)
{
	.reg .b32 %r<6>; .reg .b64 %rd<2>; .reg .pred %p<2>;
	ld.param.u64 %rd1, [arrived];
	atom.global.add.u32 %r1, [%rd1], 1;
	mov.u32 %r2, %nctaid.x;
$again:
	ld.volatile.global.u32 %r3, [%rd1];
	setp.lt.u32 %p1, %r3, %r2;
	@%p1 bra $again;
	ret;
}

.visible .entry for_ever()
{
$again:
	bra $again;
}
.visible .entry stop() { trap; }
.visible .entry store_misaligned(.param .u64 out)
{
	.reg .b32 %r<2>; .reg .b64 %rd<2>;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, 1;
	st.global.u32 [%rd1+2], %r1;
	ret;
}
.visible .entry diverge()
{
	.reg .b32 %r<2>; .reg .pred %p<2>;
	mov.u32 %r1, %tid.x;
	setp.lt.u32 %p1, %r1, 7;
	@%p1 bra $out;
	bar.sync 0;
$out:
	bar.sync 1;
	ret;
}
)";

}  // namespace kansoku::softcuda
