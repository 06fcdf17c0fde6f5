/* SPDX-License-Identifier: Apache-2.0 */
/* A library with NVML's functions that does what a test tells it: libfake_nvml.so. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/// All are read and written with __atomic builtins. Calls are counted from 1, over all functions.
struct fake_nvml {
  long calls;             /* so far */
  long fail_at;           /* this call fails; 0: none */
  long fail_for;          /* and so many after it */
  long fail_status;       /* with this */
  long hang_at;           /* this call waits; 0: none */
  long is_released;       /* until this is 1 */
  long hung;              /* calls that wait now */
  long devices;           /* [2] */
  long lost_device;       /* index + 1 of a device that says it is lost; 0: none */
  long process_count;     /* length that the list of processes claims; -1: the true two */
  long use_percent;       /* of the processes [40] */
  long is_use_missing;    /* no process has used the device */
  long use_age_us;        /* its samples are so much older */
  long counter;           /* of NVLink, KiB */
  long pcie_counter;      /* bytes; each look moves it; 0: there is none */
  long pcie_step;         /* by so much */
  long pcie_throughput;   /* KiB/s that the driver measures; 0: it cannot */
  long pcie_measurements; /* how often it did */
  long is_counter_narrow; /* of type unsigned int */
  long event_sets;        /* that are not freed */
  long pending_xid;       /* given once, for device 1; 0: none */
  long is_text_unended;   /* names without their end */
};

struct fake_nvml* fake_nvml_control(void);

#ifdef __cplusplus
}
#endif
